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
    module = program.tree([np.asarray(leaf) for leaf in bank.weights])
    around = module if isinstance(module, networks.AroundPoint) else None
    raw = _raw(graph, module if around is None else around.network, x)
    columns = [
        graph.squeezed(graph("Gather", raw, graph.integers(i), axis=2), 2) for i in range(head.size)
    ]
    if around is not None:
        columns[around.point_at] = graph("Tanh", columns[around.point_at]) * around.reach
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


def _raw(graph: Graph, network: "eqx.Module", x: Value) -> Value:
    """Raw outputs of each member, (members, rows, outputs)."""
    if not hasattr(network, "onnx"):
        raise ValueError(
            f"a network of type {type(network).__name__} cannot be exported to ONNX: it has no "
            "method onnx, as those of calipers.networks have"
        )
    raw: Value = network.onnx(graph, x)
    return raw
