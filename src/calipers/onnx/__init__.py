"""Export of models to ONNX, for runtimes without Python.

The graph takes inputs and returns predictions in the units of the data: it contains scaling,
networks, aggregation and calibration, and the bounds and rounding of a target that cannot take
every value.

input ``X``, of shape (rows, inputs)
    Inputs, in the order of the metadata entry ``inputs``.
inputs with the names of the columns, of shape (rows,), in place of ``X``
    If the model has a preprocessor: numbers, booleans as 1 and 0, dates as seconds since 1970, all
    NaN where they are missing, and categories as text, empty where they are missing. Except for
    the None of missing categories, this is what ``model.preprocessor_.read(table)`` returns. A
    column with the name of an output has ``input_`` before its name.
outputs ``point``, ``lower`` and ``upper``, of shape (rows,)
    The results of ``predict`` and ``predict_interval``; for several coverages, ``lower`` and
    ``upper`` have the shape (rows, coverages).
outputs ``member_...``, of shape (members, rows)
    The predictions of each network: ``lower``, ``point`` and ``upper`` if it was trained for
    bounds; ``loc``, ``left_scale`` and ``right_scale`` for a density; with several components,
    ``loc_0``, ``scale_0``, ``share_0`` and so on; ``mean`` and ``scale`` for ``loss="normal"``.
    They are on the scale that the metadata entry ``scale`` names, which is that of the target for
    "identity".

A model that predicts points only has ``point`` and ``member_point``. The graph checks nothing: a
value that is not finite where it should be propagates by the rules of arithmetic.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from scipy.special import ndtri

from calipers._arrays import BoolArray, FloatArray
from calipers._files import replace_file
from calipers.aggregation import AGGREGATIONS
from calipers.calibration import infinite_reason
from calipers.ensemble import Ensemble
from calipers.onnx import _quantiles as quantiles
from calipers.onnx._graph import (
    OPSET,
    OPSET_OF_WORDS,
    TYPES,
    Graph as Graph,
    Value as Value,
    array_info,
)
from calipers.onnx._network_graph import OUTPUTS, columns, has_words, matrix, parameters, with_trees
from calipers.onnx._quantiles import Parts as Parts, in_own_unit, lower_quantile, upper_quantile
from calipers.prediction import Query
from calipers.preprocessing import Forest, TableEncoder
from calipers.storage import versions

__all__ = ["export"]


_DESCRIPTION = (
    "Point predictions and prediction intervals of an ensemble of neural networks. Inputs and "
    "outputs are in the units of the data; the metadata names the inputs and describes the "
    "intervals."
)


def export(
    ensemble: Ensemble,
    path: str | os.PathLike[str],
    *,
    coverage: float | Sequence[float] | None = None,
    dtype: str = "float64",
    inputs: Sequence[str],
    table: TableEncoder | None = None,
    forest: Forest | None = None,
    target: str = "y",
) -> Path:
    """Write an ensemble to an ONNX file; users call ``IntervalRegressor.to_onnx`` instead.

    Outputs are in double precision, whatever the ``dtype`` of the inputs. Raises ``ValueError`` if
    the networks have no method ``onnx``, or the model has a ``row_weight``, or too few calibration
    rows for the coverage of a target without bounds.
    """
    if dtype not in TYPES:
        raise ValueError(f"dtype must be one of {sorted(TYPES)}, got {dtype!r}")
    graph = Graph(opset=OPSET_OF_WORDS if table is not None and has_words(table) else OPSET)
    if table is None:
        X, inputs_info = matrix(graph, len(inputs), dtype)
    else:
        X, inputs_info = columns(graph, table, dtype)
    X = X if forest is None else with_trees(graph, forest, X)
    values = parameters(graph, ensemble.bank, X)
    point = graph.mean(_points(graph, ensemble, values))
    point = quantiles.clipped(graph, point, ensemble.support)
    outputs: dict[str, tuple[Value, list[Any]]] = {"point": (point, ["rows"])}  # with their shapes
    metadata = {
        "inputs": json.dumps(list(inputs), ensure_ascii=False),
        "target": target,
        "support": str(ensemble.support),
        "scale": "identity" if ensemble.target_map is None else ensemble.target_map.kind,
        "aggregation": ensemble.aggregation,
        "versions": json.dumps(versions()),
    }
    if ensemble.head.has_interval:
        bounds, levels = _interval_outputs(graph, ensemble, X, values, coverage)
        outputs |= bounds
        metadata |= levels
    shape = [len(ensemble.bank), "rows"]
    outputs |= {f"member_{name}": (value, shape) for name, value in values.items()}
    for name, (value, _) in outputs.items():
        graph.named(value, name)
    outputs_info = [array_info(name, "float64", shape) for name, (_, shape) in outputs.items()]
    model = graph.model(inputs_info, outputs_info, metadata, _DESCRIPTION)
    onnx.checker.check_model(model)
    replace_file(Path(path), model.SerializeToString())
    return Path(path)


def _points(graph: Graph, ensemble: Ensemble, values: dict[str, Value]) -> Value:
    """The point prediction of each network, (networks, rows)."""
    density = _density(graph, ensemble, values)
    if density is None:
        return values["point"]
    if ensemble.target_map is not None:
        return quantiles.mapped_mean(graph, ensemble.target_map, density)
    return quantiles.density_mean(graph, density)


def _density(graph: Graph, ensemble: Ensemble, values: dict[str, Value]) -> Parts | None:
    """The split normals that networks predict, (networks, rows), or None if they predict none.

    If they predict several each, (components, networks, rows), with their weights.
    """
    head = ensemble.head
    if head.components == 1:
        names = head.split_normal
        return Parts(*(values[name] for name in names)) if names else None
    fields = (*(head.split_normal[i::3] for i in range(3)), head.shares)
    loc, left, right, weight = (
        graph("Concat", *(graph.unsqueezed(values[name], 0) for name in names), axis=0)
        for names in fields
    )
    # The sum of the weights is 1 in single precision only.
    return Parts(loc, left, right, weight / graph.sum(weight, keepdims=1))


def _members(graph: Graph, density: Parts, networks: int) -> Parts:
    """The mixture of all split normals, (members, 1, rows)."""
    if density.weight is None:
        return Parts(*(graph.unsqueezed(part, 1) for part in density[:3]))
    rows = graph("Slice", graph("Shape", density.weight), graph.integers(2), graph.integers(3))
    shape = graph("Concat", graph.integers(-1, 1), rows, axis=0)
    parts = (*density[:3], density.weight / float(networks))
    return Parts(*(graph("Reshape", part, shape) for part in parts))


def _interval_outputs(
    graph: Graph,
    ensemble: Ensemble,
    X: Value,
    values: dict[str, Value],
    coverage: float | Sequence[float] | None,
) -> tuple[dict[str, tuple[Value, list[Any]]], dict[str, str]]:
    """The bounds by name, with their shapes, and the metadata that say what they are."""
    levels = np.atleast_1d(ensemble.coverage if coverage is None else coverage).astype(float)
    sides, tails, supported = _interval(graph, ensemble, X, values, levels)
    sides = [quantiles.observed(graph, side, ensemble.support) for side in sides]
    if not supported.all():
        finite, ends = graph.constant(supported, np.bool_), ensemble.support.ends
        sides = [graph("Where", finite, *each) for each in zip(sides, ends, strict=True)]
    shape: list[Any] = ["rows", len(levels)]
    if coverage is None or np.isscalar(coverage):
        sides, shape = [graph.squeezed(side, 1) for side in sides], ["rows"]
    outputs = {name: (side, shape) for name, side in zip(OUTPUTS[1:], sides, strict=True)}
    return outputs, {"coverage": json.dumps(levels.tolist()), "levels": json.dumps(tails)}


def _interval(
    graph: Graph, ensemble: Ensemble, X: Value, values: dict[str, Value], coverages: FloatArray
) -> tuple[list[Value], Any, BoolArray]:
    """Bounds, (rows, coverages), their normal scores, and whether rows support each coverage."""
    ensemble.check(Query(tuple(coverages.tolist())))
    aggregate = AGGREGATIONS[ensemble.aggregation].onnx
    if aggregate is None:
        raise ValueError(f"aggregation={ensemble.aggregation!r} has no ONNX form")
    options = {"coverage": ensemble.coverage, "members": len(ensemble.bank)}
    density = _density(graph, ensemble, values)
    if not ensemble.gives_distribution:
        lower, upper = (
            in_own_unit(graph, side, ensemble.target_map)
            for side in _bounds(graph, values, density, ensemble.coverage)
        )
        point = _points(graph, ensemble, values)
        sides = aggregate(graph, lower, point, upper, **options)
        return [graph.unsqueezed(side, 1) for side in sides], None, np.ones(1, bool)
    if density is None:
        sides = aggregate(graph, values["lower"], values["point"], values["upper"], **options)
        density = Parts(*(Value(side, graph) for side in sides))
    parts = _members(graph, density, len(ensemble.bank))
    scores, step, supported = _scores(graph, ensemble, X, parts, coverages)
    low = lower_quantile(graph, scores[0], parts, step)
    high = upper_quantile(graph, scores[1], parts, step)
    tails = [score.squeeze(1) if step is None else score for score in scores]
    bounds = [in_own_unit(graph, side, ensemble.target_map) for side in (low, high)]
    bounds = [graph("Transpose", bound) for bound in bounds]
    return bounds, [tail.tolist() for tail in tails], supported


def _scores(
    graph: Graph, ensemble: Ensemble, X: Value, parts: Parts, coverages: FloatArray
) -> tuple[list[FloatArray], Value | None, BoolArray]:
    """Normal scores of the bounds, (levels, steps), the step of each row, and what is supported.

    The last says of each coverage whether there are enough calibration rows.
    """
    tail = (1 - coverages[:, None]) / 2
    sides, step, supported = [ndtri(tail), -ndtri(tail)], None, np.ones(len(tail), bool)
    for number, calibration in enumerate(reversed(ensemble.calibrations)):
        form, local, before = calibration.onnx(graph, X, parts), None, sides[0].shape[1]
        if form is not None:  # a column for each of its steps and each of those so far
            local, own = np.repeat(np.arange(form[1]), before), form[0]
            sides = [np.tile(side, (1, form[1])) for side in sides]
            step = own if step is None else graph("Mul", own, graph.integers(before)) + step
        if number == 0:
            supported = np.all(calibration.supports(tail, local), axis=1)
            bounded = ensemble.unsupported == "inf" and np.isfinite(ensemble.support.ends).all()
            if not (bounded or supported.all()):
                raise ValueError(infinite_reason(coverages[~supported].tolist(), calibration))
        sides = [calibration.level_map().to_score(side, local) for side in sides]
    return sides, step, supported


def _bounds(
    graph: Graph, values: dict[str, Value], density: Parts | None, coverage: float
) -> tuple[Value, Value]:
    """Bounds of each member, (members, rows)."""
    if density is None:
        return values["lower"], values["upper"]
    if density.weight is None:  # add the axis along which components of a network would stand
        density = Parts(*(graph.unsqueezed(part, 0) for part in density[:3]))
    score = ndtri((1 - coverage) / 2)
    return lower_quantile(graph, score, density), upper_quantile(graph, -score, density)
