"""Rendering of the page: the context of its template, and the assembly into one file."""

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
from calipers._evaluation import LabelledPrediction
from calipers._pages import asset
from calipers._text import column_values, counted, describe_support
from calipers.bank import Bank, Upgraded
from calipers.preprocessing import Column
from calipers.regressor import IntervalRegressor
from calipers.report import _sentences as sentences
from calipers.report._charts import chart_data, sampled
from calipers.report._drivers import Drivers, driver_data, driver_sentence
from calipers.report._format import Unit, brief, percent
from calipers.report._groups import Breakdown
from calipers.report._misses import Miss
from calipers.report._verdict import compare, verdict

_CARDS = 60  # breakdowns that are drawn
_FINDINGS = 12  # listed
_CATEGORIES = 6  # named
_SECTIONS = {
    "short": "Summary",
    "rows": "Rows and their intervals",
    "calibration": "Calibration",
    "trust": "Where to trust it less",
    "drivers": "What drives predictions and widths",
    "uncertainty": "Uncertainty within and between networks",
    "misses": "The worst misses",
    "training": "Training",
    "model": "Inputs, settings, versions",
}


@dataclass(frozen=True)
class Content:
    """Everything a page is made from."""

    model: IntervalRegressor  # fitted
    labelled: LabelledPrediction
    parts: list[Breakdown]
    misses: list[Miss]
    names: Sequence[str]  # labels of all rows
    title: str
    where: str  # which rows the model was evaluated on
    drivers: Drivers | None  # None if they were not measured
    cautions: Sequence[str]  # warnings at the top


def render(content: Content) -> str:
    """Return the page as text; the template escapes everything but our own script and style."""
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
        groups=sum(len(part.groups) for part in content.parts),
        inputs=[(c.name, c.kind, training_range(c), c.note) for c in content.model.inputs_],
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
    """Return the networks that were trained for intervals."""
    bank = content.model.ensemble_.bank
    return bank.heads if isinstance(bank, Upgraded) else bank


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("calipers.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {"percent": percent, "plural": counted}
    return environment


def _file(name: str) -> str:
    return resources.files("calipers.report").joinpath(name).read_text("utf-8")


def _policy(script: str) -> str:
    """Return the content security policy: the browser may run this script, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    )


def _sentences(content: Content) -> dict[str, Any]:
    """Return the sentences of the page, by their names in the template."""
    labelled, ensemble = content.labelled, content.model.ensemble_
    unit = Unit.of(labelled.target)
    calibration = ensemble.calibrations[-1] if ensemble.calibrations else None
    texts: dict[str, Any] = {
        "verdict": verdict(labelled, calibration),
        "comparison_text": sentences.comparison_sentences(
            labelled, unit, content.model.target_.name
        ),
        "support_text": _support_text(content),
        "training_text": sentences.training_sentences(_trained(content)),
    }
    if content.drivers is not None:
        texts["drivers_text"] = driver_sentence(content.drivers, unit)
    for kind in ("short", "wide"):
        pairs = sentences.findings(content.parts, kind)
        lines = [sentences.finding_sentence(*pair, unit) for pair in pairs[:_FINDINGS]]
        texts[f"{kind}_groups"] = {"texts": lines, "all": len(pairs)}
        if kind == "short":
            texts["remedy"] = sentences.remedy_sentence(pairs, labelled.coverage)
    if labelled.pit is not None:
        texts["curve_text"] = sentences.calibration_sentence(labelled)
        texts["pit_text"] = sentences.pit_sentence(labelled)
        texts["uncertainty_text"] = sentences.uncertainty_sentences(labelled)
    return texts


def _support_text(content: Content) -> str:
    """Return what the model assumes of the target, and how many targets contradict it."""
    labelled = content.labelled
    if labelled.support.is_line:
        return ""
    name = content.model.target_.name
    return f"{describe_support(name, str(labelled.support), labelled.excluded)}."


def _tiles(content: Content) -> list[tuple[str, str, str]]:
    """Return four key figures: name, value, note."""
    labelled, unit = content.labelled, Unit.of(content.labelled.target)
    model, _, naive = compare(labelled)
    bounded = np.isfinite(model.width)
    inside = f"nominal {percent(labelled.coverage)}" if bounded else "says nothing here"
    if bounded and labelled.ties is not None:
        rate = float(labelled.covered(labelled.own_level).mean())
        inside += f"; {percent(rate)} corrected for ties"
    tiles = [
        ("rows inside", percent(model.rate), inside),
        ("typical width", unit.write(float(np.median(labelled.width))), "median over the rows"),
        ("typical prediction error", unit.write(model.error), "root mean square"),
    ]
    if not (bounded and naive.width > 0):
        return [*tiles, ("one interval for all", unit.write(naive.width), "width, in hindsight")]
    gain, score = 1 - model.width / naive.width, 1 - model.score / naive.score
    how, better = "narrower" if gain >= 0 else "wider", "better" if score >= 0 else "worse"
    note = f"interval score {percent(abs(score))} {better}"
    return [*tiles, (f"{how} than one interval for all", percent(abs(gain)), note)]


def _settings(model: IntervalRegressor) -> list[tuple[str, str, str]]:
    """Return the name and value of each setting, with a note if it is not the default.

    The command line sets the preprocessor and the seed of every model, so a note on these would not
    show what the user chose.
    """
    defaults, rows = type(model)().get_params(deep=False), []
    for name, value in model.get_params(deep=False).items():
        same = name in ("preprocessor", "random_state") or _text(value) == _text(defaults[name])
        rows.append((name, _text(value), "" if same else "not the default"))
    return rows


def _facts(model: IntervalRegressor) -> dict[str, str]:
    """Return when, on what and with which versions the model was fitted."""
    about = model.about_
    facts = {k.replace("_", " "): str(v) for k, v in about.items() if isinstance(v, str | int)}
    ensemble = model.ensemble_
    if ensemble.head.components > 1:
        facts["components of each network"] = str(ensemble.head.components)
    if ensemble.target_map is not None:
        facts["scale of the target"] = ensemble.target_map.kind
    if model.reader_.forest is not None:
        facts["additional inputs"] = f"predictions of {len(model.reader_.forest)} trees"
    if files := (about.get("source") or {}).get("files"):
        facts["fitted on"] = ", ".join(files)
    facts["values of the target"] = str(model.support_)
    versions = about.get("versions", {})
    return facts | {f"{name} when fitted": str(v) for name, v in versions.items()}


def training_range(column: Column) -> str:
    """Return the values of an input in training, in few words.

    >>> from calipers.preprocessing import Column
    >>> training_range(Column("size", "number", 1.0, 9.5, 2.0))
    '1 to 9.5, median 2'
    """
    document = column.to_document() | {"categories": [*map(brief, column.categories)]}
    if column.dtype.kind == "M":
        ends = ("low", "high", "typical")
        document |= {end: brief(np.datetime64(document[end])) for end in ends}
    text = column_values(document, _CATEGORIES, typical=True)
    return f"{text}; also missing" if column.missing and text else text


def _text(value: object) -> str:
    """Return a setting as text; objects by the name of their class."""
    return json.dumps(value, default=lambda other: type(other).__name__)
