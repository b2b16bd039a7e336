"""Predictions over HTTP are those of the model."""

import io
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from numpy.testing import assert_allclose

from calipers.calibration import infinite_reason
from calipers.serve._bodies import ARROW_FILE, ARROW_STREAM, CSV, JSON
from calipers.serve._problems import HTTPProblem
from calipers.serve._responses import negotiate

ROWS = [{"speed": 0.5, "load": -1.0}, {"speed": -1.5, "load": 1.0}, {"speed": 9.0, "load": 0.0}]
FRAME = pd.DataFrame(ROWS)


def test_points_intervals_and_what_is_outside(client, served):
    response = client.predict(rows=ROWS)
    assert response.status_code == 200
    found = response.json()
    assert found["model"] == "plain"
    predictions = found["predictions"]
    model = served["plain"]
    assert_allclose([row["point"] for row in predictions], model.predict(FRAME), rtol=1e-12)
    bounds = [[row["intervals"][0][side] for side in ("lower", "upper")] for row in predictions]
    assert_allclose(bounds, model.predict_interval(FRAME), rtol=1e-12)
    assert [row["outside"] for row in predictions] == [[], [], ["speed"]]
    assert predictions[0]["intervals"][0]["coverage"] == 0.95
    assert set(predictions[0]) == {"point", "intervals", "outside"}


def test_all_fields_of_a_query(client, served):
    response = client.predict(
        rows=ROWS[:2],
        coverage=[0.5, 0.8],
        quantiles=[0.1, 0.9],
        members=True,
        density=400,
    )
    predictions = response.json()["predictions"]
    model, rows = served["plain"], FRAME.iloc[:2]
    bounds = [[[i["lower"], i["upper"]] for i in row["intervals"]] for row in predictions]
    expected = model.predict_interval(rows, coverage=[0.5, 0.8])
    assert_allclose(np.swapaxes(bounds, 1, 2), expected, rtol=1e-12)
    levels = [[q["value"] for q in row["quantiles"]] for row in predictions]
    assert_allclose(levels, model.predict_quantiles(rows, [0.1, 0.9]), rtol=1e-12)
    parts = model.predict_dist(rows).mixture.components
    for name in ("loc", "left_scale", "right_scale"):
        found = [[member[name] for member in row["members"]] for row in predictions]
        assert_allclose(np.transpose(found), getattr(parts, name), rtol=1e-12)
    x, y = np.array(predictions[0]["density"]["x"]), np.array(predictions[0]["density"]["y"])
    assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1, abs=0.005)


def test_the_former_name_of_members(client):
    body = client.predict(rows=ROWS, record=False, members=True).json()
    assert client.predict(rows=ROWS, record=False, parameters=True).json() == body
    table = FRAME.to_csv(index=False).encode()
    names = ("members", "parameters")
    found, by_former_name = (client.table(table, CSV, **{name: True}).text for name in names)
    assert "loc_0" in found
    assert by_former_name == found


def test_infinite_intervals_say_why(make_client, served):
    """Ten groups of rows support less coverage than as many rows as they have together."""
    client, calibration = make_client("grouped"), served["grouped"].ensemble_.calibrations[-1]
    found = client.predict("grouped", rows=ROWS, coverage=[0.8, 0.95]).json()
    finite, infinite = found["predictions"][0]["intervals"]
    assert None not in finite.values()
    assert infinite == {"coverage": 0.95, "lower": None, "upper": None}
    assert found["infinite_reason"] == infinite_reason([0.95], calibration)
    assert "120 (effective sample size 10); those of up to 81.8%" in found["infinite_reason"]
    found = client.predict("grouped", rows=ROWS, coverage=0.8).json()
    assert found["infinite_reason"] is None


def test_lists_in_the_order_of_the_inputs(client):
    by_name = client.predict(rows=ROWS, coverage=0.8).json()["predictions"]
    by_place = client.predict(rows=[[0.5, -1], [-1.5, 1], [9, 0]], coverage=0.8).json()[
        "predictions"
    ]
    assert by_name == by_place


