"""Errors as callers see them: problem documents (RFC 9457), never a traceback."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse

from calipers.tables import EncodedError, TableError, TooLargeError

MEDIA_TYPE = "application/problem+json"
_MAX_DETAIL = 2_000  # characters of a detail: a quoted value may be of any length


class HTTPProblem(Exception):  # noqa: N818 - the name in RFC 9457
    """An error with an HTTP status, and a detail that explains what is wrong with the request.

    Where another attempt may succeed, the response asks for it after a second, unless ``headers``
    state another time.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        detail = detail if len(detail) <= _MAX_DETAIL else f"{detail[:_MAX_DETAIL]}..."
        super().__init__(detail)
        retry = {"Retry-After": "1"} if status in (429, 503) else {}
        self.status, self.detail, self.headers = status, detail, retry | dict(headers or {})

    def response(self) -> JSONResponse:
        title = HTTPStatus(self.status).phrase
        body = {"title": title, "status": self.status, "detail": self.detail}
        return JSONResponse(body, self.status, self.headers, MEDIA_TYPE)


def problem_of_table(error: TableError) -> HTTPProblem:
    """Return the problem document of an error in a table, with the status of its class."""
    statuses = {TooLargeError: 413, EncodedError: 415}
    return HTTPProblem(statuses.get(type(error), 422), str(error))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the entries of an OpenAPI document for these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {s: {"description": HTTPStatus(s).phrase, "content": content} for s in statuses}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error, as defined by RFC 9457.",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, where, what would be right."},
    },
    "example": {
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "column 'age', row 3 (from 0): 'old' is not a number",
    },
}
