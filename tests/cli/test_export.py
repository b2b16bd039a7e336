"""``calipers export``."""

import pytest

onnx = pytest.importorskip("onnx")


def test_a_model_becomes_an_onnx_file(run, saved, here):
    result = run("export", saved, "--out", "model.onnx", "--coverage", "0.5,0.8", "--single")
    assert result.exit_code == 0, result.output
    assert result.stdout == "wrote model.onnx\n"
    graph = onnx.load(here / "model.onnx").graph
    assert {"size", "kind", "garden", "sold"} == {given.name for given in graph.input}
    lower = next(output for output in graph.output if output.name == "lower")
    assert lower.type.tensor_type.shape.dim[1].dim_value == 2


def test_what_cannot_be_exported_leaves_no_file(run, saved, here):
    result = run("export", saved, "--out", "model.onnx", "--coverage", "0.999")
    assert result.exit_code == 1
    assert "intervals of 99.9% are infinite" in result.stderr
    assert run("export", "nowhere", "--out", "model.onnx").exit_code == 4
    assert not list(here.iterdir())


def test_a_place_that_is_not_there_is_named(run, saved, here):
    result = run("export", saved, "--out", "no/model.onnx")
    assert result.exit_code == 2
    assert "there is no folder 'no' for model.onnx" in " ".join(result.stderr.split())
