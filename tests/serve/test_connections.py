"""Connections, headers and bodies that are held open: none keeps others out."""

import select
import socket
import sys
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from calipers.serve import ServerSettings
from calipers.serve._bodies import CSV, JSON
from calipers.serve._connections import Connection

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="counts files as Unix does"),
]

HEAD = b"POST /v1/models/plain/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"


@pytest.fixture(scope="module")
def server(start_server):
    return start_server(
        max_connections=40, idle_timeout=2.0, timeout=5.0, max_memory=256 * 2**20, max_requests=32
    )


@pytest.fixture
def connect(server):
    """Open connections, which are closed at the end."""
    host, port = server.address.removeprefix("http://").split(":")
    with ExitStack() as stack:

        def connect(buffer=None):
            made = stack.enter_context(socket.socket())
            made.settimeout(60)
            if buffer is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            made.connect((host, int(port)))
            return made

        yield connect


def is_cut(connection):
    """Wait until the server cuts a connection."""
    try:
        while connection.recv(2**16):
            pass
    except ConnectionError:
        pass
    return True


def answers(server):
    """Whether a newcomer is answered at once."""
    began = time.monotonic()
    for path in ("/health", "/metrics"):
        assert server.client.get(path, headers={"Connection": "close"}).status_code == 200
    return time.monotonic() - began < 10


def test_idle_connections_are_cut_and_keep_no_one_out(server, connect):
    idle = [connect() for _ in range(300)]
    assert answers(server)
    assert all(is_cut(connection) for connection in idle)


