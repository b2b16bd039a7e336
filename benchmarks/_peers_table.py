"""The summary of the comparison, from stored rows; works while only part of them exist."""

import numpy as np
import pandas as pd
from _peers_data import DATASETS
from _peers_methods import METHODS

COVERAGE = 0.95
MEASURES = ("picp", "mpiw", "interval_score", "mse", "crps", "crossed")
SETTING = ["grouped", "train_rows", "coverage"]
CELL = ["dataset", "method"]


def read_rows(path):
    """Stored rows, the last of each kind, in the order of datasets and methods."""
    rows = pd.read_csv(path)
    rows = rows.drop_duplicates([*CELL, "split", *SETTING], keep="last")
    rows["dataset"] = pd.Categorical(rows["dataset"], DATASETS, ordered=True)
    rows["method"] = pd.Categorical(rows["method"], METHODS, ordered=True)
    return rows.sort_values([*CELL, "split"])


def common_splits(rows):
    """Rows of the splits that every method of a setting and dataset has been run on.

    Means over different splits are not comparable: splits differ more than methods do.
    """
    groups = rows.groupby([*SETTING, "dataset"], observed=True, dropna=False)
    methods = groups["method"].transform("nunique")
    split = rows.groupby([*SETTING, "dataset", "split"], observed=True, dropna=False)
    return rows[split["method"].transform("nunique") == methods]


def summarise(rows):
    """Mean and standard error over splits per setting, dataset and method, and the rank.

    Seconds are medians, which one split on a busy machine does not move. The rank is that of the
    mean interval score among the methods at hand.
    """
    groups = rows.groupby([*SETTING, *CELL], observed=True, dropna=False)
    summary = groups.size().rename("splits").to_frame()
    for measure in MEASURES:
        summary[measure] = groups[measure].mean()
        summary[f"{measure}_se"] = groups[measure].sem()
    for measure in ("seconds", "cpu_seconds"):
        summary[measure] = groups[measure].median()
    by_dataset = summary.groupby([*SETTING, "dataset"], observed=True, dropna=False)
    summary["rank"] = by_dataset["interval_score"].rank()
    return summary.reset_index()


def pick(frame, *, grouped=0, coverage=COVERAGE):
    """Rows or summary of one setting with all training rows."""
    whole = frame["train_rows"].isna() & (frame["grouped"] == grouped)
    return frame[whole & np.isclose(frame["coverage"], coverage)]


def pm(mean, error):
    """A mean with its standard error, three digits."""
    if np.isnan(mean):
        return ""
    return f"{mean:.3g}" if np.isnan(error) else f"{mean:.3g} ± {error:.1g}"


