"""The sections with charts: rows, calibration, groups, noise and doubt, training."""

from calipers.report import _words as words
from calipers.report._charts import sampled
from calipers.report._content import Content
from calipers.report._groups import Breakdown
from calipers.report._html import Html, chart, fold, joined, keys, pill, tag
from calipers.report._numbers import count, share

CARDS = 60
"""Most breakdowns that are drawn."""

_OPEN_CARDS = 8
_LINES = 12  # findings listed
_ZOOM = (
    ("left", "\u25c0", "Rows before"),
    ("in", "+", "Zoom in"),
    ("out", "\u2212", "Zoom out"),
    ("right", "\u25b6", "Rows after"),
    ("all", "All rows", "Show all rows"),
)
_NO_DISTRIBUTION = (
    "This model gives bounds for one coverage and no distribution, so there is nothing to draw."
)


def rows(content: Content) -> Html:
    """Every row with its interval, for any coverage."""
    answers, drawn = content.answers, len(sampled(content.answers))
    hint = "Drag across the chart to zoom, double-click to see all; arrow keys go from row to row."
    if drawn < len(answers):
        hint += f" Drawn are {drawn:,} rows at random; the numbers are of all {len(answers):,}."
    label = f"Intervals, points and targets of {count(drawn, 'row')} in the order of prediction"
    legend = keys(
        ("span", "interval"), ("line", "point"), ("in", "observed, inside"), ("out", "outside")
    )
    return joined(
        [
            tag("p", hint, "hint"),
            _tools(content),
            chart("intervals", label, unit=content.model.target_.name),
            legend,
            tag("p", "", "status hint", aria_live="polite"),
        ]
    )


def _tools(content: Content) -> Html:
    answers = content.answers
    levels = [
        f'<label><input type="radio" name="level" value="{i}"'
        f"{' checked' if i == answers.own else ''}><span>{share(float(level))}</span></label>"
        for i, level in enumerate(answers.levels)
    ]
    choice = tag("fieldset", tag("legend", "Coverage") + "".join(levels), raw=True)
    buttons = [
        tag("button", text, type="button", data_zoom=key, aria_label=label)
        for key, text, label in _ZOOM
    ]
    return tag("div", choice + tag("div", joined(buttons, ""), raw=True), "tools", raw=True)


def calibration(content: Content) -> Html:
    """Calibration curve and PIT histogram, side by side."""
    answers = content.answers
    if answers.pit is None:
        return tag("p", _NO_DISTRIBUTION)
    curve, bars = words.calibration_words(answers), words.pit_words(answers)
    within = ("band", "within chance")
    cards = [
        _card(
            f"Every coverage, not only {share(answers.coverage)}",
            tag("p", curve, "hint"),
            chart("calibration", f"Calibration curve. {curve}"),
            keys(("line", "this model"), ("ideal", "as promised"), within),
        ),
        _card(
            "Where targets fall in their distribution",
            tag("p", bars, "hint"),
            chart("pit", f"PIT histogram. {bars}"),
            keys(within, ("ideal", "level")),
        ),
    ]
    hint = (
        "A valley in the bars means distributions that are too narrow, a hump too wide, a slope "
        "predictions that are too high or too low."
    )
    return joined([tag("div", joined(cards), "two", raw=True), tag("p", hint, "hint")])


def _card(title: str, *pieces: Html) -> Html:
    return tag("div", joined([tag("h3", title), *pieces]), "card", raw=True)


def trust(content: Content) -> Html:
    """Groups of rows: those that chance does not explain in words, all of them drawn."""
    parts = content.parts
    if not parts:
        return tag("p", "These are too few rows to look at groups of them.")
    groups = sum(len(one.groups) for one in parts)
    hint = (
        "Grey is what chance does to each group in 19 of 20 cases, so a dot may leave it here and "
        "there. A group is marked only if chance would mark any in fewer than one of twenty "
        f"reports, over all {groups} groups."
    )
    legend = keys(
        ("dot", "rows inside"),
        ("out", "falls short"),
        ("ideal", "promised"),
        ("band", "within chance"),
    )
    cards = [_breakdown(number, one) for number, one in enumerate(parts[:CARDS])]
    pieces = [
        _findings(content, groups),
        tag("p", hint, "hint"),
        legend,
        _grid(cards[:_OPEN_CARDS]),
    ]
    if rest := cards[_OPEN_CARDS:]:
        pieces.append(fold(count(len(rest), "further input"), _grid(rest)))
    if left := len(parts) - len(cards):
        pieces.append(tag("p", f"{count(left, 'input')} more not drawn.", "hint"))
    return joined(pieces)


def _grid(cards: list[Html]) -> Html:
    return tag("div", joined(cards), "cards", raw=True)


def _breakdown(number: int, one: Breakdown) -> Html:
    shares = "; ".join(f"{g.label}: {share(g.rate)} of {count(g.rows, 'row')}" for g in one.groups)
    return _card(one.name, chart("group", f"Coverage by {one.name}. {shares}", part=number))


def _findings(content: Content, groups: int) -> Html:
    coverage, found = share(content.answers.coverage), words.findings(content.parts)
    short = words.verdict(content.answers).kind == "short"
    if not found:
        worse = " any worse than all rows together" if short else ""
        return tag(
            "p",
            f"None of {groups} groups of rows falls short of its {coverage}{worse} beyond chance, "
            "as far as so many rows can tell.",
        )
    items = []
    for one, group in found[:_LINES]:
        name = {"short": "falls short", "wide": "more than promised"}[group.verdict]
        text = (
            f"{one.name}, {group.label}: {share(group.rate)} of {count(group.rows, 'row')} inside, "
            f"mean width {content.unit.write(group.width)}"
        )
        items.append(tag("li", pill(group.verdict, name) + tag("span", text), raw=True))
    if rest := len(found) - len(items):
        items.append(tag("li", f"and {count(rest, 'further group')}, marked in the charts"))
    lead = f"Groups in which the {coverage} intervals do not hold what they promise, beyond chance"
    lead += {
        "short": "; since all rows together fall short, only those that are worse than all.",
        "wide": "; since all rows together hold more, only those that hold still more, or too few.",
    }.get(words.verdict(content.answers).kind, ".")
    return joined([tag("p", lead), tag("ul", joined(items), "findings", raw=True)])


def uncertainty(content: Content) -> Html:
    """Aleatoric against epistemic."""
    if content.answers.aleatoric is None:
        return tag("p", _NO_DISTRIBUTION)
    text = words.uncertainty_words(content.answers)
    hint = "Both are the networks' own, before calibration. Above the dashed line doubt is larger."
    legend = keys(
        ("in soft", "inside its interval"), ("out", "outside"), ("ideal", "noise equals doubt")
    )
    return joined([tag("p", text), chart("uncertainty", text), legend, tag("p", hint, "hint")])


def training(content: Content) -> Html:
    """Training history."""
    text = words.history_words(content.model.ensemble_.bank)
    hint = (
        "Thin lines are networks, thick lines their median. A network stops when the rows that it "
        "set aside show no more gain, and keeps the weights of its best epoch."
    )
    legend = keys(
        ("line", "training rows"), ("line other", "validation rows"), ("best", "best epoch")
    )
    return joined([tag("p", f"{text} {hint}"), chart("history", text), legend])
