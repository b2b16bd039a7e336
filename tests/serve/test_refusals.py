"""Whatever is wrong with a request, it gets a 4xx of one shape, and nothing leaks."""

import gzip
import io
import json
import threading
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from calipers.serve import ServerSettings, create_app
from calipers.serve._bodies import ARROW_FILE, ARROW_STREAM, CSV, JSON
from calipers.serve._guard import Account, Guard

PREDICT = "/v1/models/plain/predict"
TOKEN = "0123456789abcdef0123456789abcdef"
ROWS = [{"speed": 0.5, "load": -1.0}, {"speed": -1.5, "load": 1.0}]
FRAME = pd.DataFrame([*ROWS, {"speed": 9.0, "load": 0.0}])


def problem(response, status, *words):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert set(found) == {"title", "status", "detail"}
    assert found["status"] == status
    for word in words:
        assert word in found["detail"]
    assert "Traceback" not in response.text
    return found["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ["not JSON"]),
        (b"{", ["not JSON"]),
        (b"\xff\xfe", ["not JSON"]),
        (b"[]", ["the body"]),
        (b"{}", ["rows", "required"]),
        (b'{"rows": []}', ["rows", "at least 1"]),
        (b'{"rows": 3}', ["rows"]),
        (b'{"rows": [{}]}', ["lacks the columns 'speed', 'load'"]),
        (b'{"rows": [{"sped": 1, "load": 1}]}', ["'speed' (did you mean 'sped'?)"]),
        (b'{"rows": [{"speed": 1, "load": 1}, {"speed": 1}]}', ["'load', row 1"]),
        (b'{"rows": [[1]]}', ["row 0", "2 inputs: speed, load"]),
        (b'{"rows": [[1, 2], {"speed": 1}]}', ["rows[1]"]),
        (b'{"rows": [[1, "x"]]}', ["column 'load', row 0 (from 0): 'x' is not a number"]),
        (b'{"rows": [[1, null]]}', ["column 'load', row 0 (from 0): the number is missing"]),
        (b'{"rows": [[1, NaN]]}', ["rows[0][1]", "finite"]),
        (b'{"rows": [[1, 1e999]]}', ["rows[0][1]", "finite"]),
        (b'{"rows": [[1, [2]]]}', ["rows[0][1]"]),
        (b'{"rows": [[1, 2]], "coverage": 1}', ["coverage", "less than 1"]),
        (b'{"rows": [[1, 2]], "coverage": [0.5, 0]}', ["coverage[1]", "greater than 0"]),
        (b'{"rows": [[1, 2]], "coverage": [%s]}' % b",".join([b"0.5"] * 33), ["at most 32 items"]),
        (b'{"rows": [[1, 2]], "coverage": "x"}', ["coverage", "valid number"]),
        (b'{"rows": [[1, 2]], "quantiles": [2]}', ["quantiles[0]", "less than 1"]),
        (b'{"rows": [[1, 2]], "density": 1e9}', ["density"]),
        (b'{"rows": [[1, 2]], "covrage": 0.5}', ["covrage", "not permitted"]),
        (b'{"rows":' + b"[" * 100_000, ["not JSON"]),
    ],
)
def test_json(client, body, words):
    response = client.post(PREDICT, content=body, headers={"Content-Type": JSON})
    problem(response, 422, *words)


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (b"", CSV, 422, ["the file is empty"]),
        (b"speed,load\n", CSV, 422, ["no rows"]),
        (b"speed\n1\n", CSV, 422, ["lacks the column 'load'"]),
        (b"speed,load\n1,2,3\n", CSV, 422, ["3 values"]),
        (b"speed,load\n1,many\n", CSV, 422, ["column 'load', row 0 (from 0): 'many'"]),
        (b"speed,load,load\n1,2,3\n", CSV, 422, ["more than one column 'load'"]),
        (gzip.compress(b"speed,load\n1,2\n", mtime=0), CSV, 422, ["0x8b"]),
        (b"\x00" * 50, CSV, 422, ["NUL"]),
        (b"nothing", ARROW_STREAM, 422, ["not Arrow"]),
        (b"ARROW1", ARROW_FILE, 422, ["not Arrow"]),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", ARROW_STREAM, 422, ["not Arrow"]),
    ],
)
def test_tables(client, content, kind, status, words):
    problem(client.table(content, kind), status, *words)


