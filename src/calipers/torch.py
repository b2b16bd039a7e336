"""Prediction intervals for PyTorch networks that were trained for point predictions.

Two-stage learning, as the paper's conclusion suggests: a network that already predicts well keeps
its point predictions, and an ensemble of small networks, the *heads*, learns the interval around
them. The weights of the network do not change. The inputs of the heads are its
inputs, its point prediction and its features (the input of its last linear layer); they are trained
like any other bank.

Guarantees
----------
Intervals are valid only if the rows that calibrate them are new to the network. Its errors are
smaller on rows that it was trained on than on others, and training the heads on folds of these rows
does not help, since the network itself has seen them all. So ``upgrade`` requires one of three
things:

- ``fresh=True``: the statement that none of the rows ``X, y`` was used to train, stop or select the
  network. Heads are trained on folds of them, and every row is predicted by heads that have not
  seen it. Coverage is close to nominal, as after ``IntervalRegressor.fit``. This is the best use of
  rows that the network was not trained on: the heads learn how large its errors really are.
- ``held_out``: the networks of a cross-validation, each with the rows that it was not trained on.
  Every row is then used for points and for intervals, and is predicted by a network and by heads
  that have not seen it. Coverage is close to nominal again. Rows used for early stopping count as
  seen.
- ``X_cal, y_cal``: rows that neither network nor heads have seen, for the finite-sample guarantee
  of split conformal prediction, whatever ``X, y`` are. If the network was trained on ``X, y``, the
  heads learn from errors that are too small; intervals then have their coverage on average, but may
  be too wide for some rows and too narrow for others.

See ``calipers.calibration`` for exact definitions.
"""

import copy
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import AnyFloatArray, FloatArray, IndexLike

try:
    import torch
except ImportError as error:
    raise ImportError("calipers.torch needs PyTorch: pip install 'calipers[torch]'") from error

from calipers._checks import warn
from calipers.regressor import IntervalRegressor

__all__ = ["TorchPoints", "load", "upgrade"]

_BLOCK = 8192  # rows that pass through a network at a time
_FORWARD = threading.Lock()  # a hook sees every forward pass, so there must be one at a time
_HEADS: dict[str, Any] = {"network__hidden_layers": (64, 64), "network__frequencies": 0}


