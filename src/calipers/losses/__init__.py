"""Losses as pure functions of NumPy, JAX or PyTorch arrays.

Every loss is written once, for whichever array library its arguments come from: NumPy evaluates
it, JAX differentiates it under ``jit`` and ``vmap``, PyTorch differentiates it through autograd.
Common rules:

- Data are positional: arrays of one shape from one library. As in Optax, predictions come first
  and the target last; ``calipers.metrics`` takes ``y_true`` first, as in scikit-learn. Parameters
  of a mixture's components have an additional leading axis. Options are keywords. Nothing
  broadcasts: unequal shapes, such as a column and a row, raise a ``ValueError``.
- A loss is a mean over the rows, or a function of such means, and is returned as a scalar of the
  data's floating type.
- ``weight`` turns every mean into a weighted mean and every count into a sum of weights. Scaling
  all weights changes only the losses that contain a count: QD by its factor, and every captured
  width, slightly, by its offset. A row of weight zero contributes nothing to the value or to a
  gradient, whatever it holds, NaN included; so padding can be masked by zeros or by a boolean
  array. If all weights are zero the loss is 0. Weights must not be negative.
- No code branches on the value of an option, so hyper-parameters may be traced scalars that differ
  between networks.
"""

from calipers.losses._capture import captured_width, coverage_shortfall, hard_capture, soft_capture
from calipers.losses._density_scores import (
    interval_score,
    normal_nll,
    pinball,
    split_normal_crps,
    split_normal_nll,
    squared_error,
)
from calipers.losses._mixtures import mixture_crps, mixture_nll
from calipers.losses._quality import crossing_penalty, qd, qd_paper, qd_plus

__all__ = [
    "captured_width",
    "coverage_shortfall",
    "crossing_penalty",
    "hard_capture",
    "interval_score",
    "mixture_crps",
    "mixture_nll",
    "normal_nll",
    "pinball",
    "qd",
    "qd_paper",
    "qd_plus",
    "soft_capture",
    "split_normal_crps",
    "split_normal_nll",
    "squared_error",
]