@pytest.mark.parametrize("head", [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a", b"G"])
def test_headers_that_do_not_end(server, connect, head):
    slow = [connect() for _ in range(30)]
    for connection in slow:
        connection.sendall(head)
    assert answers(server)
    assert all(is_cut(connection) for connection in slow)


@pytest.mark.parametrize("line", [b"X-%d: " + b"a" * 1_000, b"X%d" + b"a" * 1_000])
def test_headers_without_end(server, connect, line):
    connection = connect()
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    sent = 0
    with suppress(ConnectionError):
        while sent < 100_000:
            connection.sendall((line % sent) + b"\r\n" * (b":" in line))
            sent += 1
    assert sent < 20_000  # what fits between two sockets, not 100 MB
    assert answers(server)


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


@pytest.mark.parametrize("line", [b"X-%d: " + b"a" * 1_000 + b"\r\n", b"X%d" + b"a" * 1_000])
def test_trailers_without_end(server, connect, line):
    connection = connect()
    connection.sendall(HEAD % JSON.encode() + CHUNKED)
    sent = 0
    with suppress(ConnectionError):
        while sent < 100_000:
            connection.sendall(line % sent)
            sent += 1
    assert sent < 20_000
    assert answers(server)


def test_chunks_and_trailers_of_a_good_request_are_taken(server, connect):
    body = b'{"rows": [[1, 2]], "record": false}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nX: a\r\n\r\n"
    connection = connect()
    connection.sendall(HEAD % JSON.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert connection.recv(12) == b"HTTP/1.1 200"


def test_few_requests_are_taken_ahead_of_their_answers(server, connect):
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    before = server.status("VmRSS")
    for _ in range(20):
        connection = connect()
        with suppress(ConnectionError):
            connection.sendall(one * 20_000)
        assert is_cut(connection)
    assert server.status("VmRSS") - before < 64 * 2**20
    few = connect()
    few.sendall(one * 4)
    found = b""
    while found.count(b'{"status":"ok"}') < 4:
        found += few.recv(2**16)


def test_long_headers_in_one_piece_are_refused(server, connect):
    for head in (b"X: " + b"a" * 40_000, b"\r\n".join([b"X: " + b"a" * 1_000] * 40)):
        connection = connect()
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_held_bodies_are_counted_together(server, connect):
    before = server.status("VmRSS")
    held = [connect() for _ in range(24)]
    length = 16 * 2**20
    for connection in held:
        connection.settimeout(0.5)
        connection.sendall(HEAD % JSON.encode() + b"Content-Length: %d\r\n\r\n" % length)
        try:
            for _ in range(15):
                connection.sendall(b" " * 2**20)
        except OSError:
            pass  # refused, and no longer read
    assert answers(server)
    assert server.status("VmRSS") - before < 250 * 2**20  # of 360 MiB that were sent
    found = []
    for connection in held:
        connection.settimeout(60)
        try:
            found.append(connection.recv(12))
        except ConnectionError:
            found.append(b"")
    assert b"HTTP/1.1 503" in found
    assert set(found) <= {b"HTTP/1.1 503", b"HTTP/1.1 408", b""}


def test_an_answer_that_is_not_read(server, connect):
    rows = b"speed,load,word\n" + (b"0.5,1," + b"a" * 10_000 + b"\n") * 1_000
    head = HEAD.replace(b"predict", b"predict?keep=true") % CSV.encode()
    slow = connect(4_096)
    slow.sendall(head + b"Content-Length: %d\r\n\r\n" % len(rows) + rows)
    assert slow.recv(12) == b"HTTP/1.1 200"
    assert "calipers_requests_running 1.0" in server.client.get("/metrics").text
    assert answers(server)
    end = time.monotonic() + 60
    while "calipers_requests_running 0.0" not in server.client.get("/metrics").text:
        assert time.monotonic() < end


def test_a_connection_is_used_again(server, connect):
    connection = connect()
    for _ in range(3):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while not found.endswith(b'{"status":"ok"}'):
            found += connection.recv(2**16)
        assert found.startswith(b"HTTP/1.1 200")
    assert is_cut(connection)


@pytest.fixture(scope="module")
def small(start_server):
    """More requests are allowed than there are connections."""
    return start_server(
        max_connections=8, max_requests=100, timeout=20.0, idle_timeout=20.0, stderr=True
    )


def slow_bodies(server, count, path=b"predict", header=b""):
    host, port = server.address.removeprefix("http://").split(":")
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), 60)
        head = HEAD.replace(b"predict", path) % JSON.encode() + header
        connection.sendall(head + b"Content-Length: 1000\r\n\r\n{")
        yield connection


def test_slow_bodies_on_all_connections_keep_no_one_out(small):
    with ExitStack() as stack:
        held = {stack.enter_context(connection) for connection in slow_bodies(small, 40)}
        while len(held) > 8:  # those that still arrive may cut a newcomer before it has asked
            arrived, _, _ = select.select(held, [], [], 60)
            assert arrived
            held -= {connection for connection in arrived if is_cut(connection)}
        assert answers(small)


def test_one_connection_too_many_closes_the_longest_idle_one_not_the_newest():
    clock = [0.0]
    loop, state = Mock(time=lambda: clock[0]), ServerState()

    def connect(at, busy=False):
        clock[0] = at
        connection = Connection(Config(Mock()), state, {}, loop, settings=ServerSettings(), most=3)
        aborted = Mock()
        transport = Mock(is_closing=lambda: aborted.called, abort=aborted)
        transport.get_extra_info = lambda _: None
        if busy:
            connection.cycle = SimpleNamespace(response_complete=False, more_body=True)
        connection.connection_made(transport)
        return aborted

    slow, idle, newcomer = connect(0.0, busy=True), connect(1.0), connect(9.5)
    connect(10.0)
    assert (slow.called, idle.called, newcomer.called) == (False, True, False)
    state.connections = {it for it in state.connections if not it.transport.is_closing()}
    connect(10.1)
    assert (slow.called, newcomer.called) == (True, False)


def test_slow_bodies_hold_no_places(start_server):
    server = start_server(max_connections=40, max_requests=2, timeout=20.0)
    for path in (b"predict", b"labels"):
        held = list(slow_bodies(server, 6, path, b"Expect: 100-continue\r\n"))
        for connection in held:  # all of them wait for the rest
            assert connection.recv(12) == b"HTTP/1.1 100"
        assert server.post('{"rows": [[1, 2]]}', JSON)[0] == 200
        for connection in held:
            connection.close()


def test_a_reader_has_one_deadline_for_a_whole_answer():
    async def app(scope, receive, send):
        raise NotImplementedError

    loop, timers = Mock(time=lambda: 0.0), []
    loop.call_later = lambda wait, _: timers.append(Mock(wait=wait)) or timers[-1]
    state, settings = ServerState(), ServerSettings(timeout=7.0)
    connection = Connection(Config(app), state, {}, loop, settings=settings, most=8)
    transport = Mock(is_closing=lambda: False, get_extra_info=lambda _: None)
    connection.connection_made(transport)
    connection.cycle = SimpleNamespace(response_complete=False)
    for _ in range(3):  # it takes a little, now and then
        connection.pause_writing()
        connection.resume_writing()
    [limit] = [timer for timer in timers if timer.wait == 7.0]
    limit.cancel.assert_not_called()
    connection.cycle.response_complete = True
    connection.on_response_complete()
    limit.cancel.assert_called_once()


def test_long_answers_that_are_not_read_keep_no_one_out(small):
    host, port = small.address.removeprefix("http://").split(":")
    rows = b"speed,load,word\n" + (b"0.5,1," + b"a" * 10_000 + b"\n") * 400
    head = HEAD.replace(b"predict", b"predict?keep=true") % CSV.encode()
    with ExitStack() as stack:
        for _ in range(16):
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            made.settimeout(60)
            made.connect((host, int(port)))
            with suppress(ConnectionError):
                made.sendall(head + b"Content-Length: %d\r\n\r\n" % len(rows) + rows)
                made.recv(12)
        assert answers(small)


def test_many_short_headers_are_long_headers(server, connect):
    connection = connect()
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 2_000
    connection.sendall(head + b"\r\n")
    assert connection.recv(12) == b"HTTP/1.1 400"


def test_an_answer_to_a_connection_that_was_refused_is_no_error(small):
    """The last test of this server: what it has written is read when it has ended."""
    host, port = small.address.removeprefix("http://").split(":")
    body = b'{"rows": [[1, 2]]}'
    one = HEAD % JSON.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(20):
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(one * 100)
            assert is_cut(connection)
    assert small.client.get("/health").status_code == 200
    assert "Traceback" not in small.close()
