"""A progress bar, shown on terminals and in notebooks only."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress(
    description: str, total: int | None, *, visible: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and yield a function that advances it.

    The function may be called from several threads. Nothing is shown if standard error is neither
    a terminal nor a notebook.

    >>> with progress("training", total=10) as report:
    ...     report(5)
    """
    console = Console(stderr=True)
    if not visible or not (console.is_terminal or console.is_jupyter):
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        lock = threading.Lock()

        def report(done: int) -> None:
            with lock:
                bar.advance(task, done)

        yield report
