"""The sections with tables: the worst misses, and what the model is made of."""

import json
from typing import Any

from calipers.report._content import Content
from calipers.report._html import Html, fold, joined, number, sortable, table, tag, words
from calipers.report._numbers import brief

_CATEGORIES = 6  # named


def misses(content: Content) -> Html:
    """The rows farthest outside of their interval."""
    if not content.misses:
        return tag("p", "Every row lies inside its interval.")
    unit, lines = content.unit, []
    for miss in content.misses:
        values = "; ".join(f"{name} {value}" for name, value in miss.inputs)
        numbers = (miss.target, miss.point, miss.lower, miss.upper, miss.distance)
        lines.append(
            [
                tag("td", miss.name),
                *(number(unit.write(value), value) for value in numbers),
                number(f"{miss.widths:.2f}", miss.widths),
                tag("td", fold(miss.notable, tag("span", values)), "words", raw=True),
            ]
        )
    names = ("observed", "predicted", "lower", "upper", "outside by", "in half widths")
    return sortable(("row", *names, "its inputs"), lines, numbers=len(names))


def model(content: Content) -> Html:
    """Inputs, settings and versions."""
    own = content.model
    inputs = [map(words, (c.name, c.kind, seen(c), c.note)) for c in own.inputs_]
    about = {k.replace("_", " "): v for k, v in own.about_.items() if isinstance(v, str | int)}
    if files := own.about_.get("source", {}).get("files"):
        about["fitted on"] = ", ".join(files)
    facts = about | {f"{name} when fitted": v for name, v in own.about_["versions"].items()}
    return joined(
        [
            fold("Inputs", table(("input", "kind", "seen in training", "noticed"), inputs)),
            fold("Settings", table(("setting", "value", ""), _settings(own))),
            fold("Versions", table(("", ""), [map(words, (k, str(v))) for k, v in facts.items()])),
        ]
    )


def _settings(own: Any) -> list[list[Html]]:
    usual = type(own)().get_params(deep=False)
    lines = []
    for name, value in own.get_params(deep=False).items():
        changed = _text(value) != _text(usual[name])
        code = tag("td", tag("code", _text(value)), "words", raw=True)
        lines.append([tag("td", name), code, words("not the default" if changed else "")])
    return lines


def seen(column: Any) -> str:
    """What training saw of an input, in few words.

    Examples
    --------
    >>> from calipers.preprocessing import Column
    >>> seen(Column("size", "number", 1.0, 9.5, 2.0))
    '1 to 9.5, typically 2'
    """
    text = ""
    if column.kind == "boolean":
        text = f"yes or no, mostly {'yes' if column.typical else 'no'}"
    elif column.categories:
        text = ", ".join(brief(value) for value in column.categories[:_CATEGORIES])
        rest = len(column.categories) - _CATEGORIES
        text += f" and {rest} more" if rest > 0 else ""
    elif column.low is not None:
        text = f"{brief(column.low)} to {brief(column.high)}, typically {brief(column.typical)}"
    return f"{text}; also missing" if column.missing and text else text


def _text(value: Any) -> str:
    """A setting as text; objects by the name of their class."""
    return json.dumps(value, default=lambda other: type(other).__name__)
