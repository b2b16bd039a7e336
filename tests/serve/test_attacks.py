"""A few bytes cannot make the server take memory or time: a process under a limit of addresses."""

import io
import json
import re
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from fastapi.responses import Response

from calipers.serve._bodies import ARROW_STREAM, CSV, JSON
from calipers.serve._problems import problem_of_table
from calipers.serve._responses import kept_bytes, numbers_bytes, outside_bytes
from calipers.tables import TableError, TableLimits
from calipers.tables._ipc import _child, _field, _follow, _text, _vector, read_arrow

MEMORY = 256 * 2**20
SECONDS = 30  # on a machine that others share
LIMITS = TableLimits(body=16 * 2**20, rows=100_000, columns=1_000, cells=4_000_000)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of addresses are Linux's"),
]


@pytest.fixture(scope="module")
def server(start_server):
    """One server for all attacks: what one of them uses up would be missing for the next."""
    made = start_server(max_memory=MEMORY)
    made.post(b'{"rows": [[1, 2]]}', JSON)
    made.post(b"speed,load\n" + b"1,2\n" * 30_000, CSV)  # threads, and all that is loaded late
    made.limit(MEMORY + 256 * 2**20)
    yield made
    assert made.process.poll() is None
    assert made.client.get("/health").status_code == 200
    assert made.post(b'{"rows": [[1, 2]]}', JSON)[0] == 200


MANY = 16 * 2**20 - 100


