"""Options of commands that take a model, and of those that also take labelled rows."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from calipers.cli import _table_options as common

ModelFolder = Annotated[str, typer.Argument(help="Folder of a saved model.")]


def load_any(folder: str, n_jobs: int) -> Any:
    """Load a model of one or several targets, to predict with ``n_jobs`` threads."""
    from calipers import load
    from calipers.storage import read_model

    if "targets" not in read_model(folder)[0]:
        return load(folder).set_params(n_jobs=n_jobs)
    from calipers.multitarget import MultiTargetRegressor

    model = MultiTargetRegressor.load(folder)
    for single in model.models_:
        single.set_params(n_jobs=n_jobs)
    return model


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
        """Return the names of the files, and their rows that have the targets of the model."""
        models = getattr(model, "models_", [model])
        names = [self.target] if self.target else [single.target_.name for single in models]
        kinds: dict[str, Any] = common.parse_kinds(self.types)
        for other in kinds.keys() - set(names):
            shown = " and ".join(map(repr, names))
            raise typer.BadParameter(f"--type works for the target {shown} only, got {other!r}")
        for source in (single.about_.get("source") or {} for single in models):
            if source.get("target") in names:  # as in training, unless an option says otherwise
                kinds.setdefault(source["target"], source.get("target_kind"))
        files, table = reader(data, self.form)
        return files, common.take_targets(table, names, kinds, self.missing_target)
