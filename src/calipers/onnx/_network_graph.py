"""The part of the graph from inputs, in their units, to parameters in the unit of the target.

The graph has a matrix of numbers as input or, with a preprocessor, one input per column of a table.

All members are computed at once, along the first axis, in the precision in which they were trained:
inputs are standardised in double precision, networks compute in single precision, and the target's
scale is applied in double precision again.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from calipers import networks
from calipers.bank import Bank, BankPoints, ColumnPoints, Upgraded
from calipers.onnx._graph import Graph, Value, array_info
from calipers.preprocessing import INPUT_LIMIT, Forest, TableEncoder

if TYPE_CHECKING:
    import equinox as eqx

OUTPUTS = ("point", "lower", "upper")


def matrix(graph: Graph, width: int, dtype: str) -> tuple[Value, list[ValueInfoProto]]:
    """The input ``X``, of shape (rows, inputs)."""
    return graph.cast("X", "float64"), [array_info("X", dtype, ["rows", width])]


def columns(graph: Graph, table: TableEncoder, dtype: str) -> tuple[Value, list[ValueInfoProto]]:
    """The preprocessed inputs, (rows, inputs), and an input of shape (rows,) for each column."""
    inputs, parts = [], []
    for column, encoder in table.used_columns():
        name = f"input_{column.name}" if column.name in OUTPUTS else column.name
        value = Value(name, graph)
        if column.dtype == object:
            shape: list[Any] = ["rows"]
            inputs.append(helper.make_tensor_value_info(name, TensorProto.STRING, shape))
        else:  # seconds since 1970 need double precision
            own = "float64" if column.dtype.kind == "M" else dtype
            inputs.append(array_info(name, own, ["rows"]))
            value = graph.cast(value, "float64")
        parts += encoder.onnx(graph, value)
    return graph("Concat", *(graph.unsqueezed(part, 1) for part in parts), axis=1), inputs


def has_words(table: TableEncoder) -> bool:
    """Whether words of text are inputs."""
    return any(getattr(encoder, "words", None) for _, encoder in table.used_columns())


def with_trees(graph: Graph, forest: Forest, X: Value) -> Value:
    """The inputs, with the mean prediction of the trees as a last column."""
    x = graph("Clip", (X - forest.center) / forest.scale, -INPUT_LIMIT, INPUT_LIMIT)
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


def parameters(graph: Graph, members: Bank | Upgraded, inputs: Value) -> dict[str, Value]:
    """Parameters of each member, by field: (members, rows), in double precision."""
    if isinstance(members, Bank):
        return _of_bank(graph, members, inputs)
    if isinstance(members.points, ColumnPoints):
        raise ValueError(
            "the point predictions of this model come from a regressor of another library, which "
            "calipers cannot export to ONNX"
        )
    if not isinstance(members.points, BankPoints):
        raise ValueError(
            "the point predictions of this model come from a PyTorch network, which calipers "
            "cannot export to ONNX: torch.onnx.export can"
        )
    point = _of_bank(graph, members.points.bank, inputs)["point"]
    head = members.program.output
    return {
        name: value + point if head.is_location(name) else value
        for name, value in _of_bank(graph, members.heads, inputs).items()
    }


def _of_bank(graph: Graph, bank: Bank, inputs: Value) -> dict[str, Value]:
    scaling, units = bank.scaling, bank.units
    x = graph("Clip", (inputs - units.input_center) / units.input_scale, -1e9, 1e9)
    x = graph.unsqueezed(graph.cast(x, "float32"), 0)
    x = (x - scaling.input_center[:, None]) / scaling.input_scale[:, None]
    program, head = bank.program, bank.program.output
    raw = _module(graph, program.tree([np.asarray(leaf) for leaf in bank.weights]), x)
    columns = [
        graph.squeezed(graph("Gather", raw, graph.integers(i), axis=2), 2) for i in range(head.size)
    ]
    if isinstance(program.network, networks.Around):
        bounded = graph("Tanh", columns[program.network.point_at])
        columns[program.network.point_at] = bounded * program.network.reach
    scale = scaling.target_scale * units.target_scale
    center = scaling.target_center * units.target_scale + units.target_center
    result = {}
    for name, value in zip(head.fields, head.onnx(graph, *columns), strict=True):
        result[name] = graph.cast(value, "float64")
        if name not in head.shares:
            result[name] *= scale[:, None]
        if head.is_location(name):
            result[name] += center[:, None]
    return result


def _module(graph: Graph, module: "eqx.Module", x: Value) -> Value:
    """Rows of shape (members or 1, rows, inputs) through a module with a leading members axis."""
    if isinstance(module, networks.AroundPoint):
        return _module(graph, module.network, x)
    if isinstance(module, networks.EmbeddedPerceptron):
        embedded = _periodic(graph, module.embedding, x)
        if module.segments is not None:
            embedded = graph("Concat", embedded, _segments(graph, module.segments, x), axis=2)
        raw = _module(graph, module.perceptron, embedded)
        if module.skip is None:
            return raw
        return raw + graph("Gather", x, graph.integers(-1), axis=2) * module.skip[:, None]
    if not isinstance(module, networks.Perceptron):
        raise ValueError(
            f"a network of type {type(module).__name__} cannot be exported to ONNX: only those of "
            "calipers.networks can"
        )
    activation = networks.ACTIVATIONS[module.activation].onnx
    if activation is None:
        raise ValueError(f"the activation {module.activation!r} has no ONNX form")
    *hidden, last = module.layers
    for layer in hidden:
        x = activation(graph, _linear(graph, layer, x))
    return _linear(graph, last, x)


def _linear(graph: Graph, layer: networks.Linear, x: Value) -> Value:
    return graph("MatMul", x, layer.weight) + layer.bias[:, None]


def _periodic(graph: Graph, embedding: networks.Periodic, x: Value) -> Value:
    relative = x / embedding.clip
    x = x / graph("Sqrt", relative * relative + 1)
    members, inputs, count = embedding.frequency.shape
    if not inputs * count:
        return x
    chosen = graph("Gather", x, graph.integers(*embedding.columns), axis=2)
    angle = graph.unsqueezed(chosen, 3) * embedding.frequency[:, None] + embedding.phase[:, None]
    cosines = graph("Cos", angle * (2 * np.pi)) * embedding.amplitude[:, None, :, None]
    flat = graph("Reshape", cosines, graph.integers(members, -1, inputs * count))
    return graph("Concat", x, flat, axis=2)


def _segments(graph: Graph, encoding: networks.PiecewiseLinear, x: Value) -> Value:
    """The piecewise-linear encoding of inputs."""
    members, inputs = encoding.amplitude.shape
    knots = np.asarray(encoding.knots).reshape(members, 1, inputs, -1)
    width = knots[..., 1:] - knots[..., :-1]
    slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0)
    chosen = graph.unsqueezed(graph("Gather", x, graph.integers(*encoding.columns), axis=2), 3)
    filled = graph("Clip", (chosen - knots[..., :-1]) * slope, 0, 1)
    filled = filled * encoding.amplitude[:, None, :, None]
    return graph("Reshape", filled, graph.integers(members, -1, inputs * width.shape[-1]))
