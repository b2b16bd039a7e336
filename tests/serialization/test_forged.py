"""Forged model folders with valid checksums are refused at load, and quickly."""

import json
import re
import time
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from tests.campaigns._models import new_models, old_models
from tests.campaigns._tally import FOLDERS
from tests.campaigns.forged_folders import mutants, old_mutants, outcome, reseal
from typer.testing import CliRunner

from calipers import load
from calipers.cli import app
from calipers.networks import DenseFactory
from calipers.prediction import Query
from calipers.storage import ModelFileError, read_model


def put(*path_and_value):
    """A change: the value at a path in the document."""
    *path, last, value = path_and_value

    def change(document, arrays):
        for key in path:
            document = document[key]
        document[last] = value

    return change


def drop(*path):
    def change(document, arrays):
        *above, last = path
        for key in above:
            document = document[key]
        del document[last]

    return change


def array(name, value):
    def change(document, arrays):
        arrays[name] = np.asarray(value(arrays[name]))

    return change


def nested(depth):
    def change(document, arrays):
        program = document["ensemble"]["program"]
        for _ in range(depth):
            program["network"] = {
                "kind": "Around",
                "network": program["network"],
                "point_at": 0,
                "reach": 0.0,
            }

    return change


def layers(count):
    """The same number of layers, each with its arrays."""

    def change(document, arrays):
        document["ensemble"]["program"]["network"]["hidden"] = [1] * count
        for i in range(2 * count + 2):
            arrays[f"weights.{i}"] = np.zeros((2, 1, 1) if i % 2 == 0 else (2, 1), np.float32)

    return change


SUPPORT = {"low": 0.0, "high": None, "step": 1.0, "origin": 0.0, "decimals": 0, "given": False} | {
    "latent": [],
    "observed": [],
}
LINE = SUPPORT | {"low": None, "step": 0.0}
NETWORK = ("ensemble", "program", "network")
CATEGORY = ("inputs", "preprocessor", "columns", 3, "encoder")
ABOUT = ("inputs", "about")
WATCHED = {"files": [], "rows": 1, "alarm_at": None, "coverage": 0.9, "counted": 1, "covered": 1}
WATCHED |= {"recent": "1", "out": None, "bytes": 0}
NAN = np.float32(np.nan)

