"""A builder of ONNX graphs, in which nodes are written like formulas."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

OPSET = 17  # of 2022, which all common runtimes support
OPSET_OF_WORDS = 20  # of 2023, the first with regular expressions
_IR = {OPSET: 8, OPSET_OF_WORDS: 9}

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


class Value(str):
    """The name of a value in a graph; arithmetic with numbers and other values adds nodes."""

    graph: "Graph"
    single: bool  # whether it is in single precision
    __array_ufunc__ = None  # arrays leave arithmetic to this class

    def __new__(cls, name: str, graph: "Graph", single: bool = False) -> Self:
        value = super().__new__(cls, name)
        value.graph, value.single = graph, single
        return value

    def __add__(self, other: ArrayLike) -> "Value":
        return self.graph("Add", self, other)

    def __sub__(self, other: ArrayLike) -> "Value":
        return self.graph("Sub", self, other)

    def __rsub__(self, other: ArrayLike) -> "Value":
        return self.graph("Sub", other, self)

    def __mul__(self, other: Any) -> "Value":
        return self.graph("Mul", self, other)

    def __truediv__(self, other: ArrayLike) -> "Value":
        return self.graph("Div", self, other)

    def __rtruediv__(self, other: ArrayLike) -> "Value":
        return self.graph("Div", other, self)

    def __neg__(self) -> "Value":
        return self.graph("Neg", self)

    __radd__, __rmul__ = __add__, __mul__


class Graph:
    """A graph under construction.

    Each node has the name of its output. The standard allows nodes without names, but onnxruntime
    1.20 confuses them when it fuses nodes, and then computes something else.

    >>> graph = Graph()
    >>> total = graph("Exp", "a") + 1.0
    >>> [node.op_type for node in graph.nodes]
    ['Exp', 'Add']
    """

    def __init__(self, prefix: str = "calipers/", opset: int = OPSET) -> None:
        self.prefix, self.opset = prefix, opset
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def _name(self) -> str:
        return f"{self.prefix}{len(self.nodes) + len(self.constants)}"

    def __call__(self, kind: str, *inputs: ArrayLike, **attributes: Any) -> Value:
        """Add a node with one output.

        Inputs that are not names of values are numbers, in the precision of the values.
        """
        single = any(isinstance(value, Value) and value.single for value in inputs)
        dtype = np.float32 if single else np.float64
        names = [v if isinstance(v, str) else self.constant(v, dtype) for v in inputs]
        name = self._name()
        self.nodes.append(helper.make_node(kind, names, [name], name, **attributes))
        return Value(name, self, single)

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.float64) -> Value:
        name = self._name()
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return Value(name, self, dtype is np.float32)

    def single(self, value: ArrayLike) -> Value:
        """Add a constant in single precision, in which networks compute."""
        return self.constant(value, np.float32)

    def integers(self, *values: int) -> Value:
        """Add a list of integers, such as a shape or axes."""
        return self.constant(values, np.int64)

    def cast(self, value: str, dtype: str) -> Value:
        """A value converted to single or double precision."""
        return Value(self("Cast", value, to=TYPES[dtype]), self, dtype == "float32")

    def unsqueezed(self, value: str, *axes: int) -> Value:
        """A value with additional axes of length 1."""
        return self("Unsqueeze", value, self.integers(*axes))

    def squeezed(self, value: str, axis: int) -> Value:
        """A value without an axis of length 1."""
        return self("Squeeze", value, self.integers(axis))

    def mean(self, value: str, axis: int = 0) -> Value:
        return self.reduced("ReduceMean", value, axis)

    def reduced(self, kind: str, value: str, axis: int = 0) -> Value:
        """A mean, minimum or maximum; since the opset 18, the axis is an input."""
        if self.opset < 18:
            return self(kind, value, axes=[axis], keepdims=0)
        return self(kind, value, self.integers(axis), keepdims=0)

    def sum(self, value: str, axis: int = 0, *, keepdims: int = 0) -> Value:
        return self("ReduceSum", value, self.integers(axis), keepdims=keepdims)

    def count(self, condition: str, axis: int) -> Value:
        """Number of true values along an axis."""
        return self.sum(self("Cast", condition, to=TensorProto.INT64), axis)

    def polynomial(self, x: Value, coefficients: Any) -> Value:
        """Polynomial with coefficients (numbers or names of values), highest power first."""
        result, *rest = coefficients
        for coefficient in rest:
            result = result * x + coefficient
        return result

    def named(self, value: str, name: str) -> None:
        """Give a value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name))

    def repeat(
        self, times: int, states: dict[Value, Value], body: "Graph", results: Sequence[Value]
    ) -> list[Value]:
        """Run ``body`` a number of times, and return the names of the final states.

        ``states`` maps names of double precision values within the body to their initial values;
        ``results`` are the names, within the body, of the next states. The body may use values of
        this graph.
        """
        go_on = body("Identity", "calipers/go_on")
        inputs = [
            helper.make_tensor_value_info("calipers/round", TensorProto.INT64, []),
            helper.make_tensor_value_info("calipers/go_on", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in states),
        ]
        outputs = [
            helper.make_tensor_value_info(go_on, TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in results),
        ]
        inner = helper.make_graph(body.nodes, "body", inputs, outputs, body.constants)
        count, true = self.constant(times, np.int64), self.constant(True, np.bool_)
        names = [Value(f"{self._name()}/{state}", self) for state in states]
        values = [count, true, *states.values()]
        self.nodes.append(helper.make_node("Loop", values, names, names[0], body=inner))
        return names

    def model(
        self,
        inputs: list[ValueInfoProto],
        outputs: list[ValueInfoProto],
        metadata: dict[str, str],
        description: str,
    ) -> ModelProto:
        """The finished model."""
        graph: GraphProto = helper.make_graph(
            self.nodes, "calipers", inputs, outputs, self.constants
        )
        opsets = {"": self.opset, "ai.onnx.ml": 2}
        model = helper.make_model(
            graph,
            producer_name="calipers",
            opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()],
            ir_version=_IR[self.opset],
            doc_string=description,
        )
        helper.set_model_props(model, metadata)
        return model


def array_info(name: str, dtype: str, shape: list[Any]) -> ValueInfoProto:
    """Description of an input or output."""
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)
