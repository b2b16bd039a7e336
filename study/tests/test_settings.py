import csv
import json
from pathlib import Path

import pytest

from calipers_study.methods import DATASETS, METHODS, paper_trials
from calipers_study.settings import (
    SettingsError,
    load_settings,
    read_tables,
    settings_of,
    settings_record,
)
from calipers_study.translation import (
    PARAMETERS,
    estimator_of,
    program_of,
    training_of,
    with_parameters,
)

TRIALS = Path(__file__).parents[2] / "results" / "trials.csv"

# From the table that the paper's authors published with their code: layers, batch, epochs, rate,
# decay rate, lambda_1 or lambda, lambda_2, xi, epsilon.
PUBLISHED = {
    ("qd+", "boston"): ((50, 50), 100, 662, 0.009, 1.0, 0.9974, 0.51, 10.0, 0.0),
    ("qd+", "naval"): ((50, 50), 100, 1766, 0.001, 0.9975, 0.9708, 0.63, 10.0, 0.0),
    ("qd+", "protein"): ((100, 100), 100, 80, 0.02, 0.99, 0.9976, 0.24, 10.0, 0.0),
    ("qd+", "year"): ((100, 100), 1000, 40, 0.005, 0.99, 0.999, 0.1, 10.0, 0.0),
    ("qd", "year"): ((100, 100), 1000, 64, 0.001, 1.0, 11.0, 0.0, 0.0, 0.0),
    ("qd-1-layer", "year"): ((100,), 1000, 100, 0.005, 0.999, 15.0, 0.0, 0.0, 0.0),
    ("mve", "year"): ((100, 100), 100, 4, 0.004, 0.99, 1.0, 0.0, 0.0, 0.0),
    ("mse", "year"): ((100, 100), 1000, 4, 0.009, 0.95, 1.0, 0.0, 0.0, 0.0),
    ("qd", "yacht"): ((50, 50), 100, 1214, 0.006, 1.0, 1.0, 0.0, 0.0, 0.0),
    ("qd", "wine"): ((50, 50), 100, 1606, 0.007, 1.0, 40.0, 0.0, 0.0, 0.0),
    ("qd-1-layer", "kin8nm"): ((50,), 100, 500, 0.02, 0.99, 15.0, 0.0, 0.0, 0.0),
    ("mve", "boston"): ((50, 50), 100, 152, 0.005, 1.0, 1.0, 0.0, 0.0, 0.1),
    ("mve", "wine"): ((50, 50), 100, 5, 0.007, 0.96, 1.0, 0.0, 0.0, 0.0),
    ("mse", "power"): ((50, 50), 100, 847, 0.006, 1.0, 1.0, 0.0, 0.0, 0.0),
}

GOOD = """
[datasets.yacht]
loss = "qd"
hidden_layers = [50]
members = 5
trials = 20
batch_size = 100
epochs = 10
learning_rate = 0.01
coverage_weight = 15.0
softness = 160.0
"""


@pytest.mark.parametrize(("method", "dataset"), list(PUBLISHED))
def test_published_numbers(method, dataset):
    s = load_settings(method, dataset)
    found = (
        s.hidden_layers, s.batch_size, s.epochs, s.learning_rate, s.decay_rate,
        s.coverage_weight, s.point_weight, s.crossing_weight, s.adversarial_step,
    )  # fmt: skip
    assert found == PUBLISHED[method, dataset]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_all_settings_are_the_papers(method, dataset):
    s = load_settings(method, dataset)
    assert s.loss == METHODS[method].loss
    assert s.members == 5
    assert s.trials == paper_trials(dataset)
    units = 100 if dataset in ("protein", "year") else 50
    assert s.hidden_layers == (units,) * (1 if method == "qd-1-layer" else 2)
    assert s.batch_size in ((100, 1000) if dataset == "year" else (100,))
    assert s.coverage == 0.95
    assert s.softness == 160.0
    assert 0.9 <= s.decay_rate <= 1
    training = training_of(s)
    assert (training.epochs, training.learning_rate) == (s.epochs, s.learning_rate)
    weights = {"coverage_weight": s.coverage_weight} if method.startswith("qd") else {}
    assert weights.items() <= training.loss.items()
    assert training.patience == 0
    assert program_of(s, 3).adversarial == (
        (method, dataset) in {("mve", "boston"), ("mve", "concrete")}
    )


def test_settings_are_those_of_the_committed_results():
    """Settings that were recorded with each trial when the results were made, all but year's."""
    with TRIALS.open(newline="") as file:
        recorded = {
            (row["method"], row["dataset"]): json.loads(row["settings"])
            for row in csv.DictReader(file)
        }
    assert len(recorded) == 5 * 9
    for (method, dataset), settings in recorded.items():
        assert settings_record(load_settings(method, dataset)) == settings


