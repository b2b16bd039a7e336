"""What stands beside the paper: parts, their tables, baselines and shift."""

import json
import re

import numpy as np
import pytest

from calipers_study import extras
from calipers_study.baselines import mc_dropout, quantiles_with_certificates
from calipers_study.cells import collect
from calipers_study.experiment_tables import experiments_markdown
from calipers_study.experiments import EXPERIMENTS, FUTURE, Variant
from calipers_study.extras import ExtraPart, parts, stored_rows
from calipers_study.further_tables import shift_markdown
from calipers_study.lube import CWC
from calipers_study.methods import METHODS
from calipers_study.settings import StudySettings
from calipers_study.shift import cluster_splits, risk_area
from calipers_study.splits import shuffled_splits
from calipers_study.store import ResultStore, StoreError
from calipers_study.variants import variant_rows


def test_parts_have_places_of_their_own():
    every = parts()
    assert len({part.path for part in every}) == len(every) > 100
    assert {part.group for part in every} == set(extras.GROUPS)
    assert sorted(p.name for p in parts(["future"], ["yacht"])) == sorted(FUTURE)
    assert ExtraPart("experiments", "qd+: no partial batch", "power").path == (
        "extras/experiments/qd+-no-partial-batch/power.json"
    )
    with pytest.raises(ValueError, match="there is no group 'futures'"):
        parts(["futures"])


def row(variant, trial, width, **place):
    found = {"method": "qd+", "dataset": "power", "aggregation": "snm", "networks": 5, "retries": 0}
    return {
        **found,
        "variant": variant,
        "trial": trial,
        "MPIW": width,
        "PICP": 0.95,
        "MSE": 0.05,
        **place,
    }


def test_experiments_stand_beside_the_paper(store, tmp_path):
    place = tmp_path / "extras" / "experiments" / "a" / "power.json"
    place.parent.mkdir(parents=True)
    content = {
        "name": "qd+: no partial batch",
        "rows": [row("no partial batch", i, 0.8 + 0.01 * i) for i in (0, 1)],
    }
    place.write_text(json.dumps(content))
    assert len(list(stored_rows(ResultStore(tmp_path), "experiments"))) == 2
    text = experiments_markdown(ResultStore(tmp_path), collect(ResultStore(store)))
    assert "| SNM-QD+ | power | **paper** | 0.95 ± 0 | 0.80 ± 0 | 0.050 ± 0.001 |  |" in text
    assert (
        "| SNM-QD+ | power | no partial batch | 0.950 ± 0.000 | 0.805 ± 0.005 | 0.050 ± 0.000 | 0 |"
        in text
    )
    assert shift_markdown(ResultStore(tmp_path)) is None
    with pytest.raises(StoreError, match="there is no group"):
        list(stored_rows(ResultStore(tmp_path), "nothing"))


@pytest.mark.parametrize(
    "variant",
    [
        Variant("as published"),
        Variant("kaiming", initial="kaiming", scaled_by_all=True),
        Variant("by epoch", by_epoch=True, constant_inputs=True),
        FUTURE["nmpiw"],
        FUTURE["crps"],
        FUTURE["two-step-frozen"],
        FUTURE["lube"],
    ],
    ids=lambda variant: variant.label,
)
def test_variants_train_and_are_measured(variant, mini, monkeypatch):
    from calipers_study import variants
    from calipers_study.settings import load_settings

    monkeypatch.setattr(
        variants, "load_settings", lambda m, d: load_settings(m, d, folder=mini / "settings")
    )
    found = variant_rows(variant, "yacht", trials=1)
    names = {one["aggregation"] for one in found}
    assert names == ({"density"} if variant.loss == "crps" else names | {"members"})
    assert all(0 <= one["PICP"] <= 1 and one["MPIW"] > 0 and one["MSE"] > 0 for one in found)


