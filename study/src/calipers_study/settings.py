"""Settings of the study: one TOML file per method, which is validated strictly.

A file has a table ``[datasets]`` with one entry per dataset. Keys above that table are defaults for
all datasets. The files in this package contain the settings that the paper's authors published with
their code. Files of the same names in a user's folder take precedence, dataset by dataset.
"""

import dataclasses
import json
import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from calipers_study.files import replace_file
from calipers_study.methods import DATASETS, METHODS, choose, folder_of, nearest

_LOSS_KEYS = {
    "qd+": {"coverage_weight", "point_weight", "crossing_weight", "softness"},
    "qd": {"coverage_weight", "softness"},
    "normal": {"adversarial_step"},
    "mse": set[str](),
}
"""Keys that belong to each loss; all but ``adversarial_step`` are required for it."""


class SettingsError(ValueError):
    """A settings file that breaks a rule."""


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Settings of one method on one dataset."""

    loss: str  #: "qd+", "qd", "normal" or "mse".
    hidden_layers: tuple[int, ...]  #: Units of each hidden layer.
    #: Networks in an ensemble, and shuffles of the dataset.
    members: int
    trials: int
    #: Rows per step, and passes over the training rows.
    batch_size: int
    epochs: int
    #: Learning rate, multiplied by ``decay_rate`` every ``decay_steps`` steps.
    learning_rate: float
    decay_rate: float = 1.0
    decay_steps: float = 50.0
    coverage: float = 0.95  #: Nominal probability of the intervals.
    #: Parameters of the loss (lambda_1 or lambda, lambda_2, xi, s).
    coverage_weight: float = 1.0
    point_weight: float = 0.0
    crossing_weight: float = 0.0
    softness: float = 160.0
    adversarial_step: float = 0.0  #: Length of the adversarial step (epsilon); 0 for none.


def load_settings(
    method: str, dataset: str, *, folder: str | os.PathLike[str] | None = None
) -> StudySettings:
    """Settings of one method on one dataset.

    Parameters
    ----------
    method, dataset : str
        A key of ``METHODS`` and the name of a dataset of the paper.
    folder : path-like, optional
        A user's folder; an entry for the dataset in its ``<method>.toml`` takes precedence over
        the published settings.

    Raises
    ------
    SettingsError
        If the file has an unknown key, lacks one, or has a value of the wrong kind.

    Examples
    --------
    >>> load_settings("qd+", "boston").coverage_weight
    0.9974
    """
    file = f"{folder_of(method)}.toml"
    sources: list[Traversable] = [resources.files("calipers_study") / "published" / file]
    if folder is not None:
        if not Path(folder).is_dir():
            raise SettingsError(f"the settings folder {str(folder)!r} is not a folder")
        files = [f"{known.folder}.toml" for known in METHODS.values()]
        if not any(Path(folder, name).is_file() for name in files):
            raise SettingsError(f"{str(folder)!r} holds no settings: none of {', '.join(files)}")
        sources.insert(0, Path(folder, file))
    for source in sources:
        if source.is_file():
            tables = read_tables(source.read_text("utf-8"), origin=str(source))
            if dataset in tables:
                return settings_of(tables[dataset], origin=f"{source}, {dataset}")
    raise SettingsError(f"there are no settings of {method!r} for {dataset!r}")


def read_tables(text: str, *, origin: str = "settings") -> dict[str, dict[str, Any]]:
    r"""Tables of all datasets in the text of a settings file, including the defaults.

    Parameters
    ----------
    text : str
        TOML.
    origin : str
        Name of the text in errors.

    Examples
    --------
    >>> read_tables("epochs = 9\n[datasets]\nyacht = { members = 5 }")
    {'yacht': {'epochs': 9, 'members': 5}}
    """
    try:
        shared = tomllib.loads(text)
        tables = shared.pop("datasets", None)
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise SettingsError("datasets must be a table with one table for each dataset")
        choose(tables, DATASETS, "dataset")
    except ValueError as error:  # includes errors of TOML
        raise SettingsError(f"{origin}: {error}") from None
    return {name: shared | table for name, table in tables.items()}


def settings_of(table: dict[str, Any], *, origin: str = "settings") -> StudySettings:
    """Settings from the table of one dataset.

    Parameters
    ----------
    table : dict
        Fields of ``StudySettings`` and no others.
    origin : str
        Name of the table in errors.

    Examples
    --------
    >>> try:
    ...     settings_of({"learning_rte": 0.1})
    ... except SettingsError as error:
    ...     print(error)
    settings: there is no setting 'learning_rte'; did you mean 'learning_rate'?
    """
    try:
        _check_keys(table)
        values = {name: _value(name, value) for name, value in table.items()}
    except SettingsError as error:
        raise SettingsError(f"{origin}: {error}") from None
    return StudySettings(**values)


def write_settings(path: Path, tables: dict[str, dict[str, Any]], heading: str) -> None:
    """Write a settings file with one complete table per dataset."""
    lines = [f"# {heading}", "[datasets]"]
    for name, table in tables.items():
        lines.append(
            f"{name} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in table.items())} }}"
        )
    replace_file(path, "\n".join([*lines, ""]).encode())


def _check_keys(table: dict[str, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(StudySettings)}
    for name in table:
        if name not in fields:
            raise SettingsError(f"there is no setting {name!r}{nearest(name, fields)}")
    loss = table.get("loss", "")
    if loss not in _LOSS_KEYS:
        known = ", ".join(map(repr, _LOSS_KEYS))
        raise SettingsError(f"loss must be one of {known}, got {loss!r}")
    foreign = set().union(*_LOSS_KEYS.values()) - _LOSS_KEYS[loss]
    for name in sorted(foreign & set(table)):
        raise SettingsError(f"{name} is not a setting of the loss {loss!r}")
    required = {n for n, field in fields.items() if field.default is dataclasses.MISSING}
    required |= _LOSS_KEYS[loss] - {"adversarial_step"}
    if missing := sorted(required - set(table)):
        raise SettingsError(f"{', '.join(missing)} must be given")


def _value(name: str, value: Any) -> Any:
    """Check the type and range of a value, and convert it to the type of its field."""
    kind = StudySettings.__annotations__[name]
    if kind is str:
        return value
    if name == "hidden_layers":
        if not isinstance(value, list) or not value or not all(map(_is_count, value)):
            raise SettingsError(f"hidden_layers must list positive whole numbers, got {value!r}")
        return tuple(value)
    if kind is int:
        if not _is_count(value):
            raise SettingsError(f"{name} must be a positive whole number, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{name} must be a number, got {value!r}")
    positive = name in {"learning_rate", "decay_rate", "decay_steps", "softness", "coverage"}
    if not (value > 0 if positive else value >= 0) or value == float("inf"):
        rule = "positive" if positive else "zero or more"
        raise SettingsError(f"{name} must be {rule} and finite, got {value!r}")
    if name == "coverage" and value >= 1:
        raise SettingsError(f"coverage must be below 1, got {value!r}")
    return float(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def settings_record(settings: StudySettings) -> dict[str, object]:
    """Settings for the record of a trial, without the number of trials."""
    values = dataclasses.asdict(settings) | {"hidden_layers": list(settings.hidden_layers)}
    del values["trials"]
    return values


def check_loss(method: str, settings: StudySettings) -> None:
    """Refuse settings whose loss is not that of the method."""
    if settings.loss != METHODS[method].loss:
        raise SettingsError(
            f"the loss of {method!r} is {METHODS[method].loss!r}, the settings say "
            f"{settings.loss!r}"
        )
