"""The ASGI application and its routes."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib import resources
from os import PathLike
from typing import Annotated

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

import calipers
from calipers import _pages as pages
from calipers._server_settings import ServerSettings
from calipers.serve import _openapi as openapi, _schemas as schemas
from calipers.serve._guard import PAGE_FILES, Budget, Guard
from calipers.serve._monitor import Monitor
from calipers.serve._problems import HTTPProblem, documented
from calipers.serve._served import load_models
from calipers.serve._service import Service

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PREDICT = "/v1/models/{model}/predict"

Name = Annotated[str, Path(alias="model", description="Name of a model.")]


def create_app(
    models: Iterable[str | PathLike[str]], settings: ServerSettings | None = None
) -> FastAPI:
    """Return an ASGI application that serves models.

    Parameters
    ----------
    models : iterable of paths
        Model folders, served under their names; ``"name=folder"`` gives another name.
    settings : ServerSettings, optional
        Limits and token.

    Raises
    ------
    calipers.storage.ModelFileError
        If a folder does not hold a complete model.
    """
    settings = settings or ServerSettings()
    served = load_models(models)
    coverages = {n: m.coverage if m.ensemble.head.has_interval else None for n, m in served.items()}
    monitor = Monitor(coverages, window=settings.window, remember=settings.remember)
    service = Service(served, settings, monitor)
    budget = Budget(settings.requests, settings.max_memory)
    monitor.running.set_function(lambda: budget.requests)
    monitor.memory.set_function(lambda: budget.used)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(service.warm_up())
        yield
        warming.cancel()
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="calipers",
        version=calipers.__version__,
        description="Point estimates, prediction intervals, quantiles and distributions of fitted "
        "models.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other servers
        redoc_url=None,
    )
    app.add_middleware(Guard, settings=settings, monitor=monitor, budget=budget)
    _add_errors(app)
    _add_state(app, service, monitor)
    _add_models(app, service)
    _add_page(app)
    openapi.install(app, served, needs_token=settings.token is not None)
    return app


def _add_errors(app: FastAPI) -> None:
    """Answer errors of the framework as problem documents, too."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return HTTPProblem(error.status_code, str(error.detail), error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "query")
        return HTTPProblem(422, f"{place}: {first['msg']}").response()


def _add_state(app: FastAPI, service: Service, monitor: Monitor) -> None:
    @app.get("/health", tags=["state"], response_model=schemas.StateSchema)
    async def health() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "ok"}

    @app.get(
        "/ready", tags=["state"], response_model=schemas.StateSchema, responses=documented(503)
    )
    async def ready() -> dict[str, str]:
        """Whether the models are compiled, so that predictions come without delay."""
        if not service.ready:
            raise HTTPProblem(503, "the models are being compiled")
        return {"status": "ready"}

    @app.get(
        "/metrics",
        tags=["state"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(monitor.registry), media_type=CONTENT_TYPE_LATEST)


class _BodyRoute(Route):
    """A route for requests without a query string.

    Resolving the parameters of a query string takes FastAPI longer than everything else between the
    connection and the model.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests without a query string; leave others to the routes that follow."""
        match, child_scope = super().matches(scope)
        if match is not Match.FULL or scope["query_string"]:
            return Match.NONE, {}
        return match, {**child_scope, "route": self}


def _add_models(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", tags=["models"], response_model=schemas.Models)
    async def models() -> JSONResponse:
        """The models that are served, and the limits of a request."""
        descriptions = [served.describe() for served in service.models.values()]
        return JSONResponse({"models": descriptions, "limits": service.limits})

    @app.get(
        "/v1/models/{model}",
        tags=["models"],
        response_model=schemas.ModelDescription,
        responses=documented(404),
    )
    async def model(name: Name) -> JSONResponse:
        """Description of a model: its inputs, their ranges in training, its coverage."""
        return JSONResponse(service.model(name).describe())

    @app.post(
        _PREDICT, tags=["predictions"], response_class=Response, responses=openapi.PREDICT_RESPONSES
    )
    async def predict(
        name: Name, request: Request, fields: Annotated[schemas.AddressFields, Query()]
    ) -> Response:
        """Predict rows.

        The query is part of a body in JSON. If the body is a table in CSV or Arrow, it is in the
        query string; `keep` then puts the columns of the table before the predictions.
        """
        return await service.predict(name, request, fields if request.query_params else None)

    async def predict_body(request: Request) -> Response:
        return await service.predict(request.path_params["model"], request, None)

    app.router.routes.insert(0, _BodyRoute(_PREDICT, predict_body, methods=["POST"]))

    @app.post(
        "/v1/models/{model}/labels",
        tags=["predictions"],
        response_model=schemas.LabelsResponse,
        responses=documented(400, 404, 408, 413, 415, 422, 429, 503),
    )
    async def labels(name: Name, request: Request) -> JSONResponse:
        """Post back observed targets, so that `/metrics` shows the coverage of the intervals."""
        return JSONResponse(await service.label(name, request))


def _add_page(app: FastAPI) -> None:
    """Serve the page and its files, which are read once: no URL is ever used as a path."""
    page = (resources.files(calipers.serve) / "page").iterdir()
    shared = (pages.FOLDER / name for name in pages.ASSETS)
    files = {
        file.name: (file.read_bytes(), _KINDS[file.name.rpartition(".")[2]])
        for file in (*page, *shared)
    }

    def response(name: str) -> Response:
        if name not in files:
            raise HTTPProblem(404, f"the page has no file {name[:100]!r}")
        content, kind = files[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return response("index.html")

    @app.get(PAGE_FILES + "{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return response(name)
