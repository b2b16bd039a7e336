"""What commands on a model and labelled rows share: their options, and how the rows are read."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import typer

from calipers.cli import _table_options as common
from calipers.cli._predict import load_any


class RowOptions(NamedTuple):
    """Options of every such command, in the order of ``--help``."""

    target: common.Target = None
    types: common.Types = None
    missing_target: common.MissingTarget = common.OnMissing.drop
    delimiter: common.Delimiter = None
    encoding: common.Encoding = "utf-8"
    n_jobs: common.Jobs = -1
    as_json: common.AsJSON = False

    @property
    def form(self) -> Any:
        """How text files are written."""
        return common.make_form(self.delimiter, self.encoding)

    def load(self, folder: str, *, several: bool = False) -> Any:
        """The model in a folder; of several targets that of ``--target``, or all if ``several``."""
        fitted = load_any(folder, self.n_jobs)
        own = {one.target_.name: one for one in getattr(fitted, "models_", [])}
        if not own or (several and self.target is None):
            return fitted
        if self.target not in own:
            raise typer.BadParameter(f"{folder} predicts {', '.join(own)}: give one as --target")
        return own[self.target]

    def read(
        self, model: Any, data: Sequence[str], reader: Callable[..., Any] = common.read_files
    ) -> tuple[list[str], common.Labelled]:
        """The files, and those of their rows that have the target of the model."""
        name, kind = common.target_of(model, self.target, self.types)
        files, table = reader(data, self.form)
        return files, common.take_target(table, name, kind, self.missing_target)


def with_row_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of ``RowOptions`` in place of ``options``."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]

    @wraps(command)
    def called(**given: Any) -> None:
        options = RowOptions(**{name: given.pop(name) for name in RowOptions._fields})
        command(**given, options=options)

    shared = inspect.signature(RowOptions).parameters.values()
    vars(called)["__signature__"] = inspect.Signature([*own, *shared])
    return called