@pytest.mark.parametrize("plain", ["", "jax"])
def test_several_draws_and_plain_loops_give_each_trial(plain, mini, monkeypatch):
    from calipers_study import variants
    from calipers_study.settings import load_settings

    monkeypatch.setattr(
        variants, "load_settings", lambda m, d: load_settings(m, d, folder=mini / "settings")
    )
    variant = Variant("some", "mse", seed=2, draws=1 if plain else 2, plain=plain)
    found = variant_rows(variant, "yacht", trials=2)
    assert [one["trial"] for one in found] == ([0, 1] if plain else [0, 1, 0, 1])
    assert [one.get("draw") for one in found] == ([None] * 2 if plain else [2, 2, 3, 3])
    assert len({one["MSE"] for one in found}) == len(found)
    assert all(0 < one["MSE"] < 2 for one in found)


def test_draws_are_counted_against_the_printed_number(store, tmp_path):
    place = tmp_path / "extras" / "experiments" / "a" / "power.json"
    place.parent.mkdir(parents=True)
    widths = {1: 0.812, 2: 0.82, 3: 0.80, 4: 0.804}  # the paper prints 0.80, half a unit is 0.005
    rows = [row("4 draws", t, w, draw=d) for d, w in widths.items() for t in (0, 1)]
    place.write_text(json.dumps({"name": "qd+: 4 draws", "rows": rows}))
    text = experiments_markdown(ResultStore(tmp_path), collect(ResultStore(store)))
    shown = "| SNM-QD+ | power | MPIW | 0.80 | 4 | 0.8 | 0.808 | 0.82 | 0.00887 | 2 | "
    chance = re.search(re.escape(shown) + r"(.*)% \|", text)[1]
    assert float(chance) == pytest.approx(25, abs=1)  # both of two trials from the lower two


def test_experiments_are_variants_of_known_methods():
    for variant, datasets in EXPERIMENTS.values():
        assert variant.method in METHODS
        assert datasets


def test_criterion_of_lube_by_hand():
    lower, point, upper = np.full(4, -1.0), np.zeros(4), np.full(4, 1.0)
    target = np.array([0.0, 0.0, 0.0, 5.0])
    options = {"weight": np.ones(4), "coverage": 0.95, "steepness": 50.0, "softness": 160.0}
    # Coverage 0.75 is 0.2 short: log 2 + log(1 + exp(10)).
    found = CWC.loss(lower, point, upper, target, **options)
    assert float(found) == pytest.approx(np.log(2) + np.log1p(np.exp(10)), rel=1e-5)
    covered = CWC.loss(lower, point, upper, np.zeros(4), **options)
    assert float(covered) == pytest.approx(np.log(2), rel=1e-5)


def test_clusters_are_left_out_whole():
    rng = np.random.default_rng(0)
    centers = np.repeat(np.arange(5.0) * 20, 40)[:, None]
    X = centers + rng.normal(size=(200, 2))
    splits = cluster_splits(X)
    assert len(splits) == 5
    for split in splits:
        half = len(split.test) // 2
        left_out = np.unique(centers[split.test[half:]])
        assert len(left_out) == 1
        assert left_out[0] not in centers[split.train]
        assert not set(split.test) & set(split.train)


def test_risk_area():
    error = np.array([0.0, 1.0, 2.0, 3.0])
    assert risk_area(error, error) == pytest.approx((0 + 0.5 + 1 + 1.5) / 4 / 1.5)
    assert risk_area(-error, error) > 1 > risk_area(error, error)


@pytest.mark.slow
def test_baselines_cover_and_are_uncertain_far_away(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=400)
    far = np.concatenate([X, np.full((40, 1), 6.0)])
    [split] = shuffled_splits(400, trials=1, random_state=0)
    tested = type(split)(split.train, np.concatenate([split.test, np.arange(400, 440)]))
    settings = StudySettings(
        loss="mse", hidden_layers=(20, 20), members=1, trials=1, batch_size=50, epochs=150,
        learning_rate=0.01,
    )  # fmt: skip
    for baseline in (mc_dropout, quantiles_with_certificates):
        [found] = baseline(far, np.concatenate([y, np.zeros(40)]), [tested], settings)
        inside = slice(0, 40)
        target = y[split.test]
        covered = (found.prediction.lower[inside] <= target) & (
            target <= found.prediction.upper[inside]
        )
        assert 0.8 <= covered.mean() <= 1
        assert np.mean((found.prediction.point[inside] - target) ** 2) < 0.05
        assert np.median(found.epistemic[40:]) > np.max(found.epistemic[inside])
