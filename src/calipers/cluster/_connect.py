"""Reaching a Dask cluster, refusing one that could not do the work, and sending it values."""

import asyncio
import logging
import pickle
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import joblib

from calipers._process import processor

_SAME = ("calipers", "jax", "jaxlib", "numpy", "scikit-learn", "scipy")
_PATIENCE = 10  # seconds that a scheduler and a first worker have to answer
_ENGINE_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")


class ClusterError(RuntimeError):
    """A cluster that cannot be reached or used, or was lost."""


class Cluster(NamedTuple):
    """A cluster that work goes to."""

    client: Any  #: The connection.
    address: str  #: Where the scheduler is.
    #: How many there were when it was reached.
    workers: int
    threads: int
    processors: int  #: Kinds of processors among them; bits are the same on one kind.

    def send(self, value: Any) -> Any:
        """A future of a value that many tasks take as an argument."""
        return to_dask(self.client, value)


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """Let joblib work on a Dask cluster while the block runs.

    Parameters
    ----------
    address : str
        Where the scheduler is, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ClusterError
        If Dask is not installed, no scheduler answers, no worker is there, workers differ from this
        machine in a version that matters, or the scheduler is lost on the way.

    Examples
    --------
    >>> with connect("tcp://10.0.0.1:8786") as cluster:  # doctest: +SKIP
    ...     model.fit(X, y)
    """
    try:
        import distributed
    except ImportError as error:
        raise ClusterError(
            f"a cluster needs {error.name}: pip install 'calipers[scale]'"
        ) from error
    with _quiet():
        try:
            client: Any = distributed.Client(address, timeout=_PATIENCE)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {address}: check the address, which begins with "
                "tcp:// or tls://, and that `dask scheduler` is running there"
            ) from error
        with client:
            cluster = _check(client, address)
            try:
                with joblib.parallel_config(backend="dask", client=client):
                    _use_even_one_thread()
                    yield cluster
            except (Exception, asyncio.CancelledError) as error:
                if client.status == "running" and not _is_loss(error):
                    raise
                raise ClusterError(
                    f"the scheduler at {address} was lost: what is on disk is whole, run the same "
                    "again when a scheduler is back"
                ) from error


def _use_even_one_thread() -> None:
    """Make the active backend say two, since joblib would rather work here than on one thread."""
    backend = joblib.parallel.get_active_backend()[0]
    count = backend.effective_n_jobs
    backend.effective_n_jobs = lambda n_jobs: max(2, count(n_jobs))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the engine logs of a lost connection to itself; errors say it once."""
    loggers = [logging.getLogger(name) for name in _ENGINE_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _is_loss(error: BaseException) -> bool:
    """Whether an error says that the engine has dropped the work."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CancelledError", "FutureCancelledError", "CommClosedError"})


def _check(client: Any, address: str) -> Cluster:
    """Refuse a cluster that could not do the work, or not to the same bits."""
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler at {address} has no workers: start some by `dask worker {address}`"
        ) from None
    found = client.run(_describe, on_error="return")
    for worker, description in sorted(found.items()):
        _compare(f"the worker {worker}", description)
    try:
        scheduler = client.run_on_scheduler(_describe)
    except Exception as error:
        scheduler = error
    _compare("the scheduler", scheduler)
    threads = sum(client.nthreads(workers=list(found)).values())
    kinds = {description["processor"] for description in found.values()}
    return Cluster(client, address, len(found), threads, len(kinds))


def _compare(where: str, description: Any) -> None:
    own = _describe()
    if isinstance(description, BaseException):
        raise ClusterError(
            f"{where} cannot import calipers: install calipers {own['calipers']} there "
            f"({type(description).__name__}: {description})"
        )
    for name in ("python", *_SAME):
        if description[name] != own[name]:
            raise ClusterError(
                f"{where} has {name} {description[name]}, this machine {own[name]}: "
                "install the same"
            )


def _describe() -> dict[str, str]:
    """Versions that must be the same everywhere, and the kind of processor."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in _SAME:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found | {"processor": processor()}


_sent: WeakKeyDictionary[Any, dict[int, tuple[Any, Any, Any]]] = WeakKeyDictionary()


def sender(backend: Any, owner: Any) -> Callable[[Any], Any]:
    """How tasks of a joblib backend get values that many of them need.

    The result gives for a value what to pass as an argument, or in a list that is an argument, and
    ``received`` turns it into the value again. Threads and processes of this machine get the value
    itself. As long as ``owner`` lives, what was sent stays where it is and is not sent again.
    """
    client = getattr(backend, "client", None)
    if client is not None:
        return lambda value: _once(owner, value, client, to_dask)
    if type(backend).__module__.startswith("ray."):
        return lambda value: _once(owner, value, None, _to_ray)
    return lambda value: value


def received(value: Any) -> Any:
    """The value that a ``sender`` has sent, on the machine that needs it.

    Dask has put it there already, unless joblib has found that one thread is left of the cluster
    since the value was sent: then it works on this machine.
    """
    if isinstance(value, _InRay):
        return value.value()
    in_dask = type(value).__module__.startswith("distributed.") and hasattr(value, "result")
    return value.result() if in_dask else value


def _once(owner: Any, value: Any, client: Any, send: Callable[[Any, Any], Any]) -> Any:
    """What stands for a value, sent unless it is there."""
    known = _sent.setdefault(owner, {})
    # An owner that is kept by what it owns would live for ever; other values must live as long as
    # their number is used to know them.
    keep = None if value is owner else value
    if id(value) in known:
        _, where, handle = known[id(value)]
        if where is client and getattr(handle, "status", "") not in ("lost", "cancelled", "error"):
            return handle
    handle = send(client, value)
    known[id(value)] = (keep, client, handle)
    return handle


def to_dask(client: Any, value: Any) -> Any:
    """A future of a task that holds the value, pickled.

    Scattering would leave it on one worker, and lost with it.
    """
    import cloudpickle
    import dask

    payload = cloudpickle.dumps(value, protocol=5)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"}):
        return client.submit(pickle.loads, payload, pure=False)


class _InRay(NamedTuple):
    """A value in the object store of Ray."""

    reference: Any

    def value(self) -> Any:
        import ray

        return ray.get(self.reference)


def _to_ray(_: Any, value: Any) -> Any:
    import ray

    return _InRay(ray.put(value))
