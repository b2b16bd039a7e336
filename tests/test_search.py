"""The search: its space, its scores, its choice, and that a kill loses nothing."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import TimeSeriesSplit

from calipers import IntervalRegressor
from calipers.bank import Bank, TrainingFailedError
from calipers.ensemble import Ensemble
from calipers.networks import MLP
from calipers.search import PAPER_SPACE, Candidate, Outcome, SearchResult, paper_score, search
from calipers.search._store import Store

SPACE = {"optimizer__learning_rate": [1e-6, 0.003, 0.01], "loss__point_weight": [0.6, 0.7]}
QUICK = {"splits": 2, "max_epochs": 40, "patience": 10, "random_state": 0, "verbose": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 2))
    return X, X[:, 0] + rng.normal(0, 0.1, 120)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(
        network=MLP(hidden_layers=(8,), frequencies=0), loss="interval score", verbose=0
    )


@pytest.fixture(scope="module")
def result(model, data):
    return search(model, *data, SPACE, **QUICK)


def outcomes(result):
    return [(c.number, c.params, c.finalist, c.outcome) for c in result.candidates]


@pytest.mark.parametrize(
    ("rate", "width", "score"),
    [
        (0.95, 1.5, 1.5),
        (0.959, 1.5, 1.5),  # less than a hundredth
        (0.94, 1.5, 15.0),  # exactly one, below
        (0.96, 1.5, 15.0),  # and above
        (0.93, 1.5, 150.0),  # 0.95 - 0.93 is a little less than two hundredths in binary
        (1.0, 2.0, 2e5),
        (0.0, 1.0, 1e95),
        (0.95, 0.0, math.inf),
        (0.95, -1.0, math.inf),
    ],
)
def test_paper_score(rate, width, score):
    assert paper_score(rate, width) == pytest.approx(score)


def test_paper_score_at_another_coverage():
    assert paper_score(0.8, 2.0, coverage=0.8) == 2.0
    assert paper_score(0.8, 2.0, coverage=0.9) == pytest.approx(2e10)


def test_paper_space():
    sizes = {name: len(values) for name, values in PAPER_SPACE.items() if len(values) > 1}
    assert sizes == {
        "optimizer__learning_rate": 10,
        "optimizer__decay_rate": 6,
        "loss__coverage_weight": 146,
        "loss__point_weight": 99,
    }
    assert PAPER_SPACE["loss__coverage_weight"][:2] == (0.97, 0.9702)
    assert PAPER_SPACE["loss__coverage_weight"][-1] == 0.999
    assert PAPER_SPACE["loss__crossing_weight"] == (10.0,)


def test_small_space_is_searched_whole(result):
    assert len(result.candidates) == 6
    assert len({tuple(c.params.items()) for c in result.candidates}) == 6


def test_learns_what_is_better(result):
    assert result.best_params["optimizer__learning_rate"] in (0.003, 0.01)
    assert 1 <= result.best_params["epochs"] <= 40
    worst = result.ranked()[-1]
    assert worst.params["optimizer__learning_rate"] == 1e-6


def test_same_seed_same_result(result, model, data):
    again = search(model, *data, SPACE, **QUICK)
    assert outcomes(again) == outcomes(result)
    other = search(model, *data, SPACE, **{**QUICK, "random_state": 1})
    assert outcomes(other) != outcomes(result)


def test_results_do_not_depend_on_the_other_candidates(result, model, data):
    alone = search(
        model,
        *data,
        {"optimizer__learning_rate": [0.003], "loss__point_weight": [0.7]},
        n_jobs=1,
        **QUICK,
    )
    [same] = [c for c in result.candidates if c.params == alone.candidates[0].params]
    assert alone.best.outcome == same.outcome


def test_estimator_is_unchanged_and_best_is_ready_to_fit(result, model):
    def numbers(estimator):
        nested = ("loss", "network", "optimizer")
        return {k: v for k, v in estimator.get_params().items() if k not in nested}

    before = model.get_params()
    best = result.best_estimator
    assert model.get_params() == before
    assert not hasattr(model, "ensemble_")
    assert numbers(best) == {**numbers(model), **result.best_params, "patience": None}
    assert not hasattr(best, "ensemble_")
    assert numbers(clone(best)) == numbers(best)


def test_frame(result):
    frame = result.to_frame()
    assert frame["score"].is_monotonic_increasing
    assert frame["candidate"].iloc[0] == result.best.number
    assert {"param_optimizer__learning_rate", "coverage_rate", "mean_width", "epochs"} <= set(
        frame.columns
    )


def test_early_stopping_finds_the_epochs(result, model, data):
    for candidate in result.candidates:
        assert candidate.outcome.epochs <= 40
        assert candidate.network_epochs <= 2 * 40
    own = search(model, *data, {"epochs": [3, 7]}, **{**QUICK, "patience": None})
    assert [c.outcome.epochs for c in own.candidates] == [3, 7]
    assert [c.network_epochs for c in own.candidates] == [6, 14]
    limited = search(model, *data, {"epochs": [3, 7]}, **QUICK)
    assert [c.network_epochs for c in limited.candidates] == [6, 14]


def test_a_rate_that_has_fallen_to_nothing_ends_a_training(model, data):
    space = {
        "optimizer__schedule": ["exponential"],
        "optimizer__learning_rate": [0.01],
        "optimizer__decay_steps": [1],
        "optimizer__decay_rate": [0.1, 1.0],
    }
    found = search(model, *data, space, splits=2, max_epochs=30, patience=20, random_state=0)
    lengths = [c.outcome.network_epochs for c in found.candidates]
    # After seven steps the rate is 1e-9; an epoch of 108 rows has two.
    assert lengths[0] == 2 * 4
    assert lengths[1] > 2 * 20


def test_what_shapes_the_program_can_be_searched(model, data):
    space = {"network__hidden_layers": [(4,), (8,)], "optimizer__learning_rate": [0.01]}
    result = search(model, *data, space, **QUICK)
    small, large = result.candidates
    alone = search(model, *data, {"optimizer__learning_rate": [0.01]}, **QUICK)
    assert large.outcome == alone.best.outcome
    assert small.outcome != large.outcome
    assert result.best_estimator.network.hidden_layers in [(4,), (8,)]


def test_distributions_and_several_spaces(model, data):
    space = [
        {"optimizer__learning_rate": loguniform(1e-3, 1e-2)},
        {"optimizer__learning_rate": [0.5], "epochs": [2]},
    ]
    result = search(model, *data, space, n_candidates=4, **{**QUICK, "max_epochs": 2})
    assert len(result.candidates) == 4
    for candidate in result.candidates:
        rate = candidate.params["optimizer__learning_rate"]
        assert rate == 0.5 if "epochs" in candidate.params else 1e-3 <= rate <= 1e-2


def test_finalists_train_as_the_estimator_will(result, model, data):
    final = search(model, *data, SPACE, finalists=2, **QUICK)
    first, second, *others = final.ranked()
    assert {first.number, second.number} == {c.number for c in result.ranked()[:2]}
    assert [first.finalist, second.finalist] == [True, True]
    assert not any(c.finalist for c in others)
    before = result.candidates[first.number]
    assert first.outcome.epochs == before.outcome.whole_epochs
    again = first.network_epochs - before.network_epochs
    assert again == 2 * model.n_networks * first.outcome.epochs


def test_finalists_can_have_splits_of_their_own(result, model, data, tmp_path):
    options = {"finalists": 1, "store": tmp_path / "search.jsonl", **QUICK}
    final = search(model, *data, SPACE, final_splits=3, **options)
    assert final.best.number == result.best.number
    assert final.best.outcome.rows == 3 * 12
    with pytest.raises(ValueError, match="another search, which differs in final_splits"):
        search(model, *data, SPACE, **options)


def test_a_search_ends_in_its_time_and_continues_from_there(
    result, model, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "calipers.search._search.CPU_BATCH", 2
    )  # a candidate at a time, of 2 splits
    kept = tmp_path / "kept.jsonl"
    short = search(model, *data, SPACE, time_budget=1e-6, finalists=1, store=kept, **QUICK)
    assert len(short.candidates) == 1
    assert short.best.finalist  # the finalist is still trained
    assert short.candidates[0].params in [c.params for c in result.candidates]
    again = search(model, *data, SPACE, store=kept, finalists=1, **QUICK)
    assert len(again.candidates) == len(result.candidates)
    with pytest.raises(ValueError, match="time_budget must be above 0"):
        search(model, *data, SPACE, time_budget=0, **QUICK)


def test_own_splits(model, data):
    splits = list(TimeSeriesSplit(2).split(data[0]))
    result = search(
        model,
        *data,
        {"optimizer__learning_rate": [0.01]},
        **{**QUICK, "max_epochs": 3, "splits": splits},
    )
    assert result.best.network_epochs == 6


# Failures


@pytest.fixture(scope="module")
def failing(data):
    """One candidate whose bounds cross because it hardly trains, and one that is fine."""
    model = IntervalRegressor.paper(network__hidden_layers=(8,), batch_size=50, verbose=0)
    space = {"optimizer__learning_rate": [1e-9, 0.02]}
    return search(model, *data, space, **{**QUICK, "max_epochs": 150, "patience": 150})


def test_failing_candidates_are_never_chosen(failing):
    failed, fine = failing.candidates
    assert failed.outcome.failures > 0
    assert failing.score(failed) == math.inf
    assert fine.outcome.failures == 0
    assert failing.best is fine
    assert failing.chosen_by("paper").best is fine


def test_bounds_that_cross_on_most_held_out_rows_count_as_failed(model, data, monkeypatch):
    members = Ensemble.members

    def crossed(self, X):
        found = members(self, X)
        return found._replace(lower=found.upper, upper=found.lower)

    monkeypatch.setattr(Ensemble, "members", crossed)
    result = search(
        model, *data, {"optimizer__learning_rate": [0.01]}, **{**QUICK, "max_epochs": 3}
    )
    [candidate] = result.candidates
    assert candidate.outcome.failures == 2
    assert result.score(candidate) == math.inf


def test_a_single_network_with_outputs_that_are_not_finite_counts_as_failed(
    model, data, monkeypatch
):
    predict = Bank.predict

    def not_a_number(self, X):
        return {name: np.full_like(values, np.nan) for name, values in predict(self, X).items()}

    monkeypatch.setattr(Bank, "predict", not_a_number)
    options = {**QUICK, "max_epochs": 3, "patience": None, "finalists": 0}
    result = search(model, *data, {"optimizer__learning_rate": [0.01]}, **options)
    [candidate] = result.candidates
    assert candidate.outcome.failures == 2


def test_when_all_fail(failing):
    lost = replace(failing, candidates=failing.candidates[:1])
    with pytest.raises(TrainingFailedError, match="none of 1 candidates"):
        _ = lost.best_params


def candidate(number, finalist=False, *, rate=0.95, width=1.0, score=1.0, failures=0):
    return Candidate(
        number, {}, finalist, Outcome(rate, width, score, 0.1, 5.0, 10, failures, 1900), 10
    )


def test_choice():
    rows = (
        candidate(0, score=0.1, failures=1),  # best but for the network that failed
        candidate(1, score=2.0, width=1.0),
        candidate(2, score=1.5, width=3.0),
        candidate(3, score=0.5, width=0.5, rate=0.7),
    )
    result = SearchResult(IntervalRegressor(), rows, "interval score")
    assert [c.number for c in result.ranked()] == [3, 2, 1, 0]
    assert [c.number for c in result.chosen_by("paper").ranked()] == [1, 2, 3, 0]
    assert [c.number for c in result.chosen_by("covered").ranked()] == [2, 1, 3, 0]
    for rate, score in [(0.95, 2.0), (0.94, 20.0), (1.0, 2.0)]:
        row = replace(rows[1], outcome=rows[1].outcome._replace(coverage_rate=rate))
        assert result.chosen_by("covered").score(row) == pytest.approx(score)
    later = SearchResult(
        IntervalRegressor(), (*rows, candidate(4, True, score=9)), "interval score"
    )
    assert later.best.number == 4  # the others were let go before


# Errors


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"bach_size": [9]}, "no parameter 'bach_size' (did you mean 'batch_size'?)"),
        ({"patience": [10]}, "'patience' cannot be searched: it is an argument of the search"),
        ({"coverage": [0.9, 0.95]}, "'coverage' cannot be searched"),
        (
            {"optimizer__learning_rate": 0.1},
            "must give 'optimizer__learning_rate' a sequence of values",
        ),
        ({"loss": "qd+"}, "must give 'loss' a sequence of values"),
        (
            {"optimizer__learning_rate": []},
            "must give 'optimizer__learning_rate' a sequence of values",
        ),
        ({"optimizer__learning_rate": [-1.0]}, "'learning_rate' parameter of Adam"),
        ({"loss": ["mse"]}, "loss='mse' gives point predictions, but no intervals"),
    ],
)
def test_errors_of_the_space(model, data, space, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        search(model, *data, space, **QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"select": "winkler"},
            "select must be one of ['covered', 'interval score', 'paper', 'paper deviation']",
        ),
        ({"n_candidates": 0}, "n_candidates must be an integer of at least 1, got 0"),
        ({"patience": 1.5}, "patience must be an integer"),
        ({"splits": 0}, "splits must be an integer of at least 1"),
        ({"splits": []}, "splits must hold at least one pair"),
        (
            {"splits": [([0, 1], [200])]},
            "validation rows of split 0 must be integers from 0 to 119",
        ),
        ({"store": "x", "random_state": None}, "store needs an integer random_state"),
    ],
)
def test_errors_of_arguments(model, data, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        search(model, *data, SPACE, **{**QUICK, **options})


def test_needs_an_estimator_of_ours(data):
    with pytest.raises(TypeError, match="must be an IntervalRegressor, got LinearRegression"):
        search(LinearRegression(), *data, SPACE)


# The store


def test_store_is_used_and_guarded(result, model, data, tmp_path):
    path = tmp_path / "folder" / "search.jsonl"
    first = search(model, *data, SPACE, store=path, **QUICK)
    assert outcomes(first) == outcomes(result)
    written = path.read_bytes()
    assert outcomes(search(model, *data, SPACE, store=path, **QUICK)) == outcomes(result)
    assert path.read_bytes() == written
    by_paper = search(model, *data, SPACE, store=path, select="paper", **QUICK)
    assert path.read_bytes() == written
    assert by_paper.best is by_paper.ranked()[0]
    with pytest.raises(
        ValueError, match="another search, which differs in final_splits, max_epochs, seed, splits"
    ):
        search(model, *data, SPACE, store=path, **{**QUICK, "max_epochs": 30, "random_state": 1})


@pytest.mark.parametrize("cut", [1, 10, 200, 100_000])
def test_torn_store(result, model, data, tmp_path, cut):
    path = tmp_path / "search.jsonl"
    search(model, *data, SPACE, store=path, **QUICK)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut] or whole[:20])  # the longest cut goes into the first line
    assert outcomes(search(model, *data, SPACE, store=path, **QUICK)) == outcomes(result)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"notes", b"[1]\n", b'{"a": 1}\n{"b"'])
def test_other_files_are_not_overwritten(model, data, tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not the store of a search"):
        search(model, *data, SPACE, store=path, **QUICK)
    assert path.read_bytes() == content


SCRIPT = """
import sys
import numpy as np
from calipers import IntervalRegressor
from calipers.networks import MLP
from calipers.search import _search, search
_search.CPU_BATCH = 2
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (120, 2))
y = X[:, 0] + rng.normal(0, 0.1, 120)
network = MLP(hidden_layers=(8,), frequencies=0)
model = IntervalRegressor(network=network, loss="interval score", verbose=0)
space = {"optimizer__learning_rate": [1e-6, 0.003, 0.01], "loss__point_weight": [0.6, 0.7]}
search(model, X, y, space, splits=2, max_epochs=40, patience=10, random_state=0, verbose=0,
       store=sys.argv[1])
