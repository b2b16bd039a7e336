"""Quality-driven losses, which combine width, coverage, error and crossings over a batch.

They are not means of per-row losses, so the size of the batch matters.
"""

from array_api_compat import array_namespace

from calipers._arrays import Array
from calipers.losses._capture import captured_width, coverage_shortfall, hard_capture, soft_capture
from calipers.losses._density_scores import squared_error
from calipers.losses._rows import Scalar, positive_part, rows, weighted_mean


def crossing_penalty(
    lower: Array, point: Array, upper: Array, *, weight: Array | None = None
) -> Array:
    r"""Mean distance of point predictions from their interval, equation (penalty-function).

    .. math:: \frac{1}{n} \sum_i (L_i - \hat{y}_i)_+ + (\hat{y}_i - U_i)_+

    Crossed bounds are penalised too, since no point lies between them.

    Parameters
    ----------
    lower, point, upper : arrays of shape (n_samples,)
        Bounds and point estimates.
    weight : array of shape (n_samples,), optional
        Row weights.

    Examples
    --------
    >>> import numpy as np
    >>> point = np.array([0.5, 3.0])
    >>> float(crossing_penalty(np.zeros(2), point, np.ones(2)))
    1.0
    """
    weight, lower, point, upper = rows(weight, lower=lower, point=point, upper=upper)
    return weighted_mean(positive_part(lower - point) + positive_part(point - upper), weight)


def qd_plus(
    lower: Array,
    point: Array,
    upper: Array,
    target: Array,
    *,
    coverage: Scalar = 0.95,
    coverage_weight: Scalar = 0.99,
    point_weight: Scalar = 0.3,
    crossing_weight: Scalar = 10.0,
    softness: Scalar = 160.0,
    target_range: Scalar = 1.0,
    weight: Array | None = None,
) -> Array:
    r"""Quality-driven loss for an interval with a point prediction, QD+, equation (loss-qd-plus).

    .. math::
        (1 - \lambda_1)(1 - \lambda_2) \mathcal{L}_\mathit{MPIW}
        + \lambda_1 (1 - \lambda_2) \mathcal{L}_\mathit{PICP}
        + \lambda_2 \mathcal{L}_\mathit{MSE} + \xi \mathcal{L}_P

    of ``captured_width``, ``coverage_shortfall``, ``squared_error`` and ``crossing_penalty``; the
    first two use ``soft_capture``. The default weights are those of the paper's toy problem.

    Parameters
    ----------
    lower, point, upper, target : arrays of shape (n_samples,)
        Bounds, point estimates and observations, standardised for the defaults to make sense.
    coverage : scalar, default 0.95
        Nominal probability of the interval.
    coverage_weight : scalar, default 0.99
        Coverage against width, :math:`\lambda_1` between 0 and 1.
    point_weight : scalar, default 0.3
        Point against interval, :math:`\lambda_2` between 0 and 1.
    crossing_weight : scalar, default 10
        Penalty :math:`\xi` for point predictions outside their interval.
    softness : scalar, default 160
        Steepness s of the soft capture.
    target_range : scalar, default 1
        The width is divided by it: the range of the target gives NMPIW in place of MPIW.
    weight : array of shape (n_samples,), optional
        Row weights.

    Examples
    --------
    With a captured target and a perfect point only the width counts, 0.01 * 0.7 * 2 / 1.001:

    >>> import numpy as np
    >>> lower, point, upper = np.array([-1.0]), np.array([0.0]), np.array([1.0])
    >>> round(float(qd_plus(lower, point, upper, np.array([0.0]))), 6)
    0.013986
    """
    weight, lower, point, upper, target = rows(
        weight, lower=lower, point=point, upper=upper, target=target
    )
    capture = soft_capture(lower, upper, target, softness=softness)
    width = captured_width(lower, upper, capture, weight=weight) / target_range
    shortfall = coverage_shortfall(capture, coverage=coverage, weight=weight)
    error = squared_error(point, target, weight=weight)
    crossing = crossing_penalty(lower, point, upper, weight=weight)
    interval = (1 - coverage_weight) * width + coverage_weight * shortfall
    return (1 - point_weight) * interval + point_weight * error + crossing_weight * crossing


