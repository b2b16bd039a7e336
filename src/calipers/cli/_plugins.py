"""Commands that other distributions add through entry points.

A distribution adds a command to ``calipers`` with an entry point in the group
``calipers.commands``, here ``calipers study``::

    [project.entry-points."calipers.commands"]
    study = "calipers_study.cli:app"

The object is a ``typer.Typer`` with commands of its own, or a function as ``app.command()`` takes
it. It is imported only when its command is used, so that ``calipers --help``, which shows the
summary of the distribution, stays fast, and a command that cannot be imported breaks no other.
Commands of calipers itself take precedence.
"""

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from calipers.cli._help import add_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "calipers.commands"

KNOWN = {  # how to install well-known commands that are missing
    "study": "calipers study is a separate package: "
    "run `pip install ./study` in a clone of the calipers repository"
}


class PluginError(RuntimeError):
    """A command of another distribution that is not installed or cannot be loaded."""


class PluginCommand(TyperCommand):
    """Placeholder for a command of another distribution, which is imported when it is used."""

    def __init__(self, entry: "EntryPoint") -> None:
        summary = entry.dist.metadata["Summary"] if entry.dist else None
        super().__init__(entry.name, help=summary)
        self.entry = entry

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        return load(self.entry).make_context(info_name, args, *rest, **extra)


def find() -> dict[str, PluginCommand]:
    """Return the commands of other distributions by name; none if entry points are unreadable."""
    from importlib.metadata import entry_points  # slow, and few commands need it

    try:
        return {entry.name: PluginCommand(entry) for entry in entry_points(group=GROUP)}
    except Exception as error:  # of any distribution, even one that adds no command
        typer.echo(f"commands of other packages cannot be read: {error}", err=True)
        return {}


def load(entry: "EntryPoint") -> Any:
    """Import the command of an entry point."""
    source = entry.dist.name if entry.dist else "another package"
    try:
        command = entry.load()
    except Exception as error:
        raise PluginError(
            f"the command {entry.name!r} of {source} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=entry.name)
    elif callable(command):
        add_command(holder, entry.name, command)
    else:
        raise PluginError(
            f"the command {entry.name!r} of {source} must be a typer.Typer or a function, "
            f"got {command!r}"
        )
    return typer.main.get_group(holder).commands[entry.name]
