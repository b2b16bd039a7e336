"""Compiled programs, kept in memory for the process and on disk between processes.

Compilation takes seconds, training a small bank often less. JAX has a cache of its own, but turning
it on is a global setting that belongs to the user, so programs are kept here by the text they were
compiled from.

A program on disk is code: it is loaded only from a folder and a file that belong to the user and
that no one else may write. One that cannot be loaded, or fails when it first runs, is compiled
again.
"""

import hashlib
import logging
import os
import pickle
import platform
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from calipers._files import cache_folder, replacing
from calipers._process import processor

logger = logging.getLogger(__name__)

_LARGEST_CACHE = 512 * 2**20  # bytes on disk; the programs used longest ago go first
_SUFFIX = ".program"
_MOST_IN_MEMORY = 64  # programs; each takes dozens of the 65,530 memory maps that Linux allows


@dataclass
class _Place:
    """A program, once it is compiled."""

    program: Callable[..., Any] | None = None
    lock: Any = field(default_factory=threading.Lock)


_compiled: OrderedDict[Any, _Place] = OrderedDict()
_lock = threading.Lock()


def single_precision() -> AbstractContextManager[Any]:
    """Context in which JAX has single precision, whatever ``JAX_ENABLE_X64`` says."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(False)
    from jax.experimental import disable_x64  # type: ignore[attr-defined]  # before JAX 0.8

    return disable_x64()


def compiled(
    function: Callable[..., Any], arguments: tuple[Any, ...], *, donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Compile ``function`` for arguments of these shapes, or find it compiled.

    Parameters
    ----------
    function : callable
        A bound method; those of equal objects, if they can be hashed, are one program.
    arguments : tuple
        Trees of arrays as the function will get them.
    donate : tuple of int
        Arguments whose memory the results may take over.
    """
    leaves, structure = jax.tree.flatten(arguments)
    device = default_device()
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    key = (*_identity(function), structure, shapes, device)
    with _lock:
        place = _compiled.setdefault(key, _Place())
        _compiled.move_to_end(key)
        if len(_compiled) > _MOST_IN_MEMORY:
            _compiled.popitem(last=False)
    with place.lock:  # of one program: others compile and run meanwhile
        if place.program is None:
            with single_precision():
                place.program = _compile(function, arguments, donate, device)
        return place.program


def _identity(function: Any) -> tuple[Any, ...]:
    """What makes a bound method the same: Python compares the objects they belong to by ``is``."""
    try:
        hash(function.__self__)
    except TypeError:
        return (function,)
    return (function.__func__, function.__self__)


def training_devices(jobs: int) -> list[jax.Device | None]:
    """Devices over which chunks that train at the same time are spread; None is the usual one.

    All accelerators that there are; of processors that XLA makes several of, no more than there are
    jobs; one alone where ``jax.default_device`` says which, since threads do not hear of that.
    """
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return [default_device()]
    found = jax.local_devices()
    if found[0].platform == "cpu":
        found = found[:jobs]
    return [None] if len(found) == 1 else [*found]


