"""Compiled programs, kept in memory for the process and on disk between processes.

Compilation takes seconds, training a small bank often less. JAX has a cache of its own, but turning
it on is a global setting that belongs to the user, so programs are kept here by the text they were
compiled from.
"""

import contextlib
import hashlib
import logging
import pickle
import platform
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from calipers._files import cache_folder, replacing

logger = logging.getLogger(__name__)

_LARGEST_CACHE = 512 * 2**20  # bytes on disk; the programs used longest ago go first
_SUFFIX = ".program"
_MOST_IN_MEMORY = 64  # programs; each takes dozens of the 65,530 memory maps that Linux allows
_compiled: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
_lock = threading.Lock()


def compiled(
    function: Callable[..., Any], arguments: tuple[Any, ...], *, donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Compile ``function`` for arguments of these shapes, or find it compiled.

    Parameters
    ----------
    function : callable
        A bound method of a hashable object, so that equal programs are found again.
    arguments : tuple
        Trees of arrays as the function will get them.
    donate : tuple of int
        Arguments whose memory the results may take over.
    """
    leaves, structure = jax.tree.flatten(arguments)
    key = (function, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    with _lock:
        if key not in _compiled:
            _compiled[key] = _compile(function, arguments, donate)
        _compiled.move_to_end(key)
        if len(_compiled) > _MOST_IN_MEMORY:
            _compiled.popitem(last=False)
        return _compiled[key]


def _compile(
    function: Callable[..., Any], arguments: tuple[Any, ...], donate: tuple[int, ...]
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
    options = {"xla_cpu_multi_thread_eigen": False} if jax.default_backend() == "cpu" else None
    jitted = jax.jit(flat, donate_argnums=donated, compiler_options=options)
    with jax.default_matmul_precision("float32"):  # an accelerator would round to fewer digits
        lowered = jitted.lower(*leaves)
    program = _from_disk(lowered, [(leaf.shape, leaf.dtype) for leaf in leaves])

    def call(*arguments: Any) -> Any:
        return jax.tree.unflatten(results, program(*jax.tree.leaves(arguments)))

    return call


def _from_disk(lowered: Any, signature: Any) -> Callable[..., Any]:
    path = cache_folder() / "programs" / (_fingerprint(lowered, signature) + _SUFFIX)
    try:
        program = serialize_executable.deserialize_and_load(*pickle.loads(path.read_bytes()))  # noqa: S301 - the user's own cache, as trusted as __pycache__
        path.touch()
    except FileNotFoundError:
        pass
    except Exception as error:  # a cache must never be the reason that training fails
        logger.info("compiled program %s cannot be used: %s", path, error)
    else:
        return program
    program = lowered.compile()
    try:
        _write(path, pickle.dumps(serialize_executable.serialize(program)))
    except Exception as error:
        logger.info("compiled program is not kept in %s: %s", path, error)
    return program


def _fingerprint(lowered: Any, signature: Any) -> str:
    """Digest of the program's text and of everything that could change its machine code."""
    device = jax.devices()[0]
    parts = (
        lowered.as_text(),
        signature,  # the text leaves out arguments that are not used
        jax.__version__,
        device.client.platform_version,
        device.device_kind,
        platform.machine(),
        _processor_features(),
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _processor_features() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path, mode=0o600) as file:
        file.write(content)
    kept = sorted(path.parent.glob(f"*{_SUFFIX}"), key=lambda p: p.stat().st_mtime, reverse=True)
    size = 0
    for old in kept:
        size += old.stat().st_size
        if size > _LARGEST_CACHE:
            old.unlink(missing_ok=True)