def qd(
    lower: Array,
    upper: Array,
    target: Array,
    *,
    coverage: Scalar = 0.95,
    coverage_weight: Scalar = 15.0,
    softness: Scalar = 160.0,
    target_range: Scalar = 1.0,
    weight: Array | None = None,
) -> Array:
    r"""Quality-driven loss for an interval, QD, as implemented by Pearce et al. (2018).

    .. math:: \mathcal{L}_\mathit{MPIW} + \lambda \sqrt{n} \, \mathcal{L}_\mathit{PICP}

    The width uses ``hard_capture``, the coverage ``soft_capture``. Their width is :math:`|U - L|`,
    which is U - L wherever a target is captured. Published values of :math:`\lambda` belong to this
    form; ``qd_paper`` is the printed form.

    Parameters
    ----------
    lower, upper, target : arrays of shape (n_samples,)
        Bounds and observations, standardised for the defaults to make sense.
    coverage : scalar, default 0.95
        Nominal probability :math:`1 - \alpha` of the interval.
    coverage_weight : scalar, default 15
        Coverage against width, :math:`\lambda`.
    softness : scalar, default 160
        Steepness s of the soft capture.
    target_range : scalar, default 1
        The width is divided by it: the range of the target gives NMPIW in place of MPIW.
    weight : array of shape (n_samples,), optional
        Row weights; n is their sum.

    Examples
    --------
    One of four targets missed, 2 * 3 / 3.001 + 15 * 2 * (0.95 - 0.75)**2:

    >>> import numpy as np
    >>> lower, upper = np.full(4, -1.0), np.full(4, 1.0)
    >>> round(float(qd(lower, upper, np.array([0.0, 0.0, 0.0, 5.0]))), 4)
    3.1993
    """
    weight, lower, upper, target = rows(weight, lower=lower, upper=upper, target=target)
    width, shortfall = _qd_parts(lower, upper, target, coverage, softness, weight)
    n = array_namespace(weight).sum(weight)
    return width / target_range + coverage_weight * n**0.5 * shortfall


def qd_paper(
    lower: Array,
    upper: Array,
    target: Array,
    *,
    coverage: Scalar = 0.95,
    coverage_weight: Scalar = 0.07,
    softness: Scalar = 160.0,
    target_range: Scalar = 1.0,
    weight: Array | None = None,
) -> Array:
    r"""Quality-driven loss for an interval, QD, as printed, equation (original-qde).

    .. math::
        \mathcal{L}_\mathit{MPIW}
        + \lambda \frac{n}{\alpha (1 - \alpha)} \mathcal{L}_\mathit{PICP}

    It differs from ``qd`` only in the factor. The default weight makes the two nearly equal for
    batches of 100 rows at 95% coverage: 0.07 * 100 / 0.0475 = 147, where ``qd`` has 15 * 10 = 150.

    Parameters
    ----------
    lower, upper, target, coverage, softness, target_range, weight
        As for ``qd``.
    coverage_weight : scalar, default 0.07
        Coverage against width, :math:`\lambda`.

    Examples
    --------
    One of four targets missed, 2 * 3 / 3.001 + 0.07 * 4 / 0.0475 * (0.95 - 0.75)**2:

    >>> import numpy as np
    >>> lower, upper = np.full(4, -1.0), np.full(4, 1.0)
    >>> round(float(qd_paper(lower, upper, np.array([0.0, 0.0, 0.0, 5.0]))), 4)
    2.2351
    """
    weight, lower, upper, target = rows(weight, lower=lower, upper=upper, target=target)
    width, shortfall = _qd_parts(lower, upper, target, coverage, softness, weight)
    n = array_namespace(weight).sum(weight)
    factor = n / (coverage * (1 - coverage))
    return width / target_range + coverage_weight * factor * shortfall


def _qd_parts(
    lower: Array, upper: Array, target: Array, coverage: Scalar, softness: Scalar, weight: Array
) -> tuple[Array, Array]:
    """Width of the intervals that capture their target, and the shortfall of soft coverage."""
    width = captured_width(lower, upper, hard_capture(lower, upper, target), weight=weight)
    capture = soft_capture(lower, upper, target, softness=softness)
    return width, coverage_shortfall(capture, coverage=coverage, weight=weight)
