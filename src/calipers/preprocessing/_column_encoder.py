"""What every encoder of a column has."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray
from calipers.preprocessing._unread import OnUnread, refuse_unread

if TYPE_CHECKING:
    import pandas as pd

    from calipers.onnx import Graph, Value


class Encoder(ABC):
    """The encoding of one column as numbers.

    Subclasses, one for each kind of column, are frozen dataclasses of JSON values, so that ``vars``
    serialises them.
    """

    @abstractmethod
    def read(self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread) -> NDArray[Any]:
        """Values of a column of a frame, which are NaN or None where they are missing.

        Errors name row and column; ``on_unread`` is called with a few cells that cannot be read.
        """

    @abstractmethod
    def encode(self, values: NDArray[Any]) -> FloatArray:
        """Values as columns of numbers, (rows, columns)."""

    @abstractmethod
    def names(self, name: str) -> list[str]:
        """Names of these columns."""

    @abstractmethod
    def outside(self, values: NDArray[Any]) -> BoolArray:
        """Which values were not seen in training, or are missing where none was."""

    @abstractmethod
    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        """``encode`` in a ``calipers.onnx`` graph: each column of numbers, (rows,).

        The value has the column's numbers in double precision, NaN where they are missing, or its
        text, empty where it is missing.
        """
