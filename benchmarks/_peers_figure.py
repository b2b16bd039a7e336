"""The picture of the comparison: how good intervals are against what they cost."""

import numpy as np
from _peers_data import DATASETS
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
    "treeffuser": "Treeffuser",
    "diffgbm_oof": "DiffGBM, conformal",
    "hessboost_oof": "hessboost, conformal",
    "realmlp_cqr": "RealMLP, CQR",
    "tabm_cqr": "TabM, CQR",
    "autogluon_best": "AutoGluon, best quality",
    "catboost_tuned_cqr": "CatBoost, tuned, CQR",
    "lgbm_tuned_cqr": "LightGBM, tuned, CQR",
}
# Where a label stands beside its dot, in points, and on which side it ends.
PLACES = {
    "ngboost_normal": (0, 7, "center"),
    "mlp_conformal": (0, 7, "center"),
    "mapie_cqr_lgbm": (-4, 8, "left"),
    "mapie_cvplus_hgb": (7, -9, "left"),
    "catboost_mq_cqr": (0, 7, "center"),
}
HONEST = 0.02  # mean distance from the nominal coverage that counts as kept
FOCUS = "calipers"
SHARED = 5  # datasets that a method must share with the focus to be drawn


def compare(rows):
    """Of each method: score and CPU seconds relative to calipers, distance from the coverage.

    Ratios of means over the splits of both, then geometric means over the datasets of both, whose
    number comes last; the distance is a plain mean over these.
    """
    rows = rows.assign(cpu=rows["cpu_seconds"].fillna(rows["seconds"] * rows["threads"]))
    found = {}
    for method in rows["method"].unique():
        own = rows[rows["method"] == method]
        pairs = {
            dataset: [paired(rows, dataset, method, FOCUS, m)[0] for m in ("interval_score", "cpu")]
            for dataset in own["dataset"].unique()
        }
        ratios = np.array([pair for pair in pairs.values() if np.all(np.isfinite(pair))])
        if len(ratios) < SHARED:
            continue
        score, seconds = np.exp(np.log(ratios).mean(axis=0))
        off = (own.groupby("dataset", observed=True)["picp"].mean() - COVERAGE).abs().mean()
        found[method] = (score, seconds, off, len(ratios))
    return found


def draw(results, path):
    """Write the picture; return what it shows as text."""
    from calipers.plots import COLORS, new_figure, style

    found = compare(pick(read_rows(results / "rows.csv")))
    with style():
        figure = new_figure(4.2)
        axes = figure.subplots()
        for name, (score, seconds, off, shared) in found.items():
            color = COLORS["orange"] if name == FOCUS else COLORS["blue"]
            inside = color if off <= HONEST else "none"
            axes.plot(seconds, score, "o", color=color, mfc=inside, ms=7)
            right, up, side = PLACES.get(name, (7, -2.5, "left"))
            weight = "bold" if name == FOCUS else "normal"
            label = LABELS[name] + ("" if shared == len(DATASETS) else f" ({shared})")
            axes.annotate(
                label, (seconds, score), (right, up), fontsize=7,
                textcoords="offset points", ha=side, weight=weight,
            )  # fmt: skip
        grey = COLORS["grey"]
        for inside, text in ((grey, "coverage kept"), ("none", f"off by more than {HONEST:g}")):
            axes.plot([], [], "o", color=grey, mfc=inside, ms=6, label=text)
        axes.legend(loc="upper right", title="mean over datasets", title_fontsize=7)
        axes.axhline(1.0, color=grey, lw=0.6, zorder=0)
        axes.set(
            xscale="log", yscale="log",
            xlabel="CPU time to fit and predict, in multiples of calipers'",
            ylabel="interval score at 95%, in multiples\nof calipers' (lower is better)",
        )  # fmt: skip
        axes.set_xlim(right=axes.get_xlim()[1] * 3)
        ticks = [1, 1.5, 2, 3, 4]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        figure.savefig(path)
    lines = [
        f"{name:18} score {score:.2f}  CPU time {seconds:.2f}  off by {off:.3f}  {shared} datasets"
        for name, (score, seconds, off, shared) in sorted(found.items(), key=lambda i: i[1][0])
    ]
    return "\n".join(lines)
