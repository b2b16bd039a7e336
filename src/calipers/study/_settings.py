"""Settings of the study: one TOML file for each method and dataset, read strictly.

The files in this package hold what the paper's authors published with their code. A folder of one's
own with the same layout, ``<method>/<dataset>.toml``, takes their place file by file.
"""

import dataclasses
import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from calipers.bank import Program, Settings
from calipers.networks import MLP
from calipers.objectives import LOSSES, LossSettings
from calipers.study._methods import METHODS, folder_of, nearest

_LOSS_KEYS = {
    "qd+": {"coverage_weight", "point_weight", "crossing_weight", "softness"},
    "qd": {"coverage_weight", "softness"},
    "normal": {"adversarial_step"},
    "mse": set[str](),
}
"""Keys that belong to each loss alone; all but ``adversarial_step`` are required there."""


class SettingsError(ValueError):
    """A settings file says something that cannot be meant."""


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Settings of one method on one dataset.

    Attributes
    ----------
    loss : str
        "qd+", "qd", "normal" or "mse", see ``calipers.objectives.LOSSES``.
    hidden_layers : tuple of int
        Units of each hidden layer.
    members, trials : int
        Networks in an ensemble, and shuffles of the dataset.
    batch_size, epochs : int
        Rows of a step, and passes over the training rows.
    learning_rate, decay_rate, decay_steps : float
        Adam's rate, multiplied by ``decay_rate`` every ``decay_steps`` steps.
    coverage : float
        Nominal probability of the intervals.
    coverage_weight, point_weight, crossing_weight, softness : float
        Numbers of the loss (lambda_1 or lambda, lambda_2, xi, s).
    adversarial_step : float
        Length of the adversarial step (epsilon); 0 for none.
    """

    loss: str
    hidden_layers: tuple[int, ...]
    members: int
    trials: int
    batch_size: int
    epochs: int
    learning_rate: float
    decay_rate: float = 1.0
    decay_steps: float = 50.0
    coverage: float = 0.95
    coverage_weight: float = 1.0
    point_weight: float = 0.0
    crossing_weight: float = 0.0
    softness: float = 160.0
    adversarial_step: float = 0.0

    def program(self, in_size: int) -> Program:
        """Return what the networks of this training have in common."""
        return Program(
            MLP(self.hidden_layers),
            LOSSES[self.loss],
            in_size,
            self.batch_size,
            adversarial=self.adversarial_step > 0,
        )

    def training(self) -> Settings:
        """Return the numbers of the training as the bank takes them."""
        own = (field for field in LossSettings._fields)
        return Settings(
            learning_rate=self.learning_rate,
            decay_rate=self.decay_rate,
            decay_steps=self.decay_steps,
            adversarial_step=self.adversarial_step,
            epochs=self.epochs,
            loss=LossSettings(**{name: getattr(self, name) for name in own}),
        )


def load_settings(
    method: str, dataset: str, *, folder: str | os.PathLike[str] | None = None
) -> StudySettings:
    """Settings of one method on one dataset.

    Parameters
    ----------
    method, dataset : str
        A key of ``METHODS`` and the name of a dataset of the paper.
    folder : path-like, optional
        A folder of one's own; its ``<method>/<dataset>.toml`` goes before the published settings.

    Raises
    ------
    SettingsError
        If the file has an unknown key, lacks one, or has a value of the wrong kind.

    Examples
    --------
    >>> load_settings("qd+", "boston").coverage_weight
    0.9974
    """
    place = f"{folder_of(method)}/{dataset}.toml"
    source: Traversable = resources.files("calipers.study") / "settings" / place
    if folder is not None:
        if not Path(folder).is_dir():
            raise SettingsError(f"the settings folder {str(folder)!r} is not a folder")
        own = Path(folder, place)
        source = own if own.is_file() else source
    if not source.is_file():
        raise SettingsError(f"there are no settings of {method!r} for {dataset!r}")
    return parse_settings(source.read_text("utf-8"), origin=str(source))


def parse_settings(text: str, *, origin: str = "settings") -> StudySettings:
    """Read settings from the text of a TOML file.

    Parameters
    ----------
    text : str
        TOML with keys of ``StudySettings`` and no others.
    origin : str
        What to call the text in errors.

    Examples
    --------
    >>> try:
    ...     parse_settings("learning_rte = 0.1")
    ... except SettingsError as error:
    ...     print(error)
    settings: there is no setting 'learning_rte'; did you mean 'learning_rate'?
    """
    try:
        table = tomllib.loads(text)
        _check_keys(table)
        values = {name: _value(name, value) for name, value in table.items()}
    except (tomllib.TOMLDecodeError, SettingsError) as error:
        raise SettingsError(f"{origin}: {error}") from None
    return StudySettings(**values)


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
        raise SettingsError(f"{name} is no setting of the loss {loss!r}")
    required = {n for n, field in fields.items() if field.default is dataclasses.MISSING}
    required |= _LOSS_KEYS[loss] - {"adversarial_step"}
    if missing := sorted(required - set(table)):
        raise SettingsError(f"{', '.join(missing)} must be given")


def _value(name: str, value: Any) -> Any:
    """Check one value's kind and range, and make it what the field holds."""
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


def check_loss(method: str, settings: StudySettings) -> None:
    """Refuse settings whose loss is not the method's own."""
    if settings.loss != METHODS[method].loss:
        raise SettingsError(
            f"the loss of {method!r} is {METHODS[method].loss!r}, the settings say "
            f"{settings.loss!r}"
        )