def default_device() -> jax.Device:
    """The device that programs run on, which ``jax.default_device`` may say."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None or isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen


def _compile(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    donate: tuple[int, ...],
    device: jax.Device,
) -> Callable[..., Any]:
    """Compile over flat lists of arrays, which can be stored where the trees could not."""
    leaves, structure = jax.tree.flatten(arguments)
    position = [i for i, tree in enumerate(arguments) for _ in jax.tree.leaves(tree)]
    results: Any = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal results
        flattened, results = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
        return flattened

    donated = [i for i, argument in enumerate(position) if argument in donate]
    # One thread is enough: chunks of a bank are what runs side by side.
    options = {"xla_cpu_multi_thread_eigen": False} if device.platform == "cpu" else None
    jitted = jax.jit(flat, donate_argnums=donated, compiler_options=options)
    with jax.default_matmul_precision("float32"):  # an accelerator would round to fewer digits
        lowered = jitted.lower(*leaves)
    signature = [(leaf.shape, leaf.dtype) for leaf in leaves]
    path = cache_folder() / "programs" / (_fingerprint(lowered, signature, device) + _SUFFIX)
    program = _Kept(path, lowered, device)

    def call(*arguments: Any) -> Any:
        return jax.tree.unflatten(results, program(jax.tree.leaves(arguments)))

    return call


class _Kept:
    """A program from disk or the compiler; one from disk is on trial until it has run."""

    def __init__(self, path: Path, lowered: jax.stages.Lowered, device: jax.Device) -> None:
        self.path = path
        self.lowered: jax.stages.Lowered | None = lowered
        found = _load(path, device)
        if found is None:
            self._compile(lowered)
        else:
            self.program = found

    def _compile(self, lowered: jax.stages.Lowered) -> None:
        self.program = lowered.compile()
        self.lowered = None  # its text is large
        _store(self.path, self.program)

    def __call__(self, leaves: list[Any]) -> list[jax.Array]:
        lowered = self.lowered
        if lowered is None:
            return self.program(*leaves)
        try:
            results = self.program(*leaves)
            jax.block_until_ready(results)  # type: ignore[no-untyped-call]
        except Exception as error:
            if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves):
                raise  # the arguments are gone, there is nothing to try again with
            logger.info("compiled program %s fails and is compiled again: %s", self.path, error)
            with single_precision():
                self._compile(lowered)
            return self.program(*leaves)
        self.lowered = None
        return results


def _load(path: Path, device: jax.Device) -> jax.stages.Compiled | None:
    """A program from disk, or None if there is none that can be used and trusted."""
    # Without the device, JAX would load the program for all that there are.
    several = device.client.device_count() > 1
    place: dict[str, Any] = {"execution_devices": [device]} if several else {}
    try:
        code, inputs, outputs = pickle.loads(_read_own(path))  # noqa: S301 - the user's own code
        return serialize_executable.deserialize_and_load(
            code, inputs, outputs, device.client, **place
        )
    except FileNotFoundError:
        return None
    except Exception as error:  # a cache must never be the reason that training fails
        logger.info("compiled program %s cannot be used: %s", path, error)
        return None


def _store(path: Path, program: jax.stages.Compiled) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(path.parent, path.parent.stat())
        content = pickle.dumps(serialize_executable.serialize(program))
        with replacing(path, mode=0o600) as file:
            file.write(content)
        _evict(path.parent)
    except Exception as error:
        logger.info("compiled program is not kept in %s: %s", path, error)


def _read_own(path: Path) -> bytes:
    """Bytes of a file that only the user can have written; marks it as used."""
    _check_owner(path.parent, path.parent.stat())
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
        _check_owner(path, os.fstat(file.fileno()))
        content = file.read()
        with suppress(OSError, TypeError):  # Windows cannot mark an open file
            os.utime(file.fileno())
        return content


def _check_owner(path: Path, found: os.stat_result) -> None:
    if sys.platform == "win32":  # has other rights
        return
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user and could hold code of theirs")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} may be written by other users: chmod go-w {path}")


def _evict(folder: Path) -> None:
    """Remove the files used longest ago until the rest is small enough."""
    found = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process may be at it too
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    size = 0
    for _, bytes_, path in sorted(found, reverse=True):
        size += bytes_
        if size > _LARGEST_CACHE:
            path.unlink(missing_ok=True)


def _fingerprint(lowered: jax.stages.Lowered, signature: object, device: jax.Device) -> str:
    """Digest of the program's text and of everything that could change its machine code."""
    parts = (
        lowered.as_text(),
        signature,  # the text leaves out arguments that are not used
        jax.__version__,
        device.client.platform_version,
        [(other.device_kind, other.id) for other in device.client.devices()],
        device.id,
        platform.machine(),
        processor(),
        os.environ.get("XLA_FLAGS", ""),
        jax.config.values["jax_disable_most_optimizations"],
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
