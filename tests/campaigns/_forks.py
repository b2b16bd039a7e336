"""Children of this process: killed at a chosen moment, kept from writing, asked how they ended.

Children are forked before JAX has computed anything here, since its threads do not survive a fork.
A fork has all modules already, so that a thousand of them take seconds.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

FINISHED, KILLED, FAILED = "finished", "killed", "failed"
_FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "fcntl.flock"}


def fork(function: Callable[[], Any], *, quiet: bool = True) -> int:
    """Run a function in a child; gives its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        found = function()
        code = found if isinstance(found, int) else 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> tuple[str, int]:
    """Wait for a child; how it ended, and its exit code or signal."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return KILLED, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    return (FAILED if code else FINISHED), code


def kill_after(child: int, seconds: float) -> str:
    """Kill a child after some time, unless it is done by then."""
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return ended(child)[0]


def dies_at(number: int, place: str, function: Callable[[], Any]) -> Callable[[], Any]:
    """The function in a process that dies before its n-th step on files under a place."""

    def run() -> Any:
        steps = 0

        def look(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            if event in _FILE_EVENTS and (event == "fcntl.flock" or place in str(arguments[0])):
                steps += 1
                if steps == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        return function()

    return run


def with_file_limit(size: int, function: Callable[[], Any]) -> Callable[[], Any]:
    """The function in a process whose files may have so many bytes: a disk that is full there."""

    def run() -> Any:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return function()

    return run


def duration(function: Callable[[], Any]) -> float:
    """Seconds that a function takes in a child."""
    began = time.monotonic()
    found = ended(fork(function))
    if found[0] != FINISHED:
        raise RuntimeError(f"a run that nothing disturbed ended as {found}")
    return time.monotonic() - began
