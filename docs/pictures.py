"""The pictures of the explanation: python docs/pictures.py writes docs/images."""

from pathlib import Path

import numpy as np
from scipy.stats import norm

from calipers import IntervalRegressor, metrics
from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.datasets import FRIEDMAN, GAP, TOY
from calipers.distributions import SplitNormal
from calipers.losses import soft_capture
from calipers.networks import MLP
from calipers.plots import COLORS, new_figure, plot_calibration, plot_interval, plot_mixture, style

FOLDER = Path(__file__).parent / "images"
DASHES = (0, (4, 3))


def train_toy():
    """The paper's toy problem, by the paper's method and by the defaults."""
    X, y = TOY.sample(1000, random_state=0)
    paper = IntervalRegressor.paper(
        network__hidden_layers=(50,),
        batch_size=50,
        optimizer__learning_rate=0.001,
        epochs=5000,
        patience=500,
        random_state=0,
    )
    return paper.fit(X, y), IntervalRegressor(random_state=0).fit(X, y), X, y


def draw_toy(paper, default, X, y):
    """Intervals of both methods beside the truth."""
    grid = np.linspace(-6.5, 6.5, 400)[:, None]
    figure = new_figure(2.9)
    both = figure.subplots(1, 2, sharey=True)
    for axes, model in zip(both, (paper, default), strict=True):
        axes.plot(X[:, 0], y, ".", color=COLORS["grey"], markersize=2, alpha=0.5)
        members = model.predict_members(grid)
        for line in (*members.lower[:5], *members.upper[:5]):
            axes.plot(grid, line, color=COLORS["yellow"], linewidth=0.7)
        lower, upper = model.predict_interval(grid).T
        plot_interval(axes, grid[:, 0], lower, model.predict(grid), upper)
        for bound in TOY.interval(grid, 0.95).T:
            axes.plot(grid, bound, color=COLORS["black"], linewidth=0.9, linestyle=DASHES)
        axes.set(xlabel="x", ylim=(-4.8, 4.8))
    both[0].set(title="IntervalRegressor.paper(), QD+", ylabel="y")
    both[1].set_title("IntervalRegressor(), calibrated")
    both[1].plot([], [], color=COLORS["yellow"], linewidth=0.7, label="bounds of five networks")
    both[1].plot([], [], color=COLORS["black"], linestyle=DASHES, label="true 95% interval")
    figure.legend(*both[1].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_capture():
    """The soft capture, and where width and shortfall balance."""
    figure = new_figure(2.5)
    left, right = figure.subplots(1, 2)
    y = np.linspace(-2, 2, 801)
    ends = np.full_like(y, 1.0)
    for softness, name in ((5, "sky"), (20, "blue"), (160, "black")):
        capture = soft_capture(-ends, ends, y, softness=softness)
        left.plot(y, capture, color=COLORS[name], label=f"s = {softness}")
    left.set(xlabel="target", ylabel="soft capture")
    left.legend(loc="center")
    w = np.linspace(0.5, 3, 501)
    shortfall = np.maximum(0, 0.95 - (2 * norm.cdf(w) - 1)) ** 2
    for weight, name in ((0.97, "yellow"), (0.99, "orange"), (0.999, "blue")):
        loss = (1 - weight) * 2 * w + weight * shortfall
        best = loss.argmin()
        right.plot(w, loss, color=COLORS[name], label=rf"$\lambda_1$ = {weight}")
        right.plot(w[best], loss[best], "o", color=COLORS[name], markersize=4)
    right.axvline(norm.ppf(0.975), color=COLORS["grey"], linewidth=0.8, linestyle=DASHES)
    right.annotate("95% interval", (norm.ppf(0.975), 0.19), (4, 0), textcoords="offset points",
                   color=COLORS["grey"], fontsize=7)  # fmt: skip
    right.set(xlabel="half width w", ylabel="width and shortfall", ylim=(0, 0.2))
    right.legend(loc="upper left", bbox_to_anchor=(0.2, 1))
    return figure


def draw_split_normal():
    """Split normals of one interval, and the mass left of the mode."""
    figure = new_figure(2.5)
    left, right = figure.subplots(1, 2)
    x = np.linspace(-4.2, 4.2, 1201)
    points = (-1.6, -0.8, 0.0, 0.8, 1.6)
    palette = ("orange", "yellow", "black", "sky", "blue")
    for point, name in zip(points, palette, strict=True):
        density = SplitNormal.from_interval(-2.0, point, 2.0, 0.95).pdf(x)
        left.plot(x, density, color=COLORS[name])
        left.fill_between(x, density, where=np.abs(x) >= 2, color=COLORS[name], alpha=0.25, lw=0)
    for bound in (-2, 2):
        left.axvline(bound, color=COLORS["grey"], linewidth=0.8, linestyle=DASHES)
    left.set(xlabel="target", ylabel="density", ylim=(0, None))
    left.set_xticks([-2, 2], ["L", "U"])
    ratio = np.logspace(-3, 3, 601)
    for coverage, name in ((0.95, "black"), (0.5, "blue")):
        fitted = SplitNormal.from_interval(-ratio, 0.0, 1.0, coverage)
        share = fitted.left_scale / (fitted.left_scale + fitted.right_scale)
        right.plot(ratio, share, color=COLORS[name], label=f"coverage {coverage:g}")
        for edge in ((1 - coverage) / 2, (1 + coverage) / 2):
            right.axhline(edge, color=COLORS[name], linewidth=0.7, linestyle=DASHES)
    right.set(xscale="log", xlabel="a / b", ylabel="share r left of the mode", ylim=(0, 1))
    right.legend(loc="upper left", bbox_to_anchor=(0, 0.93))
    return figure


def draw_mixture(model):
    """The predictions of five networks for one row, at the edge of the data."""
    figure = new_figure(2.5, width=4.8)
    axes = figure.subplots()
    plot_mixture(axes, model.predict_dist([[6.2]]), coverage=0.95)
    axes.set_title("x = 6.2, beyond the last row")
    axes.legend(loc="upper right")
    return figure


def draw_gap():
    """The defaults where there are no rows: between two clouds of them, and beyond both."""
    X, y = GAP.sample(1000, random_state=0)
    model = IntervalRegressor(random_state=0).fit(X, y)
    grid = np.linspace(X.min() - 2, X.max() + 2, 500)[:, None]
    figure = new_figure(2.7)
    left, right = figure.subplots(1, 2)
    left.plot(X[:, 0], y, ".", color=COLORS["grey"], markersize=2, alpha=0.5)
    lower, upper = model.predict_interval(grid).T
    plot_interval(left, grid[:, 0], lower, model.predict(grid), upper)
    left.set(xlabel="x", ylabel="y", title="95% interval")
    dist = model.predict_dist(grid)
    right.plot(grid, np.sqrt(dist.epistemic_var), color=COLORS["orange"], label="disagreement")
    right.plot(grid, np.sqrt(dist.aleatoric_var), color=COLORS["blue"], label="noise")
    right.plot(X[:, 0], np.zeros(len(X)), "|", color=COLORS["grey"], markersize=5)
    right.set(xlabel="x", title="standard deviation")
    right.legend(loc="upper center")
    return figure


def draw_calibration():
    """A network that is too sure: its scores, the map, coverage before and after."""
    X, y = FRIEDMAN.sample(2300, random_state=0)
    parts = np.split(np.arange(2300), [300, 800])
    model = IntervalRegressor(
        n_networks=1,
        cv=None,
        network=MLP(hidden_layers=(64,), frequencies=0),
        patience=None,
        epochs=120,
        random_state=0,
    ).fit(X[parts[0]], y[parts[0]])
    scores = normal_scores(model.predict_dist(X[parts[1]]), y[parts[1]])
    calibration = Calibration.from_scores(scores)
    figure = new_figure(2.5)
    first, second, third = figure.subplots(1, 3)
    z = np.linspace(-8, 8, 401)
    first.hist(np.clip(scores, -8, 8), bins=32, density=True, color=COLORS["sky"], alpha=0.7)
    first.plot(z, norm.pdf(z), color=COLORS["black"], linewidth=1.0, label="as they should be")
    first.set(xlabel="normal score", ylabel="density", ylim=(0, 0.5))
    first.legend(loc="upper right")
    v = np.linspace(-3, 3, 301)
    second.plot(v, calibration.to_score(v), color=COLORS["blue"], label="T")
    second.plot(v, v, color=COLORS["grey"], linewidth=0.8, linestyle=DASHES)
    second.set(xlabel="normal quantile", ylabel="quantile of the scores")
    dist = model.predict_dist(X[parts[2]])
    curves = {
        "before": metrics.calibration_curve(y[parts[2]], dist),
        "after": metrics.calibration_curve(y[parts[2]], CalibratedMixture(dist, calibration)),
    }
    colors = {"before": COLORS["orange"], "after": COLORS["blue"]}
    plot_calibration(third, curves, colors=colors)
    third.set(xlabel="nominal coverage", ylabel="observed")
    third.legend(loc="upper left")
    return figure


def main():
    """Draw them all."""
    FOLDER.mkdir(exist_ok=True)
    with style():
        paper, default, X, y = train_toy()
        figures = {
            "toy": draw_toy(paper, default, X, y),
            "capture": draw_capture(),
            "split_normal": draw_split_normal(),
            "mixture": draw_mixture(paper),
            "gap": draw_gap(),
            "calibration": draw_calibration(),
        }
        for name, figure in figures.items():
            figure.savefig(FOLDER / f"{name}.png", dpi=160, metadata={"Software": None})


if __name__ == "__main__":
    main()
