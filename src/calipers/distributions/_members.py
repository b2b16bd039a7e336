"""Components of the mixtures of a block of rows, as the functions of this package take them."""

from typing import NamedTuple

import numpy as np

from calipers._checks import BoolArray, FloatArray, IntArray


class Members(NamedTuple):
    """Split normals of the mixtures of n rows, network by network, each of shape (members, n)."""

    loc: FloatArray
    left: FloatArray
    right: FloatArray
    weights: FloatArray  # (members, n), or (members, 1) where they are common to all rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.loc.shape[1]

    @property
    def parameters(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Location and scales."""
        return self.loc, self.left, self.right

    def take(self, rows: IntArray) -> "Members":
        """Members of the subset ``rows``."""
        weights = self.weights if self.weights.shape[1] == 1 else self.weights[:, rows]
        return Members(self.loc[:, rows], self.left[:, rows], self.right[:, rows], weights)

    def mirrored(self, flip: BoolArray | np.bool_) -> "Members":
        """Members with the rows marked by ``flip`` replaced by their mirror images."""
        loc, left, right = self.parameters
        if flip.all():
            return Members(-loc, right, left, self.weights)
        if not flip.any():
            return self
        sides = np.where(flip, right, left), np.where(flip, left, right)
        return Members(np.where(flip, -loc, loc), *sides, self.weights)
