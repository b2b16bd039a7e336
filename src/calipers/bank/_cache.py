"""A cache of compiled programs, in memory for the process and on disk between processes.

Compilation takes seconds, training a small bank often less. JAX has a cache of its own, but turning
it on is a global setting that belongs to the user. A program made only of parts of the library is
found by their names, parameters and source code, so that a new process need not trace it; one with
code of users by the text that it is compiled from, whatever that code does.

A program on disk is code: it is loaded only if its file and folder belong to the user and nobody
else may write to them. A program that cannot be loaded, or fails on its first run, is compiled
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

import array_api_compat
import equinox
import jax
import jaxlib
from jax.experimental import serialize_executable

from calipers._files import cache_folder, replacing
from calipers._process import processor

logger = logging.getLogger(__name__)

_MAX_CACHE = 512 * 2**20  # bytes on disk; the least recently used programs are removed
_SUFFIX = ".program"
_MAX_IN_MEMORY = 64  # programs; each takes dozens of the 65,530 memory maps that Linux allows
_COMPILER_OPTIONS: dict[str, dict[str, bool | int]] = {
    # One thread per program is enough: chunks of a bank run in parallel.
    "cpu": {"xla_cpu_multi_thread_eigen": False},
    # Autotuning of small matrix products takes a minute and makes a step only 10% faster.
    "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}


@dataclass
class _Slot:
    """A program, or None until it is compiled."""

    program: Callable[..., Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_compiled: OrderedDict[Any, _Slot] = OrderedDict()
_lock = threading.Lock()


def single_precision() -> AbstractContextManager[Any]:
    """Context in which JAX uses single precision, whatever ``JAX_ENABLE_X64`` says."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(False)
    from jax.experimental import disable_x64  # type: ignore[attr-defined]  # before JAX 0.8

    return disable_x64()


def compiled(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    donate: tuple[int, ...] = (),
    results: Any = None,
) -> Callable[..., Any]:
    """Return ``function`` compiled for arguments of these shapes, from the cache if possible.

    Methods of equal, hashable objects share a program. The results may reuse
    the memory of the arguments numbered in ``donate``. ``results`` is a tree with the structure of
    what the function returns and anything for leaves: with it, a method of an object that has a
    ``description`` is not traced if its program is on disk.
    """
    leaves, structure = jax.tree.flatten(arguments)
    device = default_device()
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    key = (*_identity(function), structure, shapes, device)
    with _lock:
        slot = _compiled.setdefault(key, _Slot())
        _compiled.move_to_end(key)
        if len(_compiled) > _MAX_IN_MEMORY:
            _compiled.popitem(last=False)
    with slot.lock:  # a lock per program: others compile and run meanwhile
        if slot.program is None:
            with single_precision():
                slot.program = _compile(function, arguments, donate, device, results)
        return slot.program


def _identity(function: Any) -> tuple[Any, ...]:
    """A key that is equal for the same method of equal objects, unlike the bound methods.

    An object that refers to other code by name has a ``code``: the objects so named.
    """
    identity = (function.__func__, function.__self__, getattr(function.__self__, "code", ()))
    try:
        hash(identity)
    except TypeError:
        return (function,)
    return identity


def training_devices(jobs: int) -> list[jax.Device | None]:
    """Devices over which chunks that train at the same time are spread; None for the default.

    These are all accelerators, or up to ``jobs`` of the CPU devices that XLA was told to make. If
    ``jax.default_device`` is set, it is the only one, named here since threads do not inherit it.
    """
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return [default_device()]
    devices = jax.local_devices()
    if devices[0].platform == "cpu":
        devices = devices[:jobs]
    return [None] if len(devices) == 1 else [*devices]


