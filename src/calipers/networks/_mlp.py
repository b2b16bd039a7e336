"""``MLP``, the parameters of the default networks, and how these follow from the rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval as Within, StrOptions

from calipers.networks._activations import ACTIVATIONS
from calipers.networks._factories import DenseFactory

_ROWS_PER_FREQUENCY = 3  # per input: few rows cannot tell which of many frequencies matter
_ROWS_PER_INPUT = 100  # with at least this many, cosines start at full amplitude
_MAX_FREQUENCIES = 512  # of all inputs together, which bounds the cost of wide tables
BINS, ROWS_FOR_SEGMENTS = 32, 900  # segments that "auto" tries, and the fewest rows to do so
# Standard deviation of the frequencies of smooth networks, and factor of their amplitudes.
SPREAD, AMPLITUDE = 0.15, 0.125

MAX_LAYERS, MAX_UNITS = 256, 10**6
"""Largest sizes of a network."""


@dataclass(kw_only=True, eq=False, repr=False)
class MLP(BaseEstimator):
    """Fully connected networks over embeddings of inputs, the default of ``IntervalRegressor``.

    Parameters
    ----------
    hidden_layers : sequence of int
        Units of each hidden layer.
    activation : str
        A key of ``ACTIVATIONS``.
    frequencies : int
        Periodic embeddings of each input with more than two values, fewer with few rows or many
        inputs; 0 for a plain network.
    bins : int or "auto"
        Segments of a piecewise-linear encoding of each such input, fewer in the same cases; 0 for
        none. "auto" is 32 in ``fit`` on at least 900 rows if a short trial leaves at least 4% of
        the variance unexplained, and otherwise 0: a target with almost no noise is mostly smooth.
        If trees leave at least twice as much unexplained as the trial, the target is smooth as
        well; networks then have no segments, lower frequencies and amplitudes, twice the learning
        rate, five times the weight decay and half the epochs.
    trees : int or "auto"
        Number of trees whose prediction is an additional input (for training rows, that of trees
        which have not seen them), rounded up to a multiple of 35, or of 7 for each fold if there
        are more than five (25 and 5 with more than 4,000 rows); 0 for none. "auto" is 700 (500), or
        fewer with more than 256 inputs, in ``fit`` on 100 to 50,000 rows with neither ``epochs``
        nor a ``time_budget``, if the trees predict held-out rows better or not much worse than
        networks in short trials; otherwise 0. Where there are trees, bins="auto" is 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.column_stack([np.linspace(0, 1, 300), np.arange(300) % 2])
    >>> MLP(hidden_layers=(32,)).factory(X, 300).columns
    (0,)
    """

    hidden_layers: Sequence[int] = (128, 128, 128)
    activation: str = "silu"
    frequencies: int = 8
    bins: int | str = "auto"
    trees: int | str = "auto"

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        return {
            "hidden_layers": ["array-like"],
            "activation": [StrOptions(set(ACTIVATIONS))],
            "frequencies": [Within(Integral, 0, None, closed="left")],
            "bins": [Within(Integral, 0, None, closed="left"), StrOptions({"auto"})],
            "trees": [Within(Integral, 0, 10_000, closed="both"), StrOptions({"auto"})],
        }

    def factory(self, X: NDArray[np.floating[Any]], rows: int) -> DenseFactory:
        """Return the factory of networks that suit inputs ``X`` with ``rows`` training rows."""
        hidden = tuple(int(units) for units in self.hidden_layers)
        if len(hidden) > MAX_LAYERS or not all(1 <= units <= MAX_UNITS for units in hidden):
            raise ValueError(
                f"hidden_layers must be 1 to {MAX_UNITS:,} units in each of at most {MAX_LAYERS} "
                f"layers, got {self.hidden_layers!r}"
            )
        if not self.frequencies:
            return DenseFactory(hidden, self.activation)
        not_binary = ~np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0)
        inputs = max(1, int(not_binary.sum()))  # one-hot categories have no frequencies
        most = min(rows // (_ROWS_PER_FREQUENCY * inputs), _MAX_FREQUENCIES // inputs)
        # In powers of two, since each amplitude is another program to compile.
        amplitude = 2.0 ** min(0, round(np.log2(rows / (_ROWS_PER_INPUT * inputs))))
        factory = DenseFactory(
            hidden,
            self.activation,
            min(self.frequencies, most),
            tuple(np.flatnonzero(not_binary).tolist()),
            amplitude=amplitude,
        )
        return factory if self.bins == "auto" else with_segments(factory, rows, int(self.bins))

    def alternative(self, base: DenseFactory, rows: int) -> DenseFactory | None:
        """Return the networks to try besides ``base`` for this many rows, if there are any."""
        if self.bins != "auto" or base.frequencies is None or rows < ROWS_FOR_SEGMENTS:
            return None
        factory = with_segments(base, rows, BINS)
        return factory if factory.bins else None


def with_segments(base: DenseFactory, rows: int, bins: int) -> DenseFactory:
    """Add a piecewise-linear encoding of ``bins`` segments, or fewer if there are few rows."""
    inputs = max(1, len(base.columns or ()))
    most = min(bins, rows // (_ROWS_PER_FREQUENCY * inputs), _MAX_FREQUENCIES // inputs)
    return replace(base, bins=2 ** int(np.log2(most)) if most and base.columns else 0)


def smooth(base: DenseFactory) -> DenseFactory:
    """Return the same networks with lower frequencies and amplitudes of the cosines."""
    return replace(base, spread=SPREAD, amplitude=AMPLITUDE * base.amplitude, smooth=True)


NETWORKS: dict[str, type[MLP]] = {"mlp": MLP}
"""Network settings by name."""
