"""Heads of networks that predict bounds and a point, or a point alone."""

from typing import Any

from calipers.heads._head import Array, Head, columns, length, onnx_length


class _Bounds(Head):
    """Bounds of the coverage they were trained for, and a point."""

    size = 3
    fields = ("lower", "point", "upper")
    around_point = "ordered"

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        lower, point, upper = parameters
        return lower, point, upper


class Free(_Bounds):
    """Bounds and point are left to the loss, as in the paper; they can cross."""

    name = "free"
    can_cross = True

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        return columns(raw)

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        return list(raw)


class Midpoint(_Bounds):
    """Free bounds with the point between them, for losses that train no point."""

    name = "midpoint"
    can_cross = True

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        lower, _, upper = columns(raw)
        return lower, (lower + upper) / 2, upper

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        lower, _, upper = raw
        return [lower, graph("Mul", graph("Add", lower, upper), graph.single(0.5)), upper]


class Ordered(_Bounds):
    """A point and the distances of the bounds from it: they cannot cross."""

    name = "ordered"
    point_at = 1

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        below, point, above = columns(raw)
        return point - length(below), point, point + length(above)

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        below, point, above = raw
        lower = graph("Sub", point, onnx_length(graph, below))
        return [lower, point, graph("Add", point, onnx_length(graph, above))]


class Point(Head):
    """A point and nothing else."""

    name = "point"
    size = 1
    fields = ("point",)

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        return columns(raw)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        (point,) = parameters
        return point, point, point

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        return list(raw)
