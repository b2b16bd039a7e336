"""The page: what its template is given, and how the one file is put together."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

import calipers
from calipers._pages import asset
from calipers.bank import Bank, Upgraded
from calipers.preprocessing import Column
from calipers.regressor import IntervalRegressor
from calipers.report import _sentences as sentences
from calipers.report._charts import chart_data, sampled
from calipers.report._drivers import Drivers, driver_data, driver_sentence
from calipers.report._format import Unit, brief, count, share
from calipers.report._groups import Breakdown
from calipers.report._labelled import LabelledPrediction
from calipers.report._misses import Miss
from calipers.report._verdict import compare, verdict

_CARDS = 60  # breakdowns that are drawn
_FINDINGS = 12  # listed
_CATEGORIES = 6  # named
_SECTIONS = {
    "short": "In short",
    "rows": "Rows and their intervals",
    "calibration": "Calibration",
    "trust": "Where to trust it less",
    "drivers": "What drives the point and what drives the width",
    "uncertainty": "Within and between networks",
    "misses": "The worst misses",
    "training": "Training",
    "model": "Inputs, settings, versions",
}


@dataclass(frozen=True)
class Content:
    """What a page is made from."""

    model: IntervalRegressor  # fitted
    labelled: LabelledPrediction  # what it says about the rows
    parts: list[Breakdown]  # groups of the rows
    misses: list[Miss]  # rows farthest outside of their interval
    names: Sequence[str]  # labels of all rows
    # headline, and which rows the model was evaluated on
    title: str
    where: str
    drivers: Drivers | None  # what each input is worth; None where that was not measured
    cautions: Sequence[str]  # what the reader must know first


def render(content: Content) -> str:
    """The whole page as text; the template escapes everything but our own script and style."""
    labelled, bank = content.labelled, _trained(content)
    script = f"\n{asset('charts.js')}{re.sub(r'(?ms)^import .*?;$', '', _file('report.js'))}\n"
    drawn = content.parts[:_CARDS]
    return _environment().get_template("report.html").render(
        **vars(content) | {"parts": drawn, "left_out": len(content.parts) - len(drawn)},
        **_sentences(content),
        sections=_SECTIONS,
        unit=Unit.of(labelled.target),
        tiles=_tiles(content),
        contenders=compare(labelled),
        drawn_rows=len(sampled(labelled)),
        groups=sum(len(one.groups) for one in content.parts),
        inputs=[(c.name, c.kind, seen(c), c.note) for c in content.model.inputs_],
        settings=_settings(content.model),
        facts=_facts(content.model),
        data=chart_data(labelled, drawn, bank.histories, content.names)
        | {"drivers": driver_data(content.drivers)},
        version=calipers.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        policy=_policy(script),
        script=script,
        style=asset("charts.css") + _file("style.css"),
    )  # fmt: skip


def _trained(content: Content) -> Bank:
    """The networks that were trained for intervals."""
    bank = content.model.ensemble_.bank
    return bank.heads if isinstance(bank, Upgraded) else bank


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("calipers.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    found.filters |= {"share": share, "plural": count}
    return found


def _file(name: str) -> str:
    return resources.files("calipers.report").joinpath(name).read_text("utf-8")


def _policy(script: str) -> str:
    """What a browser may do with the page: run this script, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    )


def _sentences(content: Content) -> dict[str, Any]:
    """Everything that is said in sentences, by its name in the template."""
    labelled, ensemble = content.labelled, content.model.ensemble_
    unit = Unit.of(labelled.target)
    calibration = ensemble.calibrations[-1] if ensemble.calibrations else None
    given: dict[str, Any] = {
        "verdict": verdict(labelled, calibration),
        "worth": sentences.worth(labelled, unit, content.model.target_.name),
        "training_text": sentences.training_sentences(_trained(content)),
    }
    if content.drivers is not None:
        given["drivers_text"] = driver_sentence(content.drivers, unit)
    for kind in ("short", "wide"):
        found = sentences.findings(content.parts, kind)
        texts = [sentences.finding_sentence(*pair, unit) for pair in found[:_FINDINGS]]
        given[f"{kind}_groups"] = {"texts": texts, "all": len(found)}
        if kind == "short":
            given["remedy"] = sentences.remedy_sentence(found, labelled.coverage)
    if labelled.pit is not None:
        given["curve_text"] = sentences.calibration_sentence(labelled)
        given["pit_text"] = sentences.pit_sentence(labelled)
        given["uncertainty_text"] = sentences.uncertainty_sentences(labelled)
    return given


def _tiles(content: Content) -> list[tuple[str, str, str]]:
    """Four numbers: name, value, note."""
    labelled, unit = content.labelled, Unit.of(content.labelled.target)
    model, _, naive = compare(labelled)
    bounded = np.isfinite(model.width)
    inside = f"promised {share(labelled.coverage)}" if bounded else "says nothing here"
    tiles = [
        ("rows inside", share(model.rate), inside),
        ("typical width", unit.write(float(np.median(labelled.width))), "median over the rows"),
        ("typical error of a point", unit.write(model.error), "root mean square"),
    ]
    if not (bounded and naive.width > 0):
        return [*tiles, ("one interval for all", unit.write(naive.width), "width, with hindsight")]
    gain, score = 1 - model.width / naive.width, 1 - model.score / naive.score
    how, better = "narrower" if gain >= 0 else "wider", "better" if score >= 0 else "worse"
    note = f"interval score {share(abs(score))} {better}"
    return [*tiles, (f"{how} than one interval for all", share(abs(gain)), note)]


def _settings(model: IntervalRegressor) -> list[tuple[str, str, str]]:
    """Name, value, and whether it is not the default."""
    usual = type(model)().get_params(deep=False)
    texts = {name: _text(value) for name, value in model.get_params(deep=False).items()}
    return [
        (name, text, "" if text == _text(usual[name]) else "not the default")
        for name, text in texts.items()
    ]


def _facts(model: IntervalRegressor) -> dict[str, str]:
    """When, on what and with which versions the model was fitted."""
    about = model.about_
    facts = {k.replace("_", " "): str(v) for k, v in about.items() if isinstance(v, str | int)}
    ensemble = model.ensemble_
    if ensemble.head.components > 1:
        facts["components of each network"] = str(ensemble.head.components)
    if ensemble.target_map is not None:
        facts["scale of the target"] = ensemble.target_map.kind
    if model.reader_.forest is not None:
        facts["inputs of the networks besides"] = f"points of {len(model.reader_.forest)} trees"
    if files := (about.get("source") or {}).get("files"):
        facts["fitted on"] = ", ".join(files)
    facts["values of the target"] = str(model.support_)
    versions = about.get("versions", {})
    return facts | {f"{name} when fitted": str(v) for name, v in versions.items()}


def seen(column: Column) -> str:
    """What training saw of an input, in few words.

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
        ends: list[Any] = [column.low, column.high, column.typical]
        if column.kind == "date":
            ends = [np.datetime64(end) for end in ends]
        text = "{} to {}, typically {}".format(*map(brief, ends))
    return f"{text}; also missing" if column.missing and text else text


def _text(value: Any) -> str:
    """A setting as text; objects by the name of their class."""
    return json.dumps(value, default=lambda other: type(other).__name__)
