"""A progress bar, shown on terminals and in notebooks only."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console


@contextmanager
def progress(
    description: str, total: int | None, *, unit: str = "", visible: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, and yield a function that advances it.

    The function may be called from several threads. Nothing is shown if standard error is neither
    a terminal nor a notebook. With a ``unit``, ``total`` is an upper limit: the bar shows no time
    left, and a line that shows how far the work came remains.

    >>> with progress("training", total=10) as report:
    ...     report(5)
    """
    console = Console(stderr=True)
    if not visible or not (console.is_terminal or console.is_jupyter):
        yield lambda _: None
        return
    of_most = f" {unit}" if total is None else f" of at most {total:,} {unit}"
    rest: tuple[bars.ProgressColumn, ...] = (bars.TaskProgressColumn(), bars.TimeRemainingColumn())
    if unit:
        count = bars.TextColumn(f"{{task.completed:,.0f}}{of_most}")
        rest = (count, bars.TimeElapsedColumn())
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), *rest)
    began = time.monotonic()
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        lock = threading.Lock()

        def report(done: int) -> None:
            with lock:
                bar.advance(task, done)

        yield report
    if unit:
        done, seconds = bar.tasks[0].completed, time.monotonic() - began
        # Networks that fail are trained again, so there may be more epochs than planned.
        reached = of_most if total is not None and done < total else f" {unit}"
        console.print(f"{description}: {done:,.0f}{reached} in {seconds:.0f} s", highlight=False)
