"""Served models: loaded once, predicting pieces of requests in batches, adapting to labels."""

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray
from calipers.calibration import AdaptiveCoverage, Martingale, infinite_reason
from calipers.prediction import Prediction, Query
from calipers.preprocessing import Column, OnUnread, accept, check_names, refuse_unread
from calipers.regressor import IntervalRegressor

_PUBLIC = ("fitted_at", "rows", "versions", "evaluation")  # facts without paths of files
_MAX_VERSIONS = 256  # versions of an adapting model that are kept for late labels
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


Columns = dict[str, NDArray[Any]]
"""The columns of a table by name, each of shape (rows,): numbers, times or objects."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of one request."""

    columns: Columns
    rows: int
    query: Query

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True, eq=False)
class ServedPrediction:
    """The prediction of some rows, with all that is recorded about it."""

    prediction: Prediction  # as requested
    outside: NDArray[np.bool_]  # (rows, inputs): which values are outside the training range
    # (rows, 2): bounds at the model's own coverage, which the monitor watches
    bounds: NDArray[np.float64] | None
    # (rows, encoded inputs): inputs of the networks, for updates when labels arrive
    inputs: NDArray[np.float64] | None = None
    # number of updates that the model had learned from: for all rows, or for each row
    version: int | NDArray[np.intp] = 0

    def __len__(self) -> int:
        return len(self.outside)

    def __getitem__(self, rows: slice) -> "ServedPrediction":
        bounds = None if self.bounds is None else self.bounds[rows]
        inputs = None if self.inputs is None else self.inputs[rows]
        version = np.broadcast_to(self.version, len(self))[rows]
        return ServedPrediction(self.prediction[rows], self.outside[rows], bounds, inputs, version)


def join(predictions: Sequence[ServedPrediction]) -> ServedPrediction:
    """Concatenate the predictions of consecutive rows."""
    if len(predictions) == 1:
        return predictions[0]
    bounds = [prediction.bounds for prediction in predictions if prediction.bounds is not None]
    inputs = [prediction.inputs for prediction in predictions if prediction.inputs is not None]
    return ServedPrediction(
        Prediction.concatenate([prediction.prediction for prediction in predictions]),
        np.concatenate([prediction.outside for prediction in predictions]),
        np.concatenate(bounds) if bounds else None,
        np.concatenate(inputs) if inputs else None,
        np.concatenate(
            [np.broadcast_to(prediction.version, len(prediction)) for prediction in predictions]
        ),
    )


