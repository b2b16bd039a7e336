"""Connecting to a Dask cluster, checking that it can do the work, and sending values to it."""

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
_PATIENCE = 10  # seconds to wait for the scheduler, and for a first worker
_ENGINE_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")


class ClusterError(RuntimeError):
    """The cluster cannot be reached or used, or the connection to it was lost."""


class Cluster(NamedTuple):
    """A Dask cluster to work on."""

    client: Any  #: The client of Dask.
    address: str  #: Address of the scheduler.
    #: Numbers of workers and threads at the time of connecting.
    workers: int
    threads: int
    processors: int  #: Number of distinct processor models; results have equal bits on one model.

    def send(self, value: object) -> object:
        """A future of a value that many tasks take as an argument."""
        return to_dask(self.client, value)


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """Use a Dask cluster as the backend of joblib within the ``with`` block.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ClusterError
        If Dask is not installed, no scheduler answers, there are no workers, workers differ from
        this machine in a version that matters, or the scheduler is lost within the block.

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
                    f"the scheduler at {address} was lost: files on disk are complete, run the "
                    "same command again when the scheduler is back"
                ) from error


def _use_even_one_thread() -> None:
    """Make the active backend report at least two jobs: joblib would run a single one locally."""
    backend = joblib.parallel.get_active_backend()[0]
    count = backend.effective_n_jobs
    backend.effective_n_jobs = lambda n_jobs: max(2, count(n_jobs))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's logs of a lost connection, since an error reports it."""
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
    """Whether an error says that the cluster has dropped the work."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CancelledError", "FutureCancelledError", "CommClosedError"})


def _check(client: Any, address: str) -> Cluster:
    """Refuse a cluster that could not do the work, or not with the same bits."""
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise ClusterError(
            f"the scheduler at {address} has no workers: start some with `dask worker {address}`"
        ) from None
    workers = client.run(_describe, on_error="return")
    for worker, description in sorted(workers.items()):
        _compare(f"the worker {worker}", description)
    try:
        scheduler = client.run_on_scheduler(_describe)
    except Exception as error:
        scheduler = error
    _compare("the scheduler", scheduler)
    threads = sum(client.nthreads(workers=list(workers)).values())
    processors = {description["processor"] for description in workers.values()}
    return Cluster(client, address, len(workers), threads, len(processors))


def _compare(where: str, description: Any) -> None:
    local = _describe()
    if isinstance(description, BaseException):
        raise ClusterError(
            f"{where} cannot import calipers: install calipers {local['calipers']} there "
            f"({type(description).__name__}: {description})"
        )
    for name in ("python", *_SAME):
        if description[name] != local[name]:
            raise ClusterError(
                f"{where} has {name} {description[name]}, this machine {local[name]}: "
                "install the same version"
            )


def _describe() -> dict[str, str]:
    """Versions that must be the same everywhere, and the model of the processor."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in _SAME:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "none"
    return versions | {"processor": processor()}


_sent: WeakKeyDictionary[Any, dict[int, tuple[Any, Any, Any]]] = WeakKeyDictionary()


def sender(backend: Any, owner: object) -> Callable[[Any], Any]:
    """A function that sends a value to a joblib backend, for many tasks to share.

    It returns a handle to pass as an argument of tasks, or in a list that is one; ``received``
    turns the handle into the value again. For threads and processes of this machine, the handle is
    the value itself. While ``owner`` is alive, values stay where they are and are not sent again.
    """
    client = getattr(backend, "client", None)
    if client is not None:
        return lambda value: _once(owner, value, client, to_dask)
    if type(backend).__module__.startswith("ray."):
        return lambda value: _once(owner, value, None, _to_ray)
    return lambda value: value


def received(value: Any) -> Any:
    """The value of a handle that a ``sender`` returned, on the machine that needs it.

    Dask replaces handles by values, unless the cluster has been reduced to one thread since, where
    joblib runs tasks on this machine.
    """
    if isinstance(value, _InRay):
        import ray

        return ray.get(value.reference)
    in_dask = type(value).__module__.startswith("distributed.") and hasattr(value, "result")
    return value.result() if in_dask else value


def _once(owner: object, value: object, client: object, send: Callable[[Any, Any], Any]) -> Any:
    """The handle of a value, which is sent unless it has been."""
    sent = _sent.setdefault(owner, {})
    # A value must live as long as its id is used as a key, but a reference to the owner here would
    # keep the owner alive for ever.
    keep = None if value is owner else value
    if id(value) in sent:
        _, where, handle = sent[id(value)]
        if where is client and getattr(handle, "status", "") not in ("lost", "cancelled", "error"):
            return handle
    handle = send(client, value)
    sent[id(value)] = (keep, client, handle)
    return handle


def to_dask(client: Any, value: object) -> Any:
    """A future of a task that unpickles the value; scattered, it would be lost with its worker."""
    import cloudpickle
    import dask

    payload = cloudpickle.dumps(value, protocol=5)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"}):
        return client.submit(pickle.loads, payload, pure=False)


class _InRay(NamedTuple):
    """A value in the object store of Ray."""

    reference: Any


def _to_ray(_: Any, value: object) -> Any:
    import ray

    return _InRay(ray.put(value))
