"""The root command, and how errors leave it: one line on standard error and an exit code."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import calipers

ERROR, INTERRUPTED = 1, 130


class _Root(TyperGroup):
    """Turns what a command raises into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Usage errors and exits carry their own code; Typer knows what to do with them.
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise
            if ctx.params.get("debug"):
                raise
            typer.echo(f"error: {one_line(error)}", err=True)
            raise typer.Exit(ERROR) from None


def one_line(error: Exception) -> str:
    """Message of an error on one line; its kind where it has none.

    Examples
    --------
    >>> one_line(ValueError("no file,   no data")), one_line(KeyError())
    ('no file, no data', 'KeyError')
    """
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    add_completion=False,
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
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Point estimates and prediction intervals from ensembles of neural networks."""
