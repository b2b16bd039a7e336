"""The page: its sections in order, and the file's other parts around them."""

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from importlib import resources
from string import Template
from typing import Any

import calipers
from calipers.report._charts import chart_data
from calipers.report._content import Content
from calipers.report._details import misses, model
from calipers.report._html import Html, joined, tag
from calipers.report._sections import CARDS, calibration, rows, training, trust, uncertainty
from calipers.report._summary import short

_SECTIONS: dict[str, tuple[str, Callable[[Content], Html]]] = {
    "short": ("In short", short),
    "rows": ("Rows and their intervals", rows),
    "calibration": ("Calibration", calibration),
    "trust": ("Where to trust it less", trust),
    "uncertainty": ("Noise and doubt", uncertainty),
    "misses": ("The worst misses", misses),
    "training": ("Training", training),
    "model": ("Inputs, settings, versions", model),
}


def render(content: Content) -> str:
    """The whole page as text."""
    links = [tag("a", name, href=f"#{key}") for key, (name, _) in _SECTIONS.items()]
    sections = [
        tag("section", joined([tag("h2", name), make(content)]), raw=True, id=key)
        for key, (name, make) in _SECTIONS.items()
    ]
    script = f"\n{_file('report.js')}\n"
    data = chart_data(
        content.answers,
        content.parts[:CARDS],
        content.model.ensemble_.bank.histories,
        content.names,
    )
    return Template(_file("template.html")).substitute(
        version=calipers.__version__,
        policy=_policy(script),
        title=escape(content.title),
        style=_file("style.css"),
        where=escape(content.where),
        contents=joined(links, " "),
        cautions=joined(tag("p", text, "caution") for text in content.cautions),
        sections=joined(sections),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        data=_json(data),
        script=script,
    )


def _file(name: str) -> str:
    return resources.files("calipers.report").joinpath(name).read_text("utf-8").strip()


def _policy(script: str) -> str:
    """What a browser may do with the page: run this script, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    )


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
