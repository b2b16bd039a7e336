"""Settings of a server: limits, token and memory for labels.

They are outside ``serve``, which needs its extra, so that ``calipers serve --help`` shows them.
"""

import ipaddress
import re
import sys
from dataclasses import dataclass

MIN_TOKEN_LENGTH = 16

_OTHER_FILES = 128  # that a process may need in addition to its connections
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServerSettings:
    """Limits and options of a server; the defaults suit one machine behind a proxy.

    Examples
    --------
    >>> ServerSettings(max_rows=0)
    Traceback (most recent call last):
    ValueError: max_rows must be positive, got 0
    """

    #: Bearer token that callers must send in ``Authorization``; at least 16 characters.
    token: str | None = None
    #: Host names that requests may use, without port; empty for any. They keep a foreign web page
    #: from reaching a server on loopback under a name of its own (DNS rebinding).
    allowed_hosts: tuple[str, ...] = ()
    max_body: int = 16 * 2**20  #: Bytes of a request.
    max_rows: int = 100_000  #: Rows of a request.
    max_columns: int = 1_000  #: Columns of a request; the inputs of a model are always allowed.
    max_cells: int = 4_000_000  #: Values of a request: rows times columns.
    max_numbers: int = 4_000_000  #: Numbers of a response: rows times numbers requested for each.
    #: Requests in progress or queued at a time, but at most three quarters of the connections; a
    #: further one gets 429.
    max_requests: int = 256
    #: Bytes that all requests together may hold: their bodies, decoded tables and responses; a
    #: request for which not enough are left gets 503.
    max_memory: int = 2**30
    #: Connections at a time, fewer if the process may not open as many files; a further one
    #: replaces the one idle for longest.
    max_connections: int = 512
    max_headers: int = 32 * 2**10  #: Bytes of the headers of a request, each counted with 32 more.
    #: Seconds that a request may take, from its first byte to its response, and that a client may
    #: take to read the response.
    timeout: float = 30.0
    idle_timeout: float = 10.0  #: Seconds that a connection may wait for the headers of a request.
    #: Rows that are predicted together; a larger request is split, so that small ones are handled
    #: in between.
    batch_rows: int = 1_024
    #: Rows in the rolling interval width, coverage and fraction outside the training range.
    window: int = 1_000
    #: Rows whose intervals are kept until their labels arrive; the oldest are dropped first.
    remember: int = 100_000
    #: Whether intervals adapt to labels; the adapted model is saved in its folder.
    adapt: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and value <= 0
                and name != "remember"
            ):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.remember < 0:
            raise ValueError(f"remember must not be negative, got {self.remember}")
        if self.token is not None and not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", self.token):
            raise ValueError(
                "a token must consist of letters, digits and . _ ~ + / = -, as HTTP headers allow"
            )
        if self.token is not None and len(self.token) < MIN_TOKEN_LENGTH:
            raise ValueError(
                f"a token must have at least {MIN_TOKEN_LENGTH} characters, got {len(self.token)}; "
                "`openssl rand -hex 32` makes a good one"
            )

    @property
    def connections(self) -> int:
        """Connections at a time, as far as the process may open files."""
        if sys.platform == "win32":
            return self.max_connections
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(1, min(self.max_connections, files - _OTHER_FILES))

    @property
    def requests(self) -> int:
        """Requests at a time; the other connections are left for probes."""
        return min(self.max_requests, max(1, self.connections * 3 // 4))


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, further: tuple[str, ...]) -> tuple[str, ...]:
    """Return the allowed host names of a server that listens on ``host``; empty for any.

    >>> hosts_for("127.0.0.1", ())
    ('localhost', '127.0.0.1', '[::1]')
    >>> hosts_for("0.0.0.0", ())
    ()
    """
    if not is_loopback(host) and not further:
        return ()
    return tuple(dict.fromkeys((*_LOOPBACK_NAMES, *further)))
