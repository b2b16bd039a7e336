"""The processor of this machine, and an error for JAX after a fork."""

import os
import platform
from pathlib import Path

_computing = False
_cut_off = False


def processor() -> str:
    """Features of the processor, on which machine code and so a network's bits may depend."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def before_computing() -> None:
    """Record that JAX computes in this process; raise RuntimeError if it would hang.

    It hangs in a process forked from one in which JAX has computed, since a fork does not copy its
    threads.
    """
    global _computing
    if _cut_off:
        raise RuntimeError(
            "this process was forked from one in which calipers had trained or predicted, and the "
            "threads of JAX do not survive a fork: start the workers with "
            "multiprocessing.get_context('spawn') or 'forkserver', or let joblib start them"
        )
    _computing = True


def _after_fork() -> None:
    global _cut_off
    _cut_off = _computing


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
