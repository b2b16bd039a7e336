"""Convert a model to a JSON document and arrays, and back; what is loaded is validated first."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.base import clone

from calipers import _schema as schema, storage
from calipers._estimator import Inputs, is_fitted
from calipers._serialization import ensembles
from calipers._serialization.banks import Arrays, MissingCodeError
from calipers._serialization.model_schema import ABOUT, COLUMN, CUSTOM
from calipers._serialization.parameters import parameters_from_dict, parameters_to_dict, validated
from calipers._text import plain
from calipers.ensemble import Ensemble
from calipers.preprocessing import MAX_TREES, Column, Forest, check_column
from calipers.storage import ModelFileError

if TYPE_CHECKING:
    from calipers.regressor import IntervalRegressor

ABSENT = object()
"""Stands for the regressor when a model is validated without it."""


@contextmanager
def stored_model(
    folder: str | os.PathLike[str], estimator: type
) -> Iterator[tuple[dict[str, Any], Arrays]]:
    """Yield the document and arrays of a folder; turn a ``SchemaError`` into ``ModelFileError``."""
    document, arrays = storage.read_model(folder)
    name, place = document.get("estimator"), os.fspath(folder)
    if name != estimator.__name__:
        raise ModelFileError(
            f"{place} holds a model of {name!r}, not of {estimator.__name__}; load models of "
            "several targets by calipers.multitarget.MultiTargetRegressor.load, whose "
            "models_[0].save(...) writes a model of one target, and others by calipers.load"
        )
    try:
        yield document, arrays
    except schema.SchemaError as error:
        raise ModelFileError(f"{place}: {error}") from None


def model_to_dict(model: "IntervalRegressor") -> tuple[dict[str, Any], Arrays]:
    """Return a fitted model as JSON and arrays."""
    ensemble, arrays = ensembles.ensemble_to_dict(model.ensemble_)
    arrays |= _of_trees(model.reader_)
    names = getattr(model, "feature_names_in_", None)
    document: dict[str, Any] = {
        "estimator": type(model).__name__,
        "parameters": parameters_to_dict(model.get_params(deep=False)),
        "inputs": {
            "names": None if names is None else [str(name) for name in names],
            **model.reader_.to_document(),
            "target": model.target_.to_document(),
            "about": model.about_,
        },
        "ensemble": ensemble,
    }
    document = cast(dict[str, Any], plain(document, "document"))
    check_model(type(model)(), document, arrays)  # refuse to save what cannot be loaded
    return document, arrays


def model_from_dict(
    model: "IntervalRegressor", document: Mapping[str, Any], arrays: Arrays, **code: Any
) -> None:
    """Restore the state that ``model_to_dict`` returned in a newly constructed model."""
    schema.record(
        dict.fromkeys(("estimator", "parameters", "inputs", "ensemble"), schema.anything)
    )(document, "the document")
    reader, target = _read_inputs(model, document, arrays, code)
    largest = max(abs(float(target.low or 0)), abs(float(target.high or 0)))
    ensemble = ensembles.ensemble_from_dict(document["ensemble"], arrays, largest=largest, **code)
    _check_fit(model, reader, ensemble, document["ensemble"])
    known = {*ensembles.ensemble_to_dict(ensemble)[1], *_of_trees(reader), "out_of_time"}
    if extra := sorted(set(arrays) - known):
        raise schema.SchemaError(
            f"the weights hold the array {extra[0]!r}, which does not belong to a model"
        )
    model.ensemble_, model.reader_, model.target_ = ensemble, reader, target
    model.about_ = document["inputs"]["about"]
    model.n_features_in_, names = len(reader.columns), document["inputs"]["names"]
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    if code.get("network") is not None:
        model.network = code["network"]
    if reader.encoder is not None and document["parameters"].get("preprocessor") != "auto":
        model.preprocessor = clone(reader.encoder)


def check_model(model: "IntervalRegressor", document: Mapping[str, Any], arrays: Arrays) -> None:
    """Validate as ``model_from_dict`` does, as far as possible without the user's code."""
    with suppress(MissingCodeError):
        model_from_dict(model, document, arrays, points=ABSENT)