# A model, what is changed in it, and what the error says.
FORGED = {
    "10^8 inputs": ("default", put("ensemble", "program", "in_size", 10**8), "in_size must be"),
    "10^6 inputs": ("default", put("ensemble", "program", "in_size", 10**6), "input_center"),
    "10^8 categories": ("table", put(*CATEGORY, "kept", 10**8), "kept must be at most 3"),
    "10^8 frequencies": ("default", put(*NETWORK, "waves", 10**8), "frequencies must be"),
    "10^8 units": ("default", put(*NETWORK, "hidden", [10**8]), r"hidden_layers\[0\] must be"),
    "1499 layers": ("paper", layers(1499), "hidden_layers must be a list of 0 to 256"),
    "3 million epochs": ("default", array("epochs", lambda a: np.ones(3_000_000, int)), "'epochs'"),
    "long epochs": ("default", array("epochs", lambda a: a + 2**52), "array 'history' must be"),
    "nested networks": ("upgraded", nested(300), "network.network must be"),
    "10^8 calibrations": ("default", put("ensemble", "calibrations", 10**8), "calibrations must"),
    "no ensemble": ("default", drop("ensemble"), "must be an object with 'ensemble'"),
    "no parameters": ("default", drop("parameters"), "must be an object with 'parameters'"),
    "no inputs": ("default", put("inputs", None), "inputs must be an object, got None"),
    "far bound": ("default", put("ensemble", "support", SUPPORT | {"low": 1e308}), "support.low"),
    "far step": ("default", put("ensemble", "support", SUPPORT | {"step": 1e308}), "support.step"),
    "atoms of a lattice": (
        "default",
        put("ensemble", "support", SUPPORT | {"atoms": [1.0]}),
        "support.atoms must be",
    ),
    "a knot twice": (
        "default",
        put("ensemble", "support", LINE | {"latent": [0, 1, 2], "observed": [0, 1, 1]}),
        "support.observed must be",
    ),
    "an atom below all": (
        "default",
        put("ensemble", "support", LINE | {"latent": [0, 1], "observed": [1, 1], "atoms": [1]}),
        "support.observed must be",
    ),
    "columns": (
        "default",
        put("ensemble", "program", "network", "columns", [0, 3]),
        "columns must be below 3",
    ),
    "outputs": ("default", put(*NETWORK, "skip", [0, 3]), "network must be of outputs below 3"),
    "point of no output": ("upgraded", put(*NETWORK, "point_at", 3), "of outputs below 3"),
    "no column": ("default", put("inputs", "columns", []), "inputs.columns must be a list"),
    "unknown parameter": ("default", put("parameters", "spam", 1), "without 'spam'"),
    "parameter": ("default", put("parameters", "coverage", "all"), "coverage"),
    "lost parameter": ("default", drop("parameters", "retries"), "with 'retries'"),
    "no threads": ("default", put("parameters", "n_jobs", 0), "'n_jobs' parameter"),
    "unknown loss": ("default", put("ensemble", "program", "objective", "loss", "x"), "loss must"),
    "unknown head": ("default", put("ensemble", "program", "objective", "head", "x"), "head must"),
    "other coverage": ("sem", put("parameters", "coverage", 0.5), "coverage must be 0.95, the"),
    "clip of 0": ("default", put(*NETWORK, "clip", 0.0), "clip must be a number from 0.001"),
    "lost encoder part": ("table", drop(*CATEGORY, "counts"), "with 'counts'"),
    "lost points": ("upgraded", put("ensemble", "points", None), "points must be present exactly"),
    "lost array": ("default", lambda d, a: a.pop("seeds"), "lack the array 'seeds'"),
    "extra array": ("default", lambda d, a: a.update(x=np.zeros(9)), "hold the array 'x'"),
    "NaN weight": ("default", array("weights.0", lambda a: a * NAN), "'weights.0' must be finite"),
    "huge weight": ("default", array("weights.3", lambda a: a + np.float32(1e38)), "stay finite"),
    "double weights": ("default", array("weights.0", np.float64), "weights do not fit"),
    "cut weights": ("default", array("weights.3", lambda a: a[:-1]), "weights do not fit"),
    "no scale": ("default", array("units.target_scale", lambda a: a * 0), "target_scale' must be"),
    "far target": ("default", array("units.target_scale", lambda a: a * 1e200), "of the size of"),
    "NaN score": ("default", array("calibration.0.scores", lambda a: a * np.nan), "'scores' must"),
    "scores": ("default", array("calibration.0.scores", lambda a: a[::-1].copy()), "ascending"),
    "masses": ("default", array("calibration.0.mass", np.zeros_like), "'mass' must be ascending"),
    "shares": ("conformal", array("calibration.1.share", np.ones_like), "'share' must be"),
    "rows": ("default", array("calibration.0.n_rows", lambda a: -a), "'n_rows' must be"),
    "watched": ("default", put(*ABOUT, "watched", {"rows": 1}), "watched must be an object with"),
    "watched bytes": ("default", put(*ABOUT, "watched", WATCHED | {"bytes": -1}), "bytes must be"),
    "target kind": ("default", put(*ABOUT, "source", {"target_kind": "x"}), "target_kind must be"),
}


