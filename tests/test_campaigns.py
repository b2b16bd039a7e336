"""A small share of every campaign, in a process in which JAX has not computed: none goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc")
def test_a_share_of_the_campaigns():
    command = [sys.executable, "-m", "tests.campaigns", "--share", "0", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    tried = {"kills", "races", "disk full", "bad tables", "requests", "soak"}
    assert {part["campaign"] for part in found} == tried  # forged folders have tests of their own
    assert [part["findings"] for part in found if part["wrong"]] == []
    assert all(part["tries"] for part in found), done.stderr
    assert done.returncode == 0
