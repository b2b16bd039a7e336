"""The picture of the comparison: how good intervals are against what they cost."""

import numpy as np
from _peers_table import COVERAGE, paired, pick, read_rows

LABELS = {
    "calipers": "calipers, default",
    "mapie_cqr_lgbm": "MAPIE, CQR of LightGBM",
    "mapie_cvplus_hgb": "MAPIE, CV+ of boosting",
    "catboost_mq": "CatBoost, quantiles",
    "catboost_mq_cqr": "CatBoost, quantiles, CQR",
    "catboost_unc": "CatBoost, mean and variance",
    "catboost_unc_cal": "CatBoost, mean and variance, calibrated",
    "ngboost_normal": "NGBoost",
    "quantile_forest": "quantile forest",
    "lgbm_quantile": "LightGBM, quantiles",
    "mlp_conformal": "MLP ensemble, conformal",
}
# Where a label stands beside its dot, in points, and on which side it ends.
PLACES = {
    "calipers": (-8, -2.5, "right"),
    "ngboost_normal": (0, 7, "center"),
    "mlp_conformal": (0, 7, "center"),
    "mapie_cqr_lgbm": (-4, 8, "left"),
    "mapie_cvplus_hgb": (7, -9, "left"),
    "catboost_mq_cqr": (0, 7, "center"),
}
HONEST = 0.02  # mean distance from the nominal coverage that counts as kept


def common_splits(rows):
    """Rows of the splits that every method has run, dataset by dataset."""
    methods = rows["method"].nunique()
    counts = rows.groupby(["dataset", "split"], observed=True)["method"].transform("nunique")
    return rows[counts == methods]


def compare(rows):
    """Of each method: score relative to the best, seconds, and distance from the coverage.

    Means over the common splits of a dataset, then geometric means over datasets (the plain mean
    for the distance), so that no dataset counts more for its scale.
    """
    cells = rows.groupby(["dataset", "method"], observed=True)
    score = cells["interval_score"].mean().unstack()
    seconds = cells["cpu_seconds"].median().unstack()
    off = (cells["picp"].mean().unstack() - COVERAGE).abs()
    relative = score.div(score.min(axis=1), axis=0)
    return np.exp(np.log(relative).mean()), np.exp(np.log(seconds).mean()), off.mean()


def ratios(rows, measure, focus="calipers"):
    """The largest ratio to any other method on each dataset, each over the splits of both."""
    others = [name for name in rows["method"].unique() if name != focus]
    return [
        max(paired(rows, dataset, focus, other, measure)[0] for other in others)
        for dataset in rows["dataset"].unique()
    ]


def draw(results, path):
    """Write the picture; return what it shows as text."""
    from calipers.plots import COLORS, new_figure, style

    stored = pick(read_rows(results / "rows.csv"))
    rows = common_splits(stored)
    score, seconds, off = compare(rows)
    splits = rows.groupby("dataset", observed=True)["split"].nunique()
    with style():
        figure = new_figure(3.6)
        axes = figure.subplots()
        for name in score.index:
            color = COLORS["orange"] if name == "calipers" else COLORS["blue"]
            inside = color if off[name] <= HONEST else "none"
            axes.plot(seconds[name], score[name], "o", color=color, mfc=inside, ms=7)
            right, up, side = PLACES.get(name, (7, -2.5, "left"))
            weight = "bold" if name == "calipers" else "normal"
            axes.annotate(
                LABELS[name], (seconds[name], score[name]), (right, up), fontsize=7,
                textcoords="offset points", ha=side, weight=weight,
            )  # fmt: skip
        grey = COLORS["grey"]
        for inside, text in ((grey, "coverage kept"), ("none", f"off by more than {HONEST:g}")):
            axes.plot([], [], "o", color=grey, mfc=inside, ms=6, label=text)
        axes.legend(loc="upper right", title="mean over datasets", title_fontsize=7)
        axes.set(
            xscale="log", yscale="log",
            xlabel="CPU seconds to fit and predict, geometric mean over nine datasets",
            ylabel="interval score at 95%, relative to the\nbest on each dataset (lower is better)",
        )  # fmt: skip
        axes.set_ylim(0.92, 3.9)
        axes.set_xlim(right=axes.get_xlim()[1] * 1.8)
        ticks = [1, 1.5, 2, 3]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
        figure.savefig(path)
    lines = [
        f"{name:18} score {score[name]:.2f}  {seconds[name]:5.1f} CPU s  off by {off[name]:.3f}"
        for name in score.sort_values().index
    ]
    won = sum(ratio < 1 for ratio in ratios(stored, "interval_score"))
    close = sum(ratio <= 1.05 for ratio in ratios(stored, "mse"))
    lines += [
        "common splits: " + ", ".join(f"{name} {number}" for name, number in splits.items()),
        f"score below every other's, each on the splits of both: {won}",
        f"MSE at most 5% above every other's, likewise: {close}",
    ]
    return "\n".join(lines)
