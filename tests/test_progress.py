import re

import numpy as np
import pytest

from calipers import IntervalRegressor
from calipers._progress import progress
from calipers.networks import MLP


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    monkeypatch.setenv("COLUMNS", "120")


def lines(capsys):
    """The lines that stay on the terminal: a bar is erased."""
    shown = capsys.readouterr().err.rpartition("\x1b[2K")[2]
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown).strip().splitlines()


@pytest.mark.parametrize(
    ("done", "line"),
    [(3, "3 of at most 1,000 epochs"), (1000, "1,000 epochs"), (1001, "1,001 epo")],
)
def test_work_of_unknown_length_leaves_a_line(terminal, capsys, done, line):
    with progress("training", 1000, unit="epochs") as report:
        report(done)
    [shown] = lines(capsys)
    assert shown.startswith(f"training: {line}")
    assert shown.endswith("in 0 s")


def test_other_bars_vanish(terminal, capsys):
    with progress("reading", 1000) as report:
        report(1000)
    assert lines(capsys) == []


def test_work_whose_end_is_unknown(terminal, capsys):
    with progress("downloading", None) as report:
        report(1000)
    assert lines(capsys) == []


def test_an_error_leaves_no_line(terminal, capsys):
    with pytest.raises(KeyboardInterrupt), progress("training", 10, unit="epochs"):
        raise KeyboardInterrupt
    assert lines(capsys) == []


def test_networks_that_stop_early_leave_a_line(terminal, capsys):
    X, y = np.random.default_rng(0).normal(size=(2, 200))  # nothing to learn
    network = MLP(hidden_layers=(8,), frequencies=0)
    model = IntervalRegressor(network=network, n_networks=2, cv=2, random_state=0)
    model.fit(X[:, np.newaxis], y)
    [shown] = lines(capsys)
    assert re.match(r"training: [0-9,]+ of at most [0-9,]+ epochs in \d+ s", shown)


def test_silence(terminal, capsys):
    with progress("training", 10, unit="epochs", visible=False) as report:
        report(1)
    assert capsys.readouterr().err == ""
