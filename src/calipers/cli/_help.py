"""Commands from functions: options that share a class, and help texts without Python's types.

Help says ``--coverage FLOAT`` and ``DATA``, not ``<list[str]>``.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo, ParameterInfo

_METAVARS = {str: "TEXT", float: "FLOAT", int: "INTEGER", Path: "PATH"}


class _Command(TyperCommand):
    """A command whose help names arguments without their types."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                # Recent versions of Typer call this for the type, which a metavar does not replace.
                vars(parameter)["display_type_rich"] = lambda ctx: ""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``options`` of a command, a named tuple, by one option per field."""
    parameters = dict(inspect.signature(command).parameters)
    options = parameters.pop("options").annotation
    fields = inspect.signature(options).parameters

    @wraps(command)
    def wrapper(**kwargs: Any) -> None:
        command(options=options(**{name: kwargs.pop(name) for name in fields}), **kwargs)

    shown = [*parameters.values(), *fields.values()]
    vars(wrapper)["__signature__"] = inspect.Signature(shown)
    return wrapper


def add_command(app: typer.Typer, name: str, command: Callable[..., None]) -> None:
    """Add a command to ``app``, with a metavar for each of its parameters that has none."""
    for parameter in inspect.signature(command).parameters.values():
        kind, *infos = get_args(parameter.annotation) or (parameter.annotation,)
        for info in infos:
            if isinstance(info, ParameterInfo) and info.metavar is None:
                is_argument = isinstance(info, ArgumentInfo)
                info.metavar = parameter.name.upper() if is_argument else _metavar(kind)
    app.command(name, cls=_Command)(command)


def _metavar(kind: Any) -> str | None:
    """Return the word for values of a type; None for flags and choices.

    >>> _metavar(float | None), _metavar(list[str] | None), _metavar(bool)
    ('FLOAT', 'TEXT', None)
    """
    parts = get_args(kind)
    words = [_metavar(part) for part in parts] if parts else [_METAVARS.get(kind)]
    return next(filter(None, words), None)
