"""The networks of a bank as a graph: from inputs in their own units to parameters in theirs.

All members are computed at once, along the first axis, in the precision in which they were trained:
inputs are standardised in double precision, the network is in single precision, and the target's
scale is applied in double precision again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from calipers.bank import Bank, BankPoints, ColumnPoints, Upgraded
from calipers.networks import (
    Around,
    AroundPoint,
    EmbeddedPerceptron,
    Linear,
    Perceptron,
    Periodic,
)
from calipers.onnx._graph import Graph

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


def _unknown(module: Any) -> str:
    return (
        f"a network of type {type(module).__name__} cannot be written as ONNX, only those of "
        "calipers.networks can"
    )


def _module(graph: Graph, module: Any, x: str) -> str:
    """Rows of shape (members or 1, rows, inputs) through a module with a leading members axis."""
    if isinstance(module, AroundPoint):
        return _module(graph, module.network, x)
    if isinstance(module, EmbeddedPerceptron):
        return _module(graph, module.perceptron, _periodic(graph, module.embedding, x))
    if not isinstance(module, Perceptron):
        raise ValueError(_unknown(module))
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


def _silu(graph: Graph, x: str) -> str:
    return graph("Mul", x, graph("Sigmoid", x))


def _gelu(graph: Graph, x: str) -> str:
    cube = graph("Mul", graph("Mul", x, x), x)
    inner = graph("Add", x, graph("Mul", cube, graph.single(0.044715)))
    bend = graph("Tanh", graph("Mul", inner, graph.single(_GELU)))
    half = graph("Mul", x, graph.single(0.5))
    return graph("Mul", half, graph("Add", bend, graph.single(1)))


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "relu": lambda graph, x: graph("Relu", x),
    "silu": _silu,
    "gelu": _gelu,
    "tanh": lambda graph, x: graph("Tanh", x),
}