def markdown(header, lines):
    """A table; first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [header, rule, *lines])


def dataset_tables(summary):
    """One table per dataset, best interval score first."""
    header = ["method", "rank", "splits", "PICP", "MPIW", "interval score", "MSE", "CRPS"]
    header += ["crossed", "seconds", "CPU s"]
    parts = []
    for dataset, part in summary.groupby("dataset", observed=True):
        lines = [
            [row["method"], f"{row['rank']:g}", row["splits"], f"{row['picp']:.3f}"]
            + [pm(row[m], row[f"{m}_se"]) for m in MEASURES[1:5]]
            + [f"{row['crossed']:.3f}", f"{row['seconds']:.3g}", f"{row['cpu_seconds']:.3g}"]
            for row in part.sort_values("rank").to_dict("records")
        ]
        parts.append(f"### {dataset}\n\n{markdown(header, lines)}")
    return "\n\n".join(parts)


def rank_table(summary):
    """Ranks by interval score, and how far coverage is off.

    The mean rank is over the datasets that every method here has been run on, so that a method
    gains nothing by missing from a hard one.
    """
    ranks = summary.pivot_table(index="method", columns="dataset", values="rank", observed=True)
    shared = ranks.columns[ranks.notna().all()]
    off = (summary["picp"] - COVERAGE).abs().groupby(summary["method"], observed=True).mean()
    mean = ranks[shared].mean(axis=1)
    header = ["method", *ranks.columns, "mean rank", "mean abs(PICP - 0.95)"]
    lines = [
        [
            method,
            *("" if np.isnan(rank) else f"{rank:g}" for rank in ranks.loc[method]),
            f"{mean[method]:.2f}" if len(shared) else "",
            f"{off[method]:.3f}",
        ]
        for method in mean.sort_values(na_position="last").index
    ]
    note = f"Mean rank over {len(shared)} datasets: {', '.join(shared)}."
    return f"{markdown(header, lines)}\n\n{note}"


def paired(rows, dataset, focus, other, measure):
    """Ratio of means, mean difference and its standard error over the splits of both methods."""
    part = rows[rows["dataset"] == dataset]
    wide = part.pivot_table(index="split", columns="method", values=measure, observed=True)
    both = wide[[focus, other]].dropna()
    difference = both[focus] - both[other]
    return both[focus].mean() / both[other].mean(), difference.mean(), difference.sem()


def strongest(rows, dataset, focus, measure):
    """The other method against which the focus does worst on the splits of both, and how."""
    part = rows[rows["dataset"] == dataset]
    others = [m for m in part["method"].unique() if m != focus]
    found = {other: paired(rows, dataset, focus, other, measure) for other in others}
    found = {other: values for other, values in found.items() if np.isfinite(values[0])}
    return max(found.items(), key=lambda item: item[1][0]) if found else None


def focus_table(rows, summary, focus):
    """The chosen method against the strongest other one on each dataset."""
    own = summary[summary["method"] == focus]
    if own.empty:
        return f"There are no rows of {focus} yet."
    lines, ratios, mse_ratios = [], [], []
    for dataset in own["dataset"]:
        by_score = strongest(rows, dataset, focus, "interval_score")
        by_mse = strongest(rows, dataset, focus, "mse")
        if by_score is None or by_mse is None:
            continue
        best, (ratio, difference, error) = by_score
        best_mse, (mse_ratio, *_) = by_mse
        ratios.append(ratio)
        mse_ratios.append(mse_ratio)
        lines.append(
            [dataset, best, f"{ratio:.3f}", pm(difference, error), best_mse, f"{mse_ratio:.3f}"]
        )
    if not lines:
        return f"There is nothing to compare {focus} with yet."
    header = ["dataset", "strongest other", "score ratio", "score difference (paired)"]
    header += ["strongest other by MSE", "MSE ratio"]
    within = sum(ratio <= 1.05 for ratio in ratios)
    facts = [
        f"geometric mean of the score ratios: {np.exp(np.mean(np.log(ratios))):.3f}",
        f"datasets won by interval score: {sum(r < 1 for r in ratios)} of {len(ratios)}",
        f"interval score at most 5% above the best: {within} of {len(ratios)}",
        f"MSE at most 5% above the best: {sum(r <= 1.05 for r in mse_ratios)} of {len(ratios)}",
        f"mean abs(PICP - 0.95): {(own['picp'] - COVERAGE).abs().mean():.4f}",
    ]
    note = f"The strongest other method is that against which {focus} does worst on common splits."
    text = f"{markdown(header, lines)}\n\n{note}\n\n"
    return text + "\n".join(f"- {fact}" for fact in facts)


def coverage_table(summary):
    """Mean PICP, and mean distance from the coverage, at every coverage."""
    part = summary[summary["train_rows"].isna() & (summary["grouped"] == 0)]
    part = part.assign(off=(part["picp"] - part["coverage"]).abs())
    wide = part.pivot_table(
        index="method", columns="coverage", values=["picp", "off"], observed=True
    )
    counts = part.pivot_table(
        index="method", columns="coverage", values="picp", aggfunc="count", observed=True
    )
    levels = list(counts.columns)
    lines = [
        [method]
        + [
            f"{wide.loc[method, ('picp', c)]:.3f} / {wide.loc[method, ('off', c)]:.3f} "
            f"({counts.loc[method, c]:.0f})"
            if counts.loc[method, c] > 0
            else ""
            for c in levels
        ]
        for method in wide.index
    ]
    return markdown(["method", *(f"{c:g}" for c in levels)], lines)


def curve_table(summary):
    """Interval score and PICP against the number of training rows."""
    part = summary[summary["train_rows"].notna() & np.isclose(summary["coverage"], COVERAGE)]
    lines = [
        [
            row["dataset"],
            f"{row['train_rows']:.0f}",
            row["method"],
            row["splits"],
            f"{row['picp']:.3f}",
            *(pm(row[m], row[f"{m}_se"]) for m in ("interval_score", "mse")),
        ]
        for row in part.sort_values(["dataset", "train_rows", "rank"]).to_dict("records")
    ]
    header = ["dataset", "training rows", "method", "splits", "PICP", "interval score", "MSE"]
    return markdown(header, lines) if lines else ""


def missing_text(summary, planned):
    """What a complete comparison would hold beyond these rows, and where it holds fewer splits."""
    have = summary.set_index(CELL)["splits"]
    gaps, fewer = [], []
    for dataset in DATASETS:
        plan = {method: planned(dataset, method) for method in METHODS}
        short = {m: have.get((dataset, m), 0) for m in METHODS}
        lacking = [f"{m} {short[m]}/{plan[m]}" for m in METHODS if short[m] < plan[m]]
        if lacking:
            gaps.append(f"- {dataset}: {', '.join(lacking)}")
        fewer += [f"{m} on {dataset} ({plan[m]})" for m in METHODS if plan[m] < max(plan.values())]
    text = "Too slow for every split, by plan: " + ", ".join(fewer) + "."
    return text + ("\n\nSplits not run yet:\n\n" + "\n".join(gaps) if gaps else "")


def write_summary(folder, *, focus, planned):
    """Write summary.csv and summary.md beside rows.csv.

    Parameters
    ----------
    folder : Path
        Where rows.csv is.
    focus : str
        Method to compare with the best other one.
    planned : callable
        From dataset and method to the number of splits of a complete comparison.
    """
    every = read_rows(folder / "rows.csv")
    whole, summary = summarise(every), summarise(common_splits(every))
    summary.to_csv(folder / "summary.csv", index=False, float_format="%.6g")
    main, grouped = pick(summary), pick(summary, grouped=1)
    sections = {
        f"{focus} against the strongest other": focus_table(pick(every), pick(whole), focus),
        "Ranks by mean interval score": rank_table(main),
        "Completeness": missing_text(pick(whole), planned),
        "By dataset": dataset_tables(main),
        "Other coverages": "Mean PICP / mean abs(PICP - coverage) over datasets, which are "
        "counted in brackets.\n\n" + coverage_table(whole),
    }
    if len(grouped):
        compared = focus_table(pick(every, grouped=1), pick(whole, grouped=1), focus)
        sections["Identical inputs kept together"] = f"{compared}\n\n{dataset_tables(grouped)}"
    if curves := curve_table(summary):
        sections["Fewer training rows"] = curves
    text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items())
    (folder / "summary.md").write_text(f"{INTRODUCTION}\n\n{text}\n")


INTRODUCTION = """\
# Comparison with other libraries

Written by `benchmarks/peers.py table`; methods and settings are described there. Targets are
standardised by the whole dataset, coverage is 0.95 unless said otherwise, and ± is one standard
error of the mean over splits. Means and ranks of a dataset are over the splits that every method
has been run on; rows.csv has the others too. Nothing is tuned. Seconds are medians of fitting and
predicting on two cores of a machine that other work shared, so they are upper bounds."""
