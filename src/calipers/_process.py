"""What this process runs on, and what it can no longer do after a fork."""

import os
import platform
from pathlib import Path

_computing = False
_cut_off = False


def processor() -> str:
    """Features of the processor: machine code, and so a network's bits, may depend on them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def before_computing() -> None:
    """Note that JAX computes in this process, and refuse where it would wait for ever.

    That is in a process forked from one in which JAX had computed: a fork leaves its threads
    behind.
    """
    global _computing
    if _cut_off:
        raise RuntimeError(
            "this process was forked from one in which calipers had trained or predicted, and the "
            "threads of JAX do not survive a fork: start the workers by "
            "multiprocessing.get_context('spawn') or 'forkserver', or let joblib start them"
        )
    _computing = True


def _after_fork() -> None:
    global _cut_off
    _cut_off = _computing


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
