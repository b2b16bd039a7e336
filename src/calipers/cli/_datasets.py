"""``calipers datasets``: public datasets to try things on."""

from pathlib import Path
from textwrap import fill, shorten
from typing import Annotated, Any

import typer

from calipers.cli._options import AsJSON
from calipers.cli._printing import print_json, print_rows
from calipers.tables import known_endings

DIABETES = "diabetes"  # ships with scikit-learn, so it is always available


def datasets_command(
    name: Annotated[
        str | None, typer.Argument(help="A dataset; all are listed by default.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help=f"Write the dataset to this file; its ending gives the format: {known_endings()}."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of data files; by default that of CALIPERS_DATA.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download/--no-download", help="Whether to download the data.")
    ] = True,
    as_json: AsJSON = False,
) -> None:
    """List the datasets, describe one, or write one to a file.

    calipers datasets diabetes --out diabetes.csv needs no network.
    """
    if name is None:
        if out is not None:
            raise typer.BadParameter("--out needs the name of a dataset")
        from calipers.datasets import CATALOGUE

        entries = [_entry(key, folder) for key in (DIABETES, *CATALOGUE)]
        (print_json if as_json else _list)(entries)
    elif out is None:
        (print_json if as_json else _describe)(_entry(name, folder))
    else:
        _write(name, out, folder, download, as_json)


def _entry(name: str, folder: Path | None) -> dict[str, Any]:
    """Return the description of a dataset as plain JSON."""
    if name == DIABETES:
        return {
            "name": DIABETES,
            "title": "Diabetes progression",
            "rows": 442,
            "inputs": 10,
            "target": "progression",
            "unit": "",
            "licence": "none stated",
            "here": True,
            "description": "Progression of diabetes one year after ten measurements of 442 "
            "patients; in their own units, as scikit-learn ships it.",
            "citation": "Efron et al. (2004), Least Angle Regression, Annals of Statistics 32.",
            "url": "",
        }
    from calipers.datasets import available, lookup

    entry = lookup(name)
    keys = ("name", "title", "rows", "inputs", "licence", "description", "citation", "url")
    return {key: getattr(entry, key) for key in keys} | {
        "target": entry.target_name,
        "unit": entry.target_unit,
        "here": available(name, folder=folder),
    }


def _list(entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        texts = [shorten(entry[key], 40, placeholder=" ...") for key in ("target", "licence")]
        here = "yes" if entry["here"] else "to download"
        rows.append((entry["name"], entry["rows"], entry["inputs"], *texts, here))
    print_rows(("name", "rows", "inputs", "target", "licence", "available"), rows)


def _describe(entry: dict[str, Any]) -> None:
    unit = f" ({entry['unit']})" if entry["unit"] not in ("", "1") else ""
    typer.echo(f"{entry['title']}: {entry['rows']:,} rows, {entry['inputs']} inputs")
    typer.echo(f"predicts {entry['target']}{unit}\n")
    typer.echo(fill(entry["description"], 88))
    typer.echo(fill(entry["citation"], 88))
    typer.echo(f"licence: {entry['licence']}")
    if entry["url"]:
        typer.echo(f"from {entry['url']}")
    typer.echo("on this machine" if entry["here"] else "not on this machine yet")


def load_frame(name: str, folder: Path | None = None, *, download: bool = True) -> tuple[Any, str]:
    """Return a dataset as a frame whose last column is the target, and that column's name."""
    import pandas as pd

    if name == DIABETES:
        from sklearn.datasets import load_diabetes

        bunch = load_diabetes(as_frame=True, scaled=False)
        return bunch.frame.rename(columns={"target": "progression"}), "progression"
    from calipers.datasets import load

    data = load(name, folder=folder, download=download)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names))
    frame[data.target_name] = data.y
    return frame, data.target_name


def _write(name: str, out: str, folder: Path | None, download: bool, as_json: bool) -> None:
    import pyarrow as pa

    from calipers.tables import format_of, write_blocks

    format_of(out)
    frame, target = load_frame(name, folder, download=download)
    with write_blocks(out) as write:
        write(pa.Table.from_pandas(frame, preserve_index=False))
    if as_json and out != "-":
        print_json({"name": name, "rows": len(frame), "target": target, "out": out})
    elif out != "-":
        typer.echo(f"{len(frame):,} rows written to {out}; the target is {target!r}")
