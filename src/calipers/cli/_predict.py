"""``calipers predict``: point predictions, intervals and quantiles for every row of a table."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _table_options as common
from calipers.cli._cluster import OnCluster
from calipers.cli._measures import say_unbounded, unbounded
from calipers.cli._model_options import ModelFolder, load_any
from calipers.cli._predict_parts import score_parts
from calipers.cli._printing import meaningful, print_json, say_outside
from calipers.tables import known_endings

_STANDARD = "-"


def predict_command(
    model: ModelFolder,
    data: common.Files,
    out: Annotated[
        str,
        typer.Option(
            help=f"File to write; its ending gives the format: {known_endings()}; - writes CSV to "
            "standard output. With --cluster, a folder of Parquet files."
        ),
    ] = _STANDARD,
    coverage: Annotated[
        str | None, typer.Option(help="Coverages such as 0.5,0.9; the model's own by default.")
    ] = None,
    quantiles: Annotated[str | None, typer.Option(help="Quantiles such as 0.1,0.5,0.9.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="Input columns to copy, such as id,day; or all.")
    ] = None,
    mark_outside: Annotated[
        bool,
        typer.Option(
            "--outside", help="Add a column that names the inputs outside the training range."
        ),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint", help="Intervals that contain all targets of a multi-target model together."
        ),
    ] = False,
    delimiter: common.Delimiter = None,
    encoding: common.Encoding = "utf-8",
    n_jobs: common.Jobs = -1,
    cluster: OnCluster = None,
    as_json: common.AsJSON = False,
) -> None:
    """Predict every row of a table, however large.

    The table is read and predicted in blocks. Numbers in text files have seven significant digits,
    those in other formats all. The output file appears under its name when it is
    complete: an interrupted run leaves no partial file; run the same command again. With --cluster,
    tables are Parquet files or folders of them, and the same command continues with the missing
    parts.
    """
    coverages = common.parse_fractions(coverage, "--coverage")
    levels = common.parse_fractions(quantiles, "--quantiles")
    if cluster is not None:
        if out == _STANDARD:
            raise typer.BadParameter("--cluster needs a folder as --out")
        if joint:
            raise typer.BadParameter("--joint does not work with --cluster")
        query = {"coverages": coverages, "quantiles": levels, "keep": keep}
        result = score_parts(model, data, out, query | {"mark_outside": mark_outside}, cluster)
        (_report_json if as_json else _report)(result, out)
        return
    form = common.make_form(delimiter, encoding)
    from calipers.tables import find_files, format_of, write_blocks

    format_of(out)
    files = find_files(data)
    if out in files and out != _STANDARD:
        raise typer.BadParameter(f"{out} is both input and output: name another file")
    fitted = load_any(model, n_jobs)
    if joint and not hasattr(fitted, "models_"):
        raise typer.BadParameter(f"--joint needs a model of several targets, {model} has one")
    as_text = format_of(out)[0].is_text
    scorer = RowScorer(fitted, coverages, levels, keep, mark_outside, as_text, joint)
    with common.reading(files, "predicting") as report, write_blocks(out) as write:
        for table in scorer.tables(files, form, report):
            write(table)
    result = {"rows": scorer.rows, "out": out, "outside": scorer.outside_report()}
    if infinite := unbounded(fitted, [fitted.coverage] if coverages is None else coverages):
        result["unbounded"] = infinite
    (_report_json if as_json else _report)(result, out)


@dataclass(eq=False)
class RowScorer:
    """Predicts blocks of rows as requested, and counts rows outside the training range."""

    model: Any
    coverages: list[float] | None
    quantiles: list[float] | None
    keep: str | None
    mark_outside: bool
    as_text: bool
    joint: bool = False
    rows: int = 0  # predicted so far
    rows_outside: int = 0
    columns: Counter[str] = field(default_factory=Counter)

    @cached_property
    def query(self) -> Any:
        """What to predict for each row."""
        from calipers.prediction import Query

        coverages = None if self.coverages is None else tuple(self.coverages)
        return Query(coverages, tuple(self.quantiles or ()))

    def tables(self, files: list[str], form: Any, report: Any) -> Iterator[Any]:
        """Yield the tables to write for the blocks of some files."""
        from calipers.tables import read_blocks

        for name in files:
            yield from self.score(read_blocks(name, form=form, report=report))

    def score(self, blocks: Iterable[Any]) -> Iterator[Any]:
        """Yield the table to write for each block."""
        from calipers.preprocessing import DataError

        for block in blocks:
            try:
                yield self._score(block)
            except DataError as error:
                raise block.placed(error) from None

    def _score(self, block: Any) -> Any:
        import pyarrow as pa

        inputs = self.model.pick(block.frame)
        predictions, outside = self._predict(inputs)
        columns = {name: pa.array(values) for name, values in predictions.items()}
        self._count(outside)
        if self.mark_outside:
            columns["outside"] = pa.array(_names(outside, self.model.inputs_), pa.string())
        return pa.table(self._kept(block, columns) | columns)

    def _predict(self, inputs: Any) -> Any:
        """Return columns of predictions by name, prefixed by the target if there are several."""
        if not hasattr(self.model, "models_"):
            prediction, outside = self.model.query_and_check(inputs, self.query)
            return self._written(prediction, self.model), outside
        predictions, outside = self.model.query_and_check(inputs, self.query, joint=self.joint)
        columns = {
            f"{target}_{name}": values
            for (target, prediction), single in zip(
                predictions.items(), self.model.models_, strict=True
            )
            for name, values in self._written(prediction, single).items()
        }
        return columns, outside

    def _written(self, prediction: Any, model: Any) -> dict[str, Any]:
        """Return the columns of a prediction, in text files without meaningless digits."""
        columns: dict[str, Any] = prediction.columns()
        if not self.as_text:
            return columns
        spread = model.target_.high - model.target_.low
        return {name: meaningful(values, spread) for name, values in columns.items()}

    def _count(self, outside: Any) -> None:
        self.rows += len(outside)
        self.rows_outside += int(outside.any(axis=1).sum())
        for column, count in zip(self.model.inputs_, outside.sum(axis=0), strict=True):
            self.columns[column.name] += int(count)

    def _kept(self, block: Any, predictions: Any) -> dict[str, Any]:
        """Return the columns of the input that go into the output."""
        from calipers._text import did_you_mean
        from calipers.preprocessing import DataError

        if self.keep is None:
            return {}
        names = [name.strip() for name in self.keep.split(",")]
        names = block.table.column_names if names == ["all"] else names
        for name in names:
            if name not in block.table.column_names:
                raise DataError(
                    f"there is no column {name!r}{did_you_mean(name, block.table.column_names)}"
                )
            if name in predictions:
                raise DataError(
                    f"the column {name!r} cannot be kept: a column of predictions has that name"
                )
        kept = block.table.select(names)
        if not self.as_text:
            kept = self._typed(kept)
        return dict(zip(names, kept.columns, strict=True))

    def _typed(self, kept: Any) -> Any:
        """Return the kept columns with numeric inputs parsed from text as the model reads them."""
        import pyarrow as pa

        from calipers.preprocessing import read_number

        encoder = getattr(getattr(self.model, "models_", [self.model])[0], "preprocessor_", None)
        pairs = encoder.used_columns() if encoder else []
        readers = {column.name: reader.read for column, reader in pairs if column.kind == "number"}
        if encoder is None:
            readers = {column.name: read_number for column in self.model.inputs_}
        for i, name in enumerate(kept.column_names):
            column = kept.column(i)
            if name in readers and pa.types.is_string(column.type):
                numbers = readers[name](column.to_pandas().rename(name))
                kept = kept.set_column(i, name, pa.array(numbers, from_pandas=True))
        return kept

    def outside_report(self) -> dict[str, Any]:
        """Return how many rows are outside the training range, in total and by column."""
        columns = {name: count for name, count in self.columns.most_common() if count}
        return {"rows": self.rows_outside, "columns": columns}


def _names(outside: Any, inputs: Any) -> list[str]:
    names = [column.name for column in inputs]
    return [", ".join(n for n, flag in zip(names, row, strict=True) if flag) for row in outside]


def _report_json(result: dict[str, Any], out: str) -> None:
    if out == _STANDARD:
        import json

        typer.echo(json.dumps(result, ensure_ascii=False), err=True)
    else:
        print_json(result)


def _report(result: dict[str, Any], out: str) -> None:
    """Print a summary on standard error, which keeps it out of pipes."""
    where = "" if out == _STANDARD else f", written to {os.fspath(out)}"
    typer.echo(f"{counted(result['rows'], 'row')} predicted{where}", err=True)
    if why := say_unbounded(result.get("unbounded")):
        typer.echo(why, err=True)
    outside = result["outside"]
    if outside["rows"]:
        columns = list(outside["columns"].items())
        shown = ", ".join(f"{name} ({count:,})" for name, count in columns[:8])
        more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
        typer.echo(f"{say_outside(outside['rows'], trust=True)}: {shown}{more}", err=True)
