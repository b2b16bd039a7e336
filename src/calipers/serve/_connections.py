"""Connections that hold nothing for long: what Uvicorn has no setting for.

Of Uvicorn's two parsers httptools takes less time than h11, but bounds nothing: not headers, not
trailers, not the requests that are sent before the first is answered. They are bounded here.
Uvicorn's limit of concurrency counts idle connections and then answers 503 to everyone, probes
included. Here a connection that waits too long for the headers of a request is cut, so is one whose
reader takes too long for an answer, and one connection too many takes the place of the one that has
been idle for longest, or that its client has kept waiting. So a newcomer always gets in.
"""

import asyncio
import math
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from calipers.serve._settings import ServerSettings

_MOST_AHEAD = 8  # requests that a connection may send before the first of them is answered
_FRAMING = 16  # bytes that may come with one of a body that is sent in chunks
_BYTES_A_HEADER = 32  # that each counts for beside its own
_GRACE = 1.0  # seconds in which a newcomer is to send a request


class _RefusedError(Exception):
    """More than is allowed; the parser stops and the connection is answered 400."""


class Connection(HttpToolsProtocol):
    """One connection."""

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
        self._body = self._beside = 0  # bytes of a request: of its body, and all others
        self._in_body = False
        self._cycles: list[RequestResponseCycle] = []  # those that are not answered yet
        self._idle_limit: asyncio.TimerHandle | None = None
        self._write_limit: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; its headers may be on their way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether the rest of a body has not come, or an answer is not read."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

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
                and other.waits_for_client
                and not other.transport.is_closing()
            ]
            late = self.loop.time() - _GRACE  # a newcomer is idle too, until its request is here
            oldest = min(
                others,
                key=lambda it: (not (it.is_idle and it._idle_since < late), it._idle_since),
                default=self,
            )
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what has come; refuse heads and trailers that do not end."""
        self._beside += len(data)
        super().data_received(data)
        allowed = self._settings.max_headers + _FRAMING * self._body
        if self._beside > allowed and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        """Begin to count; the few bytes that came with this one are on top."""
        super().on_message_begin()
        self._body, self._beside, self._in_body = 0, 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a body are left out."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, or wait until the requests before are answered."""
        size = len(self.url) + _BYTES_A_HEADER * len(self.headers)
        size += sum(len(name) + len(value) for name, value in self.headers)
        if size > self._settings.max_headers or len(self.pipeline) >= _MOST_AHEAD:
            raise _RefusedError
        self._in_body = True
        super().on_headers_complete()
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        if self.cycle is not None and self.cycle not in self._cycles:
            self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._body += len(body)
        self._beside -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count again from here."""
        self._body, self._beside, self._in_body = 0, 0, False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse and close; what is being answered has nobody to go to."""
        self._give_up()
        super().send_400_response(msg)

    def _give_up(self) -> None:
        """Let no answer be written any more; Uvicorn knows of the last request only."""
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers and of what is being answered."""
        self._give_up()
        super().connection_lost(exc)
        for timer in (self._idle_limit, self._write_limit):
            if timer is not None:
                timer.cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request; what is left of one that was refused is read and dropped."""
        super().on_response_complete()
        if self._write_limit is not None:
            self._write_limit.cancel()
            self._write_limit = None
        self._begin_to_wait()

    def _begin_to_wait(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_limit is not None:
            self._idle_limit.cancel()
        wait = self._settings.idle_timeout
        self._idle_limit = self.loop.call_later(wait, self._end_of_wait)

    def _end_of_wait(self) -> None:
        if self.is_idle:  # an answer that is on its way arrives, if it is read
            self.transport.close()
            self._idle_limit = self.loop.call_later(
                self._settings.idle_timeout, self.transport.abort
            )

    def pause_writing(self) -> None:
        """Give the reader so long to take the whole answer, from the first pause on."""
        super().pause_writing()
        if self._write_limit is None and not self.is_idle:
            wait = self._settings.timeout
            self._write_limit = self.loop.call_later(wait, self.transport.abort)


def run(
    app: Any,
    settings: ServerSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "warning",
    notify: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until a signal comes; then finish the requests that were taken, and return.

    Parameters
    ----------
    app : ASGI application
        From ``create_app``.
    settings : ServerSettings
        The same; requests in progress get as long to finish as any request has.
    host : str
        Address to listen on.
    port : int
        0 for any that is free.
    log_level : str
        Of Uvicorn: "info" logs every request.
    notify : callable
        Called with the server's address once connections are taken.

    Raises
    ------
    OSError
        If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        shown = f"[{host}]" if ":" in host else host
        notify(f"http://{shown}:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            app,
            log_level=log_level,
            proxy_headers=False,
            server_header=False,
            http=cast(Any, partial(Connection, settings=settings, most=settings.connections)),
            ws="none",
            timeout_keep_alive=math.ceil(settings.idle_timeout),
            timeout_graceful_shutdown=int(settings.timeout) + 5,
        )
        with suppress(KeyboardInterrupt):  # which Uvicorn raises again when it has finished
            uvicorn.Server(config).run(sockets=[listener])
