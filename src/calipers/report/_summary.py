"""The first section: is it honest, is it useful."""

import numpy as np

from calipers.report import _words as words
from calipers.report._content import Content
from calipers.report._html import Html, chart, joined, number, pill, table, tag
from calipers.report._numbers import Unit, share


def short(content: Content) -> Html:
    """In short: the verdict, four numbers, and the comparison with naive intervals."""
    answers, unit = content.answers, content.unit
    judged = words.verdict(answers)
    lead = tag("span", judged.headline) + " " + pill(judged.kind, judged.pill)
    return joined(
        [
            tag("p", lead, "lead", raw=True),
            tag("p", judged.text),
            chart("strip", f"{judged.headline} {judged.text}"),
            _tiles(content),
            tag("p", " ".join(words.worth(answers, unit, content.model.target_.name))),
            _rivals(content),
        ]
    )


def _tiles(content: Content) -> Html:
    answers, unit = content.answers, content.unit
    model, _, naive = words.rivals(answers)
    rate = float(answers.inside.mean())
    tiles = [
        ("rows inside", share(rate), f"promised {share(answers.coverage)}"),
        ("typical width", unit.write(float(np.median(answers.width))), "median over the rows"),
        ("typical error of a point", unit.write(model.error), "root mean square"),
        _gain(model, naive, unit),
    ]
    shown = [
        tag(
            "div",
            tag("dt", name) + tag("dd", value, "value") + tag("dd", note),
            "tile",
            raw=True,
        )
        for name, value, note in tiles
    ]
    return tag("dl", joined(shown, ""), "tiles", raw=True)


def _gain(model: words.Rival, naive: words.Rival, unit: Unit) -> tuple[str, str, str]:
    if not (np.isfinite(model.width) and naive.width > 0):
        return "one interval for all", unit.write(naive.width), "its width, with hindsight"
    gain, score = 1 - model.width / naive.width, 1 - model.score / naive.score
    how, judged = "narrower" if gain >= 0 else "wider", "better" if score >= 0 else "worse"
    note = f"interval score {share(abs(score))} {judged}"
    return f"{how} than one interval for all", share(abs(gain)), note


def _rivals(content: Content) -> Html:
    unit, found = content.unit, words.rivals(content.answers)
    rows = [
        [
            tag("td", rival.name),
            number(share(rival.rate)),
            *(number(unit.write(value)) for value in (rival.width, rival.score, rival.error)),
        ]
        for rival in found
    ]
    notes = "; ".join(f"{rival.name.capitalize()}: {rival.note}" for rival in found[1:])
    hint = (
        f"{notes}. Both have the benefit of hindsight, since they were made from these very rows. "
        "The interval score adds to the width a fine for every row outside; less is better."
    )
    head = ("", "rows inside", "mean width", "interval score", "error of points")
    return joined([table(head, rows, numbers=4), tag("p", hint, "hint")])