"""


@pytest.mark.long
def test_kill_and_resume(result, model, data, tmp_path):
    path = tmp_path / "search.jsonl"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)])
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = [json.loads(line) for line in path.read_bytes().splitlines()[1:3]]
    resumed = search(model, *data, SPACE, store=path, **QUICK)
    assert outcomes(resumed) == outcomes(result)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    assert lines[:2] == kept
    assert sorted(line["candidate"] for line in lines) == list(range(6))


# Forks of one process, which has imported the library for all of them; they begin together.
RACE = """
import os, pathlib, sys
from calipers.search._result import Outcome
from calipers.search._store import Store

def work(folder, shift):
    for number in range(20):
        store = Store(folder / f"{number}.jsonl", {"seed": number})
        for i in range(25):
            candidate = (i + shift) % 25
            outcome = Outcome(0.9, 1.0, float(candidate), float("nan"), 5.0, 10, 0, 60)
            store.add({(16, candidate): outcome})
        assert len(store.outcomes) == 25

ready, start = os.pipe()
children = []
for shift in (0, 0, 9):
    children.append(os.fork())
    if not children[-1]:
        failed = 1
        try:
            os.close(start)
            os.read(ready, 1)
            work(pathlib.Path(sys.argv[1]), shift)
            failed = 0
        finally:
            os._exit(failed)
