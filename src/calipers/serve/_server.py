"""A server process for an application."""

import math
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import uvicorn

from calipers.serve._connections import Connection
from calipers.serve._settings import ServerSettings


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
