"""Inputs of the graph: a matrix of numbers or, with a preprocessor, one input for each column.

What ``TableEncoder.transform`` does to the values of a column is repeated here, so that a graph
takes what ``TableEncoder.read`` gives: numbers, booleans as 1 and 0, dates as seconds since 1970,
all NaN where they are missing, and categories as text, empty where they are missing.
"""

from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from calipers.onnx._graph import Graph, array_info
from calipers.preprocessing import (
    CYCLES,
    SINGLE,
    CategoryEncoder,
    DateEncoder,
    NumberEncoder,
    TableEncoder,
)

OUTPUTS = ("point", "lower", "upper")
_FAR = 1e150  # beyond it a square is infinite; its asinh is far out enough


def matrix(graph: Graph, width: int, dtype: str) -> tuple[str, list[ValueInfoProto]]:
    """The input ``X``, of shape (rows, inputs)."""
    return graph.cast("X", "float64"), [array_info("X", dtype, ["rows", width])]


def columns(graph: Graph, table: TableEncoder, dtype: str) -> tuple[str, list[ValueInfoProto]]:
    """An input of shape (rows,) for each column, and what the preprocessor makes of them."""
    inputs, parts = [], []
    for column, encoder in table.used_columns():
        name = f"input_{column.name}" if column.name in OUTPUTS else column.name
        if isinstance(encoder, CategoryEncoder):
            shape: list[Any] = ["rows"]
            inputs.append(helper.make_tensor_value_info(name, TensorProto.STRING, shape))
            parts += _category(graph, encoder, name)
        elif isinstance(encoder, DateEncoder):
            inputs.append(array_info(name, "float64", ["rows"]))
            parts += _date(graph, encoder, name)
        elif isinstance(encoder, NumberEncoder):
            inputs.append(array_info(name, dtype, ["rows"]))
            parts += _number(graph, encoder, graph.cast(name, "float64"))
        else:
            raise ValueError(f"a column of kind {column.kind!r} has no ONNX form")
    return graph("Concat", *(graph.unsqueezed(part, 1) for part in parts), axis=1), inputs


def _filled(graph: Graph, encoder: NumberEncoder | DateEncoder, value: str) -> tuple[str, str]:
    gone = graph("IsNaN", value)
    return gone, graph("Where", gone, graph.constant(encoder.fill), value)


def _number(graph: Graph, encoder: NumberEncoder, value: str) -> list[str]:
    gone, filled = _filled(graph, encoder, value)
    if encoder.scale:
        away = graph("Div", filled, graph.constant(encoder.scale))
        away = graph("Sub", away, graph.constant(encoder.center / encoder.scale))
        size = graph("Min", graph("Abs", away), graph.constant(_FAR))
        root = graph("Sqrt", graph("Add", graph("Mul", size, size), graph.constant(1.0)))
        filled = graph("Mul", graph("Sign", away), graph("Log", graph("Add", size, root)))
    found = [filled, graph.cast(gone, "float64")] if encoder.missing else [filled]
    return found + _level(graph, encoder, value) if encoder.levels else found


def _level(graph: Graph, encoder: NumberEncoder, value: str) -> list[str]:
    """What is known of a number that is also a name."""
    levels = np.array(encoder.levels)
    middles = graph.constant(levels[None, :-1] / 2 + levels[None, 1:] / 2)
    above = graph("Greater", graph.unsqueezed(value, 1), middles)
    above = graph("Cast", above, to=TensorProto.INT64)
    code = graph("ReduceSum", above, graph.integers(1), keepdims=0)
    level = graph("Gather", graph.constant(levels), code)
    size = graph("Mul", graph("Abs", level), graph.constant(SINGLE))
    near = graph("LessOrEqual", graph("Abs", graph("Sub", value, level)), size)
    code = graph("Where", near, code, graph.integers(len(levels)))
    return [graph("Gather", graph.constant(known), code) for known in encoder.numbers]


def _date(graph: Graph, encoder: DateEncoder, value: str) -> list[str]:
    gone, filled = _filled(graph, encoder, value)
    since = graph("Sub", filled, graph.constant(encoder.low))
    found = [graph("Div", since, graph.constant(CYCLES["day"]))]
    for cycle in encoder.cycles:
        turns = graph("Div", filled, graph.constant(CYCLES[cycle]))
        part = graph("Sub", turns, graph("Floor", turns))
        angle = graph.cast(graph("Mul", part, graph.constant(2 * np.pi)), "float32")
        for wave in ("Sin", "Cos"):
            height = graph.cast(graph(wave, angle), "float64")
            found.append(graph("Where", gone, graph.constant(0.0), height))
    return [*found, graph.cast(gone, "float64")] if encoder.missing else found


def _category(graph: Graph, encoder: CategoryEncoder, value: str) -> list[str]:
    unseen, gone = len(encoder.levels), len(encoder.levels) + 1
    code = graph(
        "LabelEncoder",
        value,
        domain="ai.onnx.ml",
        keys_strings=[*encoder.levels, ""],
        values_int64s=[*range(len(encoder.levels)), gone],
        default_int64=unseen,
    )
    # A row of the table of what each code stands for.
    codes = np.arange(gone + 1)
    found = [codes == i for i in range(encoder.kept)]
    if encoder.others:
        found += [(codes >= encoder.kept) & (codes != gone)]
        found += [np.append(known, known[-1]) for known in encoder.numbers]
    found += [codes == gone] if encoder.missing else []
    return [graph("Gather", graph.constant(values), code) for values in found]
