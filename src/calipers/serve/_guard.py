"""What every request passes: host names, tokens, memory, security headers, problem documents."""

import hashlib
import hmac
import logging
import re
import threading
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calipers._server_settings import ServerSettings
from calipers.serve._monitor import Monitor
from calipers.serve._problems import HTTPProblem
from calipers.tables import Reserve

logger = logging.getLogger(__name__)

PAGE_FILES = "/page/"
OPEN_PATHS = ("/", "/health", "/ready")  # need no token, nor do the files of the page
ACCOUNT = "calipers.account"  # key of the scope of a request under which its account is found
_SMALL = 2**16  # bytes of a response that are not counted, so that probes are always answered
_CHUNK = 2**18  # bytes of a response that are sent to a connection at a time

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


class Budget:
    """Slots and bytes for all requests together.

    A request for which no slot is left gets 429. Bytes are those of bodies, decoded tables and
    responses; a request for which not enough are left gets 503.
    """

    def __init__(self, requests: int, size: int) -> None:
        self._most, self.size = requests, size
        self._lock = threading.Lock()
        self.requests = self.used = 0

    def change(self, requests: int, size: int) -> None:
        with self._lock:
            if requests > 0 and self.requests + requests > self._most:
                problem = f"{self._most} requests are already being processed: try again"
                raise HTTPProblem(429, problem)
            if size > 0 and self.used + size > self.size:
                raise HTTPProblem(
                    503,
                    f"other requests use up the {self.size:,} bytes of memory that all requests "
                    "may take: try again, or send fewer rows",
                )
            self.requests += requests
            self.used += size


class Account:
    """The slot and the bytes that one request holds until its response is sent."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.requests = self._bytes = 0

    def admit(self) -> None:
        self._budget.change(1, 0)
        self.requests = 1

    def reserve(self, size: int) -> None:
        """Reserve bytes that are about to be allocated."""
        if self._bytes + size > self._budget.size:
            raise HTTPProblem(
                413,
                f"the request needs more than the {self._budget.size:,} bytes of memory that all "
                "requests together may take: send fewer rows, or request less for each",
            )
        self._budget.change(0, size)
        self._bytes += size

    def close(self) -> None:
        self._budget.change(-self.requests, -self._bytes)
        self.requests = self._bytes = 0


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, monitor: Monitor, budget: Budget
    ) -> None:
        self._app, self._settings, self._monitor, self._budget = app, settings, monitor, budget
        self._token = None if settings.token is None else _digest(settings.token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                size = int(headers.get("content-length", 0))
                if size > _SMALL and not account.requests:  # others are counted already
                    account.reserve(size)
                status = message["status"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await _send_in_chunks(message, send)

        account = scope[ACCOUNT] = Account(self._budget)
        try:
            self._check(scope)
            await self._app(scope, receive, guarded_send)
        except Exception as error:
            if status:
                raise  # too late for a response; the connection is closed
            await _problem_of(error).response()(scope, receive, guarded_send)
        finally:
            account.close()
            route = getattr(scope.get("route"), "path", "other")
            self._monitor.requests.labels(route, str(status or 500)).inc()
            self._monitor.seconds.labels(route).observe(time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        name = re.sub(":[0-9]+$", "", headers.get("host", "")).lower().rstrip(".")
        if self._settings.allowed_hosts and name not in self._settings.allowed_hosts:
            raise HTTPProblem(
                421, f"this server does not allow the host name {name[:100]!r}: see --allow-host"
            )
        if self._token is None or path in OPEN_PATHS or path.startswith(PAGE_FILES):
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # Digests have one length, so that the time to compare reveals nothing about the token.
        valid = hmac.compare_digest(_digest(token.strip().encode("latin-1")), self._token)
        if scheme.lower() != "bearer" or not valid:
            raise HTTPProblem(
                401,
                "a token is needed, as in `Authorization: Bearer TOKEN`",
                {"WWW-Authenticate": 'Bearer realm="calipers"'},
            )


async def _send_in_chunks(message: Message, send: Send) -> None:
    """Send a message; a long body in chunks, so that a slow reader is noticed."""
    body = message.get("body", b"")
    for start in range(0, len(body) - _CHUNK, _CHUNK):
        part = body[start : start + _CHUNK]
        await send({"type": "http.response.body", "body": part, "more_body": True})
    if len(body) > _CHUNK:
        message = {**message, "body": body[(len(body) - 1) // _CHUNK * _CHUNK :]}
    await send(message)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _problem_of(error: Exception) -> HTTPProblem:
    """Return the problem document of an error; details that callers must not see are logged."""
    if isinstance(error, HTTPProblem):
        return error
    logger.error("a request failed", exc_info=error)
    if isinstance(error, MemoryError):  # pyarrow's own is one
        detail = "the server has no memory left: try again later, or send fewer rows"
        return HTTPProblem(503, detail)
    return HTTPProblem(500, "an internal error occurred in the server; see its log")


async def receive_body(request: Request, most: int, reserve: Reserve) -> bytes:
    """Return the body of a request, of at most ``most`` bytes, whatever Content-Length says.

    Memory is reserved before each chunk is kept.
    """
    too_long = HTTPProblem(413, f"the body is longer than the {most:,} bytes that are allowed")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPProblem(415, "the body is compressed: send it uncompressed")
    length = request.headers.get("content-length", "0")
    if not re.fullmatch("[0-9]{1,18}", length):
        raise HTTPProblem(400, "Content-Length is not a number of bytes")
    if int(length) > most:
        raise too_long
    body = bytearray()
    try:
        async for chunk in request.stream():
            if len(body) + len(chunk) > most:
                raise too_long
            reserve(2 * len(chunk))  # for the growing buffer, and for the final bytes
            body += chunk
    except ClientDisconnect:
        raise HTTPProblem(400, "the request ended before its body was complete") from None
    return bytes(body)