@dataclass(frozen=True, eq=False)
class TorchPoints:
    """Point predictions of PyTorch networks, and the inputs of the heads."""

    networks: tuple[torch.nn.Module, ...]  #: Each maps (rows, inputs) to (rows,) or (rows, 1).
    members: NDArray[np.intp]  #: Index of the network of each member.
    #: Whether the point prediction and features of a single network are inputs of the heads.
    features: bool = True
    held_out: NDArray[np.intp] | None = None  #: See ``calipers.bank.Points``.

    def __call__(self, inputs: AnyFloatArray) -> tuple[FloatArray, AnyFloatArray]:
        """Point predictions of shape (members, rows), and the inputs of the heads."""
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

    def __getitem__(self, index: IndexLike) -> "TorchPoints":
        """Select some of the members."""
        return replace(self, members=self.members[index])

    def _forward(
        self, network: torch.nn.Module, block: AnyFloatArray
    ) -> tuple[FloatArray, FloatArray]:
        like = next(iter(network.parameters()), torch.zeros(1))
        rows = torch.as_tensor(np.ascontiguousarray(block)).to(like.device, like.dtype)
        layer_inputs: list[Any] = []
        with _FORWARD, torch.no_grad():
            hooks = [
                layer.register_forward_pre_hook(lambda _, args: layer_inputs.append(args[0]))
                for layer in network.modules()
                if self.features and isinstance(layer, torch.nn.Linear)
            ]
            try:
                point = network(rows)
            finally:
                for hook in hooks:
                    hook.remove()
        features = layer_inputs[-1].reshape(len(rows), -1) if layer_inputs else rows[:, :0]
        return _checked(point, len(rows)), _numbers(features)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state of the networks, ``members`` and ``features``."""
        arrays = {
            f"{number}.{name}": _stored(value)
            for number, network in enumerate(self.networks)
            for name, value in network.state_dict().items()
        }
        return arrays | {"members": self.members, "features": np.array(self.features)}

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> "TorchPoints":
        """Return the same networks with the state that ``to_arrays`` returned."""
        remaining = dict(arrays)
        members, features = remaining.pop("members"), bool(remaining.pop("features"))
        networks = _copies(self.networks * (members.max() + 1 if len(self.networks) == 1 else 1))
        for number, network in enumerate(networks):
            prefix = f"{number}."
            state = {
                name.removeprefix(prefix): torch.as_tensor(remaining.pop(name))
                for name in sorted(remaining)
                if name.startswith(prefix)
            }
            try:
                network.load_state_dict(state)
            except RuntimeError as error:
                raise ValueError(f"the model was saved with another network: {error}") from error
        if remaining:
            raise ValueError(f"the model was saved with more than {len(networks)} networks")
        return TorchPoints(networks, members, features)


def upgrade(
    network: "torch.nn.Module | Sequence[torch.nn.Module]",
    X: "ArrayLike | torch.Tensor",
    y: "ArrayLike | torch.Tensor",
    *,
    X_cal: "ArrayLike | torch.Tensor | None" = None,
    y_cal: "ArrayLike | torch.Tensor | None" = None,
    fresh: bool = False,
    held_out: "ArrayLike | torch.Tensor | None" = None,
    adapt: float = 0.0,
    features: bool = True,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    **parameters: object,
) -> IntervalRegressor:
    """Add calibrated prediction intervals to networks that were trained for point predictions.

    Parameters
    ----------
    network : torch.nn.Module or sequence of them
        Maps a tensor of shape (rows, inputs) in the unit of ``X`` to one of shape (rows,) or
        (rows, 1) in the unit of ``y``; any scaling must be part of it. It is copied and never
        changed. The point prediction of several networks is their mean.
    X, y : array or tensor of shape (n_samples, n_features) and (n_samples,)
        Training rows of the heads.
    X_cal, y_cal : array or tensor, optional
        Rows that neither networks nor heads have seen: intervals get the guarantee of split
        conformal prediction, as by ``IntervalRegressor.conformalize``.
    fresh : bool
        States that no network has seen any of ``X, y``.
    held_out : array of int of shape (n_samples,), optional
        For networks of a cross-validation on ``X, y``: the fold of each row, from 0. Network i was
        trained without the rows of fold i modulo the number of folds.
    adapt : float, default 0
        Largest change of a point prediction, to fit ``y`` better, in units of the root mean
        squared error on ``X, y``. 0 keeps the predictions. The networks do not change in any case:
        the heads learn a correction, which has this bound on every row, old or new.
    features : bool
        Whether the point prediction of a single network and the input of its last linear layer are
        inputs of the heads.
    sample_weight, groups : array-like, optional
        As in ``IntervalRegressor.fit``.
    **parameters
        Parameters of the ``IntervalRegressor`` of the heads, on top of
        ``network__hidden_layers=(64, 64)`` and ``network__frequencies=0``.

    Returns
    -------
    IntervalRegressor
        Predicts points, intervals, quantiles and distributions, and is saved like any other;
        ``calipers.torch.load`` loads it.

    Raises
    ------
    ValueError
        If neither ``fresh`` nor ``held_out`` nor calibration rows are given, or if the output of a
        network has the wrong shape or is not finite.

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
            "rows that a network was trained on cannot calibrate it: set fresh=True if it has seen "
            "none of X, y, or pass rows that it has not seen as X_cal, y_cal, or networks of a "
            "cross-validation with held_out"
        )
    settings = _HEADS | ({} if X_cal is None else {"cv": None}) | parameters
    model = IntervalRegressor().set_params(**settings)
    X, y = _as_rows(X), _as_rows(y)
    networks = _several(network)
    if model.n_networks % len(networks):
        raise ValueError(
            f"n_networks, the number of heads, must be a multiple of the {len(networks)} networks, "
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
    network: "torch.nn.Module | Sequence[torch.nn.Module]",
    *,
    row_weight: Callable[[FloatArray], FloatArray] | None = None,
) -> IntervalRegressor:
    """Load a model that ``upgrade`` made and ``save`` wrote.

    Parameters
    ----------
    folder : path
        The model folder.
    network : torch.nn.Module or sequence of them
        Networks of the same architecture, with any weights: code is not stored, weights are. One is
        enough for several of the same architecture.
    row_weight : callable, optional
        The function that was given to ``conformalize``, for models that have one.

    Raises
    ------
    ValueError
        If the network has another architecture.
    calipers.storage.ModelFileError
        If the folder contains no model, another kind of model, or a damaged one.
    """
    networks = _copies(_several(network))
    points = TorchPoints(networks, np.arange(len(networks)))
    return IntervalRegressor.load(folder, points=points, row_weight=row_weight)


