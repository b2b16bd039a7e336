"""Compiled programs, kept in memory for the process and on disk between processes.

Compilation takes seconds, training a small bank often less. JAX has a cache of its own, but turning
it on is a global setting that belongs to the user, so programs are kept here. One made of the
library's own parts alone is kept by their names, numbers and source, so that a new process has it
without tracing it; one with code of users, by the text it is compiled from, whatever they change.

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

import array_api_compat
import equinox
import jax
import jaxlib
import optax
from jax.experimental import serialize_executable

from calipers._files import cache_folder, replacing
from calipers._process import processor

logger = logging.getLogger(__name__)

_LARGEST_CACHE = 512 * 2**20  # bytes on disk; the programs used longest ago go first
_SUFFIX = ".program"
_MOST_IN_MEMORY = 64  # programs; each takes dozens of the 65,530 memory maps that Linux allows
_COMPILER_OPTIONS: dict[str, dict[str, bool | int]] = {
    # One thread is enough: chunks of a bank are what runs side by side.
    "cpu": {"xla_cpu_multi_thread_eigen": False},
    # Trying kernels for small products takes a minute and makes a step a tenth faster.
    "gpu": {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False},
}


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
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    donate: tuple[int, ...] = (),
    results: Any = None,
) -> Callable[..., Any]:
    """Compile ``function`` for arguments of these shapes, or find it compiled.

    Bound methods of equal objects, if they can be hashed, are one program. The results may take
    over the memory of the arguments ``donate``. ``results`` is a tree such as the function returns,
    with anything for arrays: where the object that the function belongs to has a ``description``,
    it is then not traced if it lies on disk.
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
                place.program = _compile(function, arguments, donate, device, results)
        return place.program


def _identity(function: Any) -> tuple[Any, ...]:
    """What makes a bound method the same: Python compares the objects they belong to by ``is``.

    Where an object has names of other code in it, its ``code`` says what they stand for.
    """
    identity = (function.__func__, function.__self__, getattr(function.__self__, "code", ()))
    try:
        hash(identity)
    except TypeError:
        return (function,)
    return identity


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
    results: Any,
) -> Callable[..., Any]:
    """Compile over flat lists of arrays, which can be stored where the trees could not."""
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
        # An accelerator would round to fewer digits.
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
    """What a program is made of, or None where that is not just the library as it is on disk."""
    described = getattr(function.__self__, "description", None)
    if described is None or not _SOURCES or _sources() != _SOURCES:
        return None
    settings = [
        (name, getattr(jax.config, name, value))  # as the context has it, where there is one
        for name, value in sorted(jax.config.values.items())
    ]
    parts = (described, function.__name__, structure, donated, _SOURCES, settings)
    return "\0".join(map(str, parts))


def _sources() -> str:
    """Digests of the sources as they are on disk, and versions; empty without sources."""
    root = Path(__file__).parents[1]
    files = [root / "networks.py", root / "objectives.py"]
    for package in ("bank", "heads", "losses"):
        files += sorted((root / package).glob("*.py"))
    try:
        own = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    except OSError:
        return ""
    libraries: tuple[Any, ...] = (jax, jaxlib, equinox, optax, array_api_compat)
    return str([*own, *(library.__version__ for library in libraries)])


_SOURCES = _sources()  # what this process runs, whatever is installed in its place later


class _Kept:
    """A program from disk or the compiler; one from disk is on trial until it has run."""

    def __init__(
        self, path: Path, lower: Callable[[], jax.stages.Lowered], device: jax.Device
    ) -> None:
        self.path = path
        self.lower: Callable[[], jax.stages.Lowered] | None = lower
        found = _load(path, device)
        if found is None:
            self._compile(lower)
        else:
            self.program = found

    def _compile(self, lower: Callable[[], jax.stages.Lowered]) -> None:
        with single_precision():
            self.program = lower().compile()
        self.lower = None  # what it holds on to is large
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
                raise  # the arguments are gone, there is nothing to try again with
            logger.info("compiled program %s fails and is compiled again: %s", self.path, error)
            self._compile(lower)
            return self.program(*leaves)
        self.lower = None
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


def _fingerprint(text: str, signature: object, device: jax.Device) -> str:
    """Digest of the program's text and of everything that could change its machine code."""
    parts = (
        text,
        signature,  # the text leaves out arguments that are not used
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
