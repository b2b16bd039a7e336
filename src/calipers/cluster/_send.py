"""Sending what many tasks need: once to the cluster, and once to each worker."""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

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
