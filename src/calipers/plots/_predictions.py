"""Plots of predictions: intervals, distributions, and the two kinds of uncertainty."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray
from calipers.distributions import SplitNormalMixture
from calipers.plots._style import COLORS


def plot_interval(
    ax: Axes,
    x: ArrayLike,
    lower: ArrayLike,
    point: ArrayLike,
    upper: ArrayLike,
    *,
    color: str = COLORS["blue"],
    labels: tuple[str, str] = ("prediction interval", "point estimate"),
) -> None:
    """Draw intervals over an ordered input as a band, and point estimates as a line.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x, lower, point, upper : array-like of shape (n,)
        Ordered input, bounds and point estimates.
    color : str
        Colour of band and line.
    labels : tuple of str
        Names of band and line in the legend.
    """
    lower, upper, infinite = drawable(lower, upper, point)
    name = labels[0] + infinite
    ax.fill_between(x, lower, upper, color=color, alpha=0.18, linewidth=0, label=name)
    for bound in () if infinite else (lower, upper):
        ax.plot(x, bound, color=color, linewidth=1.0)
    ax.plot(x, point, color=color, linewidth=1.6, label=labels[1])


def drawable(
    lower: ArrayLike, upper: ArrayLike, *others: ArrayLike
) -> tuple[FloatArray, FloatArray, str]:
    """Return bounds with infinite ones replaced by ends beyond all values, and a label suffix.

    Examples
    --------
    >>> drawable([-np.inf, 0.0], [np.inf, 3.0], [1.0, 2.0])
    (array([-0.3,  0. ]), array([3.3, 3. ]), ', infinite')
    """
    values = [np.asarray(each, dtype=float) for each in (lower, upper, *others)]
    finite = np.concatenate([each[np.isfinite(each)] for each in values])
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    infinite = ", infinite" if any(np.isinf(bound).any() for bound in values[:2]) else ""
    margin = 0.1 * (high - low) or 1.0
    ends = np.clip(values[:2], low - margin, high + margin)  # clips infinite bounds only
    return ends[0], ends[1], infinite


def plot_rows(
    ax: Axes,
    lower: ArrayLike,
    point: ArrayLike,
    upper: ArrayLike,
    target: ArrayLike,
    *,
    max_rows: int = 400,
    color: str = COLORS["blue"],
) -> None:
    """Draw rows in the order of their prediction, each with its interval and its target.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    lower, point, upper, target : array-like of shape (n,)
        Bounds, point estimates and observations.
    max_rows : int
        Maximum number of rows drawn, evenly spaced in this order.
    color : str
        Colour of intervals and point estimates.

    Examples
    --------
    >>> from calipers.plots import new_figure
    >>> ax = new_figure(2.0).subplots()
    >>> plot_rows(ax, [0, 1], [1, 2], [2, 3], [0.5, 4])
    >>> ax.get_legend_handles_labels()[1]
    ['interval', 'point', 'observed, inside', 'observed, outside']
    """
    low, middle, high, y = (np.asarray(v, dtype=float) for v in (lower, point, upper, target))
    order = np.argsort(middle, kind="stable")
    if len(order) > max_rows:
        order = order[np.linspace(0, len(order) - 1, max_rows).round().astype(int)]
    low, middle, high, y = (values[order] for values in (low, middle, high, y))
    rank, inside = np.arange(len(order)), (low <= y) & (y <= high)
    thickness = float(np.clip(200 / len(rank), 0.8, 4))
    low, high, infinite = drawable(low, high, middle, y)
    name = f"interval{infinite}"
    ax.vlines(rank, low, high, color=color, alpha=0.28, linewidth=thickness, label=name)
    ax.plot(rank, middle, color=color, label="point")
    for mask, mark, shade, name in (
        (inside, ".", COLORS["black"], "observed, inside"),
        (~inside, "D", COLORS["orange"], "observed, outside"),
    ):
        size = 3.0 if mark == "D" else 3.5
        ax.plot(rank[mask], y[mask], mark, color=shade, markersize=size, label=name)
    ax.set_xticks([])
    ax.set_xlabel("rows, sorted by prediction")


def plot_mixture(ax: Axes, mixture: SplitNormalMixture, *, coverage: float) -> None:
    """Draw the density of one mixture, the densities of its networks, and its interval.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    mixture : SplitNormalMixture of shape (1,)
        The mixture.
    coverage : float
        Mass of the shaded interval.
    """
    low, high = (float(bound[0]) for bound in mixture.interval(coverage))
    margin = 0.35 * (high - low)
    x = np.linspace(low - margin, high + margin, 1001)
    total = mixture.pdf(x[:, None])[:, 0]
    inside = (x >= low) & (x <= high)
    ax.fill_between(x[inside], total[inside], color=COLORS["blue"], alpha=0.18, linewidth=0)
    palette = [COLORS[name] for name in ("orange", "green", "yellow", "sky", "pink")]
    networks = mixture.by_network
    for j in range(len(networks)):
        member = networks[j].pdf(x)
        label = "members" if j == 0 else None
        ax.plot(x, member, "--", color=palette[j % len(palette)], linewidth=1.0, label=label)
    ax.plot(x, total, color=COLORS["black"], linewidth=1.8, label="mixture")
    for bound in (low, high):
        ax.plot([bound] * 2, [0, np.interp(bound, x, total)], color=COLORS["blue"], linewidth=1.2)
    ax.set(ylim=(0, None), xlim=(x[0], x[-1]), xlabel="target", ylabel="density")


def plot_uncertainty(
    ax: Axes,
    aleatoric: ArrayLike,
    epistemic: ArrayLike,
    inside: ArrayLike | None = None,
    *,
    max_rows: int = 1500,
) -> None:
    """Draw the epistemic against the aleatoric standard deviation of each row.

    Above the dashed line the networks disagree by more than the noise that they predict.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    aleatoric, epistemic : array-like of shape (n,)
        Standard deviations, the square roots of ``dist.aleatoric_var`` and ``dist.epistemic_var``.
    inside : array-like of bool of shape (n,), optional
        Whether each target lies in its interval; rows outside are marked.
    max_rows : int
        Maximum number of rows drawn.

    Examples
    --------
    >>> from calipers.plots import new_figure
    >>> ax = new_figure(2.0).subplots()
    >>> plot_uncertainty(ax, [1.0, 2.0], [0.5, 0.4], [True, False])
    >>> ax.get_legend_handles_labels()[1]
    ['inside', 'outside', 'equal']
    """
    aleatoric, epistemic = np.asarray(aleatoric, dtype=float), np.asarray(epistemic, dtype=float)
    held = np.ones(len(aleatoric), bool) if inside is None else np.asarray(inside, dtype=bool)
    step = max(1, -(-len(aleatoric) // max_rows))
    aleatoric, epistemic, held = aleatoric[::step], epistemic[::step], held[::step]
    ax.plot(
        aleatoric[held], epistemic[held], ".", color=COLORS["blue"], markersize=4, alpha=0.5,
        markeredgewidth=0, label="inside" if inside is not None else None,
    )  # fmt: skip
    if not held.all():
        ax.plot(aleatoric[~held], epistemic[~held], "D", color=COLORS["orange"], markersize=3,
                label="outside")  # fmt: skip
    x_end, y_end = 1.05 * aleatoric.max() or 1, 1.1 * epistemic.max() or 1
    diagonal = [0, max(x_end, y_end)]
    ax.plot(diagonal, diagonal, color=COLORS["grey"], linewidth=0.8, linestyle=(0, (4, 3)),
            label="equal")  # fmt: skip
    ax.set(xlim=(0, x_end), ylim=(0, y_end))
    ax.set_xlabel("aleatoric standard deviation")
    ax.set_ylabel("epistemic standard deviation")
