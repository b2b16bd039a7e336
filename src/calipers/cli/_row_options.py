"""The options of all commands that take a model and labelled rows, and the reading of the rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from calipers.cli import _table_options as common
from calipers.cli._predict import load_any


class RowOptions(NamedTuple):
    """Options that these commands share, in the order of ``--help``."""

    target: common.Target = None
    types: common.Types = None
    missing_target: common.MissingTarget = common.OnMissing.drop
    delimiter: common.Delimiter = None
    encoding: common.Encoding = "utf-8"
    n_jobs: common.Jobs = -1
    as_json: common.AsJSON = False

    @property
    def form(self) -> Any:
        """The format of text files."""
        return common.make_form(self.delimiter, self.encoding)

    def load(self, folder: str, *, several: bool = False) -> Any:
        """Load a model; of a multi-target one only ``--target``, unless ``several`` allows all."""
        fitted = load_any(folder, self.n_jobs)
        models = {single.target_.name: single for single in getattr(fitted, "models_", [])}
        if not models or (several and self.target is None):
            return fitted
        if self.target not in models:
            raise typer.BadParameter(
                f"{folder} predicts {', '.join(models)}: choose one with --target"
            )
        return models[self.target]

    def read(
        self, model: Any, data: Sequence[str], reader: Callable[..., Any] = common.read_files
    ) -> tuple[list[str], common.Labelled]:
        """Return the names of the files, and their rows that have the target of the model."""
        name, kind = common.target_of(model, self.target, self.types)
        files, table = reader(data, self.form)
        return files, common.take_target(table, name, kind, self.missing_target)