def many(item, bytes_in_all):
    return b",".join([item] * (bytes_in_all // (len(item) + 1)))


PREDICT = {
    "lists for numbers": (413, lambda: b'{"rows": [[%s]]}' % many(b"[]", 2**20)),
    "rows of lists": (422, lambda: b'{"rows": [%s]}' % many(b"[[],[]]", 700_000)),
    "more of them": (413, lambda: b'{"rows": [[%s]]}' % many(b"[]", MANY)),
    "empty rows": (413, lambda: b'{"rows": [%s]}' % many(b"{}", MANY)),
    "one long row": (413, lambda: b'{"rows": [[%s]]}' % many(b"0", MANY)),
    "no JSON": (422, lambda: b'{"rows": [[%s]]}' % many(b"x", 600_000)),
    "texts for numbers": (422, lambda: b'{"rows": [%s]}' % many(b'["",""]', 700_000)),
    "lists for levels": (
        422,
        lambda: b'{"rows": [[1, 2]], "quantiles": [%s]}' % many(b"[]", 2**20),
    ),
    "unknown fields": (
        422,
        lambda: json.dumps({"rows": [[1, 2]], **dict.fromkeys(map(str, range(200_000)))}).encode(),
    ),
    "unknown columns": (
        413,
        lambda: json.dumps({"rows": [dict.fromkeys(map(str, range(200_000)))]}).encode(),
    ),
    "depth": (413, lambda: b'{"rows": ' + b"[" * MANY),
    "some depth": (422, lambda: b'{"rows": ' + b"[" * 100_000),
    "wide characters": (
        422,
        lambda: b'{"rows": [["%s", 1]]}' % ("\U0001f600".encode() * (MANY // 4)),
    ),
    "a long number": (422, lambda: b'{"rows": [[%s, 1]]}' % (b"9" * 4_000)),
}


@pytest.mark.parametrize("name", PREDICT)
def test_json(server, name):
    status, body = PREDICT[name]
    found, text = server.post(body(), JSON)
    assert found == status, text


LABELS = {
    "lists for labels": lambda: b'{"labels": [%s]}' % many(b"[]", MANY),
    "lists for numbers": lambda: b'{"labels": [{"id": "", "y": [%s]}]}' % many(b"[]", 2**20),
    "objects for numbers": lambda: b'{"labels": [{"id": "", "y": [%s]}]}' % many(b"{}", MANY),
    "booleans": lambda: b'{"labels": [%s]}' % many(b'{"id":"","y":true}', 170_000),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(server, name):
    found, text = server.post(LABELS[name](), JSON, "labels")
    assert found in (413, 422), text


def stream(table, *, metadata=None, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch, custom_metadata=metadata)
    return bytearray(sink.getvalue())


def messages(content):
    """Where the metadata of each message begins, and its bytes."""
    place = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(bytes(content))):
        place += 8
        yield place, message.metadata.to_pybytes()
        place += len(message.metadata) + message.body.size


def experimental(table):
    """Compression as in version V4 of the format: in the custom metadata of a message."""
    content = stream(table, metadata={"ARROW:experimental_compression": "zstd"}, compression="zstd")
    for start, data in messages(content):
        root = _follow(data, 0)
        content[start + _field(data, root, 0)] = 3
        if data[_field(data, root, 1)] == 3:
            batch = _child(data, root, 2)
            layout = batch - struct.unpack_from("<i", data, batch)[0]
            content[start + layout + 4 + 2 * 3] = 0  # no compression, says the batch
    return bytes(content)


def test_compressed_arrow(server):
    zeros = pa.table({"speed": np.zeros(4), "load": np.zeros(4)})
    found = pa.ipc.open_stream(experimental(zeros)).read_all()
    assert found.equals(zeros)  # pyarrow unpacks it
    large = pa.table({f"x{i}": np.zeros(2**22) for i in range(64)})  # 2 GiB
    body = experimental(large)
    assert len(body) < 2**20
    found, text = server.post(body, ARROW_STREAM)
    assert found == 415, text
    assert "V5" in text
    for codec in ("zstd", "lz4"):
        body = bytes(stream(large.slice(0, 2**16), compression=codec))
        assert server.post(body, ARROW_STREAM)[0] == 415


LONG = "a" * 2**20
TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def shared_view():
    """Views that all refer to the bytes of the first."""
    array = pa.array([LONG], pa.string_view())
    _, views, *data = array.buffers()
    if int(pa.__version__.partition(".")[0]) < 19:
        pytest.skip("pyarrow 18 cannot make an array of views from buffers")
    return pa.Array.from_buffers(
        array.type, 2_000, [None, pa.py_buffer(bytes(views) * 2_000), *data]
    )


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("kind", [None, *TEXTS], ids=str)
def test_shared_bytes(server, kind, keep):
    if kind is None:
        column = shared_view()
    else:
        column = pa.DictionaryArray.from_arrays(np.zeros(2_000, np.int8), pa.array([LONG], kind))
    numbers = np.zeros(2_000)
    table = pa.table({"speed": numbers, "load": numbers, "word": column})
    body = bytes(stream(table))
    assert len(body) < 2 * 2**20
    found, text = server.post(body, ARROW_STREAM, keep=keep)
    assert found == 413, text
    assert "expanded" in text


def test_nulls_and_codes_take_little_and_stand_for_much(server):
    rows = 90_000
    wide = {f"n{i}": pa.nulls(rows) for i in range(900)}
    table = pa.table({"speed": np.zeros(rows), "load": np.zeros(rows), **wide})
    assert server.post(bytes(stream(table)), ARROW_STREAM, keep=True)[0] == 413
    table = pa.table({"speed": pa.nulls(2**31 - 1)})
    assert server.post(bytes(stream(table)), ARROW_STREAM)[0] == 413


def test_all_at_once(server):
    """Each is allowed alone: together they stay within the budget, and others are refused."""
    rows = 90_000
    numbers = np.random.default_rng(0).normal(size=(rows, 2))
    text = b"\n".join(b"%f,%f" % tuple(row) for row in numbers)
    wide = {f"x{i}": numbers[:, 0] for i in range(18)}
    table = pa.table({"speed": numbers[:, 0], "load": numbers[:, 1], **wide})
    bodies = [
        (b'{"rows": [[%s]]}' % text.replace(b"\n", b"],["), JSON, {}),
        (b"speed,load\n" + text, CSV, {"keep": True}),
        (bytes(stream(table)), ARROW_STREAM, {"keep": True, "quantiles": [0.1, 0.5, 0.9]}),
        (b'{"rows": [%s]}' % many(b'["a",{}]', 900_000), JSON, {}),
        (b'{"rows": [["%s", 1]]}' % (b"a" * MANY), JSON, {}),
    ]
    with ThreadPoolExecutor(15) as pool:
        asked = [pool.submit(server.post, *body[:2], **body[2]) for body in bodies * 3]
        while not all(one.done() for one in asked):
            assert server.client.get("/health").status_code == 200
    found = {one.result()[0] for one in asked}
    assert found <= {200, 413, 422, 503}
    assert 503 in found
    assert {server.post(*body[:2])[0] for body in bodies[3:]} == {422}  # with nobody else there
    reserved = re.search(r"memory_reserved_bytes (\d.*)", server.client.get("/metrics").text)
    assert float(reserved.group(1)) == 0


def refused(body, *words, limits=LIMITS):
    with pytest.raises(TableError) as caught:
        read_arrow(bytes(body), limits, lambda _: None)
    for word in words:
        assert word in str(caught.value)
    return problem_of_table(caught.value).status


def test_buffers_that_lie_over_one_another():
    content = stream(pa.table({f"x{i}": np.arange(1_000.0) for i in range(50)}))
    read_arrow(bytes(content), LIMITS, lambda _: None)
    for start, data in messages(content):
        root = _follow(data, 0)
        if data[_field(data, root, 1)] == 3:
            buffers = _follow(data, _field(data, _child(data, root, 2), 2)) + 4
            for i in range(100):  # validity and values: all as long as the body
                struct.pack_into("<qq", content, start + buffers + 16 * i, 0, 50 * 8_000)
    assert refused(content, "longer") == 422


def test_a_schema_whose_names_are_one():
    names = [f"x{i}" for i in range(300)]
    _, data = next(messages(stream(pa.table({name: [1.0] for name in names}))))
    places = [_text(data, field, 0)[0] for field in schema_fields(data)]
    names[np.argmax(places)] = "x" * 100_000  # others can only refer to what comes after them
    content = stream(pa.table({name: [1.0] for name in names}))
    start, data = next(messages(content))
    long = max(_text(data, field, 0)[0] for field in schema_fields(data)) - 4
    for field in schema_fields(data):
        place = _field(data, field, 0)
        struct.pack_into("<I", content, start + place, long - place)
    assert pa.ipc.open_stream(bytes(content)).schema.names == ["x" * 100_000] * 300
    assert refused(content, "repeats itself") == 422


def schema_fields(data):
    return list(_vector(data, _child(data, _follow(data, 0), 2), 1))


def test_dictionaries_that_grow():
    def part(words):
        return pa.record_batch({"word": pa.DictionaryArray.from_arrays([0], words)})

    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, part(["a"]).schema, options=options) as writer:
        writer.write_batch(part(["a"]))
        writer.write_batch(part(["a", "b"]))
    assert refused(sink.getvalue(), "deltas") == 415


def test_a_file_is_read_by_its_messages_and_not_by_its_footer():
    """A footer could point at messages that no check has seen."""

    def written(table, **options):
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(**options)
        with pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return sink.getvalue()

    small = pa.table({"speed": [1.0], "load": [2.0]})
    hidden = pa.table({"speed": np.zeros(2**20), "load": np.zeros(2**20)})
    hidden = hidden.replace_schema_metadata({"room": "x" * 4_096})  # a long first message
    plain, forged = written(small), written(hidden, compression="zstd")
    messages = plain[: plain.index(b"\xff\xff\xff\xff\0\0\0\0") + 8]
    forged = messages + forged[len(messages) :]
    assert pa.ipc.open_file(forged).read_all().num_rows == 2**20  # pyarrow follows the footer
    assert read_arrow(plain, LIMITS, lambda _: None).to_pydict() == small.to_pydict()
    assert read_arrow(forged, LIMITS, lambda _: None).to_pydict() == small.to_pydict()


def test_a_long_dictionary_over_many_batches():
    words = pa.array([f"{i:08d}" for i in range(400_000)])
    batch = pa.record_batch({"word": pa.DictionaryArray.from_arrays(pa.array([0]), words)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(1_000):
            writer.write_batch(batch)
    began = time.monotonic()
    assert refused(sink.getvalue(), "batches") == 413
    assert time.monotonic() - began < SECONDS
    one = pa.record_batch({"x": [1.0]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, one.schema) as writer:
        for _ in range(1_100):
            writer.write_batch(one)
    assert refused(sink.getvalue(), "1,024 batches") == 413


def test_what_is_shared_a_little_is_read():
    words = pa.array(["b", None, "a"] * 10)
    table = pa.table(
        {
            "word": words.dictionary_encode(),
            "view": pa.array(words.to_pylist(), pa.string_view()),
            "both": pa.DictionaryArray.from_arrays(
                pa.array([0, 1, 0] * 10), pa.array(["a", "b"], pa.string_view())
            ),
            "number": pa.array([1.5, None, 1.5] * 10).dictionary_encode(),
            "none": pa.nulls(30),
            "day": pa.array([1, 2, 3] * 10, pa.date32()),
        }
    )
    found = read_arrow(bytes(stream(table)), LIMITS, lambda _: None)
    assert found.to_pydict() == table.to_pydict()
    two = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    assert read_arrow(bytes(stream(two)), LIMITS, lambda _: None).to_pydict() == table.to_pydict()


@pytest.mark.parametrize("accept", [JSON, CSV, ARROW_STREAM])
@pytest.mark.parametrize("more", [{}, {"quantiles": [1 / 3, 2 / 3]}, {"members": True}])
def test_answers_are_no_longer_than_estimated(client, tables, accept, more):
    """Every row names every input that is outside: bytes that no limit of numbers counts."""
    frame = tables["homes"].assign(size=1e-300 / 3, kind="\x01castle, \U0001f600", built=1e300 / 3)
    body = pa.Table.from_pandas(frame, preserve_index=False)
    response = client.table(
        bytes(stream(body)), ARROW_STREAM, "homes", accept, keep=accept != JSON, **more
    )
    assert response.status_code == 200, response.text
    members, levels = 2, len(more.get("quantiles", ()))
    numbers = len(frame) * (3 + levels + 3 * members * ("members" in more))
    outside = np.tile([c in ("size", "kind", "built") for c in frame], (len(frame), 1))
    served = SimpleNamespace(
        model=SimpleNamespace(inputs_=[SimpleNamespace(name=c) for c in frame])
    )
    most = numbers_bytes(numbers, len(frame)) + outside_bytes(
        served, SimpleNamespace(outside=outside)
    )
    assert len(response.content) < most + (accept != JSON) * kept_bytes(body) + 5_000


def test_small_tables_of_many_cells_do_not_hold_up_others(client, tables, monkeypatch):
    """A few bytes become many cells, which must not block other requests."""
    from calipers.serve import _bodies, _responses

    threads = []

    def noted(function):
        def call(*arguments):
            threads.append((function.__name__, threading.current_thread().name))
            return function(*arguments)

        return call

    monkeypatch.setattr(_bodies, "read_body", noted(_bodies.read_body))
    monkeypatch.setattr(_responses, "write_frame", noted(_responses.write_frame))
    body = bytes(stream(pa.table({"speed": [1.0], "load": [2.0], "n": pa.nulls(1)})))
    assert client.table(body, ARROW_STREAM, keep=True).status_code == 200
    assert [name for name, _ in threads] == ["read_body", "write_frame"]
    assert all("asyncio" in thread for _, thread in threads), threads


def test_calendar_spans_are_refused():
    """Each becomes an object of a kilobyte."""
    spans = pa.array([(1, 2, 3)] * 4, pa.month_day_nano_interval())
    assert (
        refused(stream(pa.table({"speed": np.zeros(4), "t": spans})), "'t'", "leave it out") == 422
    )


def test_long_answers_to_anything_count(make_client):
    client = make_client(max_memory=2**16)
    client.app.add_api_route("/long", lambda: Response(b"a" * 2**17), methods=["GET"])
    client.app.add_api_route("/short", lambda: Response(b"a" * 2**10), methods=["GET"])
    assert client.get("/short").status_code == 200
    assert client.get("/long").status_code == 413
