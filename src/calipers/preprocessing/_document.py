"""Schemas of stored columns and encoders, which are checked before any is restored."""

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from calipers._schema import (
    Check,
    anything,
    flag,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    record,
    refuse,
    text,
    whole,
)
from calipers.preprocessing._column import KINDS, Column
from calipers.preprocessing._encoders import CYCLES, DAY
from calipers.preprocessing._readings import UNIT, read_dates
from calipers.preprocessing._words import is_word

_COUNT = whole(1, 2**53)
_TARGETS = {"means": list_of(number(-1e12, 1e12)), "spreads": list_of(number(-100, 100))}
_TIME = number(-1e6 * 365 * DAY, 1e6 * 365 * DAY)


def _end(value: object, place: str) -> None:
    """Check an end of the range of a column: a number, a date as text, or None."""
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            refuse(place, "a number, an ISO date or null", value)
    elif value is not None:
        number()(value, place)


def _unit(value: Any, place: str) -> None:
    text(value, place)
    if not UNIT.fullmatch(value):
        refuse(place, "a unit such as % or kg, : for clock times, or nothing", value)


_COLUMN = record(
    {
        "name": text,
        "kind": one_of(*KINDS),
        "low": _end,
        "high": _end,
        "typical": _end,
        "categories": list_of(text),
        "missing": flag,
        "used": flag,
        "note": text,
    }
)
_NUMBER = record(
    {"low": number(), "high": number(), "fill": number(), "missing": flag},
    {
        "center": number(),
        "scale": number(0),
        "decimal": one_of(".", ","),
        "thousands": one_of("", ",", ".", " ", "'"),
        "unit": _unit,
        "levels": list_of(number()),
        "counts": list_of(_COUNT),
        **_TARGETS,
    },
)
_ENCODERS: dict[str, Check] = {
    "number": _NUMBER,
    "boolean": _NUMBER,
    "category": record(
        {"levels": list_of(text), "counts": list_of(_COUNT), "kept": whole(0, 2**31)}
        | {"missing": flag},
        {"rare": list_of(text), "words": list_of(text), **_TARGETS},
    ),
    "text": record({"words": list_of(text, least=1), "missing": flag}),
    "date": record(
        {"low": _TIME, "high": _TIME, "fill": _TIME, "missing": flag}
        | {"cycles": list_of(one_of(*CYCLES)), "form": optional(text)}
    ),
    "constant": record({"values": list_of(optional(text))}),
    "identifier": record({}),
}
_TABLE = record(
    {
        "parameters": record(
            {
                "kinds": optional(mapping_of(text)),
                "max_categories": optional(_COUNT),
                "min_frequency": optional(_COUNT),
            },
            {"target_encoding": flag},
        ),
        "columns": list_of(record({"column": anything, "encoder": anything}), least=1),
    }
)


def check_column(document: Any, place: str = "column") -> None:
    """Refuse a document that does not describe a ``Column``."""
    _COLUMN(document, place)
    dtype = Column.from_document(document).dtype.kind
    numeric = dtype in "fb"
    ends = [document[name] for name in ("low", "typical", "high")]
    if numeric and not (all(isinstance(end, int | float) for end in ends) and ends == sorted(ends)):
        refuse(place, "a column of numbers with low <= typical <= high", ends)
    texts = isinstance(ends[0], str) and len(set(map(type, ends))) == 1
    if not numeric and (not texts if dtype == "M" else ends != [None] * 3):
        refuse(place, f"a column with a range as for the kind {document['kind']}", ends)
    unused = document["kind"] in ("constant", "identifier")
    if document["used"] == unused:
        refuse(f"{place}.used", f"{not unused} for a column of kind {document['kind']}", unused)


