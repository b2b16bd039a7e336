"""``calipers serve`` as a process: start, requests, stop."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from calipers import serve
from calipers.cli import app

runner = CliRunner()
TOKEN = "a-token-of-some-length"


@pytest.fixture
def process(folder):
    """Start a server with further options; its address comes with the process."""
    running = []

    def start(*options, **environment):
        command = [sys.executable, "-m", "calipers.cli", "serve", str(folder / "plain")]
        made = subprocess.Popen(
            [*command, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        running.append(made)
        line = made.stdout.readline()
        assert line.startswith("serving 1 model at http://127.0.0.1:"), made.stderr.read()
        return made, line.split()[-1]

    yield start
    for made in running:
        made.kill()
        made.communicate()


@pytest.mark.long
def test_a_signal_lets_requests_finish(process):
    made, address = process(CALIPERS_TOKEN=TOKEN)
    assert httpx.get(f"{address}/v1/models").status_code == 401
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/csv"}
    rows = b"speed,load\n" + b"0.5,1\n" * 60_000
    responses = []
    arrived = threading.Event()

    def chunks():
        yield rows[:100]
        arrived.set()
        yield rows[100:]

    def ask():
        path = f"{address}/v1/models/plain/predict"
        responses.append(httpx.post(path, content=chunks(), headers=headers, timeout=60))

    thread = threading.Thread(target=ask)
    thread.start()
    assert arrived.wait(30)
    while "_running 1.0" not in httpx.get(f"{address}/metrics", headers=headers).text:
        time.sleep(0.02)
    made.send_signal(signal.SIGTERM)
    thread.join(60)
    out, err = made.communicate(timeout=60)
    assert responses[0].status_code == 200
    assert responses[0].text.count("\n") == 60_001
    assert made.returncode in (0, -signal.SIGTERM)
    assert out == "stopped\n"
    assert "Traceback" not in err
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")


@pytest.mark.long
def test_a_stopped_server_says_so(process):
    made, address = process()
    assert httpx.get(f"{address}/health").status_code == 200
    made.send_signal(signal.SIGINT)
    out, err = made.communicate(timeout=60)
    assert out == "stopped\n"
    assert err == ""


@pytest.fixture
def started(monkeypatch):
    """What ``calipers serve`` would start."""
    seen = {}

    def create_app(models, settings):
        return seen.update(models=models, settings=settings)

    def run(app, settings, *, notify, **options):
        seen.update(options)
        notify("http://127.0.0.1:1")

    monkeypatch.setattr(serve, "create_app", create_app)
    monkeypatch.setattr(serve, "run", run)
    monkeypatch.delenv("CALIPERS_TOKEN", raising=False)
    return seen


def test_safe_by_default(started):
    result = runner.invoke(app, ["serve", "model"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "serving 1 model at http://127.0.0.1:1\n"
    assert started["host"] == "127.0.0.1"
    assert started["settings"].token is None
    assert "localhost" in started["settings"].allowed_hosts
    result = runner.invoke(app, ["serve", "model", "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "other machines" in result.stderr


def test_options(started, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    command = ["serve", "a", "b=c", "--host", "0.0.0.0", "--token-file", str(file)]
    more = ["--allow-host", "Example.org", "--max-body", "2", "--timeout", "5", "--port", "9"]
    result = runner.invoke(app, [*command, *more])
    assert result.exit_code == 0, result.stderr
    settings = started["settings"]
    assert started["models"] == ["a", "b=c"]
    assert (settings.token, settings.max_body, settings.timeout) == (TOKEN, 2**21, 5)
    assert "example.org" in settings.allowed_hosts
    assert (started["host"], started["port"]) == ("0.0.0.0", 9)
    assert runner.invoke(app, [*command, "--token", TOKEN]).exit_code == 2
    assert runner.invoke(app, ["serve", "a", "--token-file", str(tmp_path / "no")]).exit_code == 2
    file.write_text("\n")
    assert "empty" in runner.invoke(app, command).stderr


def test_the_token_may_be_in_the_environment(started):
    runner.invoke(app, ["serve", "a"], env={"CALIPERS_TOKEN": TOKEN})
    assert started["settings"].token == TOKEN


def test_a_folder_that_is_no_model(tmp_path):
    result = runner.invoke(app, ["serve", str(tmp_path)])
    assert result.exit_code == 4
    assert "model.json" in result.stderr


def test_a_port_that_is_taken(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = runner.invoke(app, ["serve", str(folder / "plain"), "--port", port])
    assert result.exit_code == 1
    assert "in use" in result.stderr