@pytest.mark.parametrize(("name", "change", "message"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_folder_is_refused_at_load_and_soon(name, change, message, tmp_path):
    document, arrays = deepcopy(read_model(FOLDERS / name))
    change(document, arrays)
    record = json.loads((FOLDERS / name / "model.json").read_bytes())
    reseal(tmp_path, record | {"document": document}, arrays)
    began = time.process_time()
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path)
    assert time.process_time() - began < 5
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert shown.exit_code == 4
    assert re.search(message, shown.stderr.replace("\n", " "))


@pytest.mark.long
def test_forged_folders_of_the_campaign_are_refused_or_sound():
    found = old_mutants(200, 0)
    assert found.findings == []
    assert found.counts["refused"] > 100
    assert found.counts["sound"] > 10


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Models with every part that a folder can have."""
    return new_models(tmp_path_factory.mktemp("examples"))


@pytest.mark.long
def test_bits_of_every_kind_of_model(examples):
    """Several components, other scales, bounds, encodings, streams, regressors, several targets.

    Those that are not forged: a row's prediction has the same bits alone and among others.
    """
    query = Query((0.95, 0.5), (0.1, 0.5), variance=True, density=5, members=True)
    for name, example in examples.items():
        model = example.load(example.folder, **example.code)
        for own in getattr(model, "models_", [model]):
            whole = own.query(example.rows, query).columns()
            alone = [own.query(example.rows[i : i + 1], query).columns() for i in range(5)]
            for column, values in whole.items():
                found = np.concatenate([one[column] for one in alone])
                np.testing.assert_array_equal(found, values[:5], err_msg=f"{name}: {column}")


@pytest.mark.long
def test_forged_folders_with_newer_parts_are_refused_or_sound(examples):
    found = mutants(100, 0, examples)
    assert found.findings == []
    assert found.counts["refused"] > 50


# A model, an array that is multiplied or an entry of the document, and by how much.
EXTREME = {
    "scores of a width": ("width", "calibration.1.scores", 1e99),
    "scores under a map": ("components", "calibration.0.scores", 1e30),
    "a tail under a map": ("components", "calibration.0.tail_slope", 1e12),
    "a place under a map": ("asinh", "scaling.target_center", 1e99),
    "a unit under a map": ("components", "units.target_center", 1e12),
    "a small scale": ("shifted", "scaling.target_scale", 1e-100),
}


@pytest.mark.parametrize(("name", "key", "by"), EXTREME.values(), ids=EXTREME.keys())
def test_extreme_numbers_lead_to_numbers_and_soon(examples, name, key, by, tmp_path):
    document, arrays = read_model(examples[name].folder)
    arrays[key] = np.asarray(arrays[key] * by)
    record = json.loads((examples[name].folder / "model.json").read_bytes())
    reseal(tmp_path, record | {"document": document}, arrays)
    began = time.process_time()
    assert outcome(tmp_path, examples[name]) in ("refused", "sound")
    assert time.process_time() - began < 20


def scaled(**by):
    """A change: arrays multiplied, each by its factor; dots are written as two underscores."""

    def change(document, arrays):
        for name, factor in by.items():
            key = name.replace("__", ".")
            arrays[key] = np.asarray(arrays[key] * factor)

    return change


STREAM = "calibration.1.shift."


def far_shift(document, arrays):
    """A stream's correction of 1e249, of two numbers that could each be one."""
    arrays[STREAM + "typical"] = np.asarray(1e150)
    arrays[STREAM + "slope"] = np.full_like(arrays[STREAM + "slope"], 1e100)


def other_ratio(document, arrays):
    """Weights of rows by more inputs than rows have, each of its parts of the right length."""
    for name, more in (("center", 1), ("scale", 1), ("coef", 2)):
        key = f"calibration.0.ratio.{name}"
        arrays[key] = np.concatenate([arrays[key], np.ones(more)])


def steep_pieces(document, arrays):
    """Pieces so narrow that the slope over them is infinite in single precision."""
    name = max((n for n in arrays if n.startswith("weights.")), key=lambda n: int(n[8:]))
    name = f"weights.{int(name[8:]) - 1}"
    arrays[name] = np.zeros_like(arrays[name])
    arrays[name][:, 1] = 1e-39


# A model with newer parts, what is changed in it, and what the error says.
UNFIT = {
    "a shift of 1e249": ("stream", far_shift, "'shift.slope' must be"),
    "kinds by no input": ("kinds", array("calibration.0.by.columns", lambda a: a + 3), "columns"),
    "weights by other inputs": ("shifted", other_ratio, "'ratio.center' must be of 3 inputs"),
    "steep pieces": ("pieces", steep_pieces, "knots of an input must be equal, or"),
    "scores times scale": (
        "width",
        scaled(calibration__1__scores=1e90, units__target_scale=1e100),
        "over that of scores",
    ),
}


@pytest.mark.parametrize(("name", "change", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_parts_that_do_not_go_together_are_refused(examples, name, change, message, tmp_path):
    document, arrays = deepcopy(read_model(examples[name].folder))
    change(document, arrays)
    record = json.loads((examples[name].folder / "model.json").read_bytes())
    reseal(tmp_path, record | {"document": document}, arrays)
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path)


def test_a_stream_continues_from_any_state_that_is_read(examples, tmp_path):
    """Sums so large that the ridge is lost, and a matrix without an inverse."""
    document, arrays = read_model(examples["stream"].folder)
    for name, value in (("gram", 1e99), ("moment", 1e99)):
        arrays[STREAM + name] = np.full_like(arrays[STREAM + name], value)
    record = json.loads((examples["stream"].folder / "model.json").read_bytes())
    reseal(tmp_path, record | {"document": document}, arrays)
    assert outcome(tmp_path, examples["stream"]) == "sound"


def test_a_model_whose_regressor_is_not_at_hand_is_checked_all_the_same(examples, tmp_path):
    document, arrays = read_model(examples["wrapped"].folder)
    record = json.loads((examples["wrapped"].folder / "model.json").read_bytes())
    for change in (
        put("inputs", "columns", 1, "high", -9.0),
        array("weights.0", lambda a: a * NAN),
    ):
        changed, others = deepcopy(document), dict(arrays)
        change(changed, others)
        reseal(tmp_path, record | {"document": changed}, others)
        assert outcome(tmp_path, examples["wrapped"]) == "refused"


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    model = load(FOLDERS / "paper")
    bank = model.ensemble_.bank
    deep = replace(bank.program, network=DenseFactory((1,) * 300))
    model.ensemble_ = replace(model.ensemble_, bank=replace(bank, program=deep))
    with pytest.raises(ValueError, match="hidden_layers must be a list of 0 to 256 entries"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_whose_bounds_are_of_another_coverage_is_not_saved(tmp_path):
    model = load(FOLDERS / "sem").set_params(coverage=0.5)
    with pytest.raises(ValueError, match=r"parameters.coverage must be 0\.95, the trained one"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    model.set_params(coverage=0.95).save(tmp_path / "model")
    assert load(tmp_path / "model").coverage == 0.95


OF_0_1 = (
    *("hidden_layers", "activation", "waves", "learning_rate", "schedule", "decay_rate"),
    *("decay_steps", "weight_decay", "averaging", "clip_norm", "adversarial_step", "retries"),
    *("coverage_weight", "point_weight", "crossing_weight", "softness", "network"),
)
"""Parameters that were moved; a folder has all of them or none."""


EVIL = "\x1b]0;owned\x07\u202e\x9b2J"


def test_names_in_a_folder_or_a_table_do_not_steer_a_terminal(tmp_path):
    """Control characters are shown as escapes, in what is printed and in errors."""
    document, arrays = read_model(FOLDERS / "table")
    record = json.loads((FOLDERS / "table" / "model.json").read_bytes())
    column = document["inputs"]["preprocessor"]["columns"][0]
    column["column"]["note"] = EVIL
    document["inputs"]["about"] |= {"versions": {"numpy": EVIL}, "more_rows": EVIL}
    folder = tmp_path / "model"
    folder.mkdir()
    reseal(folder, record | {"document": document}, arrays)
    (tmp_path / "rows.csv").write_text(f"{EVIL},b\n1,2\n", "utf-8")
    for command in (["inspect"], ["predict", tmp_path / "rows.csv"]):
        words = [command[0], folder, *command[1:]]
        shown = CliRunner().invoke(app, [str(word) for word in words]).output
        assert "\\x1b]0;owned" in shown or command[0] == "predict"
        assert all(char.isprintable() or char == "\n" for char in shown), shown


@pytest.mark.parametrize("name", ["aggregation", "loss"])
def test_a_parameter_that_is_not_stored_is_the_default(name, tmp_path):
    document, arrays = read_model(FOLDERS / "default")
    record = json.loads((FOLDERS / "default" / "model.json").read_bytes())
    stored = {"aggregation": "mixture"} | document["parameters"]
    document["parameters"] = {
        key: value for key, value in stored.items() if key != name and key not in OF_0_1
    }
    reseal(tmp_path, record | {"document": document}, arrays)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "the default" in shown.output


@pytest.mark.parametrize("field", ["low", "high", "step", "origin"])
def test_whole_numbers_of_a_support_are_numbers(field, tmp_path):
    """JSON has whole numbers of any length, which arithmetic on arrays does not take."""
    document, arrays = read_model(FOLDERS / "default")
    record = json.loads((FOLDERS / "default" / "model.json").read_bytes())
    document["ensemble"]["support"] = SUPPORT | {field: 2**63}
    reseal(tmp_path, record | {"document": document}, arrays)
    assert outcome(tmp_path, old_models()["default"]) in ("refused", "sound")
