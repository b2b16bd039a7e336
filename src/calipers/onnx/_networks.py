"""Inputs and networks as a graph: from inputs in their own units to parameters in theirs.

Inputs are a matrix of numbers or, with a preprocessor, one for each column of its table.

All members are computed at once, along the first axis, in the precision in which they were trained:
inputs are standardised in double precision, the network is in single precision, and the target's
scale is applied in double precision again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from calipers.bank import Bank, BankPoints, ColumnPoints, Upgraded
from calipers.networks import (
    Around,
    AroundPoint,
    EmbeddedPerceptron,
    Linear,
    Perceptron,
    Periodic,
    PiecewiseLinear,
)
from calipers.onnx._graph import Graph, array_info
from calipers.preprocessing import (
    CYCLES,
    FAR,
    SINGLE,
    CategoryEncoder,
    DateEncoder,
    Forest,
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


def with_trees(graph: Graph, forest: Forest, X: str) -> str:
    """Inputs with the mean point of trees as the last."""
    x = graph("Sub", X, graph.constant(forest.center))
    x = graph("Div", x, graph.constant(forest.scale))
    x = graph("Clip", x, graph.constant(-FAR), graph.constant(FAR))
    leaf, sizes = forest.feature < 0, forest.sizes
    tree, node = np.repeat(np.arange(len(sizes)), sizes), np.arange(len(leaf))
    node = node - np.repeat(forest.roots, sizes)
    child = np.where(leaf, 0, forest.first_child - np.repeat(forest.roots, sizes))
    point = graph(
        "TreeEnsembleRegressor",
        graph.cast(x, "float32"),
        domain="ai.onnx.ml",
        aggregate_function="AVERAGE",
        n_targets=1,
        nodes_treeids=tree,
        nodes_nodeids=node,
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=np.where(leaf, 0, forest.feature),
        nodes_values=np.where(leaf, 0, forest.number).tolist(),
        nodes_truenodeids=child,
        nodes_falsenodeids=np.where(leaf, 0, child + 1),
        target_treeids=tree[leaf],
        target_nodeids=node[leaf],
        target_ids=[0] * int(leaf.sum()),
        target_weights=forest.number[leaf].tolist(),
    )
    return graph("Concat", X, graph.cast(point, "float64"), axis=1)


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


_GELU = (2 / np.pi) ** 0.5


def parameters(graph: Graph, members: Bank | Upgraded, inputs: str) -> dict[str, str]:
    """Each member's parameters for each row, (members, rows), double precision, by field."""
    if isinstance(members, Bank):
        return _of_bank(graph, members, inputs)
    if isinstance(members.points, ColumnPoints):
        raise ValueError(
            "the points of this model come from a regressor of another library, which calipers "
            "cannot write as ONNX"
        )
    if not isinstance(members.points, BankPoints):
        raise ValueError(
            "the points of this model come from a network of PyTorch, which calipers cannot write "
            "as ONNX: torch.onnx.export writes that network"
        )
    point = _of_bank(graph, members.points.bank, inputs)["point"]
    head = members.program.output
    return {
        name: graph("Add", value, point) if head.is_place(name) else value
        for name, value in _of_bank(graph, members.heads, inputs).items()
    }


def _of_bank(graph: Graph, bank: Bank, inputs: str) -> dict[str, str]:
    scaling, units = bank.scaling, bank.units
    x = graph("Sub", inputs, graph.constant(units.input_center))
    x = graph("Div", x, graph.constant(units.input_scale))
    x = graph("Clip", x, graph.constant(-1e9), graph.constant(1e9))
    x = graph.unsqueezed(graph.cast(x, "float32"), 0)
    x = graph("Sub", x, graph.single(scaling.input_center[:, None]))
    x = graph("Div", x, graph.single(scaling.input_scale[:, None]))
    program, head = bank.program, bank.program.output
    raw = _module(graph, program.tree([np.asarray(leaf) for leaf in bank.weights]), x)
    columns = [
        graph("Squeeze", graph("Gather", raw, graph.integers(i), axis=2), graph.integers(2))
        for i in range(head.size)
    ]
    if isinstance(program.network, Around):
        bent = graph("Tanh", columns[program.network.point_at])
        columns[program.network.point_at] = graph("Mul", bent, graph.single(program.network.reach))
    scale = scaling.target_scale * units.target_scale
    center = scaling.target_center * units.target_scale + units.target_center
    found = {}
    for name, value in zip(head.fields, head.onnx(graph, *columns), strict=True):
        wide = graph.cast(value, "float64")
        if name not in head.shares:
            wide = graph("Mul", wide, graph.constant(scale[:, None]))
        if head.is_place(name):
            wide = graph("Add", wide, graph.constant(center[:, None]))
        found[name] = wide
    return found