os.close(start)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and locks of POSIX")
@pytest.mark.slow  # test_campaigns.py has a fast share of such races
def test_several_processes_share_a_store(tmp_path):
    subprocess.run([sys.executable, "-c", RACE, str(tmp_path)], check=True, timeout=600)
    for number in range(20):
        path = tmp_path / f"{number}.jsonl"
        header, *lines = map(json.loads, path.read_text().splitlines())
        assert header == {"calipers_search": 1, "seed": number}
        assert sorted(line["candidate"] for line in lines) == list(range(25))
        store = Store(path, {"seed": number})
        assert {key: o.interval_score for key, o in store.outcomes.items()} == {
            (16, i): float(i) for i in range(25)
        }


def test_deviation_of_coverage_counts_too():
    """The paper's other heuristic: a mean of 0.95 made of splits far from it is worth less."""

    def made(number, rate, width, deviation):
        outcome = Outcome(rate, width, 1.0, 0.1, 5.0, 10, 0, 1900, deviation)
        return Candidate(number, {}, 0, outcome, 10)

    steady, lucky = made(0, 0.945, 2.0, 0.003), made(1, 0.95, 1.0, 0.03)
    unknown = candidate(2)
    result = SearchResult(IntervalRegressor(), (steady, lucky, unknown), "paper deviation")
    assert result.best.number == 0
    assert result.score(steady) == pytest.approx(2.0)
    assert result.score(lucky) == pytest.approx(1000.0)
    assert result.score(unknown) == math.inf
    assert result.chosen_by("paper").score(lucky) == 1.0
