"""Write the comparison texts of the pages, between ``<!-- name -->`` markers, from stored rows."""

import re
import textwrap
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import peers_tables
from _peers_figure import FOCUS, LABELS, SHARED, compare
from _peers_published import table_lines
from _peers_table import MEASURES, markdown, paired, pick, ranks, read_rows, strongest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/benchmarks.md", "docs/faq.md")
WORDS = (
    *("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
)
TITLES = {"interval_score": "score", "crps": "CRPS", "mse": "MSE"}
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
ON_GRIDS = ("wine", "naval")
NEAR = 1.05


def name(method):
    """Name of a method on the pages."""
    return {"catboost_cqr": "CatBoost, CQR", "lgbm_cqr": "LightGBM, CQR", **LABELS}.get(
        method, method
    )


def called(method):
    """Name of a method inside a sentence, without a comma."""
    return name(method).replace(", CQR", " with CQR")


def percent(ratio):
    """Percentage by which a ratio exceeds 1."""
    return f"{100 * (ratio - 1):.{int(ratio < 1.1)}f}%"


def filled(text, width=110, indent=""):
    """Wrap a paragraph."""
    return textwrap.fill(
        " ".join(text.split()),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Comparison:
    """Texts of the pages; each public property is named after its marker."""

    def __init__(self, results):
        self._results = results
        self._every = read_rows(results / "rows.csv")
        self._rows = pick(self._every)
        self._own = self._rows[self._rows["method"] == "calipers"]
        self._datasets = list(self._own["dataset"].unique())
        self._worst = {
            measure: {d: strongest(self._rows, d, "calipers", measure) for d in self._datasets}
            for measure in MEASURES
        }

    def _ratios(self, measure):
        return [found[0] for _, found in self._worst[measure].values()]

    def _won(self, measure):
        return sum(r < 1 for r in self._ratios(measure)), sum(
            r <= NEAR for r in self._ratios(measure)
        )

    def _behind(self, measure, beyond=1.005):
        """Dataset, ratio and method wherever another method is better, largest ratio first."""
        found = [(r[0], d, m) for d, (m, r) in self._worst[measure].items() if r[0] > beyond]
        return [(d, ratio, method) for ratio, d, method in sorted(found, reverse=True)]

    def _listed(self, measure, beyond=1.005):
        found = [f"{d} ({percent(r)}, {called(m)})" for d, r, m in self._behind(measure, beyond)]
        return ", ".join(found) or "none"

    @cached_property
    def _seconds(self):
        return self._own.groupby("dataset", observed=True)["seconds"].median()

    @cached_property
    def _ranks(self):
        return {measure: ranks(self._rows, measure) for measure in MEASURES}

    def _rank(self, measure):
        return self._ranks[measure].loc["calipers"].mean()

    def _next(self, measure):
        found = self._ranks[measure].drop("calipers")
        found = found[found.notna().sum(axis=1) >= SHARED].mean(axis=1)
        return f"{called(found.idxmin())} follows with {found.min():.2f}"

    @cached_property
    def _relative(self):
        """Score, CPU time, distance from the coverage and datasets by method, as in the figure."""
        return compare(self._rows)

    @cached_property
    def _scores(self):
        """Geometric mean score ratio and number of datasets of each method, best first."""
        found = []
        for method in set(self._rows["method"]) - {FOCUS}:
            own = self._rows[self._rows["method"] == method]["dataset"].unique()
            ratios = [paired(self._rows, d, method, FOCUS, "interval_score")[0] for d in own]
            ratios = [ratio for ratio in ratios if np.isfinite(ratio)]
            if len(ratios) >= SHARED:
                found.append((float(np.exp(np.mean(np.log(ratios)))), len(ratios), method))
        return sorted(found)

    @cached_property
    def _covered(self):
        """PICP, its distance from nominal and the numbers of rows, by coverage and dataset."""
        rows = self._every[self._every["train_rows"].isna() & (self._every["grouped"] == 0)]
        rows = rows[rows["method"] == "calipers"]
        by = rows.groupby(["coverage", "dataset"], observed=True)
        found = by.agg(picp=("picp", "mean"), n_test=("n_test", "sum"), n_train=("n_train", "max"))
        found = found.reset_index()
        found["off"] = (found["picp"] - found["coverage"]).abs()
        shared = found[["coverage", "dataset"]].apply(tuple, axis=1).map(self._shared)
        found["shared_off"] = (shared.fillna(found["picp"]) - found["coverage"]).abs()
        noise = found["coverage"] * (1 - found["coverage"])
        # Mean absolute normal error due to the finite numbers of test and calibration rows.
        found["chance"] = np.sqrt(2 / np.pi * noise * (1 / found["n_test"] + 1 / found["n_train"]))
        return found

    @cached_property
    def _shared(self):
        """Coverage with ties shared out, by coverage and dataset, from the last run of each."""
        ties = pd.read_csv(self._results / "ties.csv")
        ties = ties.drop_duplicates(["dataset", "split", "coverage"], keep="last")
        return ties.groupby(["coverage", "dataset"])["shared"].mean().to_dict()

    def _off(self, column="off", without=()):
        part = self._covered[~self._covered["dataset"].isin(without)]
        found = part.groupby("coverage")[column].mean()
        return ", ".join(f"{found[p]:.3f} at {100 * p:.0f}%" for p in LEVELS)

    @property
    def small_fits(self):
        """Seconds of fit and predict on the small datasets."""
        found = self._seconds[[d for d in self._datasets if d in self._seconds.index[:5]]]
        return f"{found.min():.0f} to {found.max():.0f} s on two cores of a busy machine"

    @property
    def coverage_kept(self):
        """Mean distance of the coverage from 95%."""
        part = self._covered[np.isclose(self._covered["coverage"], 0.95)]
        return f"off by {part['off'].mean():.3f} on average"

    @property
    def comparison(self):
        """Table and summary of the nine datasets."""
        lines = []
        for dataset in self._datasets:
            mine = self._own[self._own["dataset"] == dataset]
            line = [dataset, len(mine), f"{mine['picp'].mean():.3f}"]
            for measure in MEASURES:
                other, (ratio, _, _, splits) = self._worst[measure][dataset]
                line += [f"{name(other)} ({splits})", f"{ratio:.3f}"]
            lines.append([*line, f"{self._seconds[dataset]:.0f}"])
        header = ["dataset", "splits", "PICP"]
        for title in TITLES.values():
            header += [f"best other by {title}", "ratio"]
        return f"{tight(markdown([*header, 'seconds'], lines))}\n\n{self._facts}\n\n{self._better}"

    @property
    def _others(self):
        return self._rows["method"].nunique() - 1

    @property
    def _whole(self):
        """Other methods that give whole distributions, and so have a CRPS."""
        have = self._rows.dropna(subset=["crps"])["method"].unique()
        return [method for method in have if method != "calipers"]

    @property
    def _facts(self):
        (first, near), (first_c, near_c), (first_m, near_m) = map(self._won, MEASURES)
        score, crps, mse = map(self._ratios, MEASURES)
        rank_s, rank_c, rank_m = map(self._rank, MEASURES)
        next_s, next_c, next_m = map(self._next, MEASURES)
        sentences = f"""Each ratio is to the strongest other method, the one against which calipers
            does worst; below 1, calipers is better. By interval score calipers is ahead of all
            others on {first} of {len(score)} datasets and at most 5% behind on {near} (geometric
            mean of the ratios {np.exp(np.mean(np.log(score))):.3f}, largest {max(score):.3f}). By
            CRPS these counts are {first_c} and {near_c} (largest {max(crps):.3f}), by MSE {first_m}
            and {near_m} (largest {max(mse):.3f}). Its mean rank is {rank_s:.2f} by score
            ({next_s}), {rank_c:.2f} by CRPS ({next_c}) and {rank_m:.2f} by MSE ({next_m}). A rank
            counts the methods that are better on the shared splits; the runner-up is the best
            method with {WORDS[SHARED]} datasets or more. Seconds are for fitting and predicting.
            CRPS is compared with the {len(self._whole)} of {self._others} other methods that give
            whole distributions. Every number is in `results/peers/summary.md`."""
        coverage = f"""Mean distance of PICP from the nominal coverage, over datasets:
            {self._off()}. Targets of wine and naval lie on a grid, and an interval that ends on
            two grid values contains more than requested. With ties shared out on these two
            (`calipers.metrics.shared_coverage` counts a row on a bound by the fraction of its mass
            that the interval needs): {self._off("shared_off")}. Without the two:
            {self._off(without=ON_GRIDS)}. With these numbers of test and calibration rows, exactly
            right intervals would be expected to show {self._off("chance", ON_GRIDS)}."""
        return f"{filled(sentences)}\n\n{filled(coverage)}"

    @property
    def _better(self):
        lines = []
        for dataset in self._datasets:
            parts = [
                f"{called(other)} by {percent(ratio)} in {TITLES[measure]} "
                f"({splits} split{'s' if splits > 1 else ''})"
                for measure in MEASURES
                for other, (ratio, _, _, splits) in [self._worst[measure][dataset]]
                if ratio > 1.005
            ]
            if parts:
                lines.append(filled(f"- **{dataset}**: {'; '.join(parts)}.", indent="  "))
        return "Where another method is better:\n\n" + "\n".join(lines)

    @property
    def splits(self):
        """Numbers of splits, for calipers and for methods with few of them."""
        counts = self._rows.pivot_table(
            index="method", columns="dataset", values="split", aggfunc="nunique", observed=True
        )
        counts = counts.fillna(0).astype(int)

        def listed(method):
            return ", ".join(f"{d} {n}" for d, n in counts.loc[method].items() if n)

        wanted = np.minimum(5, counts.loc["calipers"])
        few = [m for m in counts.index if m != "calipers" and (counts.loc[m] < wanted).any()]
        text = filled(
            f"""The splits are those of Hernandez-Lobato and Adams, but not all of them. calipers
            has {listed("calipers")}. The following methods were run on fewer than five splits
            of some dataset, so their ratios are noisy:"""
        )
        items = [filled(f"- {name(m)}: {listed(m)}.", indent="  ") for m in few]
        return "\n".join([text, "", *items])

    @cached_property
    def _published(self):
        lines = table_lines(self._results / "published.csv")
        return [[d, n, *rest] for d, method, n, *rest in lines if method == "calipers"]

    @property
    def published(self):
        """Comparison with the published CRPS on the folds of DiffGBM."""
        header = ["dataset", "folds", "CRPS of calipers", "best tuned, published", "ratio"]
        behind = [(line[0], float(line[-1])) for line in self._published if float(line[-1]) > 1]
        count = len(self._published)
        text = f"calipers is ahead on {count - len(behind)} of {count}"
        if behind:
            listed = " and ".join(f"{d} ({percent(r)} behind)" for d, r in behind)
            text += f"; not on {listed}"
        return f"{tight(markdown(header, self._published))}\n\n{filled(text + '.')}"

    @cached_property
    def _tables(self):
        rows = peers_tables.read_rows(self._results / "tables.csv")
        have = set(rows[rows["method"] == "calipers"]["table"])
        return {
            t: {m: peers_tables.worst(rows, t, m) for m in ("interval_score", "rmse")}
            for t in peers_tables.TABLES
            if t in have
        }

    @property
    def real_tables(self):
        """Comparison on tables with categories, dates and missing values."""
        shown = peers_tables.shown(peers_tables.read_rows(self._results / "tables.csv"))[0]
        for method in peers_tables.METHODS:
            shown = shown.replace(f"| {method} (", f"| {name(method)} (")

        def listed(measure, beyond):
            found = [(t, *v[measure]) for t, v in self._tables.items() if v[measure][1] > beyond]
            return ", ".join(f"{t} ({percent(r)}, {called(m)})" for t, m, r, _ in found) or "none"

        won = sum(v["interval_score"][1] < 1 for v in self._tables.values())
        behind = listed("interval_score", 1)
        worst = max(v["rmse"][1] for v in self._tables.values())
        text = f"""By interval score calipers is ahead of all others on {won} of
            {len(self._tables)}{"" if behind == "none" else f", and behind on {behind}"}. Its RMSE
            is {percent(worst)} above the best at most, and more than 5% on {listed("rmse", NEAR)}.
            In brackets is the number of splits that both have run. CRPS is compared with the
            quantile forest, the only one that gives whole distributions on all tables."""
        return f"{tight(shown)}\n\n{filled(text)}"

    @property
    def few_rows(self):
        """Scores with few training rows."""
        rows = self._every[self._every["train_rows"].notna()]
        rows = rows[np.isclose(rows["coverage"], 0.95)]
        methods = ("calipers", "quantile_forest", "catboost_unc_cal")
        lines = []
        for (dataset, count), part in rows.groupby(["dataset", "train_rows"], observed=True):
            own = [part[part["method"] == m] for m in methods]
            cells = [f"{o['interval_score'].mean():.2f} ({o['picp'].mean():.2f})" for o in own]
            lines.append([dataset, f"{count:.0f}", *cells])
        header = ["dataset", "rows", "calipers", "quantile forest"]
        return tight(markdown([*header, "CatBoost mean-variance, calibrated"], lines))

    @property
    def elsewhere(self):
        """When to use another method."""
        ratio = self._relative["mapie_cqr_lgbm"][0]
        other = self._rows[self._rows["method"] == "mapie_cqr_lgbm"]
        quick = other.groupby("dataset", observed=True)["seconds"].median()
        worst = max(v["rmse"][1] for v in self._tables.values())
        points = ", ".join(f"{d} ({percent(r)})" for d, r, _ in self._behind("mse")[:3])
        if points:
            points = f"the squared error is above that of the best other method on {points}; "
        lines = [
            f"""- **if a fit must take about a second**: MAPIE's CQR over LightGBM takes
            {quick.min():.1f} to {quick.max():.1f} s, at {ratio:.1f} times the interval score;""",
            f"""- **if only the point prediction matters**: {points}on tables with categories the
            RMSE is up to {percent(worst)} above that of the best other method;""",
            f"""- **where another method is known to do better**: by interval score, on
            {self._listed("interval_score")};""",
        ]
        return "\n".join(filled(line, 104, "  ") for line in lines)

    @property
    def compared(self):
        """Summary of the comparison for the README."""
        (first, near), (first_c, near_c), (first_m, near_m) = (
            [WORDS[n] for n in self._won(measure)] for measure in MEASURES
        )
        rank_s, rank_c, rank_m = map(self._rank, MEASURES)
        best = ", ".join(
            f"{called(m)} ({ratio:.2f} times, {WORDS[count]} datasets)"
            for ratio, count, m in self._scores[:3]
        )
        forest = self._relative["quantile_forest"]
        others = WORDS[self._others]
        won = sum(v["interval_score"][1] < 1 for v in self._tables.values())
        ahead = [line[0] for line in self._published if float(line[-1]) <= 1]
        rest = [line[0] for line in self._published if float(line[-1]) > 1]
        table = markdown(
            ["", "calipers is best on", "within 5% of the best on", "mean rank"],
            [
                ["interval score", f"{first} of nine datasets", near, f"{rank_s:.1f}"],
                ["CRPS", first_c, near_c, f"{rank_c:.1f}"],
                ["squared error", first_m, near_m, f"{rank_m:.1f}"],
            ],
        )
        titles = {"interval_score": "interval score", "crps": "CRPS", "mse": "squared error"}
        weak = [f"{t} on {self._listed(m)}; " for m, t in titles.items() if self._behind(m)]
        texts = [
            f"""Against {others} other methods on nine UCI datasets (MAPIE, CatBoost, NGBoost,
            LightGBM, quantile forest, tree diffusion, RealMLP, TabM, AutoGluon and others;
            `benchmarks/peers.py table`), each compared on the splits that both have run:""",
            f"""CRPS is compared with the {WORDS[len(self._whole)]} methods that give whole
            distributions. The closest in interval score, relative to calipers, are {best}:
            geometric means over datasets, among methods that share {WORDS[SHARED]} or more. The
            quantile forest has {forest[0]:.2f} times the score in {forest[1]:.2f} of the CPU time
            (`benchmarks/peers.py figure`).""",
            f"""On {WORDS[len(self._tables)]} real tables with categories, dates and missing values,
            calipers has a lower interval score than CatBoost, LightGBM, the quantile forest and
            AutoGluon on {WORDS[won]} (`benchmarks/peers_tables.py table`). Published CRPS of tuned
            methods exist for {WORDS[len(self._published)]} datasets; calipers, untuned, is ahead on
            {WORDS[len(ahead)]}{f" (not on {' and '.join(rest)})" if rest else ""}.""",
            f"""**Where it is weaker**: {"".join(weak)}and time.""",
            """**Caveats**: not all splits were run, and strong peers only on a few. Some rows are
            from another machine. Defaults were chosen on training rows of the first splits, which
            are test rows of other splits. That an earlier default was unstable was first noticed on
            test rows of naval. [docs/benchmarks.md](docs/benchmarks.md) has the tables and all
            caveats.""",
        ]
        first_text, *other_texts = (filled(text, 104) for text in texts)
        return "\n\n".join([first_text, tight(table), *other_texts])

    @property
    def mapie_scores(self):
        """Interval scores of MAPIE's methods relative to calipers."""
        cv, cqr = (self._relative[name][0] for name in ("mapie_cvplus_hgb", "mapie_cqr_lgbm"))
        return f"{cv:.1f} (CV+) and {cqr:.1f} (CQR)"

    @property
    def points(self):
        """Accuracy of the point predictions."""
        behind = f"; it is higher than the best on {self._listed('mse')}"
        return filled(
            f"""Mostly. On {WORDS[self._won("mse")[0]]} of the nine datasets of the comparison its
            squared error is the lowest{behind if self._behind("mse") else ""}. If
            only the point prediction matters, try boosted trees as well. With
            [`upgrade`](howto/around.md), calipers puts its intervals around the predictions of any
            model.""",
            104,
        )


def tight(table):
    """Shorten the rule lines of a Markdown table."""
    return table.replace("| --- |", "|---|").replace(" ---: |", "---:|")


def updated(text, comparison):
    """Return the page with the text between markers brought up to date."""

    def new(match):
        mark, before, after = match["mark"], match["before"], match["after"]
        found = getattr(type(comparison), mark, None)
        if not isinstance(found, property) or mark.startswith("_"):
            return match[0]
        return f"<!-- {mark} -->{before}{getattr(comparison, mark)}{after}<!-- /{mark} -->"

    pattern = r"<!-- (?P<mark>\w+) -->(?P<before>\s*).*?(?P<after>\s*)<!-- /(?P=mark) -->"
    return re.sub(pattern, new, text, flags=re.DOTALL)


def write_pages(results, root=ROOT):
    """Bring the pages up to date and return the names of those that changed."""
    comparison, changed = Comparison(results), []
    for page in PAGES:
        path = root / page
        before = path.read_text()
        after = updated(before, comparison)
        if after != before:
            path.write_text(after)
            changed.append(page)
    return changed
