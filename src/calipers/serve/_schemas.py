"""Schemas of requests and responses in JSON, for validation and for the OpenAPI document.

Rows and labels are described here, but checked in ``_json``, which stops at the first error.
"""

import dataclasses
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, SkipValidation, Tag

from calipers.prediction import Query

_QUERY_FIELDS = {field.name for field in dataclasses.fields(Query)}

Level = Annotated[FiniteFloat, Field(gt=0, lt=1)]
Cell = FiniteFloat | bool | str | None
Record = dict[str, Cell]

MAX_COVERAGES, MAX_QUANTILES, MAX_POINTS = 32, 128, 1024
MAX_LABELS, MAX_ID_LENGTH = 10_000, 64


def _kind(rows: object) -> str:
    """Whether rows are lists or objects, by the first one."""
    return "lists" if isinstance(rows, list) and rows and isinstance(rows[0], list) else "objects"


Rows = Annotated[
    Annotated[list[Record], Field(min_length=1), Tag("objects")]
    | Annotated[list[list[Cell]], Field(min_length=1), Tag("lists")],
    Discriminator(_kind),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueryFields(BaseModel):
    """What to predict for each row; fields that ``Query`` also has are passed on by name."""

    coverage: Level | Annotated[list[Level], Field(max_length=MAX_COVERAGES)] | None = Field(
        None, description="One or several coverages of intervals; the model's own by default."
    )
    quantiles: list[Level] = Field([], max_length=MAX_QUANTILES, description="Levels of quantiles.")
    members: bool = Field(
        False,
        description="Whether to return each member's split normal, if it is in the target's unit.",
    )
    parameters: bool = Field(
        False, description="Former name of `members`.", json_schema_extra={"deprecated": True}
    )
    record: bool = Field(
        True, description="Whether the rows count in the metrics and may have labels posted back."
    )

    def to_query(self) -> Query:
        """Return the query to the ensemble."""
        kwargs = {name: value for name, value in self if name in _QUERY_FIELDS}
        coverages = [self.coverage] if isinstance(self.coverage, float) else self.coverage
        kwargs["coverages"] = None if coverages is None else tuple(coverages)
        kwargs["quantiles"] = tuple(self.quantiles)
        kwargs["members"] = self.members or self.parameters
        return Query(**kwargs)


class AddressFields(QueryFields):
    """The query string of a request whose body is a table."""

    coverage: Annotated[list[Level] | None, Field(max_length=MAX_COVERAGES)] = None
    keep: bool = Field(
        False, description="Whether the response starts with the columns of the table."
    )


class PredictRequest(QueryFields, _Strict):
    """Rows, and what to predict for each of them."""

    rows: SkipValidation[Rows] = Field(
        description="Objects with the names of the inputs as keys, other keys are ignored; or "
        "lists in the order of the inputs that the model uses. null for a missing value."
    )
    density: int = Field(
        0, ge=0, le=MAX_POINTS, description="Number of points of the density to return."
    )


class IntervalSchema(BaseModel):
    """An interval; null is an infinite bound, if the calibration rows support no finite one."""

    coverage: float
    lower: float | None
    upper: float | None


class Quantile(BaseModel):
    """P(y <= value) = level."""

    level: float
    value: float | None


class Member(BaseModel):
    """A network's split normal before calibration: its mode, and the scales on either side.

    If networks have several components, these come network by network, each with its weight in the
    whole mixture.
    """

    loc: float | None
    left_scale: float | None
    right_scale: float | None
    weight: float | None = None


class DensitySchema(BaseModel):
    """The calibrated predictive density, averaged around each x."""

    x: list[float | None]
    y: list[float | None]


class AtomsSchema(BaseModel):
    """Values that the target takes with positive probability: a bound, counts, grades."""

    x: list[float]
    mass: list[float]


class PredictionSchema(BaseModel):
    """The prediction of one row."""

    point: float | None
    intervals: list[IntervalSchema] = Field(
        description="In the order requested; empty for a model without intervals."
    )
    quantiles: list[Quantile] | None = None
    members: list[Member] | None = None
    density: DensitySchema | None = None
    atoms: AtomsSchema | None = Field(
        None, description="Returned with the density, which excludes them; null if there are none."
    )
    outside: list[str] = Field(description="Inputs whose value is outside the training range.")


class PredictResponse(BaseModel):
    """Predictions in the order of the rows."""

    model: str
    id: str | None = Field(description="For posting labels; null if not recorded.")
    infinite_reason: str | None = Field(
        description="Why intervals are infinite, and which would be finite; null if none is."
    )
    predictions: list[PredictionSchema]


class Label(_Strict):
    """The observed targets of the rows of one prediction."""

    id: str = Field(
        max_length=MAX_ID_LENGTH, description="The id in the response with the prediction."
    )
    y: FiniteFloat | list[FiniteFloat | None] = Field(
        description="The target of each row; null if it is not known yet."
    )


class LabelsRequest(_Strict):
    """Labels, which may be posted in parts and repeatedly: each counts once."""

    labels: list[Label] = Field(min_length=1, max_length=MAX_LABELS)


class LabelsResponse(BaseModel):
    """How many labels were recorded."""

    counted: int
    repeated: int = Field(description="Labels that had been posted before.")
    unknown: list[str] = Field(description="Ids that are unknown, or too old.")


class ColumnDescription(BaseModel):
    """The values of a column in training."""

    name: str
    kind: str
    low: float | str | None
    high: float | str | None
    typical: float | str | None
    categories: list[str]
    missing: bool
    used: bool
    note: str


class ModelDescription(BaseModel):
    """Description of a model."""

    name: str
    coverage: float | None = Field(
        description="Nominal coverage; null if the model has no intervals."
    )
    any_coverage: bool = Field(description="Whether it also gives other coverages and quantiles.")
    members: int
    calibration_rows: int | None = Field(
        description="Calibration rows; null if the model is not calibrated."
    )
    adapted: bool = Field(description="Whether intervals have been adapted to labels.")
    alarm: bool | None = Field(
        description="Whether labels are no longer like training; null before the first label."
    )
    target: ColumnDescription
    support: str = Field(description="Values that the target can take.")
    inputs: list[ColumnDescription]
    about: dict[str, Any]


class LimitsDescription(BaseModel):
    """Limits of a request."""

    bytes: int
    rows: int
    columns: int
    seconds: float


class Models(BaseModel):
    """The models that are served, and the limits of a request."""

    models: list[ModelDescription]
    limits: LimitsDescription


class StateSchema(BaseModel):
    """State of the server."""

    status: str
