"""The proxy of the documentation in front of a server: nginx with the very lines of the page."""

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
PREDICT, KIND = "/v1/models/plain/predict", {"Content-Type": "application/json"}
BODY = b'{"rows": [[1, 2]], "record": false}'

pytestmark = pytest.mark.skipif(
    shutil.which("nginx") is None, reason="nginx is not installed; make test-proxy brings it"
)


def written(server, port, folder):
    """The lines of the page, with addresses, files, times and a rate of this test's own."""
    text = re.search(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/prices.pem": f"{folder}/cert.pem",
        "/etc/ssl/prices.key": f"{folder}/key.pem",
        "http://127.0.0.1:8000": server.address,
        "rate=50r/s": "rate=5r/s",  # so that a busy machine is fast enough
        "client_header_timeout 10s": "client_header_timeout 1s",
        "client_body_timeout 10s": "client_body_timeout 1s",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in paths)
    return (
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/log;\n"
        f"events {{ worker_connections 512; }}\nhttp {{\naccess_log off;\n{places}{text}\n}}\n"
    )


@pytest.fixture(scope="module")
def proxy(start_server, tmp_path_factory):
    """Port of nginx in front of a server."""
    folder = tmp_path_factory.mktemp("nginx")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=localhost"]
    subprocess.run([*make, *files], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(written(start_server(), port, folder))
    command = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "log"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with subprocess.Popen(command) as process:
        try:
            end = time.monotonic() + 30
            while time.monotonic() < end and not listens(port):
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def listens(port):
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def ask(port, method, path, body=None, headers=None):
    link = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusting())
    try:
        link.request(method, path, body, headers or {})
        response = link.getresponse()
        return response.status, response.read()
    finally:
        link.close()


def opened(port, stack):
    raw = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    return stack.enter_context(trusting().wrap_socket(raw))


def test_predictions_come_through(proxy):
    status, text = ask(proxy, "POST", PREDICT, BODY, KIND)
    assert status == 200
    assert b'"point"' in text


def test_long_headers_are_refused(proxy):
    assert ask(proxy, "GET", "/health", headers={"X": "a" * 9_000})[0] == 400
    many = {f"X-{i}": "a" * 1_000 for i in range(60)}
    assert ask(proxy, "GET", "/health", headers=many)[0] == 400


def test_long_bodies_are_refused_by_their_length(proxy):
    with ExitStack() as stack:
        link = opened(proxy, stack)
        link.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % PREDICT.encode())
        link.sendall(b"Content-Length: 17000000\r\n\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("body", [b"", b"Content-Length: 100\r\n\r\n{"], ids=["headers", "body"])
def test_slow_clients_are_cut(proxy, body):
    with ExitStack() as stack:
        link = opened(proxy, stack)
        link.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % PREDICT.encode() + body)
        found = link.recv(100)
        assert found == b"" or found.startswith(b"HTTP/1.1 408")


def stay(links):
    """Send a little on each, so that none is so slow that it would be cut."""
    for link in links:
        link.sendall(b" ")


def test_a_caller_has_so_many_connections(proxy):
    with ExitStack() as stack:
        held = []
        for _ in range(32):
            held.append(opened(proxy, stack))
            held[-1].sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % PREDICT.encode())
            held[-1].sendall(b"Content-Length: 10000\r\n\r\n{")
            stay(held)
        end = time.monotonic() + 30
        while ask(proxy, "GET", "/health")[0] != 429:  # the last may not be counted yet
            assert time.monotonic() < end
            stay(held)
    end = time.monotonic() + 30
    while ask(proxy, "GET", "/health")[0] != 200:
        assert time.monotonic() < end


def test_a_caller_has_so_many_requests_a_second(proxy):
    """One by one, more a second than the rate: some are answered, some are not.

    Which comes first depends on the tests before: they may have spent the burst of this caller.
    """
    link = http.client.HTTPSConnection("127.0.0.1", proxy, timeout=60, context=trusting())
    found = set()
    end = time.monotonic() + 60
    while time.monotonic() < end and found != {200, 429}:
        link.request("GET", "/health")
        response = link.getresponse()
        response.read()
        found.add(response.status)
    assert found == {200, 429}
    link.close()
