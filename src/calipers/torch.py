"""Intervals for networks of PyTorch that were trained for points alone.

Two-step learning, as the paper's conclusion suggests it: a network that already predicts well keeps
its points, and an ensemble of small networks, the *heads*, learns the interval around them. The
given network is only ever read, so that nothing it knows can be forgotten. The heads see its
inputs, its point and its features (what enters its last linear layer); they are trained as any
other bank.

What is guaranteed
------------------
Intervals are as honest as the rows that calibrate them are new to the network. A network errs less
on rows it was trained on than on others, and no splitting of those rows into folds among the heads
brings the difference back, since the network itself has seen them all. So ``upgrade`` asks for one
of three things:

- ``fresh=True``: the statement that the network was not trained, stopped or chosen by any of the
  rows ``X, y``. Heads are trained on folds of them, and every row is predicted by heads that have
  not seen it. Coverage is close to nominal, as after ``IntervalRegressor.fit``. Rows beyond the
  network's own are best used so: the heads learn how large its errors really are.
- ``held_out``: the networks of a cross-validation, each with the rows that it was trained without.
  Every row counts twice then, for points and for intervals, and is predicted by a network and by
  heads that have not seen it. Coverage is close to nominal again. Rows that stopped a training
  early count as seen.
- ``X_cal, y_cal``: rows that neither network nor heads have seen, for the finite-sample guarantee
  of split conformal prediction, whatever ``X, y`` are. If ``X, y`` trained the network, the heads
  learn from errors that are too small; intervals then hold their coverage on average, but may be
  too wide for some rows and too narrow for others.

See ``calipers.calibration`` for what these words mean exactly.
"""

import copy
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import torch
except ImportError as error:
    raise ImportError("calipers.torch needs PyTorch: pip install 'calipers[torch]'") from error

from calipers._checks import warn
from calipers.regressor import IntervalRegressor

__all__ = ["TorchPoints", "load", "upgrade"]

FloatArray = NDArray[np.floating[Any]]
Doubles = NDArray[np.float64]

_BLOCK = 8192  # rows that pass through a network at a time
_FORWARD = threading.Lock()  # a hook sees whatever passes, so one thread passes at a time
_HEADS: dict[str, Any] = {"network__hidden_layers": (64, 64), "network__frequencies": 0}


