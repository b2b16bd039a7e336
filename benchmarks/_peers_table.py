"""Summarise the comparison from stored rows, even if only some of them exist.

Methods have been run on different numbers of splits, and splits differ more than methods do. Two
methods are therefore compared only on the splits that both have run. The rank of a method is one
more than the number of methods that are better in such a comparison.
"""

import numpy as np
import pandas as pd
from _peers_data import DATASETS
from _peers_methods import METHODS
from _peers_published import table_lines

COVERAGE = 0.95
MEASURES = {"interval_score": "interval score", "crps": "CRPS", "mse": "MSE"}
SETTING = ["grouped", "train_rows", "coverage"]


def read_rows(path):
    """Stored rows, the last of each kind, in the order of datasets and methods."""
    rows = pd.read_csv(path)
    rows = rows.drop_duplicates(["dataset", "method", "split", *SETTING], keep="last")
    rows["dataset"] = pd.Categorical(rows["dataset"], DATASETS, ordered=True)
    rows["method"] = pd.Categorical(rows["method"], METHODS, ordered=True)
    return rows.sort_values(["dataset", "method", "split"])


def pick(rows, *, grouped=0, coverage=COVERAGE):
    """Rows of one setting with all training rows."""
    whole = rows["train_rows"].isna() & (rows["grouped"] == grouped)
    return rows[whole & np.isclose(rows["coverage"], coverage)]


def paired(rows, dataset, focus, other, measure):
    """Ratio of means, mean difference, its standard error and the number of common splits."""
    part = rows[(rows["dataset"] == dataset) & rows["method"].isin([focus, other])]
    wide = _by_split(part, measure).reindex(columns=list({focus, other}))
    return _compared(wide[focus], wide[other])


def _by_split(rows, measure):
    """The measure of one dataset by split and method."""
    return rows.pivot_table(index="split", columns="method", values=measure, observed=True)


def _compared(own, its):
    both = own.notna() & its.notna()
    if not both.any():
        return np.nan, np.nan, np.nan, 0
    own, its = own[both], its[both]
    difference = own - its
    return own.mean() / its.mean(), difference.mean(), difference.sem(), len(own)


def strongest(rows, dataset, focus, measure):
    """The method against which the focus does worst on the shared splits, and the comparison."""
    wide = _by_split(rows[rows["dataset"] == dataset], measure)
    if focus not in wide:
        return None
    found = {other: _compared(wide[focus], wide[other]) for other in wide if other != focus}
    found = {other: values for other, values in found.items() if np.isfinite(values[0])}
    return max(found.items(), key=lambda item: item[1][0]) if found else None


def ranks(rows, measure):
    """Ranks of the methods on each dataset, one row per method."""
    found = {}
    for dataset, part in rows.groupby("dataset", observed=True):
        wide = _by_split(part, measure)
        values = wide.to_numpy()
        for method, own in zip(wide.columns, values.T, strict=True):
            both = np.isfinite(values) & np.isfinite(own[:, None])
            sums = (np.where(both, one, 0).sum(axis=0) for one in (values, own[:, None]))
            theirs, its = (total / np.maximum(both.sum(axis=0), 1) for total in sums)
            found.setdefault(method, {})[dataset] = 1 + int((theirs < its).sum())
    return pd.DataFrame(found).T.reindex(columns=[d for d in DATASETS if d in set(rows["dataset"])])


def pm(mean, error):
    """A mean with its standard error, three digits."""
    if np.isnan(mean):
        return ""
    return f"{mean:.3g}" if np.isnan(error) else f"{mean:.3g} ± {error:.1g}"


