"""Fitted models over HTTP: predictions, monitoring, and a page to look at.

``create_app`` makes an ASGI application of model folders, ``run`` serves it, and the command line
has both as ``calipers serve``. Rows of many small requests are predicted together; what goes in and
out is bounded; nothing but the files of the models is read.

Importing this package needs FastAPI, Uvicorn and prometheus-client, which come with the extra
``serve``.
"""

try:
    import fastapi as _fastapi  # noqa: F401 - the message below is better than a late one
    import prometheus_client as _prometheus_client  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "serving needs FastAPI, Uvicorn and prometheus-client: install them with "
        "`pip install 'calipers[serve]'`"
    ) from error

from calipers.serve._app import create_app
from calipers.serve._connections import run
from calipers.serve._settings import (
    ServerSettings,
    hosts_for as hosts_for,
    is_loopback as is_loopback,
)

__all__ = ["ServerSettings", "create_app", "run"]
