"""The OpenAPI document, with request bodies and examples for the served models."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from calipers.preprocessing import Column
from calipers.serve import _problems as problems
from calipers.serve._bodies import ARROW_FILE, ARROW_STREAM, CSV, JSON
from calipers.serve._schemas import LabelsRequest, PredictRequest, PredictResponse
from calipers.serve._served import Served

_SCHEMAS = "#/components/schemas/"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TYPES = {
    "f": ["number", "null"],
    "b": ["boolean", "null"],
    "M": ["string", "null"],
    "O": ["string", "number", "boolean", "null"],
}  # by the kind of ``Column.dtype``

PREDICT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Predictions in the order of the rows.",
        "content": {
            JSON: {"schema": {"$ref": f"{_SCHEMAS}PredictResponse"}},
            CSV: {"schema": {"type": "string"}},
            ARROW_STREAM: _BINARY,
            ARROW_FILE: _BINARY,
        },
    },
    **problems.documented(400, 404, 406, 408, 413, 415, 422, 429, 503),
}


def install(app: FastAPI, models: Mapping[str, Served], *, needs_token: bool) -> None:
    """Make an application generate its document, once, from its routes and its models."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            generated = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _complete(generated, models, needs_token)
            app.openapi_schema = generated
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _complete(document: dict[str, Any], models: Mapping[str, Served], needs_token: bool) -> None:
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = problems.SCHEMA
    for model in (PredictRequest, PredictResponse, LabelsRequest):
        schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    rows = {
        f"Row_{name}": {
            "type": "object",
            "required": [column.name for column in served.inputs],
            "properties": {column.name: _property(column) for column in served.inputs},
            "additionalProperties": True,
            "example": served.example,
        }
        for name, served in models.items()
    }
    schemas.update(rows)
    choices = [{"$ref": _SCHEMAS + name} for name in rows]
    row = choices[0] if len(choices) == 1 else {"anyOf": choices}
    schemas["PredictRequest"]["properties"]["rows"]["oneOf"][0]["items"] = row
    for path, item in document["paths"].items():
        for operation in item.values():
            _complete_operation(operation, path, models, needs_token)
    if needs_token:
        schemes = {"token": {"type": "http", "scheme": "bearer"}}
        document["components"]["securitySchemes"] = schemes


def _complete_operation(
    operation: dict[str, Any], path: str, models: Mapping[str, Served], needs_token: bool
) -> None:
    invalid = operation["responses"].get("422", {}).get("content", {})
    if JSON in invalid:  # the framework's own errors, which are problem documents here
        operation["responses"]["422"] = problems.documented(422)[422]
    if needs_token and path not in ("/health", "/ready"):
        operation["security"] = [{"token": []}]
        operation["responses"]["401"] = problems.documented(401)[401]
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            parameter["schema"] = {"type": "string", "enum": list(models)}
    if path.endswith("/predict"):
        operation["requestBody"] = _predict_body(models)
    if path.endswith("/labels"):
        example = {"labels": [{"id": "AAAAAAAAAAAAAAABpiPr9m1LQ0hh", "y": 151.0}]}
        content = {JSON: {"schema": {"$ref": f"{_SCHEMAS}LabelsRequest"}, "example": example}}
        operation["requestBody"] = {"required": True, "content": content}


def _predict_body(models: Mapping[str, Served]) -> dict[str, Any]:
    examples = {}
    for name, served in models.items():
        value: dict[str, Any] = {"rows": [served.example]}
        if served.ensemble.gives_distribution:
            value |= {"coverage": [0.5, 0.95], "quantiles": [0.1, 0.9]}
        examples[name] = {"summary": f"A typical row of {name}", "value": value}
    first = next(iter(models.values())).example
    table = [",".join(map(str, line)) for line in (first, first.values())]
    return {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": f"{_SCHEMAS}PredictRequest"}, "examples": examples},
            CSV: {"schema": {"type": "string"}, "example": "\n".join(table) + "\n"},
            ARROW_STREAM: _BINARY,
            ARROW_FILE: _BINARY,
        },
    }


def _property(column: Column) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[column.dtype.kind]}
    if column.dtype.kind in "fM":
        schema["description"] = f"In training from {column.low} to {column.high}."
    if column.categories:
        schema["examples"] = list(column.categories[:5])
    return schema
