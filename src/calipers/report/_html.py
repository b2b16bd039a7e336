"""Pieces of HTML. Text goes in as it is and is escaped here; finished HTML has the type Html."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NewType

Html = NewType("Html", str)

_DRAWINGS = {
    "span": '<path class="span" stroke-width="10" d="M2 6h18"/>',
    "line": '<path class="line" d="M1 6h20"/>',
    "line other": '<path class="line other" d="M1 6h20"/>',
    "in": '<path class="in" stroke-width="5" d="M11 6h0"/>',
    "in soft": '<path class="in soft" stroke-width="5" d="M11 6h0"/>',
    "out": '<path class="out" d="M6 6l5-5 5 5-5 5z"/>',
    "dot": '<circle class="dot" cx="11" cy="6" r="4.5"/>',
    "best": '<circle class="best" cx="11" cy="6" r="4"/>',
    "band": '<rect class="band" x="1" y="0" width="20" height="12" rx="3"/>',
    "ideal": '<path class="ideal" d="M1 6h20"/>',
}
_SYMBOLS = {"good": "\u2713", "short": "\u25bc", "wide": "\u25b2", "few": "?"}


def joined(pieces: Iterable[Html], between: str = "\n") -> Html:
    """Pieces one after the other."""
    return Html(between.join(pieces))


def tag(name: str, content: str | Html, kind: str = "", *, raw: bool = False, **extra: Any) -> Html:
    """An element; its content is text, or finished HTML if ``raw``.

    Examples
    --------
    >>> tag("p", "a < b", "hint")
    '<p class="hint">a &lt; b</p>'
    """
    named = {"class": kind, **extra} if kind else extra
    attributes = "".join(
        f' {key.replace("_", "-")}="{escape(str(value))}"' for key, value in named.items()
    )
    return Html(f"<{name}{attributes}>{content if raw else escape(content)}</{name}>")


def chart(kind: str, label: str, **extra: Any) -> Html:
    """A place for a chart of report.js, with what it shows in words."""
    named: dict[str, Any] = {f"data_{key}": value for key, value in extra.items()}
    return tag("figure", "", data_chart=kind, data_label=label, **named)


def pill(kind: str, text: str) -> Html:
    """A verdict, told apart by symbol and colour."""
    return tag("span", f"{_SYMBOLS[kind]} {text}", f"pill {kind}")


def keys(*entries: tuple[str, str]) -> Html:
    """A legend; each entry names a drawing and what it means."""
    items = [
        f'<li><svg viewBox="0 0 22 12" aria-hidden="true">{_DRAWINGS[kind]}</svg>'
        f"{escape(name)}</li>"
        for kind, name in entries
    ]
    return tag("ul", "".join(items), "keys", raw=True)


def number(text: str, value: float | None = None) -> Html:
    """A cell of a table with a number, and the value it sorts by."""
    if value is None:
        return tag("td", text, "n")
    return tag("td", text, "n", data_value=f"{value:.8g}")


def words(text: str) -> Html:
    """A cell of a table with text."""
    return tag("td", text, "words")


def table(head: Sequence[str], rows: Iterable[Iterable[Html]], *, numbers: int = 0) -> Html:
    """A table; so many columns after the first hold numbers."""
    return _table(head, rows, range(1, numbers + 1), "")


def sortable(head: Sequence[str], rows: Iterable[Iterable[Html]], *, numbers: int) -> Html:
    """A table that sorts by those columns after the first that hold numbers."""
    return _table(head, rows, range(1, numbers + 1), "sortable")


def _table(head: Sequence[str], rows: Iterable[Iterable[Html]], numeric: range, kind: str) -> Html:
    cells = []
    for place, name in enumerate(head):
        is_number = place in numeric
        inner = tag("button", name, type="button") if kind and is_number else Html(escape(name))
        cells.append(tag("th", inner, "n" if is_number else "", raw=True, scope="col"))
    top = tag("thead", tag("tr", joined(cells, ""), raw=True), raw=True)
    lines = [tag("tr", joined(row, ""), raw=True) for row in rows]
    body = tag("tbody", joined(lines), raw=True)
    return tag("div", tag("table", joined([top, body]), kind, raw=True), "scroll", raw=True)


def fold(summary: str, content: Html) -> Html:
    """What is there to see at a click, and always on paper."""
    return tag("details", tag("summary", summary) + content, raw=True)
