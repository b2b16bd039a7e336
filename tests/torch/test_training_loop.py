"""The example of a custom training loop gives intervals that cover."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_loop.py"


def test_example_gives_intervals_that_hold_their_targets(capsys):
    spec = importlib.util.spec_from_file_location("torch_loop", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    measures = example.main(["--members", "3", "--epochs", "60"])

    assert 0.9 < measures["coverage"] < 0.995
    assert measures["RMSE"] < 0.85  # the noise alone leaves 0.69, the mean of y 1.0
    assert "member 2: width" in capsys.readouterr().out
