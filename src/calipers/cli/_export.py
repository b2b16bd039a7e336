"""``calipers export``: a model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from calipers.cli._options import ModelFolder, parse_fractions
from calipers.cli._report import check_place


def export_command(
    model: ModelFolder,
    out: Annotated[str, typer.Option(help="File to write, such as model.onnx.")],
    coverage: Annotated[
        str | None, typer.Option(help="Coverages such as 0.5,0.9; the model's own by default.")
    ] = None,
    single: Annotated[
        bool, typer.Option("--single", help="Take inputs in single precision, not double.")
    ] = False,
) -> None:
    """Write a model as ONNX, for runtimes without Python.

    The file contains preprocessing, scaling, networks, aggregation and calibration. A model fitted
    by calipers fit takes one input for each column, named like the column; the documentation of
    calipers.onnx describes inputs and outputs.
    """
    levels = parse_fractions(coverage, "--coverage")
    check_place(Path(out), "model.onnx")
    from calipers.cli._labelled import load_single

    coverages = levels[0] if levels is not None and len(levels) == 1 else levels
    path = load_single(model).to_onnx(out, coverages, dtype="float32" if single else "float64")
    typer.echo(f"wrote {path}")
