"""Connections that hold nothing for long: what Uvicorn has no setting for.

Uvicorn's parser h11 bounds the headers; its limit of concurrency counts idle connections and then
answers 503 to everyone, probes included. Here a connection that waits too long for the headers of a
request is cut, so is one whose reader has stopped, and one connection too many takes the place of
the one that has been idle for longest. So a newcomer always gets in.
"""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from calipers.serve._settings import ServerSettings


class Connection(H11Protocol):
    """One connection.

    Parameters
    ----------
    config, server_state, app_state, _loop
        As Uvicorn gives them.
    settings : ServerSettings
        How long a connection may wait.
    most : int
        Connections at a time.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: ServerSettings,
        most: int,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings, self._most = settings, most
        self._idle_since = 0.0
        self._idle_limit: asyncio.TimerHandle | None = None
        self._write_limit: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; its headers may be on their way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, in place of an idle one if they are too many."""
        super().connection_made(transport)
        self._begin_to_wait()
        if len(self.connections) > self._most:
            others = [
                other
                for other in self.connections
                if isinstance(other, Connection)
                and other is not self
                and other.is_idle
                and not other.transport.is_closing()
            ]
            oldest = min(others, key=lambda other: other._idle_since, default=self)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers."""
        super().connection_lost(exc)
        for timer in (self._idle_limit, self._write_limit):
            if timer is not None:
                timer.cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._begin_to_wait()

    def _begin_to_wait(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_limit is not None:
            self._idle_limit.cancel()
        wait = self._settings.idle_timeout
        self._idle_limit = self.loop.call_later(wait, self._end_of_wait)

    def _end_of_wait(self) -> None:
        if self.is_idle:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Give the reader so long to take what has been written."""
        super().pause_writing()
        wait = self._settings.timeout
        self._write_limit = self.loop.call_later(wait, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._write_limit is not None:
            self._write_limit.cancel()