def test_the_query_string_of_a_table_has_the_limits_of_json(client):
    response = client.table(b"speed,load\n1,2\n", CSV, coverage=[0.5] * 33)
    problem(response, 422, "coverage", "at most 32 items")


def test_arrow(client, arrow):
    problem(client.table(arrow(FRAME)[:-200], ARROW_STREAM), 422, "not Arrow")
    nested = FRAME.assign(load=[[1], [2], [3]])
    problem(client.table(arrow(nested), ARROW_STREAM), 422, "nested", "'load'")
    words = FRAME.assign(load=pd.Categorical(["a", "b", "a"]))
    problem(client.table(arrow(words), ARROW_STREAM), 422, "'a' is not a number")
    for frame, compression in ((FRAME, "zstd"), (words, "lz4"), (words[["load"]], "zstd")):
        body = arrow(frame, compression=compression)
        problem(client.table(body, ARROW_STREAM), 415, "compressed")


@pytest.mark.parametrize("kind", ["timestamp[s]", "timestamp[us, tz=Europe/Berlin]", "date32[day]"])
@pytest.mark.parametrize("name", ["sold", "note"])
def test_times_beyond_the_calendar(client, tables, name, kind):
    unit, _, zone = kind.removeprefix("timestamp[").rstrip("]").partition(", tz=")
    wanted = pa.date32() if kind == "date32[day]" else pa.timestamp(unit, zone or None)
    far = pa.array([2**31 - 1 if wanted == pa.date32() else 2**62], wanted)
    table = pa.table({**dict(served_row(tables["homes"])), name: far})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for accept in (CSV, JSON, ARROW_STREAM):
        response = client.table(sink.getvalue(), ARROW_STREAM, "homes", accept, keep=True)
        assert response.status_code in (200, 422), response.text
    if name == "sold":
        problem(response, 422, "column 'sold', row 0", "is not in the years 1 to 9999")


def served_row(table):
    """The first row of a table: columns and lists of one value."""
    return pa.Table.from_pandas(table.iloc[:1], preserve_index=False).to_pydict().items()


def test_columns_of_one_name(client):
    numbers = pa.array([1.0, 2.0])
    table = pa.Table.from_arrays([numbers] * 3, names=["speed", "load", "load"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for keep in (True, False):
        response = client.table(sink.getvalue(), ARROW_STREAM, keep=keep)
        problem(response, 422, "more than one column 'load'")


@pytest.mark.parametrize("y", [True, [1.0, False], "1.5", [[1]], {}, None, "NaN", 1e400, ["1"]])
def test_labels_are_numbers(client, y):
    key = client.predict(rows=ROWS).json()["id"]
    body = json.dumps({"labels": [{"id": key, "y": y}]}).encode()
    response = client.post("/v1/models/plain/labels", content=body, headers={"Content-Type": JSON})
    problem(response, 422, "labels[0].y")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (3, "1 to 10,000"),
        ([], "1 to 10,000"),
        ([{"id": "a", "y": 1}] * 10_001, "1 to 10,000"),
        ([{"id": "a"}], "labels[0]"),
        ([{"id": "a", "y": 1, "z": 1}], "labels[0]"),
        ([{"id": "a", "y": 1}, {"id": 1, "y": 1}], "labels[1].id"),
        ([{"id": "a" * 65, "y": 1}], "64 characters"),
    ],
)
def test_labels(client, labels, words):
    problem(client.post("/v1/models/plain/labels", json={"labels": labels}), 422, words)


def test_a_value_is_not_quoted_at_any_length(client):
    response = client.predict(rows=[["a" * 10**6, 1]])
    assert len(problem(response, 422, "column 'speed', row 0")) < 3_000


def test_damaged_arrow_never_breaks_the_server(client, arrow):
    whole = bytearray(arrow(pd.concat([FRAME] * 5, ignore_index=True)))
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(damaged), 4):
            damaged[place] = rng.integers(0, 256)
        assert client.table(bytes(damaged), ARROW_STREAM).status_code in (200, 413, 415, 422)