@dataclass(frozen=True, eq=False)
class TorchPoints:
    """Points of networks of PyTorch, and what heads see beside them."""

    networks: tuple[Any, ...]  #: Each takes (rows, inputs) and gives (rows,) or (rows, 1).
    members: NDArray[np.intp]  #: The network behind each member.
    #: Whether heads see, of a single network, its point and what enters its last linear layer.
    features: bool = True
    held_out: NDArray[np.intp] | None = None  #: See ``calipers.bank.Points``.

    def __call__(self, inputs: FloatArray) -> tuple[Doubles, FloatArray]:
        """Points of shape (members, rows), and what heads see of each row."""
        starts = range(0, max(len(inputs), 1), _BLOCK)
        parts = [
            [self._forward(network, inputs[i : i + _BLOCK]) for i in starts]
            for network in self.networks
        ]
        points = np.stack([np.concatenate([point for point, _ in part]) for part in parts])
        if not self.features or len(parts) > 1:
            return points[self.members], inputs
        features = np.concatenate([features for _, features in parts[0]])
        return points[self.members], np.column_stack([inputs, points[0], features])

    def __getitem__(self, chosen: Any) -> "TorchPoints":
        """The points of some of the members."""
        return replace(self, members=self.members[chosen])

    def _forward(self, network: Any, block: FloatArray) -> tuple[Doubles, Doubles]:
        like = next(iter(network.parameters()), torch.zeros(1))
        rows = torch.as_tensor(np.ascontiguousarray(block)).to(like.device, like.dtype)
        entered: list[Any] = []
        with _FORWARD, torch.no_grad():
            hooks = [
                layer.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
                for layer in network.modules()
                if self.features and isinstance(layer, torch.nn.Linear)
            ]
            try:
                point = network(rows)
            finally:
                for hook in hooks:
                    hook.remove()
        features = entered[-1].reshape(len(rows), -1) if entered else rows[:, :0]
        return _checked(point, len(rows)), _numbers(features)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The weights of the networks by their names, and how they are used."""
        arrays = {
            f"{number}.{name}": _stored(value)
            for number, network in enumerate(self.networks)
            for name, value in network.state_dict().items()
        }
        return arrays | {"members": self.members, "features": np.array(self.features)}

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> "TorchPoints":
        """The same networks with the weights that ``to_arrays`` gave."""
        rest = dict(arrays)
        members, features = rest.pop("members"), bool(rest.pop("features"))
        networks = _copies(self.networks * (members.max() + 1 if len(self.networks) == 1 else 1))
        for number, network in enumerate(networks):
            prefix = f"{number}."
            state = {
                name.removeprefix(prefix): torch.as_tensor(rest.pop(name))
                for name in sorted(rest)
                if name.startswith(prefix)
            }
            try:
                network.load_state_dict(state)
            except RuntimeError as error:
                raise ValueError(f"the model was made of another network: {error}") from error
        if rest:
            raise ValueError(f"the model was made of more than {len(networks)} networks")
        return TorchPoints(networks, members, features)


def upgrade(
    network: Any,
    X: Any,
    y: Any,
    *,
    X_cal: Any = None,
    y_cal: Any = None,
    fresh: bool = False,
    held_out: Any = None,
    adapt: float = 0.0,
    features: bool = True,
    sample_weight: Any = None,
    groups: Any = None,
    **parameters: Any,
) -> IntervalRegressor:
    """Give networks that were trained for points calibrated prediction intervals.

    Parameters
    ----------
    network : torch.nn.Module or sequence of them
        Takes a tensor of shape (rows, inputs) in the unit of ``X`` and gives one of shape (rows,)
        or (rows, 1) in the unit of ``y``; scaling belongs inside. It is copied and never changed.
        The point of several networks is their mean.
    X, y : array or tensor of shape (n_samples, n_features) and (n_samples,)
        Rows that the heads learn from.
    X_cal, y_cal : array or tensor, optional
        Rows that neither networks nor heads have seen: intervals get the guarantee of split
        conformal prediction, as by ``IntervalRegressor.conformalize``.
    fresh : bool
        Says that no network has seen any of ``X, y``.
    held_out : array of int of shape (n_samples,), optional
        For networks of a cross-validation on ``X, y``: the fold of each row, from 0. Network i was
        trained without the rows of fold i, and if there are several for each fold, counting goes
        on from the first.
    adapt : float, default 0
        How far a point may move to fit ``y`` better, at most, in root mean squared errors of the
        points on ``X, y``. 0 keeps them. The networks stay as they are even so: the heads learn a
        bounded correction, which cannot carry a point further than that on any row, old or new.
    features : bool
        Whether heads see the point of a single network and what enters its last linear layer.
    sample_weight, groups : array-like, optional
        As in ``IntervalRegressor.fit``.
    **parameters
        Parameters of the ``IntervalRegressor`` that holds the heads, on top of
        ``network__hidden_layers=(64, 64)`` and ``network__frequencies=0``.

    Returns
    -------
    IntervalRegressor
        Predicts points, intervals, quantiles and distributions, and is saved like any other;
        ``calipers.torch.load`` reads it again.

    Raises
    ------
    ValueError
        If neither ``fresh`` nor ``held_out`` nor calibration rows are given, or if a network does
        not give points.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> X = torch.rand(400, 1)
    >>> y = 3 * X[:, 0] + 0.1 * torch.randn(400)
    >>> network = torch.nn.Linear(1, 1)  # trained elsewhere, on other rows
    >>> with torch.no_grad():
    ...     _ = network.weight.fill_(3.0), network.bias.fill_(0.0)
    >>> model = upgrade(network, X, y, fresh=True, n_networks=5, epochs=30, random_state=0)
    >>> model.predict([[0.5]]).round(6)
    array([1.5])
    >>> lower, upper = model.predict_interval([[0.5]])[0]
    >>> bool(1 < lower < 1.5 < upper < 2)
    True
    """
    if (X_cal is None) != (y_cal is None):
        raise ValueError("X_cal and y_cal belong together: give both or neither")
    if X_cal is None and held_out is None and not fresh:
        raise ValueError(
            "rows that trained a network cannot calibrate it: say fresh=True if it has seen none "
            "of X, y, or give rows that it has not seen as X_cal, y_cal, or networks of a "
            "cross-validation with held_out"
        )
    settings = _HEADS | ({} if X_cal is None else {"cv": None}) | parameters
    model = IntervalRegressor().set_params(**settings)
    X, y = _as_rows(X), _as_rows(y)
    networks = _several(network)
    if model.n_networks % len(networks):
        raise ValueError(
            f"every network gets as many heads: n_networks must be a multiple of {len(networks)}, "
            f"got {model.n_networks}"
        )
    points = TorchPoints(
        _copies(networks),
        np.arange(model.n_networks) % len(networks),
        features,
        None if held_out is None else _known_folds(_as_rows(held_out), len(networks), len(y)),
    )
    model.upgrade(points, X, y, sample_weight, groups, adapt=adapt, fresh=True)
    _warn_if_useless(points, model, X, y)
    return model if X_cal is None else model.conformalize(_as_rows(X_cal), _as_rows(y_cal))


def load(
    folder: str | os.PathLike[str],
    network: Any,
    *,
    row_weight: Callable[[Doubles], Doubles] | None = None,
) -> IntervalRegressor:
    """Read a model that ``upgrade`` made and ``save`` wrote.

    Parameters
    ----------
    folder : path
        Where the model is.
    network : torch.nn.Module or sequence of them
        Networks of the same build, with any weights: code is not stored, weights are. One will do
        for several of a kind.
    row_weight : callable, optional
        The function that ``conformalize`` was given, for models that have one.

    Raises
    ------
    ValueError
        If the network is not of the same build.
    calipers.storage.ModelFileError
        If the folder holds no model, another kind of model, or a damaged one.
    """
    networks = _copies(_several(network))
    points = TorchPoints(networks, np.arange(len(networks)))
    return IntervalRegressor.load(folder, points=points, row_weight=row_weight)


def _several(network: Any) -> tuple[Any, ...]:
    """One network or a list of them; the lists that are networks themselves are one."""
    if isinstance(network, torch.nn.Module) and not isinstance(network, torch.nn.ModuleList):
        return (network,)
    return tuple(network) if isinstance(network, Iterable) else (network,)


def _copies(networks: Sequence[Any]) -> tuple[Any, ...]:
    """Copies, so that training the originals further changes nothing here."""
    for network in networks:
        if not isinstance(network, torch.nn.Module):
            raise TypeError(f"a network is a torch.nn.Module, got {type(network).__name__}")
    return tuple(copy.deepcopy(network).eval().requires_grad_(False) for network in networks)


def _known_folds(held_out: Any, networks: int, rows: int) -> NDArray[np.intp]:
    found = np.asarray(held_out)
    numbers = np.unique(found)
    in_order = np.array_equal(numbers, np.arange(len(numbers)))
    if found.shape != (rows,) or len(numbers) < 2 or not in_order or networks % len(numbers):
        raise ValueError(
            f"held_out must hold the fold of each of {rows} rows, numbered from 0, and the "
            f"networks must be as many as folds or a multiple of it: got shape {found.shape}, "
            f"folds {numbers.tolist()[:10]} and {networks} networks"
        )
    return found.astype(np.intp)


def _checked(point: Any, rows: int) -> Doubles:
    if not isinstance(point, torch.Tensor) or tuple(point.shape) not in {(rows,), (rows, 1)}:
        found = getattr(point, "shape", type(point).__name__)
        raise ValueError(
            f"the network must give one point for each of {rows} rows, of shape ({rows},) or "
            f"({rows}, 1), got {found}"
        )
    values = _numbers(point).reshape(rows)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"the network gives {values[wrong[0]]} for row {wrong[0]} of these rows, and for "
            f"{wrong.size} of {rows} in all; points must be finite"
        )
    return values


def _as_rows(values: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return _numbers(values) if isinstance(values, torch.Tensor) else values


def _numbers(tensor: Any) -> Doubles:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _stored(tensor: Any) -> NDArray[Any]:
    """A weight as NumPy has it; the short floats, which NumPy lacks, as longer ones."""
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float32)
    return tensor.detach().cpu().numpy()


def _warn_if_useless(points: TorchPoints, model: IntervalRegressor, X: Any, y: Any) -> None:
    inputs, target = model.reader_.read_with_targets(model, X, y)
    error = np.mean((points(inputs)[0].mean(axis=0) - target) ** 2)
    if error > np.var(target):
        warn(
            f"the network's mean squared error on X, y is {error:.3g}, more than the variance of "
            f"y, {np.var(target):.3g}: are its points in the unit of y, and is X in the unit that "
            "it takes?",
        )
