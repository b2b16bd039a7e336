"""Fitted models over HTTP: predictions, monitoring, and a web page.

``create_app`` makes an ASGI application from model folders, ``run`` serves it, and ``calipers
serve`` does both on the command line. Rows of many small requests are predicted together, the size
of requests and responses is bounded, and no files but those of the models are read.

Importing this package needs FastAPI, Uvicorn and prometheus-client, which come with the extra
``serve``.
"""

try:
    import fastapi as _fastapi  # noqa: F401 - fails here with a better message than below
    import prometheus_client as _prometheus_client  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "serving needs FastAPI, Uvicorn and prometheus-client: install them with "
        "`pip install 'calipers[serve]'`"
    ) from error

from calipers._server_settings import ServerSettings
from calipers.serve._app import create_app
from calipers.serve._connections import run
from calipers.serve._served import named_folder as named_folder

__all__ = ["ServerSettings", "create_app", "run"]