def check_table(document: Any) -> None:
    """Refuse a document that does not describe a ``TableEncoder``."""
    _TABLE(document, "preprocessor")
    for i, entry in enumerate(document["columns"]):
        place, column, encoder = f"preprocessor.columns[{i}]", entry["column"], entry["encoder"]
        check_column(column, f"{place}.column")
        _ENCODERS[column["kind"]](encoder, f"{place}.encoder")
        if rule := _RULES.get(column["kind"]):
            rule(encoder, f"{place}.encoder")
        if column["kind"] == "category":
            kept = encoder["levels"][: encoder["kept"]]
            if column["categories"] not in (kept, encoder["levels"]):  # 0.1 listed them all
                rule = f"the levels that are kept, {kept}"
                refuse(f"{place}.column.categories", rule, column["categories"])
        if column["kind"] == "text" and column["categories"] != encoder["words"]:
            refuse(f"{place}.column.categories", "the words", column["categories"])
    columns = [entry["column"] for entry in document["columns"]]
    names = [column["name"] for column in columns]
    if len(set(names)) < len(names):
        refuse("preprocessor.columns", "columns with distinct names", names)
    if not any(column["used"] for column in columns):
        refuse("preprocessor.columns", "columns of which at least one is used", names)


def _check_number(encoder: Mapping[str, Any], place: str) -> None:
    scale, center = encoder.get("scale", 0.0), encoder.get("center", 0.0)
    smallest = 2.3e-308  # smaller numbers lose digits
    if scale and not (scale >= smallest and abs(center) < scale * 1.7e308):
        refuse(f"{place}.scale", "0, or so large that center / scale is finite", scale)
    if not encoder["low"] <= encoder["fill"] <= encoder["high"]:
        refuse(f"{place}.fill", "between low and high", encoder["fill"])
    if encoder.get("thousands", "") == encoder.get("decimal", "."):
        refuse(f"{place}.thousands", "different from the decimal mark", encoder["thousands"])
    levels = encoder.get("levels", [])
    if any(lower >= upper for lower, upper in pairwise(levels)):
        refuse(f"{place}.levels", "ascending numbers", levels)
    for name, count in {"counts": 0, "means": 1, "spreads": 1}.items():
        values, length = encoder.get(name, []), len(levels) + count if levels else 0
        if len(values) != length:
            refuse(f"{place}.{name}", f"a list of {length}", values)


def _check_category(encoder: Mapping[str, Any], place: str) -> None:
    levels, rare = encoder["levels"], encoder.get("rare", [])
    if len(set(levels)) < len(levels):
        refuse(f"{place}.levels", "distinct texts", levels)
    if len(encoder["counts"]) != len(levels):
        refuse(f"{place}.counts", f"a list of {len(levels)}, one for each level", encoder["counts"])
    if encoder["kept"] > len(levels):
        refuse(f"{place}.kept", f"at most {len(levels)}, the number of levels", encoder["kept"])
    if not (levels or rare or encoder["missing"]):
        refuse(f"{place}.levels", "a list of at least one level", levels)
    for name in ("means", "spreads"):
        values = encoder.get(name, [])
        if len(values) not in {0, len(levels) + 1} or bool(values) != bool(encoder.get("means")):
            refuse(f"{place}.{name}", f"a list of {len(levels) + 1}, or empty like means", values)
        if values and encoder["kept"] == len(levels):
            refuse(f"{place}.{name}", "empty where every level has an input", values)
    _check_words(encoder, place)
    wrong = [name for name in rare if not re.fullmatch("[0-9a-f]{16}", name)]
    if wrong:
        refuse(f"{place}.rare", "digests of 16 hexadecimal digits", wrong[0])


def _check_words(encoder: Mapping[str, Any], place: str) -> None:
    words = encoder.get("words", [])
    if len(set(words)) < len(words) or not all(map(is_word, words)):
        refuse(f"{place}.words", "distinct words in lower case", words)


def _check_date(encoder: Mapping[str, Any], place: str) -> None:
    if not encoder["low"] <= encoder["fill"] <= encoder["high"]:
        refuse(f"{place}.fill", "between low and high", encoder["fill"])
    if len(set(encoder["cycles"])) < len(encoder["cycles"]):
        refuse(f"{place}.cycles", "distinct cycles", encoder["cycles"])
    if encoder["form"] is None:
        return
    import pyarrow as pa

    try:
        read_dates(pa.array(["2024-01-31"], pa.large_string()), encoder["form"])
    except (ValueError, re.error, KeyError, TypeError):
        refuse(f"{place}.form", "a format of dates such as %d/%m/%Y", encoder["form"])


_RULES: dict[str, Any] = {
    "number": _check_number,
    "boolean": _check_number,
    "category": _check_category,
    "text": _check_words,
    "date": _check_date,
}
