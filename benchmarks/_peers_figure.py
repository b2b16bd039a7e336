"""Draw the picture of the comparison: the quality of intervals against their cost."""

import numpy as np
from _peers_data import DATASETS
from _peers_table import COVERAGE, paired, pick, read_rows

LABELS = {
    "calipers": "calipers, default",
    "mapie_cqr_lgbm": "MAPIE, CQR of LightGBM",
    "mapie_cvplus_hgb": "MAPIE, CV+ of boosting",
    "catboost_mq": "CatBoost, quantiles",
    "catboost_mq_cqr": "CatBoost, quantiles, CQR",
    "catboost_unc": "CatBoost, mean-variance",
    "catboost_unc_cal": "CatBoost, mean-variance, calibrated",
    "ngboost_normal": "NGBoost",
    "quantile_forest": "quantile forest",
    "lgbm_quantile": "LightGBM, quantiles",
    "mlp_conformal": "MLP ensemble, conformal",
    "treeffuser": "Treeffuser",
    "diffgbm_oof": "DiffGBM, conformal",
    "hessboost_oof": "hessboost, conformal",
    "realmlp_cqr": "RealMLP, CQR",
    "tabm_cqr": "TabM, CQR",
    "autogluon_best": "AutoGluon",
    "catboost_tuned_cqr": "CatBoost, tuned, CQR",
    "lgbm_tuned_cqr": "LightGBM, tuned, CQR",
}
# Offsets of a label from its dot, in points, and its alignment; the first free place is used.
PLACES = (
    *((8, -2.5, "left"), (-8, -2.5, "right"), (0, 7, "center"), (0, -12, "center")),
    *((6, 6, "left"), (6, -11, "left"), (-6, 6, "right"), (-6, -11, "right")),
    *((0, 15, "center"), (0, -20, "center")),
)
HONEST = 0.02  # mean distance from the nominal coverage that counts as kept
FOCUS = "calipers"
SHARED = 5  # datasets that a method must share with the focus to be drawn


def compare(rows):
    """Score and CPU time of each method relative to calipers, distance from the coverage, datasets.

    Ratios of means over the shared splits, then geometric means over the shared datasets, whose
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


def put_label(axes, text, x, y, taken, **style):
    """Write a label next to its dot where it covers nothing, and add its box to `taken`."""
    for right, up, side in PLACES:
        label = axes.annotate(
            text, (x, y), (right, up), textcoords="offset points", ha=side, fontsize=7, **style
        )
        box = label.get_window_extent()
        inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.figure.bbox.x1
        if inside and not any(box.overlaps(other) for other in taken):
            break
        label.remove()
    else:
        label = axes.annotate(text, (x, y), (8, -2.5), textcoords="offset points", fontsize=7)
        box = label.get_window_extent()
    taken.append(box)


def draw(results, path):
    """Write the picture and return its numbers as text."""
    from matplotlib.transforms import Bbox

    from calipers.plots import COLORS, new_figure, style

    found = compare(pick(read_rows(results / "rows.csv")))
    with style():
        figure = new_figure(4.2)
        axes = figure.subplots()
        for name, (score, seconds, off, _) in found.items():
            color = COLORS["orange"] if name == FOCUS else COLORS["blue"]
            axes.plot(
                seconds, score, "o", color=color, mfc=color if off <= HONEST else "none", ms=7
            )
        grey = COLORS["grey"]
        for inside, text in ((grey, "coverage kept"), ("none", f"off by more than {HONEST:g}")):
            axes.plot([], [], "o", color=grey, mfc=inside, ms=6, label=text)
        axes.legend(loc="upper right", title="mean over datasets", title_fontsize=7)
        axes.set(
            xscale="log", yscale="log",
            xlabel="CPU time to fit and predict, in multiples of calipers'",
            ylabel="interval score at 95%, in multiples\nof calipers' (lower is better)",
        )  # fmt: skip
        axes.set_xlim(right=axes.get_xlim()[1] * 2.5)
        top = 1.25 * max(score for score, *_ in found.values())
        axes.set_ylim(0.93, top)
        ticks = [tick for tick in (1, 1.5, 2, 2.5, 3, 4) if tick < top]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        ticks = [tick for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10) if tick > axes.get_xlim()[0]]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        figure.canvas.draw()  # label positions are known only now
        to_pixels = axes.transData.transform
        radius = 5 * figure.dpi / 72  # of a dot, in pixels
        taken = [
            Bbox(np.add.outer((-radius, radius), to_pixels((seconds, score))))
            for score, seconds, *_ in found.values()
        ]
        for name, (score, seconds, _, shared) in found.items():
            label = LABELS[name] + ("" if shared == len(DATASETS) else f" ({shared})")
            weight = "bold" if name == FOCUS else "normal"
            put_label(axes, label, seconds, score, taken, weight=weight)
        figure.savefig(path)
    lines = [
        f"{name:18} score {score:.2f}  CPU time {seconds:.2f}  off by {off:.3f}  {shared} datasets"
        for name, (score, seconds, off, shared) in sorted(found.items(), key=lambda i: i[1][0])
    ]
    return "\n".join(lines)
