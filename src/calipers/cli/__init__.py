"""The command line: ``calipers`` and its commands.

Each file here adds one command or group of commands to ``app``. Heavy libraries are imported inside
the commands that need them, so that ``calipers --help`` answers at once.

Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 130 for an interrupt.
"""

from calipers.cli._app import app
from calipers.cli._study import study

app.add_typer(study, name="study")

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point of the ``calipers`` script."""
    app(prog_name="calipers")
