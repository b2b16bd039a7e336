"""Limits on connections for which Uvicorn has no setting.

Of Uvicorn's two parsers, httptools is faster than h11, but it bounds neither headers nor trailers
nor the number of pipelined requests. They are bounded here. Uvicorn's limit of concurrency counts
idle connections and then answers 503 to everyone, probes included. Here a connection is closed if
the headers of a request, or the reading of a response, take too long. If there are too many
connections, a new one replaces the one that has been idle, or has waited for its client, for
longest. So a new connection is always accepted.
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

from calipers._server_settings import ServerSettings

_MAX_AHEAD = 8  # requests that a connection may pipeline
_FRAMING = 16  # bytes of framing allowed for each byte of a chunked body
_BYTES_PER_HEADER = 32  # counted for each header in addition to its own
_GRACE = 1.0  # seconds that a new connection has to send a request


class _RefusedError(Exception):
    """A limit is exceeded; the parser stops and the connection gets 400."""


class Connection(HttpToolsProtocol):
    """One connection, with the limits of ``settings``."""

    def __init__(self, *args: Any, settings: ServerSettings, most: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings, self._most = settings, most
        self._idle_since = 0.0
        self._body = self._overhead = 0  # bytes of a request: of its body, and all others
        self._in_body = False
        self._cycles: list[RequestResponseCycle] = []  # not answered yet
        self._idle_limit: asyncio.TimerHandle | None = None
        self._write_limit: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered; the headers of one may be arriving."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether it is idle, a body has not arrived in full, or a response is not being read."""
        return self.is_idle or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, abort one that waits for its client."""
        super().connection_made(transport)
        self._start_idle_timer()
        if len(self.connections) > self._most:
            waiting = [
                other
                for other in self.connections
                if isinstance(other, Connection)
                and other is not self
                and other.waits_for_client
                and not other.transport.is_closing()
            ]
            # A new connection is idle, too, until its first request arrives.
            late = self.loop.time() - _GRACE
            oldest = min(
                waiting,
                key=lambda it: (not (it.is_idle and it._idle_since < late), it._idle_since),
                default=self,
            )
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse data; refuse endless headers and trailers."""
        self._overhead += len(data)
        super().data_received(data)
        allowed = self._settings.max_headers + _FRAMING * self._body
        if self._overhead > allowed and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        """Start counting bytes; those that arrived in the same packet are not counted."""
        super().on_message_begin()
        self._body, self._overhead, self._in_body = 0, 0, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; ignore trailers of a body."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind earlier ones; refuse too many headers."""
        size = len(self.url) + _BYTES_PER_HEADER * len(self.headers)
        size += sum(len(name) + len(value) for name, value in self.headers)
        if size > self._settings.max_headers or len(self.pipeline) >= _MAX_AHEAD:
            raise _RefusedError
        self._in_body = True
        super().on_headers_complete()
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        if self.cycle is not None and self.cycle not in self._cycles:
            self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body, self._overhead, self._in_body = 0, 0, False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse and close; pending responses can no longer be sent."""
        self._give_up()
        super().send_400_response(msg)

    def _give_up(self) -> None:
        """Disconnect all pending requests; Uvicorn does so only for the last."""
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up()
        super().connection_lost(exc)
        for timer in (self._idle_limit, self._write_limit):
            if timer is not None:
                timer.cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of a refused one is read and dropped."""
        super().on_response_complete()
        if self._write_limit is not None:
            self._write_limit.cancel()
            self._write_limit = None
        self._start_idle_timer()

    def _start_idle_timer(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_limit is not None:
            self._idle_limit.cancel()
        wait = self._settings.idle_timeout
        self._idle_limit = self.loop.call_later(wait, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle:  # closing still sends buffered data, if it is read; then abort
            self.transport.close()
            self._idle_limit = self.loop.call_later(
                self._settings.idle_timeout, self.transport.abort
            )

    def pause_writing(self) -> None:
        """Limit the time for reading the whole response, from the first pause on."""
        super().pause_writing()
        if self._write_limit is None and not self.is_idle:
            wait = self._settings.timeout
            self._write_limit = self.loop.call_later(wait, self.transport.abort)


class _Server(uvicorn.Server):
    """A server that calls ``notify_stopped`` at its end.

    ``run`` is too late for that: Uvicorn raises the signal again, and SIGTERM ends the process.
    """

    def __init__(self, config: Config, notify_stopped: Callable[[], None]) -> None:
        super().__init__(config)
        self._notify_stopped = notify_stopped

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._notify_stopped()


def run(
    app: Any,
    settings: ServerSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "warning",
    notify: Callable[[str], None] = lambda address: None,
    notify_stopped: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal arrives; then finish the accepted requests, and return.

    Parameters
    ----------
    app : ASGI application
        From ``create_app``.
    settings : ServerSettings
        The settings of ``app``; at the end, requests in progress have its ``timeout`` to finish.
    host : str
        Address to listen on.
    port : int
        Port to listen on; 0 for any free one.
    log_level : str
        Log level of Uvicorn; "info" logs every request.
    notify : callable
        Called with the server's address once connections are accepted.
    notify_stopped : callable
        Called without arguments once the last request is finished.

    Raises
    ------
    OSError
        If the address is not available.
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
        with suppress(KeyboardInterrupt):  # Uvicorn raises it again when it has finished
            _Server(config, notify_stopped).run(sockets=[listener])