def markdown(header, lines):
    """Format a Markdown table, first column left-aligned and the others right-aligned."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [header, rule, *lines])


def focus_table(rows, focus):
    """Table of the chosen method against the strongest other one on each dataset."""
    own = rows[rows["method"] == focus]
    if own.empty:
        return f"There are no rows of {focus} yet."
    lines, ratios = [], {measure: [] for measure in MEASURES}
    for dataset in own["dataset"].unique():
        mine = own[own["dataset"] == dataset]
        line = [dataset, len(mine), f"{mine['picp'].mean():.3f}"]
        for measure in MEASURES:
            best = strongest(rows, dataset, focus, measure)
            if best is None:
                line += ["", ""]
                continue
            other, (ratio, _, _, splits) = best
            ratios[measure].append(ratio)
            line += [f"{other} ({splits})", f"{ratio:.3f}"]
        lines.append([*line, f"{mine['seconds'].median():.3g}"])
    header = ["dataset", "splits", "PICP"]
    for title in MEASURES.values():
        header += [f"strongest by {title}", "ratio"]
    facts = [
        f"{title}: below all others on {sum(r < 1 for r in found)} of {len(found)} datasets, at "
        f"most 5% above the best on {sum(r <= 1.05 for r in found)}, geometric mean of the ratios "
        f"{np.exp(np.mean(np.log(found))):.3f}, largest {max(found):.3f}"
        for title, found in zip(MEASURES.values(), ratios.values(), strict=True)
        if found
    ]
    note = (
        f"The strongest other method is that against which {focus} does worst on the splits of "
        "both, whose number is in brackets. A ratio below 1 is better."
    )
    text = f"{markdown([*header, 'seconds'], lines)}\n\n{note}\n\n"
    return text + "\n".join(f"- {fact}" for fact in facts)


def rank_table(rows, measure):
    """Table of ranks by a measure, best mean first; methods with few datasets come last."""
    found = ranks(rows, measure)
    counts = found.notna().sum(axis=1)
    order = pd.DataFrame({"count": -counts, "mean": found.mean(axis=1)}).sort_values(
        ["count", "mean"]
    )
    lines = [
        [
            method,
            *("" if np.isnan(rank) else f"{rank:g}" for rank in found.loc[method]),
            f"{found.loc[method].mean():.2f}",
            counts[method],
        ]
        for method in order.index
    ]
    return markdown(["method", *found.columns, "mean rank", "datasets"], lines)


def dataset_tables(rows, focus):
    """One table per dataset: measures relative to the focus on the shared splits."""
    header = ["method", "splits", "PICP", "MPIW", *(f"{m} ratio" for m in MEASURES.values())]
    header += ["score difference", "crossed", "seconds", "CPU s"]
    parts = []
    for dataset, part in rows.groupby("dataset", observed=True):
        lines = []
        for method, own in part.groupby("method", observed=True):
            pairs = {m: paired(part, dataset, method, focus, m) for m in MEASURES}
            line = [method, f"{len(own)}", f"{own['picp'].mean():.3f}", f"{own['mpiw'].mean():.3g}"]
            line += ["" if np.isnan(pair[0]) else f"{pair[0]:.3f}" for pair in pairs.values()]
            line.append(pm(*pairs["interval_score"][1:3]) if method != focus else "")
            line += [f"{own[name].mean():.3f}" for name in ("crossed",)]
            line += [pm(own[name].median(), np.nan) for name in ("seconds", "cpu_seconds")]
            lines.append((pairs["interval_score"][0], line))
        lines = [line for _, line in sorted(lines, key=lambda item: item[0])]
        parts.append(f"### {dataset}\n\n{markdown(header, lines)}")
    return "\n\n".join(parts)


def coverage_table(rows):
    """Mean PICP, and mean distance from the coverage, at every coverage."""
    part = rows[rows["train_rows"].isna() & (rows["grouped"] == 0)]
    means = part.groupby(["method", "coverage", "dataset"], observed=True)["picp"].mean()
    means = means.reset_index()
    means["off"] = (means["picp"] - means["coverage"]).abs()
    levels = sorted(means["coverage"].unique())
    lines = []
    for method, own in means.groupby("method", observed=True):
        cells = [own[own["coverage"] == level] for level in levels]
        lines.append(
            [method]
            + [
                f"{cell['picp'].mean():.3f} / {cell['off'].mean():.3f} ({len(cell)})"
                if len(cell)
                else ""
                for cell in cells
            ]
        )
    return markdown(["method", *(f"{level:g}" for level in levels)], lines)


def curve_table(rows):
    """Interval score and PICP against the number of training rows."""
    part = rows[rows["train_rows"].notna() & np.isclose(rows["coverage"], COVERAGE)]
    lines = [
        [
            *(dataset, f"{number:.0f}", method, len(own), f"{own['picp'].mean():.3f}"),
            *(pm(own[m].mean(), own[m].sem()) for m in ("interval_score", "mse")),
        ]
        for (dataset, number, method), own in part.groupby(
            ["dataset", "train_rows", "method"], observed=True
        )
    ]
    header = ["dataset", "training rows", "method", "splits", "PICP", "interval score", "MSE"]
    return markdown(header, lines) if lines else ""


def splits_table(rows):
    """Table of the number of splits of each dataset that each method has run."""
    counts = rows.pivot_table(
        index="method", columns="dataset", values="split", aggfunc="nunique", observed=True
    )
    lines = [
        [method, *("" if np.isnan(n) else f"{n:.0f}" for n in counts.loc[method])]
        for method in counts.index
    ]
    return markdown(["method", *counts.columns], lines)


def write_summary(folder, *, focus):
    """Write summary.md beside rows.csv.

    Parameters
    ----------
    folder : Path
        Where rows.csv is.
    focus : str
        Method to compare with the others.
    """
    every = read_rows(folder / "rows.csv")
    rows, grouped = pick(every), pick(every, grouped=1)
    sections = {
        f"{focus} against the strongest other": focus_table(rows, focus),
        "Ranks by interval score": rank_table(rows, "interval_score"),
        "Ranks by CRPS": rank_table(rows, "crps"),
        "Ranks by MSE": rank_table(rows, "mse"),
        "Coverage": "Mean PICP / mean abs(PICP - coverage) over datasets, which are counted in "
        "brackets.\n\n" + coverage_table(every),
        "Splits that have been run": splits_table(rows),
        "By dataset": f"Ratios are to {focus}, on the splits of both.\n\n"
        + dataset_tables(rows, focus),
    }
    if published := table_lines(folder / "published.csv"):
        header = ["dataset", "method", "folds", "CRPS", "best tuned, published", "ratio"]
        sections["The folds of DiffGBM"] = markdown(header, published)
    if len(grouped):
        compared = focus_table(grouped, focus)
        sections["Identical inputs kept together"] = compared
    if curves := curve_table(every):
        sections["Fewer training rows"] = curves
    text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items())
    (folder / "summary.md").write_text(f"{INTRODUCTION}\n\n{text}\n")


INTRODUCTION = """\
# Comparison with other libraries

Written by `benchmarks/peers.py table`; methods and settings are described there. Targets are
standardised by the whole dataset, coverage is 0.95 unless said otherwise, and ± is one standard
error of the mean over splits. Methods are compared two at a time, on the splits that both have
been run on. Seconds are medians of fitting and predicting on two cores of a machine that other
work shared, so they are upper bounds."""
