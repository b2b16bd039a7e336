"""``calipers fit`` of files that are read in blocks."""

import json

import numpy as np
import pandas as pd
import pytest

import calipers
from calipers.cli import _fit
from calipers.multitarget import MultiTargetRegressor
from calipers.rowblocks import RowBlocks

SETTINGS = """
loss = "normal"
n_networks = 2
cv = 2
network__hidden_layers = [8]
epochs = 20
network__frequencies = 0
optimizer__averaging = 0.0
"""
FIT = "fit a.csv b.csv --target price --out model --config settings.toml"


@pytest.fixture
def files(here):
    """Two files of rows, in which some targets are missing."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "number": np.arange(2000),
            "size": rng.uniform(20, 120, 2000).round(1),
            "kind": rng.choice(["flat", "house"], 2000),
        }
    )
    price = 1000 * rows["size"] + rng.normal(0, 5000, 2000)
    rows["price"] = [f"{value:,.1f}" for value in price]
    rows.loc[::100, "price"] = ""
    rows[:1200].to_csv(here / "a.csv", index=False)
    rows[1200:].to_csv(here / "b.csv", index=False)
    (here / "settings.toml").write_text(SETTINGS)
    return rows


def test_large_files_are_read_in_blocks_by_themselves(files, run, here, monkeypatch):
    monkeypatch.setattr(_fit, "LARGE", 10_000)
    done = run(*FIT.split(), "--ignore", "number", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["rows"] == 1980
    assert found["evaluation"]["rows"] == 396
    assert [column["name"] for column in found["columns"]] == ["size", "kind"]
    model = calipers.load(here / "model")
    assert model.about_["held_out"]["calibration"] == 158
    assert model.target_.name == "price"
    prices = model.predict(pd.DataFrame({"size": [50.0, 100.0], "kind": "flat"}))
    assert 30_000 < prices[1] - prices[0] < 70_000


def test_it_says_so(files, run):
    done = run(*FIT.split(), "--in-blocks")
    assert done.exit_code == 0, done.output
    assert "read in blocks, with held-out rows in place of cross-validation" in done.stdout
    assert "On 396 held-out rows" in done.stdout


def test_small_files_are_not(files, run):
    done = run(*FIT.split(), "--json", "--test-fraction", "0")
    assert "held_out" not in json.loads(done.stdout)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--groups", "kind"], "--groups needs all rows in memory"),
        (["--refit"], "--refit needs all rows in memory"),
        (["--target", "size"], "a second --target needs all rows in memory"),
        (["--ignore", "sise"], "did you mean 'size'"),
        (["--missing-target", "refuse"], "the target is missing here"),
    ],
)
def test_what_cannot_be_done(options, problem, files, run, here):
    done = run(*FIT.split(), "--in-blocks", *options)
    assert done.exit_code in (2, 3)
    assert problem in " ".join(done.output.replace("│", " ").split())
    assert not (here / "model").exists()


@pytest.mark.parametrize("way", ["--in-blocks", "--in-memory"])
def test_a_target_outside_the_bounds_is_placed_in_its_file(way, files, run, here):
    files.loc[1500, "price"] = "-7.0"
    files[1200:].to_csv(here / "b.csv", index=False)
    done = run(*FIT.split(), way, "--bounds", "0,")
    assert done.exit_code == 3, done.output
    shown = " ".join(done.output.split())
    assert "b.csv, row 301, column 'price': -7 is outside the bounds 0 to inf" in shown


def test_rows_without_a_target_are_counted_and_its_kind_is_kept(files, run, here):
    files.assign(price="")[:50].to_csv(here / "none.csv", index=False)  # has no target at all
    command = FIT.replace("a.csv b.csv", "none.csv a.csv b.csv")
    done = run(*command.split(), "--in-blocks", "--ignore", "number", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rows"], found["rows_without_target"]) == (1980, 70)
    assert calipers.load(here / "model").about_["source"]["target_kind"] == "number 1,234.5"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows[1:11], "10 rows are too few to fit a model and evaluate it"),
        (lambda rows: rows.assign(price="7"), "the target is always 7"),
        (lambda rows: rows.assign(price=""), "the target is missing in all 2,000 rows"),
        (lambda rows: rows[["price"]], "there is no column besides 'price' to learn from"),
    ],
)
@pytest.mark.parametrize("way", ["--in-blocks", "--in-memory"])
def test_rows_that_teach_nothing(change, problem, way, files, run, here):
    change(files).to_csv(here / "a.csv", index=False)
    done = run(*FIT.replace(" b.csv", "").split(), way)
    assert done.exit_code == 3, done.output
    assert problem in " ".join(done.output.split())
    assert not (here / "model").exists()


def test_points_for_thousands_are_told_from_decimals_alike_everywhere(run, here):
    (here / "settings.toml").write_text(SETTINGS)
    sizes = np.random.default_rng(0).integers(200, 1000, 600)
    table = pd.DataFrame({"size": [f"{size / 10:.1f}".replace(".", ",") for size in sizes]})
    table["price"] = [f"{size}.{size % 900 + 100}" for size in sizes]
    prices = [int(text.replace(".", "")) for text in table["price"]]
    table.to_csv(here / "a.csv", index=False, sep=";")
    fit = FIT.replace(" b.csv", " --test-fraction 0")
    for name, how in (("model", "--in-memory"), ("blocks", "--in-blocks")):
        done = run(*fit.replace("model", name).split(), how)
        assert done.exit_code == 0, done.output
        target = calipers.load(here / name).target_
        assert (target.low, target.high) == (min(prices), max(prices))
    inputs, text = table[["size"]], table["price"]
    model = calipers.IntervalRegressor(n_networks=2, cv=2, epochs=1).fit(inputs, text)
    assert (model.target_.low, model.target_.high) == (min(prices), max(prices))
    assert model.score(inputs, text) == model.score(inputs, prices)
    both = MultiTargetRegressor(calipers.IntervalRegressor(n_networks=2, cv=2, epochs=1))
    both.fit(np.arange(600.0)[:, None], table[["price", "size"]])
    assert both.models_[0].target_.high == max(prices)
    with pytest.raises(ValueError, match=r"separate thousands.*decimal commas.*read_number"):
        list(RowBlocks(here / "a.csv", "price"))
    ((_, plain),) = RowBlocks(np.zeros((600, 1)), text)
    assert plain[0] == float(text[0])
