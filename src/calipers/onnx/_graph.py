"""Writing an ONNX graph as one writes a formula."""

from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

OPSET, IR = 17, 8  # of 2022, which runtimes of all kinds have caught up with

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


class Graph:
    """Nodes in the making; values are known by their names, and each node by that of its value.

    Nodes without a name would do by the standard, but onnxruntime 1.20 takes them for the same one
    when it fuses nodes, and computes something else.

    >>> graph = Graph()
    >>> total = graph("Add", "a", graph.constant(1.0))
    >>> [node.op_type for node in graph.nodes]
    ['Add']
    """

    def __init__(self, prefix: str = "calipers/") -> None:
        self.prefix = prefix
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def _name(self) -> str:
        return f"{self.prefix}{len(self.nodes) + len(self.constants)}"

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and give that output's name."""
        name = self._name()
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Add a constant."""
        name = self._name()
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def single(self, value: Any) -> str:
        """Add a constant in single precision, in which networks compute."""
        return self.constant(value, np.float32)

    def integers(self, *values: int) -> str:
        """Add a list of whole numbers, as shapes and axes are."""
        return self.constant(values, np.int64)

    def cast(self, value: str, dtype: str) -> str:
        """A value in single or double precision."""
        return self("Cast", value, to=TYPES[dtype])

    def unsqueezed(self, value: str, *axes: int) -> str:
        """A value with further axes of length 1."""
        return self("Unsqueeze", value, self.integers(*axes))

    def mean(self, value: str, axis: int = 0) -> str:
        """Mean along an axis."""
        return self("ReduceMean", value, axes=[axis], keepdims=0)

    def polynomial(self, x: str, coefficients: Any) -> str:
        """Polynomial with coefficients (numbers, or names of values) from the highest power on."""
        first, *rest = (c if isinstance(c, str) else self.constant(c) for c in coefficients)
        for coefficient in rest:
            first = self("Add", self("Mul", first, x), coefficient)
        return first

    def named(self, value: str, name: str) -> None:
        """Give a value the name of an output."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name))

    def repeat(self, times: int, states: dict[str, str], body: "Graph", results: list[str]) -> Any:
        """Run a body again and again, and give the names of its last states.

        ``states`` has names of double precision values within the body and what they are at first,
        ``results`` the names within it of the next states. The body may use values of this graph.
        """
        kept = body("Identity", "calipers/go_on")
        given = [
            helper.make_tensor_value_info("calipers/round", TensorProto.INT64, []),
            helper.make_tensor_value_info("calipers/go_on", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in states),
        ]
        made = [
            helper.make_tensor_value_info(kept, TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in results),
        ]
        inner = helper.make_graph(body.nodes, "body", given, made, body.constants)
        count, yes = self.constant(times, np.int64), self.constant(True, np.bool_)
        names = [f"{self._name()}/{state}" for state in states]
        loop = helper.make_node("Loop", [count, yes, *states.values()], names, names[0], body=inner)
        self.nodes.append(loop)
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
        model = helper.make_model(
            graph,
            producer_name="calipers",
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", 2)],
            ir_version=IR,
            doc_string=description,
        )
        helper.set_model_props(model, metadata)
        return model


def array_info(name: str, dtype: str, shape: list[Any]) -> ValueInfoProto:
    """Description of an input or output."""
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)
