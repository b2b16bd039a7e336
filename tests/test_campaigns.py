"""A small share of every campaign, in a process in which JAX has not computed: none goes wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


linux = pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc")


def run(*options):
    """Results of campaigns in a process of their own."""
    command = [sys.executable, "-m", "tests.campaigns", "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    sys.stdout.write(done.stdout)  # the counts, which -rP shows
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [part["findings"] for part in found if part["wrong"]] == []
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.long
@linux
def test_a_share_of_the_campaigns():
    found = run("--share", "0")
    tried = {"kills", "races", "disk full", "bad tables", "requests", "soak"}
    assert {part["campaign"] for part in found} == tried  # forged folders have tests of their own
    assert all(part["tries"] for part in found)


@linux
@pytest.mark.slow
def test_ten_thousand_forged_folders():
    found = run("--only", "forged folders", "--jobs", str(os.cpu_count()))
    assert sum(part["tries"] for part in found) == 10_000
