"""A fitted model as the server has it: loaded once, predicting in batches."""

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray
from calipers.calibration import AdaptiveCoverage, Martingale
from calipers.ensemble import Ensemble
from calipers.prediction import Query
from calipers.preprocessing import Column, check_names
from calipers.regressor import IntervalRegressor
from calipers.serve._queries import Columns, Piece, ServedPrediction, served_prediction

_PUBLIC = ("fitted_at", "rows", "versions", "evaluation")  # not where on a disk the rows were
_MOST_VERSIONS = 256  # of a model that adapts, which labels may still come for
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, eq=False)
class Served:
    """A model under the name it is served by."""

    name: str  # letters, digits, dots, dashes and underscores
    model: IntervalRegressor
    folder: Path | None = None  # where it is from

    @cached_property
    def inputs(self) -> tuple[Column, ...]:
        """Columns that the model uses."""
        return tuple(column for column in self.model.inputs_ if column.used)

    @cached_property
    def ensemble(self) -> Ensemble:
        """Its networks; bounds that its calibration does not support are infinite."""
        return replace(self.model.ensemble_, n_jobs=1, unsupported="inf")

    @cached_property
    def _versions(self) -> deque[tuple[int, Ensemble]]:
        """The last ensembles that predicted, each with how often it had learnt."""
        return deque([(0, self.ensemble)], _MOST_VERSIONS)

    @property
    def coverage(self) -> float:
        """Coverage of an interval where none is asked."""
        return float(self.ensemble.coverage)

    @property
    def has_interval(self) -> bool:
        """Whether it gives more than points."""
        return self.ensemble.head.has_interval

    @property
    def has_distribution(self) -> bool:
        """Whether it gives intervals of any coverage, quantiles and densities."""
        return self.ensemble.gives_distribution

    def check_labels(self, y: FloatArray) -> None:
        """Refuse labels beyond given bounds or off the networks' scale; NaN stands for none."""
        known = y[~np.isnan(y)]
        if known.size and self.ensemble.target_map is not None:
            self.ensemble.target_map.check(known)
        if self.model.support_.given:
            self.ensemble.taking(known)

    def pick(self, table: Mapping[str, Any]) -> Columns:
        """The columns of a table that the model looks at."""
        check_names(table, [column.name for column in self.inputs])
        seen = {column.name for column in self.model.inputs_ if column.kind != "identifier"}
        return {name: table[name] for name in table if name in seen}

    def predict(self, pieces: list[Piece]) -> list[ServedPrediction | Exception]:
        """Predict all pieces in one pass; if one of them is wrong, for each by itself."""
        try:
            return list(self._predict(pieces))
        except Exception as error:
            if len(pieces) == 1:
                return [error]
        return [result for piece in pieces for result in self.predict([piece])]

    def _predict(self, pieces: list[Piece]) -> list[ServedPrediction]:
        distinct = list(dict.fromkeys(piece.query for piece in pieces))
        arranged = sorted(range(len(pieces)), key=lambda i: distinct.index(pieces[i].query))
        ordered = [pieces[i] for i in arranged]
        numbers, outside = self._read(_joined(ordered))
        queries = [(len(piece), self._with_own_coverage(piece.query)) for piece in ordered]
        version, ensemble = self._versions[-1]
        found = ensemble.predict_each(numbers, queries)
        ends = np.cumsum([len(piece) for piece in ordered])[:-1]
        parts, inputs = np.split(outside, ends), np.split(numbers, ends)
        served: dict[int, ServedPrediction] = {}
        for place, prediction, part, rows in zip(arranged, found, parts, inputs, strict=True):
            answer = served_prediction(prediction, part, pieces[place].query, self.coverage)
            if self.has_distribution:
                answer = replace(answer, inputs=rows, version=version)
            served[place] = answer
        return [served[place] for place in range(len(pieces))]

    def _read(self, table: Columns) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Inputs as the networks take them, and which values training did not see."""
        found = self.model.reader_.read_columns(table)
        if found is not None:
            return found
        import pandas as pd

        return self.model.read(self.model.pick(pd.DataFrame(table)))

    def _with_own_coverage(self, query: Query) -> Query:
        """The query, which asks for the model's own coverage too: the monitor watches that."""
        if query.coverages is None or self.coverage in query.coverages or not self.has_interval:
            return query
        return replace(query, coverages=(*query.coverages, self.coverage))

    @cached_property
    def example(self) -> dict[str, Any]:
        """A typical row as JSON."""
        return {column.name: _typical(column) for column in self.inputs}

    def warm_up(self) -> None:
        """Compile what the first request would otherwise wait for."""
        row = {name: np.array([value]) for name, value in self.example.items()}
        query = (
            Query((0.5, 0.9), (0.5,), members=True, density=3) if self.has_distribution else Query()
        )
        [result] = self.predict([Piece(row, 1, query)])
        if isinstance(result, Exception):
            raise result

    def learn(
        self, inputs: FloatArray, y: FloatArray, versions: NDArray[np.intp], adapt: bool
    ) -> None:
        """Learn from labels; with ``adapt``, predict by it from now on.

        Each label counts as that of the answer which was given, by the version of the model that
        gave it, however late it comes; if that is forgotten, by the oldest that is not. Without
        ``adapt``, what is learnt serves the alarm alone.
        """
        following = vars(self).get("_following", self.ensemble)
        known, oldest = dict(self._versions), self._versions[0][1]
        made_by = [known.get(version, oldest) for version in versions.tolist()]
        learnt = following.learn(inputs, y, made_by=made_by)[0]
        vars(self)["_following"] = learnt
        if adapt:
            self._versions.append((self._versions[-1][0] + 1, learnt))
            vars(self)["ensemble"] = self.model.ensemble_ = learnt
            vars(self)["_unsaved"] = self.folder is not None

    def save(self) -> None:
        """Save what has been learnt and is not saved yet; the folder is replaced in one step.

        What cannot be saved is tried again the next time.
        """
        if vars(self).get("_unsaved") and self.folder is not None:
            self.model.save(self.folder)
            vars(self)["_unsaved"] = False

    @property
    def alarm(self) -> Martingale | None:
        """What speaks against labels being as in training; None before the first."""
        last = vars(self).get("_following", self.ensemble).calibrations[-1:]
        return last[0].alarm if last and isinstance(last[0], AdaptiveCoverage) else None

    def describe(self) -> dict[str, Any]:
        """What callers may know of the model."""
        calibrations = self.ensemble.calibrations
        return {
            "name": self.name,
            "coverage": self.coverage if self.has_interval else None,
            "any_coverage": self.has_distribution,
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
    for given in folders:
        name, folder = _named(os.fspath(given))
        if name in served:
            raise ValueError(
                f"two models are called {name!r}: give one another name, as in other={folder}"
            )
        served[name] = Served(name, load(folder), folder)
    if not served:
        raise ValueError("there is no model to serve: name at least one model folder")
    return served


def _named(given: str) -> tuple[str, Path]:
    """Name and folder of an argument such as ``model/`` or ``prices=model/``."""
    name, equals, rest = given.partition("=")
    if equals and not Path(given).exists():
        folder = Path(rest)
    else:
        folder = Path(given)
        name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be part of an address: give the model a name of letters, digits, "
            f"dots and dashes, as in prices={folder}"
        )
    return name, folder


def _joined(pieces: list[Piece]) -> Columns:
    """The columns that all pieces have; one that only some have is not an input.

    Raises ``TypeError`` where joining would change the values of one caller for those of another.
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


def _typical(column: Column) -> Any:
    if column.kind == "category":
        return column.categories[0] if column.categories else None
    if column.kind == "boolean":
        return bool(column.typical)
    return column.typical
