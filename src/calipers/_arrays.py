"""Types of arrays and of what indexes them."""

from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]
Float32Array = NDArray[np.float32]
AnyFloatArray = NDArray[np.floating[Any]]  # of any precision
AnyIntArray = NDArray[np.integer[Any]]  # of any size

IndexLike: TypeAlias = (
    int | slice | EllipsisType | list[int] | tuple[Any, ...] | AnyIntArray | BoolArray | None
)
"""What NumPy accepts in brackets."""

Array: TypeAlias = Any
"""An array of NumPy, JAX or PyTorch, or a value of an ONNX graph; they have no common type."""
