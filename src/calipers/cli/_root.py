"""The root command, which turns errors into one line on standard error and an exit code."""

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import calipers
from calipers.cli import _plugins
from calipers.cli._printing import as_notes, printable

ERROR, INTERRUPTED, BROKEN_PIPE = 1, 130, 141
CODES = {"TableError": 3, "DataError": 3, "ModelFileError": 4}  # by name: imports take time


class _Root(TyperGroup):
    """Finds commands of other distributions, and turns errors into one line and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of our own commands, then of those that other distributions add."""
        names = super().list_commands(ctx)
        return [*names, *sorted(set(_plugins.find()).difference(names))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name) or _plugins.find().get(cmd_name)
        if command is None and cmd_name in _plugins.KNOWN:
            raise _plugins.PluginError(_plugins.KNOWN[cmd_name])
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept ``--debug`` anywhere."""
        if "--debug" in args:
            args = ["--debug", *(arg for arg in args if arg != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with as_notes():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has stopped reading
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Usage errors and exits carry their own code; Typer handles them.
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise
            if ctx.params.get("debug"):
                raise
            typer.echo(f"error: {one_line(error)}", err=True)
            raise typer.Exit(exit_code(error)) from None


def exit_code(error: Exception) -> int:
    """Return the exit code of an error, by its class or a base class."""
    names = (cls.__name__ for cls in type(error).__mro__)
    return next((CODES[name] for name in names if name in CODES), ERROR)


def one_line(error: Exception) -> str:
    """Return the message of an error on one line, or the name of its class if it has none.

    >>> one_line(ValueError("no file,   no data")), one_line(KeyError())
    ('no file, no data', 'KeyError')
    """
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return printable(" ".join(text.split())) or type(error).__name__


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"calipers {calipers.__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Point estimates and prediction intervals from ensembles of neural networks.

    Exit codes: 0 success, 1 error, 2 wrong usage, 3 unusable table, 4 unusable model folder, 130
    interrupted.
    """
