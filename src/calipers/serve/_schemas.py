"""Bodies in JSON: what callers send, and what the OpenAPI document says of the answers.

Rows and labels are described here and checked in ``_json``, which stops at the first error.
"""

import dataclasses
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, SkipValidation, Tag

from calipers.prediction import Query

_QUERY_FIELDS = {field.name for field in dataclasses.fields(Query)}

Level = Annotated[FiniteFloat, Field(gt=0, lt=1)]
Cell = FiniteFloat | bool | str | None
Record = dict[str, Cell]

MOST_COVERAGES, MOST_QUANTILES, MOST_POINTS = 32, 128, 1024
MOST_LABELS, MOST_ID = 10_000, 64


def _kind(given: Any) -> str:
    """Whether rows are lists or objects; the first one decides, for the errors too."""
    return (
        "lists" if isinstance(given, list) and given and isinstance(given[0], list) else "objects"
    )


Rows = Annotated[
    Annotated[list[Record], Field(min_length=1), Tag("objects")]
    | Annotated[list[list[Cell]], Field(min_length=1), Tag("lists")],
    Discriminator(_kind),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueryFields(BaseModel):
    """What to predict for each row; fields that ``Query`` has too go there by their names."""

    coverage: Level | Annotated[list[Level], Field(max_length=MOST_COVERAGES)] | None = Field(
        None, description="Coverage of the intervals, any number of them; the model's own if left."
    )
    quantiles: list[Level] = Field([], max_length=MOST_QUANTILES, description="Levels.")
    members: bool = Field(False, description="Whether to give each member's split normal.")
    parameters: bool = Field(
        False, description="Former name of `members`.", json_schema_extra={"deprecated": True}
    )
    record: bool = Field(
        True, description="Whether the rows count in the metrics and may have labels posted back."
    )

    def to_query(self) -> Query:
        """What is asked of the ensemble."""
        given = {name: value for name, value in self if name in _QUERY_FIELDS}
        coverages = [self.coverage] if isinstance(self.coverage, float) else self.coverage
        given["coverages"] = None if coverages is None else tuple(coverages)
        given["quantiles"] = tuple(self.quantiles)
        given["members"] = self.members or self.parameters
        return Query(**given)


class AddressFields(QueryFields):
    """What the address of a request may say where its body is a table."""

    coverage: Annotated[list[Level] | None, Field(max_length=MOST_QUANTILES)] = None
    keep: bool = Field(False, description="Whether to put the table's own columns first.")


class PredictRequest(QueryFields):
    """Rows, and what to predict for each of them."""

    model_config = ConfigDict(extra="forbid")

    rows: SkipValidation[Rows] = Field(
        description="Objects by the names of the inputs, further names ignored; or lists in the "
        "order of the inputs that the model uses. null where a value is missing."
    )
    density: int = Field(
        0, ge=0, le=MOST_POINTS, description="Points at which to give the density."
    )


class IntervalSchema(BaseModel):
    """null stands for an infinite bound: the calibration rows support no finite one."""

    coverage: float
    lower: float | None
    upper: float | None


class Quantile(BaseModel):
    """P(y <= value) = level."""

    level: float
    value: float | None


class Member(BaseModel):
    """A network's split normal before calibration: its mode, and the scales on either side.

    Where networks predict several they come network by network, each with its weight in the whole.
    """

    loc: float | None
    left_scale: float | None
    right_scale: float | None
    weight: float | None = None


class DensitySchema(BaseModel):
    """The calibrated predictive density: its mean around each x."""

    x: list[float | None]
    y: list[float | None]


class AtomsSchema(BaseModel):
    """Values that the target takes with a probability above zero: a bound, counts, grades."""

    x: list[float]
    mass: list[float]


class PredictionSchema(BaseModel):
    """About one row."""

    point: float | None
    intervals: list[IntervalSchema] = Field(
        description="In the order asked; empty for a point model."
    )
    quantiles: list[Quantile] | None = None
    members: list[Member] | None = None
    density: DensitySchema | None = None
    atoms: AtomsSchema | None = Field(
        None, description="With the density, which has no part in them; null if there are none."
    )
    outside: list[str] = Field(description="Inputs whose value training did not see.")


class PredictResponse(BaseModel):
    """Predictions in the order of the rows."""

    model: str
    id: str | None = Field(description="Under which to post labels; null if not recorded.")
    predictions: list[PredictionSchema]


class Label(_Strict):
    """What came true for the rows of one prediction."""

    id: str = Field(max_length=MOST_ID, description="As in the answer to the prediction.")
    y: FiniteFloat | list[FiniteFloat | None] = Field(
        description="The target of each row; null where it is not known yet."
    )


class LabelsRequest(_Strict):
    """Labels, which may be posted in parts and more than once: each counts once."""

    labels: list[Label] = Field(min_length=1, max_length=MOST_LABELS)


class LabelsResponse(BaseModel):
    """What became of the labels."""

    counted: int
    repeated: int = Field(description="Had been posted before.")
    unknown: list[str] = Field(description="Ids that are not known, or not any more.")


class ColumnDescription(BaseModel):
    """What training saw in a column."""

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
    """What is known of a model."""

    name: str
    coverage: float | None = Field(description="Its own; null if it gives points alone.")
    any_coverage: bool = Field(description="Whether it gives other coverages and quantiles too.")
    members: int
    calibration_rows: int | None = Field(
        description="Rows that calibrated it; n of them support coverages up to 1 - 2 / (n + 1), "
        "and bounds of larger ones are infinite. null if it is not calibrated."
    )
    adapted: bool = Field(description="Whether intervals follow the labels that came.")
    alarm: bool | None = Field(
        description="Whether labels have stopped being as in training; null before the first."
    )
    target: ColumnDescription
    support: str = Field(description="Values that the target is taken to be able to take.")
    inputs: list[ColumnDescription]
    about: dict[str, Any]


class LimitsDescription(BaseModel):
    """Most of what a request may have."""

    bytes: int
    rows: int
    columns: int
    seconds: float


class Models(BaseModel):
    """The models that are served, and the limits of a request."""

    models: list[ModelDescription]
    limits: LimitsDescription


class StateSchema(BaseModel):
    """How the server is."""

    status: str