def _several(
    network: "torch.nn.Module | Sequence[torch.nn.Module]",
) -> tuple[torch.nn.Module, ...]:
    """Return the networks as a tuple; a container that is itself a network counts as one."""
    if isinstance(network, torch.nn.Module) and not isinstance(network, torch.nn.ModuleList):
        return (network,)
    return tuple(network) if isinstance(network, Iterable) else (network,)


def _copies(networks: Sequence[torch.nn.Module]) -> tuple[torch.nn.Module, ...]:
    """Copy networks, so that further training of the originals has no effect."""
    for network in networks:
        if not isinstance(network, torch.nn.Module):
            raise TypeError(f"network must be a torch.nn.Module, got {type(network).__name__}")
    return tuple(copy.deepcopy(network).eval().requires_grad_(False) for network in networks)


def _known_folds(held_out: ArrayLike, networks: int, rows: int) -> NDArray[np.intp]:
    """Validate ``held_out``, the fold of each row."""
    fold_of = np.asarray(held_out)
    numbers = np.unique(fold_of)
    in_order = np.array_equal(numbers, np.arange(len(numbers)))
    if fold_of.shape != (rows,) or len(numbers) < 2 or not in_order or networks % len(numbers):
        raise ValueError(
            f"held_out must hold the fold of each of {rows} rows, numbered from 0, and the number "
            f"of networks must be a multiple of the number of folds: got shape {fold_of.shape}, "
            f"folds {numbers.tolist()[:10]} and {networks} networks"
        )
    return fold_of.astype(np.intp)


def _checked(point: torch.Tensor, rows: int) -> FloatArray:
    """Validate the output of a network, and return it as an array of shape (rows,)."""
    if not isinstance(point, torch.Tensor) or tuple(point.shape) not in {(rows,), (rows, 1)}:
        shape = getattr(point, "shape", type(point).__name__)
        raise ValueError(
            f"the network must give one point for each of {rows} rows, of shape ({rows},) or "
            f"({rows}, 1), got {shape}"
        )
    values = _numbers(point).reshape(rows)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"the network's output must be finite, got {values[wrong[0]]} in row {wrong[0]} (from "
            f"0), one of {wrong.size} of {rows} rows"
        )
    return values


def _as_rows(values: "ArrayLike | torch.Tensor") -> Any:
    """Return a tensor as an array; anything else unchanged."""
    return _numbers(values) if isinstance(values, torch.Tensor) else values


def _numbers(tensor: torch.Tensor) -> FloatArray:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _stored(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as an array; half-precision floats, some unknown to NumPy, as float32."""
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float32)
    return tensor.detach().cpu().numpy()


def _warn_if_useless(
    points: TorchPoints, model: IntervalRegressor, X: ArrayLike, y: ArrayLike
) -> None:
    """Warn if a constant would predict better than the network."""
    inputs, target = model.reader_.read_with_targets(model, X, y)
    error = np.mean((points(inputs)[0].mean(axis=0) - target) ** 2)
    if error > np.var(target):
        warn(
            f"the network's mean squared error on X, y is {error:.3g}, more than the variance of "
            f"y, {np.var(target):.3g}: is its output in the unit of y, and X in the unit that it "
            "takes?"
        )
