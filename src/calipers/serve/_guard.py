"""What stands before every route: who may ask, how long, and what leaves when something breaks."""

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calipers.serve._monitor import Monitor
from calipers.serve._problems import Problem
from calipers.serve._settings import Settings

logger = logging.getLogger(__name__)

OPEN_PATHS = ("/", "/health", "/ready")
"""Paths that need no token, beside the files of the page."""

PAGE_FILES = "/page/"

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """ASGI middleware around the whole application.

    Parameters
    ----------
    app : ASGI application
        What it guards.
    settings : Settings
        Token and hosts.
    monitor : Monitor
        Where requests are counted.
    """

    def __init__(self, app: ASGIApp, settings: Settings, monitor: Monitor) -> None:
        self._app, self._settings, self._monitor = app, settings, monitor
        self._token = None if settings.token is None else _digest(settings.token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, guarded_send)
        except Exception as error:
            if status:
                raise  # too late for an answer; the connection is cut
            await _problem_of(error).response()(scope, receive, guarded_send)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._monitor.requests.labels(route, str(status or 500)).inc()
            self._monitor.seconds.labels(route).observe(time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        name = _host(headers.get("host", ""))
        if self._settings.allowed_hosts and name not in self._settings.allowed_hosts:
            raise Problem(
                421, f"this server is not called {name[:100]!r}: allow the name when it is started"
            )
        if self._token is None or path in OPEN_PATHS or path.startswith(PAGE_FILES):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Digests have one length, so that the time to compare tells nothing about the token.
        right = hmac.compare_digest(_digest(given.strip().encode("latin-1")), self._token)
        if scheme.lower() != "bearer" or not right:
            raise Problem(
                401,
                "a token is needed, as in `Authorization: Bearer TOKEN`",
                {"WWW-Authenticate": 'Bearer realm="calipers"'},
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _host(header: str) -> str:
    """A Host header without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdigit() else header).lower().rstrip(".")


def _problem_of(error: Exception) -> Problem:
    """The error as callers may see it; what they may not see goes to the log."""
    if isinstance(error, Problem):
        return error
    logger.error("a request failed", exc_info=error)
    return Problem(500, "something went wrong in the server; its log says what")


class Gate:
    """Lets in so many requests at a time and answers 429 to the rest.

    Parameters
    ----------
    most : int
        Requests.
    running : Gauge
        Where their number is shown.
    """

    def __init__(self, most: int, running: Any) -> None:
        self._most, self._count = most, 0
        running.set_function(lambda: self._count)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place for one request."""
        if self._count >= self._most:
            raise Problem(
                429, f"{self._most} requests are being answered: try again", {"Retry-After": "1"}
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def read_body(request: Request, most: int) -> bytes:
    """A request's body, whether or not it says how long it is.

    Raises
    ------
    Problem
        If it is longer than allowed; no more than that has been read then.
    """
    too_long = Problem(413, f"the body is longer than the {most:,} bytes that are allowed")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "the body is compressed: send it as it is")
    given = request.headers.get("content-length", "0")
    if not re.fullmatch("[0-9]{1,18}", given):
        raise Problem(400, "Content-Length is not a number of bytes")
    if int(given) > most:
        raise too_long
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise too_long
            chunks.append(chunk)
    except ClientDisconnect:
        raise Problem(400, "the request ended before its body did") from None
    return b"".join(chunks)