def test_a_table_as_it_comes(client, served, tables):
    frame = tables["homes"].iloc[:4]
    rows = [
        {
            "size": row.size_,
            "kind": row.kind,
            "garden": bool(row.garden),
            "built": None if math.isnan(row.built) else row.built,
            "sold": row.sold.date().isoformat(),
            "reference": "not an input",
        }
        for row in frame.rename(columns={"size": "size_"}).itertuples()
    ]
    predictions = client.predict("homes", rows=rows).json()["predictions"]
    assert_allclose(
        [row["point"] for row in predictions], served["homes"].predict(frame), rtol=1e-12
    )
    unseen = {**rows[0], "kind": "castle", "sold": "1999-12-31", "garden": None}
    predictions = client.predict("homes", rows=[unseen]).json()["predictions"]
    assert predictions[0]["outside"] == ["kind", "garden", "sold"]


def test_a_cell_that_cannot_be_read_is_missing_and_marked(client, tables):
    frame = tables["homes"].iloc[:20].astype(object)
    frame.iloc[3, 0] = "huge"
    empty = frame.copy()
    empty.iloc[3, 0] = None
    found, expected = (
        pd.read_csv(io.StringIO(client.table(t.to_csv(index=False).encode(), CSV, "homes").text))
        for t in (frame, empty)
    )
    pd.testing.assert_frame_equal(found, expected)
    assert found["outside"][3] == "size"
    few = client.table(frame.iloc[:9].to_csv(index=False).encode(), CSV, "homes")
    assert few.status_code == 422
    assert "column 'size', row 3 (from 0): 'huge' is not a number" in few.text


@pytest.mark.parametrize("kind", [CSV, ARROW_STREAM, ARROW_FILE])
def test_tables_in_and_out(client, served, tables, arrow, kind):
    frame = tables["homes"].iloc[:5]
    content = arrow(frame, file=kind == ARROW_FILE)
    if kind == CSV:
        content = frame.to_csv(index=False).encode()
    response = client.table(content, kind, "homes", coverage=[0.5, 0.9], quantiles=0.5)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith(kind)
    read = io.BytesIO(response.content)
    readers = {CSV: pd.read_csv, ARROW_FILE: pa.feather.read_feather}
    found = readers.get(kind, lambda raw: pa.ipc.open_stream(raw).read_pandas())(read)
    names = ["prediction", "lower_0.5", "upper_0.5", "lower_0.9", "upper_0.9", "quantile_0.5"]
    assert [*found] == [*names, "outside"]
    assert_allclose(found["prediction"], served["homes"].predict(frame), rtol=1e-12)
    bounds = served["homes"].predict_interval(frame, coverage=[0.9])[:, :, 0]
    assert_allclose(found[["lower_0.9", "upper_0.9"]], bounds, rtol=1e-12)


def test_the_table_may_be_kept_and_the_answer_have_another_format(client, arrow):
    frame = FRAME.assign(prediction="mine", load=[0.0, 1.0, 2.0])
    response = client.table(frame.to_csv(index=False).encode(), CSV, keep=True, members=True)
    found = pd.read_csv(io.StringIO(response.text))
    assert [*found][:4] == ["speed", "load", "prediction", "prediction_predicted"]
    assert {"loc_0", "left_scale_1", "right_scale_1"} <= set(found)
    assert found["outside"].fillna("").tolist() == ["", "", "speed, load"]
    response = client.table(arrow(FRAME), ARROW_STREAM, accept="application/json")
    assert response.json()["predictions"][2]["outside"] == ["speed"]


@pytest.mark.parametrize("kind", [CSV, ARROW_STREAM])
def test_levels_that_are_close_have_names_of_their_own(client, arrow, kind):
    content = FRAME.to_csv(index=False).encode() if kind == CSV else arrow(FRAME)
    query = {"coverage": [0.95, 0.9500001], "quantiles": [0.5, 0.50000001]}
    response = client.table(content, kind, accept=CSV, **query)
    found = pd.read_csv(io.StringIO(response.text))
    names = ["lower_0.95", "upper_0.95", "lower_0.9500001", "upper_0.9500001"]
    assert [*found][1:-1] == [*names, "quantile_0.5", "quantile_0.50000001"]