def _module(graph: Graph, module: Any, x: str) -> str:
    """Rows of shape (members or 1, rows, inputs) through a module with a leading members axis."""
    if isinstance(module, AroundPoint):
        return _module(graph, module.network, x)
    if isinstance(module, EmbeddedPerceptron):
        found = _periodic(graph, module.embedding, x)
        if module.pieces is not None:
            found = graph("Concat", found, _pieces(graph, module.pieces, x), axis=2)
        return _module(graph, module.perceptron, found)
    if not isinstance(module, Perceptron):
        raise ValueError(
            f"a network of type {type(module).__name__} cannot be written as ONNX, only those of "
            "calipers.networks can"
        )
    *hidden, last = module.layers
    for layer in hidden:
        x = _ACTIVATIONS[module.activation](graph, _linear(graph, layer, x))
    return _linear(graph, last, x)


def _linear(graph: Graph, layer: Linear, x: str) -> str:
    product = graph("MatMul", x, graph.single(layer.weight))
    return graph("Add", product, graph.single(layer.bias[:, None]))


def _periodic(graph: Graph, embedding: Periodic, x: str) -> str:
    share = graph("Div", x, graph.single(embedding.clip))
    square = graph("Add", graph("Mul", share, share), graph.single(1))
    x = graph("Div", x, graph("Sqrt", square))
    members, inputs, count = embedding.frequency.shape
    if not inputs * count:
        return x
    chosen = graph("Gather", x, graph.integers(*embedding.columns), axis=2)
    angle = graph("Mul", graph.unsqueezed(chosen, 3), graph.single(embedding.frequency[:, None]))
    angle = graph("Add", angle, graph.single(embedding.phase[:, None]))
    cosines = graph("Cos", graph("Mul", angle, graph.single(2 * np.pi)))
    cosines = graph("Mul", cosines, graph.single(embedding.amplitude[:, None, :, None]))
    flat = graph("Reshape", cosines, graph.integers(members, -1, inputs * count))
    return graph("Concat", x, flat, axis=2)


def _pieces(graph: Graph, pieces: PiecewiseLinear, x: str) -> str:
    members, inputs = pieces.amplitude.shape
    knots = np.asarray(pieces.knots).reshape(members, 1, inputs, -1)
    width = knots[..., 1:] - knots[..., :-1]
    slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0)
    chosen = graph.unsqueezed(graph("Gather", x, graph.integers(*pieces.columns), axis=2), 3)
    part = graph("Mul", graph("Sub", chosen, graph.single(knots[..., :-1])), graph.single(slope))
    part = graph("Clip", part, graph.single(0), graph.single(1))
    part = graph("Mul", part, graph.single(pieces.amplitude[:, None, :, None]))
    return graph("Reshape", part, graph.integers(members, -1, inputs * width.shape[-1]))


def _gelu(graph: Graph, x: str) -> str:
    cube = graph("Mul", graph("Mul", x, x), x)
    inner = graph("Add", x, graph("Mul", cube, graph.single(0.044715)))
    bend = graph("Tanh", graph("Mul", inner, graph.single(_GELU)))
    half = graph("Mul", x, graph.single(0.5))
    return graph("Mul", half, graph("Add", bend, graph.single(1)))


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "relu": lambda graph, x: graph("Relu", x),
    "silu": lambda graph, x: graph("Mul", x, graph("Sigmoid", x)),
    "gelu": _gelu,
    "tanh": lambda graph, x: graph("Tanh", x),
}