class Served:
    """A model under its name on the server, and what it has learned from labels."""

    def __init__(self, name: str, model: IntervalRegressor, folder: Path | None = None) -> None:
        self.name = name  # letters, digits, dots, dashes and underscores
        self.model = model
        self.folder = folder  # from which it was loaded
        #: Columns that the model uses.
        self.inputs = tuple(column for column in model.inputs_ if column.used)
        #: The ensemble, with infinite bounds at coverages that the calibration does not support.
        self.ensemble = replace(model.ensemble_, n_jobs=1, unsupported="inf")
        # The ensemble that has learned from all labels; without adaptation, for the alarm only.
        self._following = self.ensemble
        # The last ensembles that predicted, each with its version: the number of updates.
        self._versions = deque([(0, self.ensemble)], _MAX_VERSIONS)
        self._is_unsaved = False  # whether it has learned since it was loaded or saved

    @property
    def coverage(self) -> float:
        """Coverage of intervals if none is requested."""
        return float(self.ensemble.coverage)

    def check_labels(self, y: FloatArray) -> None:
        """Refuse labels outside given bounds or the domain of the target map; NaN means none."""
        labels = y[~np.isnan(y)]
        if labels.size and self.ensemble.target_map is not None:
            self.ensemble.target_map.check(labels)
        if self.model.support_.given:
            self.ensemble.admitting(labels)

    def pick(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a table that the model looks at."""
        check_names(table, [column.name for column in self.inputs])
        names = {column.name for column in self.model.inputs_ if column.kind != "identifier"}
        return {name: table[name] for name in table if name in names}

    def predict(self, pieces: list[Piece]) -> list[ServedPrediction | Exception]:
        """Predict all pieces in one pass; if that fails, each separately."""
        try:
            return list(self._predict(pieces))
        except Exception as error:
            if len(pieces) == 1:
                return [error]
        return [result for piece in pieces for result in self.predict([piece])]

    def _predict(self, pieces: list[Piece]) -> list[ServedPrediction]:
        # Pieces of the same query go together, so that the ensemble computes it once.
        distinct = list(dict.fromkeys(piece.query for piece in pieces))
        order = sorted(range(len(pieces)), key=lambda i: distinct.index(pieces[i].query))
        ordered = [pieces[i] for i in order]
        # A few cells that cannot be read are missing values, counted in the rows of one request:
        # with others in between, the response would depend on who else asks.
        on_unread = accept if len(pieces) == 1 else refuse_unread
        numbers, outside = self._read(_joined(ordered), on_unread)
        queries = [(len(piece), self._with_own_coverage(piece.query)) for piece in ordered]
        version, ensemble = self._versions[-1]
        predictions = ensemble.predict_each(numbers, queries)
        ends = np.cumsum([len(piece) for piece in ordered])[:-1]
        parts, inputs = np.split(outside, ends), np.split(numbers, ends)
        served: dict[int, ServedPrediction] = {}
        for i, prediction, part, rows in zip(order, predictions, parts, inputs, strict=True):
            bounds, wanted = None, pieces[i].query.coverages
            if prediction.intervals is not None:
                bounds = np.stack(prediction.bounds(self.coverage), axis=1)
            if wanted is not None:  # without the model's own coverage
                prediction = prediction.with_coverages(len(wanted))
            known = (rows, version) if ensemble.gives_distribution else ()
            served[i] = ServedPrediction(prediction, part, bounds, *known)
        return [served[i] for i in range(len(pieces))]

    def _read(self, table: Columns, on_unread: OnUnread) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the inputs of the networks, and which values are outside the training range."""
        encoded = self.model.reader_.read_columns(table)
        if encoded is not None:
            return encoded
        import pandas as pd

        return self.model.read(self.model.pick(pd.DataFrame(table)), on_unread)

    def _with_own_coverage(self, query: Query) -> Query:
        """Return the query with the model's own coverage added, which the monitor watches."""
        has_interval, coverages = self.ensemble.head.has_interval, query.coverages
        if coverages is None or self.coverage in coverages or not has_interval:
            return query
        return replace(query, coverages=(*coverages, self.coverage))

    @cached_property
    def example(self) -> dict[str, Any]:
        """A typical row as JSON."""
        return {column.name: _typical(column) for column in self.inputs}

    def warm_up(self) -> None:
        """Compile the programs that the first request would otherwise wait for."""
        row = {name: np.array([value]) for name, value in self.example.items()}
        every = Query((0.5, 0.9), (0.5,), members=True, density=3)
        query = every if self.ensemble.gives_distribution else Query()
        [result] = self.predict([Piece(row, 1, query)])
        if isinstance(result, Exception):
            raise result

    def learn(
        self, inputs: FloatArray, y: FloatArray, versions: NDArray[np.intp], adapt: bool
    ) -> None:
        """Update the calibration with labels; with ``adapt``, use it for predictions from now on.

        However late a label arrives, it counts for the prediction as it was made, by the version of
        the model that made it; if that is no longer kept, by the oldest version that is. Without
        ``adapt``, the update serves the alarm only.
        """
        by_version, oldest = dict(self._versions), self._versions[0][1]
        predicted_by = [by_version.get(version, oldest) for version in versions.tolist()]
        updated = self._following.learn(inputs, y, predicted_by=predicted_by)[0]
        self._following = updated
        if adapt:
            self._versions.append((self._versions[-1][0] + 1, updated))
            self.ensemble = self.model.ensemble_ = updated
            self._is_unsaved = True

    def save(self) -> None:
        """Save updates that are not saved yet, also those of a call that failed."""
        if self._is_unsaved and self.folder is not None:
            self.model.save(self.folder)
            self._is_unsaved = False

    def infinite_reason(self, prediction: ServedPrediction) -> str | None:
        """Return why intervals of the prediction are infinite, in words; None if none is."""
        found, calibrations = prediction.prediction, self.ensemble.calibrations
        if found.intervals is None or not calibrations:
            return None
        infinite = found.coverages[~np.isfinite(found.intervals).all(axis=(0, 1))].tolist()
        return infinite_reason(infinite, calibrations[-1]) if infinite else None

    @property
    def alarm(self) -> Martingale | None:
        """Evidence that rows are no longer like those of training; None before the first label."""
        last = self._following.calibrations[-1:]
        return last[0].alarm if last and isinstance(last[0], AdaptiveCoverage) else None

    def describe(self) -> dict[str, Any]:
        """Return the public description of the model."""
        calibrations = self.ensemble.calibrations
        return {
            "name": self.name,
            "coverage": self.coverage if self.ensemble.head.has_interval else None,
            "any_coverage": self.ensemble.gives_distribution,
            "members": len(self.ensemble.bank),
            "calibration_rows": calibrations[-1].n_rows if calibrations else None,
            "adapted": any(isinstance(c, AdaptiveCoverage) for c in calibrations),
            "alarm": None if self.alarm is None else self.alarm.alarm,
            "target": self.model.target_.to_document(),
            "support": str(self.model.support_),
            "inputs": [column.to_document() for column in self.model.inputs_],
            "about": {k: v for k, v in self.model.about_.items() if k in _PUBLIC},
        }


def load_models(folders: Iterable[str | os.PathLike[str]]) -> dict[str, Served]:
    """Load model folders, each under its name or as ``name=folder``."""
    from calipers import load

    served: dict[str, Served] = {}
    for argument in folders:
        name, folder = named_folder(os.fspath(argument))
        if name in served:
            raise ValueError(
                f"two models are called {name!r}: give one another name, as in other={folder}"
            )
        served[name] = Served(name, load(folder), folder)
    if not served:
        raise ValueError("there is no model to serve: name at least one model folder")
    return served


def named_folder(argument: str) -> tuple[str, Path]:
    """Return the name and the folder of an argument such as ``model/`` or ``prices=model/``."""
    name, equals, path = argument.partition("=")
    if equals and not Path(argument).exists():
        folder = Path(path)
    else:
        folder = Path(argument)
        name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be part of a URL: give the model a name of letters, digits, dots and "
            f"dashes, as in prices={folder}"
        )
    return name, folder


def _joined(pieces: list[Piece]) -> Columns:
    """Return the columns that all pieces have; a column that only some have is not an input.

    Raises ``TypeError`` if concatenation would change the values of one caller because of another.
    """
    first, *others = pieces
    if not others:
        return first.columns
    names = [name for name in first.columns if all(name in piece.columns for piece in others)]
    for name in names:
        types = {piece.columns[name].dtype for piece in pieces}
        if len(types) > 1 and types != {np.dtype(float), np.dtype(object)}:
            raise TypeError(f"column {name!r} is of several types")
    return {name: np.concatenate([piece.columns[name] for piece in pieces]) for name in names}


def _typical(column: Column) -> bool | float | str | None:
    if column.dtype == object:
        return column.categories[0] if column.categories else None
    return bool(column.typical) if column.dtype == bool else column.typical