def test_parameters_of_the_estimator():
    s = load_settings("qd+", "protein")
    params = estimator_of(s).get_params()
    assert set(PARAMETERS.values()) <= set(params)
    assert params[PARAMETERS["hidden_layers"]] == (100, 100)
    assert params[PARAMETERS["softness"]] == 160.0
    assert with_parameters(s, params).hidden_layers == (100, 100)
    changed = with_parameters(s, {PARAMETERS["learning_rate"]: 0.5, "schedule": "exponential"})
    assert (changed.learning_rate, changed.epochs) == (0.5, s.epochs)


def test_decay_steps_where_published():
    assert load_settings("mve", "wine").decay_steps == 500
    assert load_settings("qd+", "wine").decay_steps == 50


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 10", "epoch = 10", "there is no setting 'epoch'; did you mean 'epochs'?"),
        ("epochs = 10", "", "epochs must be given"),
        ("softness = 160.0", "", "softness must be given"),
        ('loss = "qd"', "", "loss must be one of 'qd+', 'qd', 'normal', 'mse', got ''"),
        ('loss = "qd"', 'loss = "QD"', "got 'QD'"),
        ('loss = "qd"', 'loss = "mse"', "coverage_weight is not a setting of the loss 'mse'"),
        ("epochs = 10", "epochs = 10.5", "epochs must be a positive whole number, got 10.5"),
        ("epochs = 10", "epochs = true", "epochs must be a positive whole number, got True"),
        ("epochs = 10", "epochs = 0", "epochs must be a positive whole number, got 0"),
        ("[50]", "[]", "hidden_layers must list positive whole numbers, got []"),
        ("[50]", "50", "hidden_layers must list positive whole numbers, got 50"),
        ("= 0.01", "= -0.01", "learning_rate must be positive and finite, got -0.01"),
        ("= 0.01", "= inf", "learning_rate must be positive and finite, got inf"),
        ("= 0.01", "= nan", "learning_rate must be positive and finite, got nan"),
        ("= 0.01", '= "fast"', "learning_rate must be a number, got 'fast'"),
        ("= 15.0", "= -1.0", "coverage_weight must be zero or more and finite, got -1.0"),
        ("members = 5", "members = ", "Invalid value"),
        ("members = 5", "coverage = 1\nmembers = 5", "coverage must be below 1, got 1"),
    ],
)
def test_strictness(old, new, message):
    assert settings_of(read_tables(GOOD)["yacht"]).coverage_weight == 15.0
    with pytest.raises(SettingsError) as error:
        settings_of(
            read_tables(GOOD.replace(old, new), origin="mine.toml")["yacht"], origin="mine.toml"
        )
    assert str(error.value).startswith("mine.toml: ")
    assert message in str(error.value)


def test_a_dataset_goes_before_what_is_shared():
    text = "epochs = 9\nmembers = 3\n[datasets]\nyacht = { epochs = 7 }\nwine = {}"
    assert read_tables(text) == {
        "yacht": {"epochs": 7, "members": 3}, "wine": {"epochs": 9, "members": 3}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 9", "mine: datasets must be a table with one table for each dataset"),
        ("datasets = 3", "mine: datasets must be a table with one table for each dataset"),
        ("[datasets]\nyacht = 3", "mine: datasets must be a table with one table for each"),
        ("[datasets.yatch]", "mine: there is no dataset 'yatch'; did you mean 'yacht'?"),
    ],
)
def test_layout_of_a_file(text, message):
    with pytest.raises(SettingsError) as error:
        read_tables(text, origin="mine")
    assert message in str(error.value)


def test_own_folder_goes_first_dataset_by_dataset(tmp_path):
    (tmp_path / "qd.toml").write_text(GOOD)
    assert load_settings("qd", "yacht", folder=tmp_path).epochs == 10
    assert load_settings("qd", "boston", folder=tmp_path) == load_settings("qd", "boston")
    with pytest.raises(SettingsError, match="is not a folder"):
        load_settings("qd", "yacht", folder=tmp_path / "nowhere")


def test_folder_without_settings_is_refused(tmp_path):
    (tmp_path / "qd").mkdir()
    (tmp_path / "qd" / "yacht.toml").write_text(GOOD)  # the layout of version 0.1
    with pytest.raises(SettingsError, match=r"holds no settings: none of qd-plus\.toml, qd\.toml"):
        load_settings("qd", "yacht", folder=tmp_path)


def test_unknown_names():
    with pytest.raises(ValueError, match=r"there is no method 'qd\+\+'; did you mean 'qd\+'\?"):
        load_settings("qd++", "yacht")
    with pytest.raises(SettingsError, match="there are no settings of 'qd' for 'yatch'"):
        load_settings("qd", "yatch")
