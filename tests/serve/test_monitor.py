"""Metrics for Prometheus, and how labels are counted."""

import numpy as np
import pandas as pd
import pytest
from prometheus_client.parser import text_string_to_metric_families

from calipers.serve._monitor import Ring, Watch

ROWS = [{"speed": 0.5, "load": -1.0}, {"speed": -1.5, "load": 1.0}, {"speed": 9.0, "load": 0.0}]


def metrics(client, model="plain"):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("model") == model and "le" not in sample.labels
    }


def test_rows_widths_and_what_is_outside(make_client, served):
    client = make_client(window=3)
    before = metrics(client)
    assert before["calipers_rows_total"] == 0
    assert np.isnan(before["calipers_interval_width"])
    client.predict(rows=ROWS)
    client.predict(rows=ROWS[2:], coverage=0.5)  # widths are those of the model's own coverage
    client.predict(rows=ROWS * 50, record=False)
    found = metrics(client)
    assert found["calipers_rows_total"] == 4
    assert found["calipers_rows_outside_total"] == 2
    assert found["calipers_outside_share"] == pytest.approx(2 / 3)
    bounds = served["plain"].predict_interval(pd.DataFrame(ROWS).iloc[[1, 2, 2]])
    assert found["calipers_interval_width"] == pytest.approx(np.mean(bounds[:, 1] - bounds[:, 0]))
    assert found["calipers_coverage_nominal"] == 0.95
    text = client.get("/metrics").text
    counted = 'calipers_requests_total{route="/v1/models/{model}/predict",status="200"} 3.0'
    assert counted in text
    assert "process_resident_memory_bytes" in text


def test_labels_count_once_and_show_a_drop_of_coverage(make_client):
    client = make_client(window=10)
    first = client.predict(rows=ROWS).json()
    middle = [row["point"] for row in first["predictions"]]
    key = first["id"]
    assert client.label({"id": key, "y": [middle[0], None, 1e6]}).json() == {
        "counted": 2,
        "repeated": 0,
        "unknown": [],
    }
    again = client.label({"id": key, "y": middle}, {"id": "AAAA", "y": 1.0}).json()
    assert again == {"counted": 1, "repeated": 2, "unknown": ["AAAA"]}
    found = metrics(client)
    assert (found["calipers_labels_total"], found["calipers_labels_covered_total"]) == (3, 2)
    assert found["calipers_coverage"] == pytest.approx(2 / 3)
    assert found["calipers_coverage_rows"] == 3
    for _ in range(10):  # the world has changed
        key = client.predict(rows=ROWS[:1]).json()["id"]
        client.label({"id": key, "y": 1e6})
    assert metrics(client)["calipers_coverage"] == 0


def test_tables_have_an_id_too(make_client):
    client = make_client()
    headers = {"Content-Type": "text/csv"}
    response = client.post("/v1/models/plain/predict", content="speed,load\n1,2\n", headers=headers)
    key = response.headers["calipers-prediction-id"]
    assert client.label({"id": key, "y": [0.5]}).json()["counted"] == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"labels": []}, 422),
        ({"labels": [{"id": "x"}]}, 422),
        ({"labels": [{"id": "x" * 100, "y": 1}]}, 422),
        ({"labels": [{"id": "x", "y": "NaN"}]}, 422),
        ({"labels": [{"id": "é", "y": 1}]}, 200),
    ],
)
def test_labels_that_are_wrong(client, body, status):
    assert client.post("/v1/models/plain/labels", json=body).status_code == status


def test_labels_must_fit_the_rows(make_client):
    client = make_client("plain", "bounds")
    key = client.predict(rows=ROWS).json()["id"]
    response = client.label({"id": key, "y": [1.0]})
    assert response.status_code == 422
    assert "has 3 rows, got 1 labels" in response.json()["detail"]
    assert client.label({"id": key, "y": [1.0] * 3}, model="bounds").json()["unknown"] == [key]
    assert client.post("/v1/models/none/labels", json={}).status_code == 404


def test_what_is_remembered_is_bounded(make_client):
    client = make_client(remember=4)
    first = client.predict(rows=ROWS).json()["id"]
    second = client.predict(rows=ROWS).json()["id"]
    assert client.label({"id": first, "y": [0.0] * 3}).json()["unknown"] == [first]
    assert client.label({"id": second, "y": [0.0] * 3}).json()["counted"] == 3
    assert client.predict(rows=ROWS * 2).json()["id"] is None
    assert client.predict(rows=ROWS, record=False).json()["id"] is None


def test_ids_cannot_be_made_up():
    ring, other = Ring(10), Ring(10)
    key = ring.put(np.zeros(2), np.ones(2))
    assert ring.find(key).tolist() == [0, 1]
    assert other.find(key) is None
    for place in range(len(key)):
        forged = key[:place] + ("B" if key[place] == "A" else "A") + key[place + 1 :]
        assert ring.find(forged) is None


def test_rolling_forgets():
    watch = Watch(4, 0)
    assert np.isnan(watch.rolling("interval_width"))
    watch.width.extend(range(10))
    assert watch.rolling("interval_width") == 7.5
    watch.covered.extend(range(100))
    assert (watch.rolling("coverage"), watch.rolling("coverage_rows")) == (97.5, 4)