@pytest.mark.parametrize(
    ("accept", "sent", "wanted"),
    [
        (None, CSV, CSV),
        ("", ARROW_FILE, ARROW_FILE),
        ("*/*", JSON, JSON),
        ("text/csv", JSON, CSV),
        ("text/csv;q=0.1, application/json;q=0.9", CSV, JSON),
        ("application/json;q=0.2, text/csv; Q=0.30", JSON, CSV),
        ("*/*;q=1, text/csv;q=0", CSV, JSON),
        ("text/*;q=0.5, */*;q=0.1", JSON, CSV),
        ("application/*, application/json;q=0.1", JSON, ARROW_STREAM),
        ("application/*, application/json;q=0.1", ARROW_FILE, ARROW_FILE),
        ("text/csv, application/json", JSON, CSV),
        ("image/png, text/csv;charset=utf-8;q=0.001", JSON, CSV),
        ("text/csv;q=nonsense, application/json;q=0.1", CSV, JSON),
        ("TEXT/CSV", JSON, CSV),
    ],
)
def test_negotiation(accept, sent, wanted):
    assert negotiate(accept, sent) == wanted


@pytest.mark.parametrize("accept", ["image/png", "*/*;q=0", "text/csv;q=0", "text/csv;q=2"])
def test_nothing_to_be_had(accept):
    with pytest.raises(HTTPProblem, match="allows none"):
        negotiate(accept, JSON)


def test_models_that_give_less(client):
    predictions = client.predict("bounds", rows=ROWS).json()["predictions"]
    assert predictions[0]["intervals"][0]["lower"] < predictions[0]["intervals"][0]["upper"]
    assert client.predict("bounds", rows=ROWS, coverage=0.95).status_code == 200
    for more in ({"coverage": 0.5}, {"quantiles": [0.5]}, {"members": True}, {"density": 9}):
        response = client.predict("bounds", rows=ROWS, **more)
        assert response.status_code == 422
        assert "bounds for coverage 0.95" in response.json()["detail"]
    assert client.predict("points", rows=ROWS).json()["predictions"][0]["intervals"] == []
    assert client.predict("points", rows=ROWS).json()["id"] is None
    assert "predict points alone" in client.predict("points", rows=ROWS, coverage=0.5).text


def test_an_infinite_bound_is_null(client, served):
    assert np.isinf(served["plain"].predict_interval(FRAME, coverage=0.9999)).all()
    predictions = client.predict(rows=ROWS, coverage=0.9999).json()["predictions"]
    assert predictions[0]["intervals"][0] == {"coverage": 0.9999, "lower": None, "upper": None}


def test_large_requests_are_cut_and_joined(make_client, served, tables):
    X = tables["plain"]
    client = make_client(batch_rows=50)
    response = client.table(X.to_csv(index=False).encode(), CSV)
    found = pd.read_csv(io.StringIO(response.text))
    assert_allclose(found["prediction"], served["plain"].predict(X), rtol=1e-12)
    rows = X.to_dict("records")
    rows[77]["load"] = "heavy"
    response = client.predict(rows=rows)
    assert response.json()["detail"] == "column 'load', row 77 (from 0): 'heavy' is not a number"


def test_models_are_described(client):
    found = client.get("/v1/models").json()
    assert [model["name"] for model in found["models"]] == ["plain", "homes", "bounds", "points"]
    assert found["limits"]["rows"] == 100_000
    homes = client.get("/v1/models/homes").json()
    kinds = {column["name"]: column["kind"] for column in homes["inputs"]}
    assert kinds["sold"] == "date"
    assert kinds["country"] == "constant"
    assert homes["target"]["name"] == "price"
    assert homes["about"]["rows"] == 150
    assert client.get("/v1/models/points").json()["coverage"] is None


def test_examples_of_the_document_are_true(client):
    document = client.get("/openapi.json").json()
    content = document["paths"]["/v1/models/{model}/predict"]["post"]["requestBody"]["content"]
    for name, example in content["application/json"]["examples"].items():
        assert client.predict(name, **example["value"]).status_code == 200
    assert client.table(content[CSV]["example"], CSV).status_code == 200
