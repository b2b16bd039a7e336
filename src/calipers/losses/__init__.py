"""Losses as pure functions of NumPy, JAX or PyTorch arrays.

Every loss is written once, for whichever array library its arguments come from: NumPy evaluates
it, JAX differentiates it under ``jit`` and ``vmap``, PyTorch differentiates it through autograd.
The rules they share:

- Data are positional, arrays of one shape from one library, those of a mixture's components with
  one more axis before; options follow as keywords. Nothing broadcasts: unequal shapes, such as a
  column met by a row, are a ``ValueError`` and not a matrix.
- A loss is the mean over the rows, or is made of such means, and comes back as a scalar of the
  data's floating type.
- ``weight`` turns every mean into a weighted mean and every count into a sum of weights. Scaling
  all weights changes nothing but the losses in which a count stands by itself: QD by its factor,
  and every captured width, slightly, by its offset. A row of weight zero contributes nothing to
  the value or to a gradient, whatever it holds, NaN included; so padding is masked by zeros or by
  a boolean array. With no weight left at all the loss is 0. Weights are not negative.
- No option's value is branched on, so hyper-parameters may be traced scalars that differ from
  network to network.
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