def test_content_types_and_encodings(client):
    problem(client.post(PREDICT, content=b"{}"), 415, "Content-Type", "text/csv")
    problem(client.post(PREDICT, content=b"x", headers={"Content-Type": "text/plain"}), 415)
    headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
    problem(client.post(PREDICT, content=gzip.compress(b"{}"), headers=headers), 415, "compressed")
    problem(client.table(b"speed,load\n1,2\n", CSV, accept="image/png"), 406, "image/png")
    response = client.post(PREDICT, params={"keep": "true"}, json={"rows": ROWS})
    problem(response, 422, "goes into the body")
    problem(client.table(b"speed,load\n1,2\n", CSV, coverage=2), 422, "coverage")


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/models/none", "/v1/models/..%2F..%2Fetc/predict"]
)
def test_addresses_that_are_none(client, path):
    problem(client.get(path) if "predict" not in path else client.post(path), 404)
    problem(client.delete("/v1/models"), 405)


@pytest.mark.parametrize(
    "path",
    [
        "/page/..%2f_app.py",
        "/page/%2e%2e/_app.py",
        "/page/....//....//etc/passwd",
        "/page//etc/passwd",
        "/page/",
        "/page/page.css%00",
        "/v1/models/%2e%2e",
        "/model.json",
    ],
)
def test_no_file_can_be_reached(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert "import" not in response.text
    assert "root:" not in response.text


def test_limits(make_client, arrow):
    client = make_client(max_body=2000, max_rows=5, max_columns=4, max_numbers=40)
    problem(client.predict(rows=[[1, 2]] * 6), 413, "5 rows")
    problem(client.table(b"speed,load\n" + b"1,2\n" * 6, CSV), 413, "5 rows")
    problem(client.table(arrow(FRAME.loc[[0] * 6]), ARROW_STREAM), 413, "5 rows")
    problem(
        client.predict(rows=[{"speed": 1, "load": 1, "a": 1, "b": 1, "c": 1}]), 413, "4 columns"
    )
    problem(client.table(b"speed,load,a,b,c\n1,2,3,4,5\n", CSV), 413, "4 columns")
    wide = arrow(FRAME.assign(a=1, b=1, c=1).iloc[:1])
    problem(client.table(wide, ARROW_STREAM), 413, "4 columns")
    problem(client.predict(rows=[[1, 2]], density=30), 413, "40 numbers")
    problem(client.predict(rows=[[1, 2]], quantiles=[0.5] * 129), 422, "at most 128")
    problem(client.post(PREDICT, content=b" " * 2001, headers={"Content-Type": JSON}), 413, "2,000")


def test_a_body_without_a_length_is_cut_off(make_client):
    client = make_client(max_body=1000)
    sent = 0

    def chunks():
        nonlocal sent
        for _ in range(1000):
            sent += 100
            yield b" " * 100

    response = client.post(PREDICT, content=chunks(), headers={"Content-Type": JSON})
    problem(response, 413, "1,000 bytes")


def test_a_slow_answer_is_given_up(make_client, monkeypatch):
    client = make_client(timeout=0.2)
    given_up = threading.Event()
    monkeypatch.setattr(
        _service(client)._batchers["plain"],
        "_work",
        lambda pieces: [given_up.wait(60)] * len(pieces),
    )
    problem(client.predict(rows=ROWS), 503, "0.2 s", "fewer rows")
    given_up.set()


def _service(client):
    """The service behind a client, through the closure of one of its routes."""
    route = next(r for r in client.app.routes if getattr(r, "path", "") == "/ready")
    cells = dict(zip(route.endpoint.__code__.co_freevars, route.endpoint.__closure__, strict=True))
    return cells["service"].cell_contents


@contextmanager
def _held(client, hold):
    """The memory that another request holds in the meantime."""
    guard = client.app.middleware_stack
    while not isinstance(guard, Guard):
        guard = guard.app
    account = Account(guard._budget)
    hold(account)
    yield
    account.close()


def test_labels_of_too_many_rows(make_client):
    client = make_client()
    key = client.predict(rows=[[1.0, 2.0]] * 10_001).json()["id"]
    problem(client.label({"id": key, "y": [1.0] * 10_001}), 413, "10,000 rows", "null")
    assert client.label({"id": key, "y": [1.0] + [None] * 10_000}).json()["counted"] == 1


def test_too_many_requests(make_client):
    client = make_client(max_requests=1)
    with _held(client, lambda account: account.admit()):
        response = client.predict(rows=ROWS)
        problem(response, 429, "try again")
        assert response.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
    assert client.predict(rows=ROWS).status_code == 200


def test_too_much_at_a_time(make_client):
    client = make_client(max_memory=10_000)
    with _held(client, lambda account: account.reserve(9_000)):
        response = client.predict(rows=ROWS)
        problem(response, 503, "10,000 bytes", "try again")
        assert response.headers["retry-after"] == "1"
        for path in ("/health", "/v1/models"):
            assert client.get(path).status_code == 200
        assert "calipers_memory_reserved_bytes 9000.0" in client.get("/metrics").text
    assert client.predict(rows=ROWS).status_code == 200
    problem(client.predict(rows=ROWS * 100), 413, "10,000 bytes", "fewer rows")
    assert "calipers_memory_reserved_bytes 0.0" in client.get("/metrics").text


def test_internal_errors_leak_nothing(make_client, monkeypatch, caplog):
    client = make_client()

    def broken(*_):
        raise RuntimeError("secret path /srv/key")

    monkeypatch.setattr(_service(client)._batchers["plain"], "_work", broken)
    detail = problem(client.predict(rows=ROWS), 500, "its log")
    assert "secret" not in detail
    assert "secret path" in caplog.text


def test_a_server_without_memory_asks_to_try_again(make_client, monkeypatch):
    client = make_client()

    def full(*_):
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(_service(client)._batchers["plain"], "_work", full)
    response = client.post(PREDICT, json={"rows": ROWS})
    problem(response, 503, "no memory left")
    assert response.headers["retry-after"] == "1"


def test_token(make_client):
    client = make_client(token=TOKEN)
    for path in ("/", "/page/page.js", "/health"):
        assert client.get(path).status_code == 200
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nothing"):
        response = client.get(path)
        problem(response, 401, "Authorization: Bearer TOKEN")
        assert response.headers["www-authenticate"].startswith("Bearer")
        wrong = [f"Bearer {TOKEN}x", "Bearer", "Basic " + TOKEN, TOKEN, "Bearer \xff"]
        for header in wrong:
            sent = {"Authorization": header.encode("latin-1")}
            assert client.get(path, headers=sent).status_code == 401
    assert client.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    document = client.get("/openapi.json", headers={"Authorization": f"bearer {TOKEN}"}).json()
    assert document["paths"]["/v1/models"]["get"]["security"] == [{"token": []}]
    assert TOKEN not in json.dumps(document)


def test_other_names_of_the_host(make_client):
    client = make_client(allowed_hosts=("localhost", "[::1]"))
    assert client.get("/health").status_code == 200
    assert client.get("/health", headers={"Host": "[::1]:8000"}).status_code == 200
    problem(client.get("/health", headers={"Host": "evil.example"}), 421, "evil.example")


def test_headers(client):
    for path in ("/", "/v1/models", "/nothing", "/metrics"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")
        assert "server" not in headers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token": "short"}, "at least 16"),
        ({"token": "with a space in the middle"}, "letters, digits"),
        ({"max_rows": 0}, "max_rows must be positive"),
        ({"remember": -1}, "remember must not be negative"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        ServerSettings(**settings)


def test_model_folders(folder, tmp_path):
    with pytest.raises(ValueError, match="two models are called 'plain'"):
        create_app([folder / "plain", folder / "plain"])
    app = create_app([folder / "plain", f"other={folder / 'plain'}"])
    assert app is not None
    with pytest.raises(ValueError, match="cannot be part of a URL"):
        create_app([f"a/b={folder / 'plain'}"])
    with pytest.raises(ValueError, match="no model to serve"):
        create_app([])
    with pytest.raises(ValueError, match=r"model\.json"):
        create_app([tmp_path])
    linked = tmp_path / "linked"
    linked.mkdir()
    for file in (folder / "plain").iterdir():
        (linked / file.name).symlink_to(file)
    with pytest.raises(ValueError, match="is a link"):
        create_app([linked])