def default_device() -> jax.Device:
    """The device that programs run on: ``jax.default_device`` if it is set."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None or isinstance(chosen, str):
        return jax.devices(chosen)[0]
    return chosen


def _compile(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    donate: tuple[int, ...],
    device: jax.Device,
    results: Any,
) -> Callable[..., Any]:
    """Compile ``function`` over flat lists of arrays, since trees could not be stored."""
    leaves, structure = jax.tree.flatten(arguments)
    position = [i for i, tree in enumerate(arguments) for _ in jax.tree.leaves(tree)]
    tree = None if results is None else jax.tree.structure(results)

    def flat(*leaves: Any) -> list[Any]:
        nonlocal tree
        flattened, tree = jax.tree.flatten(function(*jax.tree.unflatten(structure, leaves)))
        return flattened

    donated = [i for i, argument in enumerate(position) if argument in donate]
    options = _COMPILER_OPTIONS.get(device.platform)

    def lower() -> jax.stages.Lowered:
        jitted = jax.jit(flat, donate_argnums=donated, compiler_options=options)
        # By default, accelerators multiply matrices in lower precision.
        with single_precision(), jax.default_matmul_precision("float32"):
            return jitted.lower(*leaves)

    signature = [(leaf.shape, leaf.dtype) for leaf in leaves]
    text = None if results is None else _description(function, structure, donated)
    if text is None:
        lowered = lower()
        text, lower = lowered.as_text(), lambda: lowered
    name = _fingerprint(text, signature, device) + _SUFFIX
    program = _Kept(cache_folder() / "programs" / name, lower, device)

    def call(*arguments: Any) -> Any:
        return jax.tree.unflatten(tree, program(jax.tree.leaves(arguments)))

    return call


def _description(function: Any, structure: Any, donated: list[int]) -> str | None:
    """A text that determines a program, or None if it contains more than the library on disk."""
    description = getattr(function.__self__, "description", None)
    if description is None or not _SOURCES or _sources() != _SOURCES:
        return None
    settings = [
        (name, getattr(jax.config, name, value))  # getattr sees values set by a context
        for name, value in sorted(jax.config.values.items())
    ]
    parts = (description, function.__name__, structure, donated, _SOURCES, settings)
    return "\0".join(map(str, parts))


def _sources() -> str:
    """Digests of the source files on disk and versions of libraries; empty without sources."""
    root = Path(__file__).parents[1]
    files = [root / "objectives.py"]
    for package in ("bank", "heads", "losses", "networks"):
        files += sorted((root / package).glob("*.py"))
    try:
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    except OSError:
        return ""
    libraries: tuple[Any, ...] = (jax, jaxlib, equinox, array_api_compat)
    return str([*digests, *(library.__version__ for library in libraries)])


_SOURCES = _sources()  # of this process, even if another version is installed later


class _Kept:
    """A program from disk or the compiler; one from disk is compiled again if its first run fails.

    ``lower`` returns the code to compile; it is None once the program has been run.
    """

    def __init__(
        self, path: Path, lower: Callable[[], jax.stages.Lowered], device: jax.Device
    ) -> None:
        self.path = path
        self.lower: Callable[[], jax.stages.Lowered] | None = lower
        program = _load(path, device)
        if program is None:
            self._compile(lower)
        else:
            self.program = program

    def _compile(self, lower: Callable[[], jax.stages.Lowered]) -> None:
        with single_precision():
            self.program = lower().compile()
        self.lower = None  # it refers to large objects
        _store(self.path, self.program)

    def __call__(self, leaves: list[Any]) -> list[jax.Array]:
        lower = self.lower
        if lower is None:
            return self.program(*leaves)
        try:
            results = self.program(*leaves)
            jax.block_until_ready(results)  # type: ignore[no-untyped-call]
        except Exception as error:
            if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves):
                raise  # the arguments were donated, so there is nothing to try again with
            logger.info("compiled program %s failed and is compiled again: %s", self.path, error)
            self._compile(lower)
            return self.program(*leaves)
        self.lower = None
        return results


def _load(path: Path, device: jax.Device) -> jax.stages.Compiled | None:
    """A program from disk, or None if there is none that can be used and trusted."""
    # Without the device, JAX would load the program for all devices.
    several = device.client.device_count() > 1
    options: dict[str, Any] = {"execution_devices": [device]} if several else {}
    try:
        code, inputs, outputs = pickle.loads(_read_own(path))  # noqa: S301 - the user's own code
        return serialize_executable.deserialize_and_load(
            code, inputs, outputs, device.client, **options
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
        logger.info("compiled program cannot be stored in %s: %s", path, error)


def _read_own(path: Path) -> bytes:
    """Bytes of a file that only the user can have written; marks the file as used."""
    _check_owner(path.parent, path.parent.stat())
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
        _check_owner(path, os.fstat(file.fileno()))
        content = file.read()
        with suppress(OSError, TypeError):  # Windows cannot touch an open file
            os.utime(file.fileno())
        return content


def _check_owner(path: Path, status: os.stat_result) -> None:
    if sys.platform == "win32":  # has no such permissions
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user, whose code it may contain")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is writable by other users: chmod go-w {path}")


def _evict(folder: Path) -> None:
    """Remove the least recently used files until the others are within ``_MAX_CACHE``."""
    files = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process may remove files too
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(files, reverse=True):
        total += size
        if total > _MAX_CACHE:
            path.unlink(missing_ok=True)


def _fingerprint(text: str, signature: object, device: jax.Device) -> str:
    """Digest of the program's text and of everything that could change its machine code."""
    parts = (
        text,
        signature,  # the text omits unused arguments
        jax.__version__,
        device.client.platform_version,
        [(other.device_kind, other.id) for other in device.client.devices()],
        device.id,
        platform.machine(),
        processor(),
        os.environ.get("XLA_FLAGS", ""),
        jax.config.values["jax_disable_most_optimizations"],
        _COMPILER_OPTIONS.get(device.platform),
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
