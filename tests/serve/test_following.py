"""Learning from labels: the alarm on every server, intervals and the folder with ``adapt``."""

import shutil

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.objectives import Density
from calipers.serve._monitor import Ring

from .conftest import SMALL, plain_table
from .test_monitor import metrics


def stream(client, rounds, up):
    """Predict and label some rows, each label ``up`` above the value expected from training."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(rounds):
        rows = [{"speed": x, "load": 0.0} for x in rng.uniform(-2, 2, 10)]
        found = client.predict(rows=rows).json()
        y = [row["speed"] ** 2 + up for row in rows]
        ends = [row["intervals"][0] for row in found["predictions"]]
        inside += [end["lower"] <= v <= end["upper"] for end, v in zip(ends, y, strict=True)]
        assert client.label({"id": found["id"], "y": y}).json()["counted"] == 10
    return np.mean(inside[-100:])


def test_an_alarm_in_metrics_and_on_the_page(make_client):
    client = make_client()
    assert client.get("/v1/models/plain").json()["alarm"] is None
    stream(client, 15, up=8.0)
    assert metrics(client)["calipers_alarm"] == 1.0
    assert metrics(client)["calipers_alarm_log10_evidence"] > 2.0
    found = client.get("/v1/models/plain").json()
    assert found["alarm"]
    assert not found["adapted"]
    assert 'id="drift"' in client.get("/").text


def test_intervals_do_not_follow_labels_by_default(make_client):
    assert stream(make_client(), 20, up=8.0) < 0.1


def test_intervals_follow_and_the_folder_keeps_it(make_client, folder, tmp_path):
    own = tmp_path / "plain"
    shutil.copytree(folder / "plain", own)
    client = make_client(str(own), adapt=True)
    assert stream(client, 20, up=8.0) > 0.8
    again = IntervalRegressor.load(own)
    assert int(again.ensemble_.calibrations[-1].levels.rows) == 200
    assert client.get("/v1/models/plain").json()["adapted"]
    restarted = make_client(str(own), adapt=True)
    row = [{"speed": 0.0, "load": 0.0}]
    before = IntervalRegressor.load(folder / "plain").predict(pd.DataFrame(row))[0]
    after = restarted.predict(rows=row).json()["predictions"][0]["point"]
    assert after - before == pytest.approx(8, abs=1.5)


@pytest.mark.long
@pytest.mark.parametrize(("size", "late", "margin"), [(50, 0, 0.1), (25, 2, 0.08)])
def test_coverage_is_that_of_answers_as_they_were_made(
    make_client, folder, tmp_path, size, late, margin
):
    """Labels of a few rows at a time, whose level drifts by more than the width of an interval.

    They come at once, or after the next two requests.
    """
    own = tmp_path / "plain"
    shutil.copytree(folder / "plain", own)
    client, rng, inside = make_client(str(own), adapt=True), np.random.default_rng(1), []
    up, waiting = 0.0, []
    for _ in range(1000 // size):
        rows = [{"speed": x, "load": 0.0} for x in rng.uniform(-2, 2, size)]
        found, y = client.predict(rows=rows, coverage=0.9).json(), []
        for row in rows:
            up = 0.98 * up + 0.4 * rng.normal()
            y.append(row["speed"] ** 2 + up)
        ends = [row["intervals"][0] for row in found["predictions"]]
        inside += [end["lower"] <= v <= end["upper"] for end, v in zip(ends, y, strict=True)]
        waiting.append({"id": found["id"], "y": y})
        if len(waiting) > late:
            assert client.label(waiting.pop(0)).json()["counted"] == size
    assert np.mean(inside[-600:]) == pytest.approx(0.9, abs=margin)


def test_bounds_alone_and_points_alone_do_not_learn(make_client):
    client = make_client("bounds")
    found = client.predict(model="bounds", rows=[{"speed": 0.0, "load": 0.0}]).json()
    assert client.label({"id": found["id"], "y": 1.0}, model="bounds").json()["counted"] == 1
    assert client.get("/v1/models/bounds").json()["alarm"] is None


def test_inputs_are_kept_as_far_as_there_is_room(monkeypatch):
    monkeypatch.setattr("calipers.serve._monitor._MAX_NUMBERS", 6)
    ring = Ring(10)
    X = np.arange(10.0).reshape(5, 2)
    places = ring.find(ring.put(np.zeros(5), np.ones(5), X))
    there, inputs = ring.inputs(places)
    assert there.tolist() == [False, False, True, True, True]
    np.testing.assert_array_equal(inputs, X[2:])


def test_what_cannot_be_saved_is_reported_and_saved_later(make_client, folder, tmp_path):
    own = tmp_path / "plain"
    shutil.copytree(folder / "plain", own)
    client = make_client(str(own), adapt=True)
    posted = {"id": client.predict(rows=[[1.0, 2.0]]).json()["id"], "y": 1.0}
    aside = own.rename(tmp_path / "aside")
    own.write_text("a file is in the way")
    response = client.label(posted)
    assert response.status_code == 503
    assert "could not be saved" in response.json()["detail"]
    assert client.predict(rows=[[1.0, 2.0]]).status_code == 200
    own.unlink()
    aside.rename(own)
    response = client.label(posted)
    assert (response.status_code, response.json()["repeated"]) == (200, 1)
    assert int(IntervalRegressor.load(own).ensemble_.calibrations[-1].levels.rows) == 1


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    """Models that do not accept every label: on a logarithmic scale, and with bounds."""
    root = tmp_path_factory.mktemp("awkward")
    X, y = plain_table()
    settings = SMALL | {"epochs": 2}
    log = Density(components=1, scale="log")
    IntervalRegressor(loss=log, **settings).fit(X, np.exp(y)).save(root / "log")
    IntervalRegressor(bounds=(0, None), **settings).fit(X, y.clip(0)).save(root / "bounded")
    return root


def test_labels_of_a_model_on_another_scale(make_client, awkward):
    client = make_client(str(awkward / "log"), adapt=True)
    made = client.predict("log", rows=[[1.0, 2.0]]).json()["id"]
    refused = client.label({"id": made, "y": -2.0}, model="log")
    assert refused.status_code == 422
    assert "positive" in refused.json()["detail"]
    response = client.label({"id": made, "y": 2.0}, model="log")
    assert (response.status_code, response.json()["counted"]) == (200, 1)
    assert client.get("/v1/models/log").json()["alarm"] is False


def test_a_label_beyond_the_bounds_is_refused(make_client, awkward):
    client = make_client(str(awkward / "bounded"))
    made = client.predict("bounded", rows=[[1.0, 2.0]] * 2).json()["id"]
    response = client.label({"id": made, "y": [None, -1.0]}, model="bounded")
    assert response.status_code == 422
    assert "below 0" in response.json()["detail"]
    response = client.label({"id": made, "y": [None, 1.0]}, model="bounded")
    assert (response.status_code, response.json()["counted"]) == (200, 1)


def test_each_row_of_a_joined_answer_keeps_its_version():
    from calipers.prediction import Prediction
    from calipers.serve._served import ServedPrediction, join

    parts = [
        ServedPrediction(
            Prediction(np.zeros(n), np.empty(0), np.empty(0)),
            np.zeros((n, 1), bool),
            None,
            None,
            version,
        )
        for n, version in ((2, 0), (3, 4))
    ]
    assert join(parts).version.tolist() == [0, 0, 4, 4, 4]
    assert join(parts)[1:3].version.tolist() == [0, 4]
