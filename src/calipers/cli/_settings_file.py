"""Model settings in a TOML file, as ``calipers tune`` writes it and ``fit --config`` reads it."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from calipers.preprocessing import TableEncoder
    from calipers.regressor import IntervalRegressor

BoundsOption = Annotated[
    str | None,
    typer.Option(
        help="Range of possible targets: '0,' for 0 or more, ',100', '0,100'; 'auto' (the default) "
        "infers it from the data, 'none' allows every number."
    ),
]


def make_model(config: Path | None, options: dict[str, Any]) -> "IntervalRegressor":
    """Return an estimator with the parameters of a file, overridden by those of ``options``."""
    from calipers import IntervalRegressor
    from calipers.heads import HEADS
    from calipers.preprocessing import TableEncoder
    from calipers.training import check_parameters, objective_of

    settings = _settings(config, IntervalRegressor, TableEncoder)
    names = IntervalRegressor().get_params(deep=False)
    settings |= {k: v for k, v in options.items() if v is not None and k in names}
    if isinstance(settings.get("bounds"), str):
        settings["bounds"] = parse_bounds(settings["bounds"])
    encoder = TableEncoder(**settings.pop("preprocessor", {}))
    paper = settings.pop("method", "") == "paper"
    model = IntervalRegressor.paper() if paper else IntervalRegressor()
    try:
        encoder._validate_params()
        check_parameters(model.set_params(**settings, preprocessor=encoder))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not HEADS[objective_of(model).head].has_interval:
        raise typer.BadParameter(f"loss {model.loss!r} gives point predictions, but no intervals")
    return model


def parse_bounds(text: str) -> tuple[float | None, float | None] | str | None:
    """Parse the text of ``--bounds``.

    >>> parse_bounds("0,"), parse_bounds("-1,1.5"), parse_bounds("none"), parse_bounds("auto")
    ((0.0, None), (-1.0, 1.5), None, 'auto')
    """
    plain = text.strip().lower()
    if plain in ("auto", "none"):
        return None if plain == "none" else plain
    try:
        low, high = (float(part) if part.strip() else None for part in plain.split(","))
        return low, high
    except ValueError:
        raise typer.BadParameter(
            f"--bounds takes 'low,high' such as '0,' or '0,100', 'auto' or 'none'; got {text!r}"
        ) from None


def _settings(
    config: Path | None, estimator: type["IntervalRegressor"], encoder: type["TableEncoder"]
) -> dict[str, Any]:
    """Return the parameters in a TOML file, after checking that every name exists.

    Those of nested objects are written as ``network__hidden_layers = [64]``, or in a table
    ``[network]`` as ``hidden_layers = [64]``.
    """
    from calipers._text import did_you_mean
    from calipers.training import SHORTHANDS

    if config is None:
        return {}
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{config} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{config} is not TOML: {error}") from None
    if settings.get("method", "default") not in ("default", "paper"):
        raise typer.BadParameter(
            f"{config}: 'method' must be 'default' or 'paper', got {settings['method']!r}"
        )
    for name in SHORTHANDS:
        if isinstance(settings.get(name), dict):
            settings |= {f"{name}__{key}": value for key, value in settings.pop(name).items()}
    nested = settings.get("preprocessor", {})
    if not isinstance(nested, dict):
        raise typer.BadParameter(f"{config}: 'preprocessor' must be a table of parameters")
    for part, owner in ((settings, estimator), (nested, encoder)):
        known = owner().get_params()
        for name in part:
            if name not in known and (part, name) != (settings, "method"):
                raise typer.BadParameter(
                    f"{config}: {owner.__name__} has no parameter {name!r}"
                    f"{did_you_mean(name, known)}"
                )
    return settings
