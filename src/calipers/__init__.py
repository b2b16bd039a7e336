"""Point predictions and prediction intervals from ensembles of neural networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers.importance import dependence
    from calipers.regressor import IntervalRegressor
    from calipers.rowblocks import RowBlocks

    load = IntervalRegressor.load

__all__ = ["IntervalRegressor", "RowBlocks", "__version__", "dependence", "load"]

__version__ = "0.2.0"


_MODULES = {"IntervalRegressor": "regressor", "RowBlocks": "rowblocks", "dependence": "importance"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # JAX takes a second to import, which `calipers --help` and the losses on NumPy do not need.
    if name == "load":
        return __getattr__("IntervalRegressor").load
    if name not in _MODULES:
        raise AttributeError(f"module 'calipers' has no attribute {name!r}")
    return getattr(import_module(f"calipers.{_MODULES[name]}"), name)
