"""From a file to a model, and from a model to a file: results, and the files that are written."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import calipers
from calipers.cli import _fit_table, _measures, app
from calipers.cli._holdout import HoldOut
from calipers.preprocessing import Column, TableEncoder, _encoders, _kinds, as_numbers
from calipers.tables import read_table

SETTINGS = """
loss = "interval score"
n_networks = 2
cv = 2
network__hidden_layers = [8]
epochs = 20
network__frequencies = 0
optimizer__averaging = 0.0
[preprocessor]
min_frequency = 3
"""


FIT = "fit data.csv --target price --out model"


def csv(frame, **options):
    return frame.to_csv(index=False, **options)


def to_parquet(frame):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), sink)
    return sink.getvalue()


def to_arrow(frame, new=pa.ipc.new_file):
    table, sink = pa.Table.from_pandas(frame, preserve_index=False), io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def as_categories(frame):
    return frame.assign(kind=frame["kind"].astype("category"), sold=pd.to_datetime(frame["sold"]))


SAME = {
    # Files that mean the same rows.
    "plain": csv,
    "byte order mark": lambda f: csv(f).encode("utf-8-sig"),
    "Windows lines": lambda f: csv(f, lineterminator="\r\n"),
    "old Macintosh lines": lambda f: csv(f, lineterminator="\r"),
    "no last newline": lambda f: csv(f).rstrip("\n"),
    "blank lines": lambda f: csv(f).replace("\n", "\n\n"),
    "quoted": lambda f: csv(f, quoting=1),
    "semicolons": lambda f: csv(f, sep=";"),
    "tabs": lambda f: csv(f, sep="\t"),
    "bars": lambda f: csv(f, sep="|"),
    "spaces around values": lambda f: csv(f).replace(",", " , "),
    "reordered": lambda f: csv(f[sorted(f)]),
    "more columns": lambda f: csv(f.assign(colour="red", **{"an index": f.index})),
    "an index": lambda f: f.to_csv(),
    "fewer that are unused": lambda f: csv(f.drop(columns=["number", "country"])),
    "plus signs": lambda f: csv(f.assign(size="+" + f["size"].astype(str))),
    "exponents": lambda f: csv(f, float_format="%.6e"),
    "truth in capitals": lambda f: csv(f.assign(garden=f["garden"].astype(str).str.upper())),
    "truth as numbers": lambda f: csv(f.assign(garden=f["garden"].astype(int))),
    "gzip": lambda f: gzip.compress(csv(f).encode()),
    "bzip2": lambda f: bz2.compress(csv(f).encode()),
    "xz": lambda f: lzma.compress(csv(f).encode()),
    "zstd": lambda f: pa.compress(csv(f).encode(), "zstd", asbytes=True),
    "Parquet": to_parquet,
    "packed Parquet": lambda f: gzip.compress(to_parquet(f)),
    "Arrow": to_arrow,
    "Arrow stream": lambda f: to_arrow(f, pa.ipc.new_stream),
    "true types": lambda f: to_parquet(as_categories(f)),
    "numbers as text": lambda f: to_parquet(f.assign(size=f["size"].astype(str))),
    "nullable types": lambda f: to_parquet(f.convert_dtypes()),
}


@pytest.mark.parametrize("name", SAME)
def test_files_that_mean_the_same(name, run, here, saved, fitted, flats):
    content = SAME[name](flats)
    (here / "data").write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("predict", saved, "data", "--out", "scored.parquet")
    assert result.exit_code == 0, result.output
    found = pd.read_parquet(here / "scored.parquet")
    np.testing.assert_allclose(found["prediction"], fitted.predict(flats), rtol=1e-9)


def table(**columns):
    """Forty rows whose columns are functions of the row."""
    made = {"size": lambda i: 1.5 * i, "price": lambda i: 10 + i * i} | columns
    return pd.DataFrame({name: [make(i) for i in range(40)] for name, make in made.items()})


LEARNT = {
    # Tables that can teach, and what one of their columns is found to be.
    "blanks": (table(a=lambda i: " "), "a", "constant", "always empty"),
    "constant": (table(a=lambda i: 7), "a", "constant", "always '7'"),
    "row numbers": (table(a=lambda i: i + 1), "a", "identifier", "integer in each row"),
    "far numbers named so": (table(flat_id=lambda i: 991 * i), "flat_id", "identifier", "integer"),
    "names": (
        table(a=lambda i: f"flat {i}"),
        "a",
        "identifier",
        "looks like a row identifier (almost all values differ)",
    ),
    "each once": (table(a=lambda i: f"c{i}" if i < 13 else ""), "a", "category", "all too rare"),
    "years": (table(a=lambda i: 1980 + i), "a", "number", ""),
    "a billion": (table(a=lambda i: 10**9 if i == 3 else i % 7), "a", "number", "far outliers"),
    "huge integers": (table(a=lambda i: 10**30 * (i % 9)), "a", "number", ""),
    "gaps": (table(a=lambda i: None if i % 3 else i), "a", "number", ""),
    "a word for gaps": (table(a=lambda i: "nil" if i == 3 else i), "a", "number", ""),
    "numbers for the most part": (
        table(a=lambda i: f"[{i}]" if i % 4 == 3 else i + 0.25),
        "a",
        "identifier",
        "75% of the values are numbers, but others, such as '[3]', are not: leave those empty",
    ),
    "marks for gaps": (table(a=lambda i: "?" if i == 3 else i), "a", "number", ""),
    "text numbers": (table(a=lambda i: f"{i * 999:,}.5"), "a", "number", "written like"),
    "decimal commas": (table(a=lambda i: f"{i * 999},5"), "a", "number", "written like"),
    "percent": (table(a=lambda i: f"{i % 9} %"), "a", "number", "written like"),
    "money": (table(a=lambda i: f"${i * 999:,}.50"), "a", "number", "written like"),
    "thousands or decimals": (
        table(a=lambda i: f"{i % 9 + 1},234"),
        "a",
        "category",
        "thousands or",
    ),
    "money in thousands": (
        table(a=lambda i: f"${i % 9 + 1},234"),
        "a",
        "category",
        "give the kind 'number $1,234.5'",
    ),
    "spaced thousands": (table(a=lambda i: f"{i + 1} 234,50"), "a", "number", "written like"),
    "narrow spaces": (table(a=lambda i: f"{i + 1}\u202f234"), "a", "number", "written like"),
    "hard spaces": (table(a=lambda i: f"{i + 1}\u00a0234,5 €"), "a", "number", "written like"),
    "Swiss thousands": (table(a=lambda i: f"{i + 1}'234.50"), "a", "number", "written like"),
    "clock times": (table(a=lambda i: f"{i % 24}:{i:02}"), "a", "number", "clock times as hours"),
    "free text": (
        table(a=lambda i: f"a long remark about flat number {i if i % 3 else 0} of the street"),
        "a",
        "identifier",
        "free text; its values are not stored",
    ),
    "codes": (table(a=lambda i: f"{i % 9:03}"), "a", "category", "leading zeros"),
    "dates": (table(a=lambda i: f"2024-01-{i % 28 + 1:02}"), "a", "date", ""),
    "European dates": (table(a=lambda i: f"{i % 28 + 1}.01.2024"), "a", "date", "%d.%m.%Y"),
    "American dates": (table(a=lambda i: f"01/{i % 28 + 1}/2024"), "a", "date", "%m/%d/%Y"),
    "either dates": (
        table(a=lambda i: f"01/{i % 9 + 1}/2024"),
        "a",
        "category",
        "day or the month",
    ),
    "times": (table(a=lambda i: f"2024-01-02T{i % 24:02}:00:00Z"), "a", "date", ""),
    "truth": (table(a=lambda i: i % 2 == 0), "a", "boolean", ""),
    "yes and no": (table(a=lambda i: ("yes", "no")[i % 2]), "a", "category", ""),
    "many categories": (table(a=lambda i: f"c{i % 35}"), "a", "category", "35 categories"),
    "mixed": (table(a=lambda i: i % 3 or "many"), "a", "category", ""),
    "quoted newlines": (table(a=lambda i: f"two\nlines {i % 3}"), "a", "category", ""),
    "quotes": (table(a=lambda i: f'{i % 3}" pipe'), "a", "category", ""),
    "long name": (table(**{"x" * 5000: lambda i: i % 7}), "x" * 5000, "number", ""),
    "name with spaces": (table(**{"a b, c": lambda i: i % 7}), "a b, c", "number", ""),
    "name in Greek": (table(**{"μέγεθος 🏠": lambda i: i % 7}), "μέγεθος 🏠", "number", ""),
}


@pytest.fixture
def untrained(monkeypatch, fitted):
    """Training is left out: what comes before it is tested here."""

    def give(model, X, y, *_):
        assert np.isfinite(model.preprocessor.set_params(kinds=None).fit(X).transform(X)).all()
        return fitted, [], None

    monkeypatch.setattr(_fit_table, "_train", give)


@pytest.mark.parametrize("name", LEARNT)
def test_what_columns_are(name, run, here, untrained):
    frame, column, kind, note = LEARNT[name]
    (here / "data.csv").write_text(csv(frame))
    result = run("fit", "data.csv", "--target", "price", "--out", "out", "--json")
    assert result.exit_code == 0, result.output
    found = {entry["name"]: entry for entry in json.loads(result.stdout)["columns"]}
    assert found[column]["kind"] == kind
    assert note in found[column]["note"]
    assert found[column]["used"] == (kind not in ("constant", "identifier"))


REMEDIES = {
    # Values that have two readings, the kind that the message advises, and the numbers with it.
    "thousands": (lambda i: f"{i + 1},500", "number 1,234.5", 1500.0),
    "decimals": (lambda i: f"{i + 1},500", "number 1.234,5", 1.5),
    "dollars": (lambda i: f"${i + 1},500", "number $1,234.5", 1500.0),
    "dollars, not advised": (lambda i: f"${i + 1},500", "number 1,234.56", 1500.0),
    "euros": (lambda i: f"{i + 1},500 €", "number €1.234,5", 1.5),
    "codes": (lambda i: f"{i + 1:03}", "number", 1.0),
}


@pytest.mark.parametrize("name", REMEDIES)
@pytest.mark.parametrize("place", ["input", "target"])
def test_remedies_work(name, place, run, here, untrained):
    make, kind, least = REMEDIES[name]
    column = "a" if place == "input" else "price"
    (here / "data.csv").write_text(csv(table(**{column: make})))
    command = ["fit", "data.csv", "--target", "price", "--out", "out", "--json"]
    result = run(*command)
    if place == "input":
        (found,) = [c for c in json.loads(result.stdout)["columns"] if c["name"] == "a"]
        assert not found["used"]
        message = found["note"]
    else:
        message = result.stderr
    if name not in ("dollars, not advised", "codes"):
        assert kind in " ".join(message.split())
    result = run(*command, "--overwrite", "--type", f"{column}={kind}")
    assert result.exit_code == 0, result.output
    fitted = json.loads(result.stdout)
    (found,) = [c for c in [*fitted["columns"], fitted["target"]] if c["name"] == column]
    assert (found["kind"], found["low"]) == ("number", least)


@pytest.mark.parametrize(
    ("make", "low"),
    [
        (lambda i: f"${i + 100},500.00", 100500.0),
        (lambda i: f"{i + 1} 234,56", 1234.56),
        (lambda i: f"{i + 1}\u00a0234,56", 1234.56),
        (lambda i: f"{i + 1}\u202f234", 1234.0),
        (lambda i: f"{i + 1},5", 1.5),
        (lambda i: f"{i // 60}:{i % 60:02}", 0.0),
        (lambda i: ("TRUE", "false")[i % 2], 0.0),
    ],
)
def test_targets_are_read_as_inputs_are(make, low, run, here, untrained):
    (here / "data.csv").write_text(csv(table(price=make)))
    result = run("fit", "data.csv", "--target", "price", "--out", "out", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["target"]["low"] == low


@pytest.mark.long
def test_wide_tables(run, here, untrained):
    wide = {f"measurement {i}": lambda i: i % 7 for i in range(1_500)}
    frame = table(**wide, key=lambda i: f"k{i}")
    (here / "data.csv").write_text(csv(frame))
    result = run("fit", "data.csv", "--target", "price", "--out", "out")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) < 80
    assert "and 1,442 more columns; in total 1,501 number, 1 identifier" in result.stdout
    assert result.stdout.splitlines()[3].split()[:2] == ["key", "identifier"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "shift-jis"])
def test_encodings(encoding, run, here, untrained):
    letter = "ä" if encoding != "shift-jis" else "家"
    frame = table(**{letter: lambda i: (letter, "b")[i % 2]})
    (here / "data.csv").write_bytes(csv(frame).encode(encoding))
    arguments = ("fit", "data.csv", "--target", "price", "--out", "out", "--json")
    result = run(*arguments, "--encoding", encoding)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["columns"][-1]["categories"] == ["b", letter]


def test_several_files(run, here, untrained):
    for i, part in enumerate(np.array_split(np.arange(40), 3)):
        chosen = table(a=lambda i: f"c{i % 3}").iloc[part]
        (here / f"part-{i}.csv").write_text(csv(chosen[chosen.columns[:: 1 - 2 * (i % 2)]]))
    result = run("fit", "part-*.csv", "--target", "price", "--out", "out", "--json")
    assert json.loads(result.stdout)["rows"] == 40
    found = read_table([f"part-{i}.csv" for i in range(3)]).frame.apply(as_numbers)
    expected = table()[["size", "price"]].astype(float)
    pd.testing.assert_frame_equal(found[["size", "price"]], expected)


@pytest.fixture(scope="module")
def whole(flats, tmp_path_factory):
    """One fit as users do it."""
    folder = tmp_path_factory.mktemp("fit")
    flats.to_csv(folder / "flats.csv", index=False)
    (folder / "settings.toml").write_text(SETTINGS)
    arguments = "fit flats.csv --target price --out model --config settings.toml --coverage 0.9"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, arguments.split())
    assert result.exit_code == 0, result.output
    return folder, result


class TestFit:
    def test_what_it_prints(self, whole):
        _, result = whole
        for text in (
            "flats.csv: 60 rows",
            "not used: looks like a row identifier (a different integer in each row); its",
            "On 12 held-out rows",
            "90% intervals contain",
            "(with 12 rows, chance alone gives ",
            "in units of price",
            "refitted on all 60 rows; these figures are of the model before that.",
            "saved in model",
        ):
            assert text in result.stdout
        assert result.stderr == ""  # no bar where there is no terminal

    def test_what_it_saves(self, whole, flats):
        folder, _ = whole
        model = calipers.load(folder / "model")
        assert model.coverage == 0.9
        assert model.preprocessor.min_frequency == 3
        assert model.target_.name == "price"
        assert model.about_["rows"] == 60
        assert model.about_["source"] == {
            "files": ["flats.csv"],
            "rows": 60,
            "target": "price",
            "target_kind": "number",
            "groups": None,
            "time_column": None,
        }
        evaluation = model.about_["evaluation"]
        assert (evaluation["rows"], evaluation["refitted"]) == (12, True)
        assert [row["coverage"] for row in evaluation["calibration"]] == [0.5, 0.8, 0.9, 0.95, 0.99]
        assert list(model.preprocessor_.get_feature_names_out()[:4]) == [
            "size",
            *(f"kind={level}" for level in flats["kind"].value_counts().index),
        ]

    def test_the_time_budget_is_saved_as_given(self, run, here, flats):
        flats.to_csv(here / "data.csv", index=False)
        (here / "settings.toml").write_text(SETTINGS)
        run(*FIT.split(), "--config", "settings.toml", "--time-budget", 600)
        assert calipers.load(here / "model").time_budget == 600

    def test_all_rows_are_learned_once_and_those_of_the_evaluation_once(
        self, run, here, flats, monkeypatch
    ):
        learned, learn = [], TableEncoder.learn
        monkeypatch.setattr(
            TableEncoder, "learn", lambda self, X: learned.append(len(X)) or learn(self, X)
        )
        flats.to_csv(here / "data.csv", index=False)
        (here / "settings.toml").write_text(SETTINGS)
        result = run(*FIT.split(), "--config", "settings.toml")
        assert "on all 60 rows" in result.stdout
        assert learned == [60, 48]
        again = "fit data.csv --target price --target size --config settings.toml --out two"
        assert run(*again.split()).exit_code == 0
        assert learned[2:] == [60, 48]

    def test_a_warm_start_takes_the_rows_that_were_learned(self, run, here, flats):
        flats.to_csv(here / "data.csv", index=False)
        (here / "settings.toml").write_text(f"warm_start = true\n{SETTINGS}")
        result = run(*FIT.split(), "--config", "settings.toml")
        assert "on all 60 rows" in result.stdout
        assert calipers.load(here / "model").about_["rows"] == 60

    def test_text_is_read_once(self, run, here, flats, monkeypatch):
        read, found, original, find = [], [], _encoders._read, _kinds.find_kind
        monkeypatch.setattr(
            _encoders, "_read", lambda s, *a: read.append(s.name) or original(s, *a)
        )
        monkeypatch.setattr(_kinds, "find_kind", lambda s, *a: found.append(s.name) or find(s, *a))
        flats.to_csv(here / "data.csv", index=False)
        (here / "settings.toml").write_text(SETTINGS)
        result = run(*FIT.split(), "--config", "settings.toml")
        assert "On 12 held-out rows" in result.stdout
        assert "on all 60 rows" in result.stdout
        assert read == ["price"]
        assert found == [*flats.drop(columns="price")]

    def test_evaluate(self, whole, run, flats):
        folder, _ = whole
        result = run("evaluate", folder / "model", folder / "flats.csv", "--by", "kind", "--json")
        found = json.loads(result.stdout)
        model = calipers.load(folder / "model")
        lower, upper = model.predict_interval(flats).T
        inside = (lower <= flats["price"]) & (flats["price"] <= upper)
        assert found["coverage_rate"] == pytest.approx(inside.mean())
        groups = {group["group"]: group["coverage_rate"] for group in found["by"]["groups"]}
        assert groups == pytest.approx(inside.groupby(flats["kind"]).mean().to_dict())
        shown = run("evaluate", folder / "model", folder / "flats.csv", "--by", "size").stdout
        assert "On 60 rows" in shown
        assert re.search(r"size +rows +observed +mean width\n +[\d.]+ to [\d.]+ +20 +", shown)
        shown = run("evaluate", folder / "model", folder / "flats.csv", "--by", "sold").stdout
        assert "2024-01-01 to 2024-01-20" in shown

    def test_targets_that_the_model_excludes_are_counted(self, saved, run, here, flats):
        flats.assign(price=flats["price"].where(flats.index > 1, -1.0)).to_csv(here / "rows.csv")
        found = json.loads(run("evaluate", saved, "rows.csv", "--json").stdout)
        assert (found["support"], found["excluded"]) == ("non-negative numbers", 2)
        shown = run("evaluate", saved, "rows.csv").stdout
        assert "price is assumed to be non-negative, which 2 targets are not" in shown
        run("report", saved, "rows.csv", "--out", "report.html")
        page = (here / "report.html").read_text("utf-8")
        assert "price is assumed to be non-negative, which 2 targets are not." in page

    def test_effective_rows_under_the_name_of_before(self):
        old = {"coverages": [0.95], "rows_needed": [39], "rows": 90, "worth": 7}
        new = old | {"effective_rows": old.pop("worth")}
        assert _measures.describe_unbounded(new | {"worth": 8}) == _measures.describe_unbounded(new)
        assert _measures.describe_unbounded(old | {"worth": 7}) == _measures.describe_unbounded(new)
        assert _measures.describe_unbounded(old) != _measures.describe_unbounded(new)

    def test_without_rows_held_out(self, run, here, flats, monkeypatch):
        calls = []
        monkeypatch.setattr(
            "calipers.IntervalRegressor.fit", lambda self, X, y, **_: calls.append(len(X)) or self
        )
        monkeypatch.setattr("calipers.IntervalRegressor.save", lambda *_: None)
        monkeypatch.setattr("calipers.IntervalRegressor.about_", {}, raising=False)
        monkeypatch.setattr("calipers.IntervalRegressor.support_", "any number")
        target = Column("price", "number")
        monkeypatch.setattr("calipers.IntervalRegressor.target_", target, raising=False)
        flats.to_csv(here / "flats.csv", index=False)
        arguments = ("fit", "flats.csv", "--target", "price", "--out", "out", "--test-fraction", 0)
        assert "the model was not evaluated" in run(*arguments).stdout
        assert calls == [60]

    def test_groups_are_not_parted(self, monkeypatch, flats, fitted):
        seen = []
        monkeypatch.setattr(
            type(fitted), "fit", lambda self, X, y, groups=None: seen.append(set(groups)) or self
        )
        labels = np.repeat([f"house {i}" for i in range(12)], 5)
        X, y = flats.drop(columns="price"), flats[["price"]]
        _, _, found = _fit_table._train(fitted, X, y, HoldOut(0.25, labels), True, X)
        assert [len(groups) for groups in seen] == [9, 12]
        assert found["rows"] == 15


class TestHoldOut:
    def test_copies_are_noticed(self, run, here, flats):
        (here / "settings.toml").write_text(SETTINGS)
        pasted = pd.concat([flats] * 4).assign(number=np.arange(1, 241))
        pasted.to_csv(here / "data.csv", index=False)
        command = [*FIT.split(), "--config", "settings.toml", "--overwrite"]
        shown = run(*command)
        evaluation = calipers.load(here / "model").about_["evaluation"]
        assert evaluation["copies"] >= 46, shown.output  # of 48: next to none lacks a copy
        assert f"{evaluation['copies']} of them equal a training row" in shown.stdout
        assert "--groups" in shown.stdout
        flats.to_csv(here / "new.csv", index=False)
        assert run("report", "model", "new.csv").exit_code == 0
        page = (here / "report.html").read_text("utf-8")
        assert f"{evaluation['copies']} had the inputs and the target of a training row" in page

    def test_tables_without_copies_say_nothing(self, whole):
        folder, result = whole
        assert "copies" not in result.stdout
        assert calipers.load(folder / "model").about_["evaluation"]["copies"] == 0

    @pytest.mark.parametrize("ignore", [[], ["--ignore", "sold"]], ids=["input", "ignored"])
    def test_the_last_rows(self, ignore, run, here, flats, fitted, monkeypatch):
        seen = []

        def fit(self, X, y, groups=None):
            seen.append(np.asarray(y))
            learned = {name: vars(fitted)[name] for name in ("ensemble_", "reader_", "target_")}
            vars(self).update(learned, about_={})
            return self

        monkeypatch.setattr(_fit_table, "measure", lambda model, X, y, _: ({"rows": len(y)}, None))
        monkeypatch.setattr(type(fitted), "fit", fit)
        shuffled = flats.sample(frac=1, random_state=0)
        sold = pd.to_datetime(shuffled["sold"]).dt.strftime("%d/%m/%Y")
        shuffled.assign(sold=sold).to_csv(here / "data.csv", index=False)
        kind = ["--time-column", "sold", "--type", "sold=date %d/%m/%Y", *ignore, "--json"]
        found = run(*FIT.split(), *kind)
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["evaluation"]["last_by"] == "sold"
        assert sorted(seen[0]) == sorted(flats["price"][:48])
        names = [column["name"] for column in json.loads(found.stdout)["columns"]]
        assert ("sold" in names) is not bool(ignore)

    def test_rows_of_one_time_stay_together(self):
        train, test = HoldOut(0.25, times=np.repeat([3.0, 1.0, 2.0], 4)).split(12, 0)
        assert (train.tolist(), test.tolist()) == ([*range(4, 12)], [0, 1, 2, 3])
        train, test = HoldOut(0.9, times=np.repeat([1.0, 2.0], 6)).split(12, 0)
        assert (train.tolist(), test.tolist()) == ([*range(6)], [*range(6, 12)])

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("solt", "there is no column 'solt' .did you mean 'sold'?"),
            ("kind", "'kind': '.*' is not a number"),
            ("country", "no column can be used: 'country' always 'NO'"),
        ],
    )
    def test_columns_that_are_no_time(self, name, message, run, here, flats):
        flats.to_csv(here / "data.csv", index=False)
        result = run(*FIT.split(), "--time-column", name)
        assert result.exit_code == 3
        assert re.search(message, result.stderr), result.stderr


class TestReadings:
    """Columns and targets that are detected in a table, without training."""

    @pytest.fixture
    def found(self, run, here, flats, monkeypatch):
        """Columns and target that ``fit`` finds in a table; no network is trained."""
        monkeypatch.setattr("calipers.cli._fit_table._train", _end)

        def read(**columns):
            table = flats.assign(**columns)
            table.to_csv(here / "data.csv", index=False, sep=";")
            shown = run(*FIT.split())
            return shown.stdout + shown.stderr

        return read

    def test_points_part_thousands_beside_decimal_commas(self, found, flats):
        price = (flats["price"] * 100).round().map("{:,.0f}".format).str.replace(",", ".")
        size = flats["size"].astype(str).str.replace(".", ",")
        plain = float(flats["price"].min() * 100)
        shown = found(price=price, size=size)
        assert re.search(rf"price +target +{plain:,.0f} to .* numbers written like 1\.234,5", shown)
        shown = found(price=price, size=size, rent=price)
        assert re.search(r"rent +number .*written like 1\.234,5, since other columns", shown)

    def test_the_target_under_another_name(self, found, flats):
        shown = found(cost=2 * flats["price"] + 1, order=-flats["price"], near=flats["size"])
        for name in ("cost", "order"):
            assert re.search(rf"{name} .*ranks rows like 'price': --ignore it if", shown)
        assert not re.search("near .*ranks rows", shown)

    def test_long_names_keep_the_table_together(self, found):
        shown = found(**{"x" * 300: range(60), "kind": ["y" * 300, "z"] * 30})
        (line,) = [line for line in shown.splitlines() if "xxx" in line]
        assert line.split()[:2] == ["x" * 59 + "…", "identifier"]
        assert max(map(len, shown.splitlines())) < 240

    def test_clock_times_as_a_target(self, found, flats):
        shown = found(price=[f"{i % 24}:{i % 60:02d}" for i in range(len(flats))])
        assert re.search(r"price +target +0 to .* clock times as hours", shown)

    def test_dates_as_a_target(self, found, flats):
        assert "column 'price': holds dates where numbers are needed" in found(price=flats["sold"])


def _end(*_):
    raise SystemExit(0)


class TestFewRows:
    def test_infinite_intervals_give_their_reason(self, run, here, flats):
        (here / "settings.toml").write_text(SETTINGS)
        flats[:20].to_csv(here / "data.csv", index=False)
        shown = run(*FIT.split(), "--config", "settings.toml")
        why = (
            "intervals of 90%, 95% and 99% are infinite: it takes 19, 39 and 199 rows to calibrate"
        )
        assert f"{why} them, and there are 16; those of up to 88.2% are finite" in shown.stdout
        rest = "80% intervals rest on one calibration row at each end"  # 16 < 2 * 9 + 1
        assert rest in shown.stdout
        result = run("predict", "model", "data.csv", "--out", "scored.csv")
        why = "intervals of 95% are infinite: it takes 39 rows to calibrate them, and there are 20"
        assert why in result.stderr
        result = run("predict", "model", "data.csv", "--out", "scored.csv", "--coverage", 0.5)
        assert "infinite" not in result.stderr

    @pytest.mark.filterwarnings("default:intervals of 95% are infinite")
    @pytest.mark.parametrize("way", ["--in-blocks", "--in-memory"])
    def test_without_an_evaluation_few_rows_are_enough_as_in_python(self, way, run, here, flats):
        (here / "settings.toml").write_text(SETTINGS)
        flats[:10].to_csv(here / "data.csv", index=False)
        few = [*FIT.split(), "--config", "settings.toml", way]
        assert "--test-fraction 0 for no evaluation" in run(*few).stderr
        shown = run(*few, "--test-fraction", 0)
        assert shown.exit_code == 0, shown.output
        assert "No rows were held out, so the model was not evaluated." in shown.stdout
        assert "note: intervals of 95% are infinite: it takes 39 rows" in shown.stderr
        model = calipers.IntervalRegressor(n_networks=2, cv=2, epochs=2, random_state=0)
        with pytest.warns(UserWarning, match="intervals of 95% are infinite: it takes 39 rows"):
            model.fit(flats[["size"]][:10], flats["price"][:10])

    def test_a_far_target_is_named_by_its_place_in_the_file(self, run, here, flats):
        (here / "settings.toml").write_text(SETTINGS)
        price = flats["price"].mask(flats.index < 5).mask(flats.index == 30, 1e7)
        flats.assign(price=price).to_csv(here / "data.csv", index=False)
        for options in ([], ["--no-refit"]):
            shown = run(*FIT.split(), "--config", "settings.toml", "--overwrite", *options)
            assert shown.exit_code == 0, shown.output
            assert shown.stderr.count("note:") == 1
            assert "note: data.csv, row 31, column 'price': 1e+07 is far from all" in shown.stderr

    @pytest.mark.filterwarnings("default")
    def test_warnings_are_notes(self, run, here, saved, flats, monkeypatch):
        flats.to_csv(here / "data.csv", index=False)

        def measure(*_):
            warnings.warn("so it\nis", UserWarning, stacklevel=2)
            raise ValueError("not measured")

        monkeypatch.setattr(_measures, "measure", measure)
        assert run("evaluate", saved, "data.csv").stderr.startswith(
            "note: so it is\nerror: not measured"
        )

    def test_settings_in_tables(self, run, here, flats):
        (here / "settings.toml").write_text(
            "epochs = 1\nn_networks = 2\ncv = 2\n[network]\nhidden_layers = [8]\nfrequencies = 0\n"
            "[optimizer]\nlearning_rate = 0.02\n"
        )
        flats.to_csv(here / "data.csv", index=False)
        result = run(*FIT.split(), "--config", "settings.toml", "--test-fraction", 0)
        assert result.exit_code == 0, result.output
        found = calipers.load(here / "model")
        assert found.network.hidden_layers == (8,)
        assert found.optimizer.learning_rate == 0.02
        (here / "settings.toml").write_text("[network]\nhidden = [8]\n")
        result = run(*FIT.split(), "--config", "settings.toml", "--overwrite")
        assert "no parameter 'network__hidden'" in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def sold(flats, tmp_path_factory):
    """A model of prices in dollars, some of which are missing."""
    folder = tmp_path_factory.mktemp("sold")
    price = flats["price"].mul(100).map("${:,.2f}".format)
    price[::10] = ["", "NA", "n/a", "-", "None", "?"]
    flats.assign(price=price).to_csv(folder / "flats.csv", index=False)
    (folder / "settings.toml").write_text(SETTINGS)
    command = FIT.replace("data", "flats") + " --config settings.toml"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, result.output
    return folder, result


class TestGroups:
    @pytest.fixture
    def clinics(self, here):
        """Patients of clinics that have effects of their own, which an altitude identifies."""
        rng = np.random.default_rng(0)
        clinic = np.repeat(np.arange(40), 10)
        table = pd.DataFrame({"age": rng.uniform(-1, 1, 400).round(2)})
        table["altitude of it"] = rng.uniform(0, 1, 40).round(3)[clinic]
        table["price"] = table["age"] + rng.normal(0, 1, 40)[clinic] + rng.normal(0, 0.5, 400)
        (here / "settings.toml").write_text(SETTINGS)
        table.to_csv(here / "data.csv", index=False)
        return table

    def test_a_code_may_be_a_label_of_groups(self, clinics, run, here):
        fit = [*FIT.split(), "--config", "settings.toml", "--no-refit"]
        shown = run(*fit)
        assert shown.stderr.count("looks like a label of groups") == 1
        assert "if new rows have new values, use --groups 'altitude of it'" in shown.stderr
        run("report", "model", "data.csv")
        assert (here / "report.html").read_text().count("looks like a label of groups") == 1
        shown = run(*fit, "--overwrite", "--groups", "altitude of it")
        assert "looks like" not in shown.stderr
        run("report", "model", "data.csv")
        assert "looks like a label" not in (here / "report.html").read_text()

    def test_inputs_that_repeat_are_no_labels(self, clinics, run, here):
        smooth = 3 * clinics["altitude of it"] + clinics["age"]
        clinics.assign(price=smooth).to_csv(here / "data.csv", index=False)
        shown = run(*FIT.split(), "--config", "settings.toml", "--no-refit")
        assert shown.exit_code == 0, shown.output
        assert "looks like" not in shown.stderr


class TestTargets:
    """Targets that are missing, or written in an unusual way."""

    def test_rows_without_one_are_left_out(self, sold, run):
        folder, result = sold
        assert "flats.csv: 54 rows\n6 rows without a target were left out\n" in result.stdout
        command = ("evaluate", folder / "model", folder / "flats.csv")
        found = json.loads(run(*command, "--json").stdout)
        assert (found["rows"], found["rows_without_target"]) == (54, 6)
        assert "6 rows without a target were left out" in run(*command).stdout
        command = ("report", folder / "model", "--data", folder / "flats.csv")
        found = json.loads(run(*command, "--json").stdout)
        assert (found["rows"], found["rows_without_target"]) == (54, 6)
        assert "6 rows without a target were left out" in run(*command).stdout

    def test_rows_keep_their_numbers_in_errors(self, sold, run, here, flats):
        folder, _ = sold
        odd = flats.astype({"size": str})
        odd.loc[30, "size"], odd["price"] = "big", odd["price"].mask(odd.index < 9)
        odd.to_csv(here / "odd.csv", index=False)
        result = run("evaluate", folder / "model", "odd.csv")
        assert "odd.csv, row 31, column 'size': 'big' is not a number" in result.stderr

    def test_how_it_is_written_is_remembered(self, sold, run, here, flats):
        folder, _ = sold
        source = calipers.load(folder / "model").about_["source"]
        assert source["target_kind"] == "number $1,234.5"
        flats.assign(price=[f"${i + 1},500" for i in range(60)]).to_csv(here / "d.csv", index=False)
        points = calipers.load(folder / "model").predict(flats)
        command = ["evaluate", folder / "model", "d.csv", "--json"]
        for options, value in (([], 1000), (["--type", "price=number $1.234,5"], 1)):
            found = json.loads(run(*command, *options).stdout)
            expected = np.abs(points - value * (np.arange(60) + 1.5)).mean()
            assert found["mae"] == pytest.approx(expected)
        assert run(*command, "--type", "price=number many").exit_code == 2


class TestPrivacy:
    def test_a_model_keeps_only_what_it_needs(self, run, here, flats):
        own = [f"Anna {i} of {i * 7919} Elm Street" for i in range(60)]
        remarks = [f"quite a long remark on number {i if i % 3 else 0} here" for i in range(60)]
        agents = [f"agent {i}" if i < 20 else "office" for i in range(60)]
        frame = flats.assign(owner=own, remark=remarks, agent=agents)
        frame.to_csv(here / "data.csv", index=False)
        (here / "settings.toml").write_text(SETTINGS)
        result = run(*FIT.split(), "--config", "settings.toml")
        assert result.exit_code == 0, result.output
        lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
        assert (
            "not used: looks like a row identifier (almost all values differ); its values are not"
            in lines["owner"]
        )
        assert "not used: free text; its values are not stored" in lines["remark"]
        record = (here / "model" / "model.json").read_text()
        for private in ("Anna", "Elm Street", "quite a long remark", "agent 1"):
            assert private not in record
        assert "office" in record
        scored = run("predict", "model", "data.csv", "--json")
        assert json.loads(scored.stderr)["outside"]["rows"] == 0  # rare ones are known again


class TestPredict:
    def test_columns(self, run, here, saved, fitted, flats):
        flats.to_csv(here / "new.csv", index=False)
        options = [
            "--coverage",
            "0.5,0.9",
            "--quantiles",
            "0.1,0.9",
            "--keep",
            "number,kind",
            "--outside",
        ]
        result = run("predict", saved, "new.csv", "--out", "scored.feather", *options)
        assert result.exit_code == 0, result.output
        found = pd.read_feather(here / "scored.feather")
        assert list(found) == [
            *("number", "kind", "prediction"),
            *("lower_0.5", "upper_0.5", "lower_0.9", "upper_0.9"),
            *("quantile_0.1", "quantile_0.9", "outside"),
        ]
        bounds = fitted.predict_interval(flats, coverage=[0.5, 0.9])
        np.testing.assert_allclose(found["upper_0.9"], bounds[:, 1, 1])
        quantiles = fitted.predict_quantiles(flats, [0.1, 0.9])
        np.testing.assert_allclose(found["quantile_0.1"], quantiles[:, 0])
        assert (found["outside"] == "").all()

    def test_text_has_no_meaningless_digits(self, run, here, saved, fitted, flats):
        flats.to_csv(here / "new.csv", index=False)
        for name in ("scored.csv", "scored.parquet"):
            run("predict", saved, "new.csv", "--out", name)
        lines = (here / "scored.csv").read_text().splitlines()[1:]
        digits = [len(re.sub(r"[-.]", "", cell).lstrip("0")) for cell in ",".join(lines).split(",")]
        assert max(digits) == 7
        exact = pd.read_parquet(here / "scored.parquet")
        assert (exact["prediction"] == fitted.predict(flats)).all()
        np.testing.assert_allclose(pd.read_csv(here / "scored.csv"), exact, rtol=1e-6)

    def test_rows_outside(self, run, here, saved, flats):
        far = flats.head(3).assign(size=[1e9, 50.0, None], kind=["flat", "castle", "flat"])
        far.to_csv(here / "far.csv", index=False)
        result = run("predict", saved, "far.csv", "--out", "scored.csv", "--outside", "--json")
        assert json.loads(result.stdout) == {
            "rows": 3,
            "out": "scored.csv",
            "outside": {"rows": 3, "columns": {"size": 2, "kind": 1}},
        }
        marks = pd.read_csv(here / "scored.csv")["outside"]
        assert marks.tolist() == ["size", "kind", "size"]
        stderr = run("predict", saved, "far.csv").stderr
        assert "3 rows have values outside the training range" in stderr
        assert "size (2), kind (1)" in stderr

    def test_a_cell_that_cannot_be_read(self, run, here, saved, flats):
        table = flats.astype(object)
        table.loc[7, "size"], table.loc[9, "sold"], table.loc[12, "size"] = "abc", "soon", "def"
        table.to_csv(here / "bad.csv", index=False)
        first = "bad.csv, row 8, column 'size': 'abc' is not a number"
        result = run("predict", saved, "bad.csv", "--out", "scored.csv", "--outside", "--json")
        assert json.loads(result.stdout)["outside"] == {
            "rows": 3,
            "columns": {"size": 2, "sold": 1},
            "unread": {"cells": 3, "first": first},
        }
        marks = pd.read_csv(here / "scored.csv")["outside"].fillna("")
        assert {row: mark for row, mark in marks.items() if mark} == {
            7: "size",
            9: "sold",
            12: "size",
        }
        result = run("predict", saved, "bad.csv", "--out", "scored.parquet", "--keep", "size")
        assert f"unreadable, so taken as missing: 3 cells; the first: {first}" in (result.stderr)
        kept = pd.read_parquet(here / "scored.parquet")["size"]
        assert kept.isna().to_numpy().nonzero()[0].tolist() == [7, 12]
        for command in ("evaluate", "report"):
            assert first in run(command, saved, "bad.csv").stderr
        table.head(9).to_csv(here / "bad.csv", index=False)
        result = run("predict", saved, "bad.csv")
        assert result.exit_code == 3
        assert first in result.stderr

    def test_a_single_row_is_not_a_plural(self, run, here, saved, flats):
        flats.head(1).assign(size=1e9).to_csv(here / "far.csv", index=False)
        stderr = run("predict", saved, "far.csv", "--out", "scored.csv").stderr
        assert "1 row predicted, written to scored.csv" in stderr
        note = "1 row has values outside the training range"
        assert f"{note}; trust its prediction less: size (1)" in stderr
        measured = run("evaluate", saved, "far.csv").stdout
        assert "On 1 row:" in measured
        assert f"{note}\n" in measured
        assert "1 row evaluated" in run("report", saved, "far.csv").stdout

    def test_blocks_change_nothing(self, run, here, saved, flats, monkeypatch):
        many = pd.concat([flats] * 5)
        many.to_csv(here / "many.csv", index=False)
        run("predict", saved, "many.csv", "--out", "whole.parquet", "--keep", "all")
        read = calipers.tables.read_blocks
        monkeypatch.setattr(calipers.tables, "read_blocks", lambda *a, **k: read(*a, **k, rows=7))
        run("predict", saved, "many.csv", "--out", "parts.parquet", "--keep", "all")
        whole, parts = (pd.read_parquet(here / f"{n}.parquet") for n in ("whole", "parts"))
        pd.testing.assert_frame_equal(whole, parts)
        assert whole["size"].dtype == np.float64

    def test_numbers_are_kept_as_the_model_reads_them(self, run, here, saved, flats):
        later = flats.assign(size=[*flats["size"][:-1], "?"])
        later.to_csv(here / "new.csv", index=False)
        run("predict", saved, "new.csv", "--out", "scored.parquet", "--keep", "size,number")
        found = pd.read_parquet(here / "scored.parquet")
        assert found["size"].tolist()[:-1] == flats["size"].tolist()[:-1]
        assert np.isnan(found["size"].iloc[-1])
        run("predict", saved, "new.csv", "--out", "scored.csv", "--keep", "size")
        assert (here / "scored.csv").read_text().splitlines()[-1].startswith("?,")

    def test_pipes(self, run, saved, flats):
        result = run("predict", saved, "-", input=csv(flats).encode())
        found = pd.read_csv(io.StringIO(result.stdout))
        assert list(found) == ["prediction", "lower_0.95", "upper_0.95"]
        assert len(found) == 60
        assert result.stderr == "60 rows predicted\n"

    def test_a_model_of_plain_numbers(self, run, here, flats, fitted):
        encoder = fitted.preprocessor_
        numbers = pd.DataFrame(encoder.transform(flats), columns=encoder.get_feature_names_out())
        plain = calipers.IntervalRegressor(**fitted.get_params(deep=False) | {"preprocessor": None})
        plain.fit(numbers, flats["price"]).save(here / "plain")
        numbers[sorted(numbers)].assign(more="?").to_csv(here / "new.csv", index=False)
        run("predict", "plain", "new.csv", "--out", "scored.csv")
        found = pd.read_csv(here / "scored.csv")["prediction"]
        np.testing.assert_allclose(found, plain.predict(numbers), rtol=1e-6)
        numbers.loc[4, "size"] = np.nan
        numbers.to_csv(here / "gap.csv")
        result = run("predict", "plain", "gap.csv")
        assert "gap.csv, row 5, column 'size': the number is missing" in result.stderr

    @pytest.mark.slow  # test_campaigns.py has a fast share of such kills
    @pytest.mark.skipif(sys.platform == "win32", reason="signals")
    def test_a_kill_leaves_nothing_half(self, run, here, saved, flats):
        pd.concat([flats] * 4_000).to_csv(here / "many.csv", index=False)
        (here / "scored.csv").write_text("what was there before")
        command = ["predict", str(saved), "many.csv", "--out", "scored.csv"]
        process = subprocess.Popen(
            [sys.executable, "-m", "calipers.cli", *command], stderr=subprocess.PIPE
        )
        part = here / ".scored.csv.part"
        for _ in range(600):
            if part.exists() and part.stat().st_size > 100_000:
                break
            time.sleep(0.1)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stderr.close()
        assert (here / "scored.csv").read_text() == "what was there before"
        assert part.exists()
        small = pd.concat([flats] * 2)
        small.to_csv(here / "many.csv", index=False)
        assert run(*command).exit_code == 0
        assert len(pd.read_csv(here / "scored.csv")) == 120
        assert sorted(path.name for path in here.iterdir()) == ["many.csv", "scored.csv"]


def test_completion():
    result = subprocess.run(
        [sys.executable, "-m", "calipers.cli"],
        env=os.environ
        | {"_CALIPERS_COMPLETE": "complete_bash", "COMP_WORDS": "calipers ", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert {"fit", "predict", "evaluate"} <= set(result.stdout.split())
