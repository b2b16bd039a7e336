"""A progress bar on terminals, and nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def progress(description: str, total: int, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yields a function to call with the work just done."""
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=not (visible and console.is_terminal)
    ) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)