def _of_trees(reader: Inputs) -> Arrays:
    """Return the arrays of the trees whose predictions are an input."""
    arrays = {} if reader.forest is None else reader.forest.to_arrays()
    return {f"trees.{name}": array for name, array in arrays.items()}


def _trees(inputs: Mapping[str, Any], arrays: Arrays, width: int) -> Forest | None:
    """The trees whose predictions are an input besides ``width`` others; None without trees."""
    if "trees" not in inputs:
        return None
    forest = Forest.from_arrays(schema.arrays_under(arrays, "trees."))
    if len(forest) != inputs["trees"]:
        schema.refuse("inputs.trees", f"{len(forest)}, as many as are stored", inputs["trees"])
    if len(forest.center) != width:
        schema.refuse("array 'trees.center'", f"of {width} inputs", len(forest.center))
    return forest


def _read_inputs(
    model: "IntervalRegressor", document: Mapping[str, Any], arrays: Arrays, code: Mapping[str, Any]
) -> tuple[Inputs, Column]:
    """Set the stored parameters; return the inputs and the target."""
    if document["estimator"] != type(model).__name__:
        schema.refuse("estimator", repr(type(model).__name__), document["estimator"])
    model.set_params(**parameters_from_dict(document["parameters"], model._get_param_names()))
    validated(model, "parameters")
    inputs = document["inputs"]
    _INPUTS(inputs, "inputs")
    reader = Inputs.from_document(inputs)
    check_column(inputs["target"], "inputs.target")
    target = Column.from_document(inputs["target"])
    names = [column.name for column in reader.columns]
    if inputs["names"] not in (None, names):
        schema.refuse("inputs.names", f"null or {names}", inputs["names"])
    if target.kind != "number":
        schema.refuse("inputs.target.kind", "'number'", target.kind)
    regressor = _regressor(inputs, document["ensemble"], code)
    if regressor is not None and "trees" in inputs:
        schema.refuse("inputs.trees", "absent if points come from a regressor", inputs["trees"])
    forest = _trees(inputs, arrays, reader.width)
    return replace(reader, regressor=regressor, forest=forest), target


_INPUTS = schema.record(
    {
        "names": schema.optional(schema.list_of(schema.text)),
        "columns": schema.anything,
        "preprocessor": schema.anything,
        "target": schema.anything,
        "about": ABOUT,
    },
    {"regressor": schema.text, "trees": schema.whole(1, MAX_TREES)},
)


def _regressor(inputs: Mapping[str, Any], ensemble: object, code: Mapping[str, Any]) -> Any:
    """The regressor of an upgraded model; None if the model has none."""
    name, regressor = inputs.get("regressor"), code.get("points")
    column = isinstance(ensemble, Mapping) and ensemble.get("points") == COLUMN
    if (name is not None) != column:
        schema.refuse("inputs.regressor", "present exactly if points come from a regressor", name)
    if name is None or regressor is ABSENT:
        return None if name is None else ABSENT
    if regressor is None:
        raise MissingCodeError(
            f"the point predictions of the model come from a {name}, which is code and not stored: "
            "save it by joblib or skops, and pass it as load(..., points=regressor)"
        )
    if type(regressor).__name__ != name or not is_fitted(regressor):
        state = "" if is_fitted(regressor) else " that is not fitted"
        raise ModelFileError(
            "the point predictions of the model come from a fitted "
            f"{name}, got a {type(regressor).__name__}{state}"
        )
    return regressor


def _check_fit(
    model: "IntervalRegressor", reader: Inputs, ensemble: Ensemble, document: Any
) -> None:
    """Refuse parameters, inputs and networks that are inconsistent."""
    fixed = ensemble.head.has_interval and not ensemble.gives_distribution
    if fixed and model.coverage != ensemble.coverage:
        schema.refuse(
            "parameters.coverage", f"{ensemble.coverage}, the trained one", model.coverage
        )
    if document.get("points") != CUSTOM and ensemble.bank.program.in_size != reader.width:
        size = ensemble.bank.program.in_size
        schema.refuse("ensemble.program.in_size", f"{reader.width}, the number of inputs", size)
    for calibration in ensemble.calibrations:
        calibration.check_inputs(reader.width)
