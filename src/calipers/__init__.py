"""Point estimates and prediction intervals from ensembles of neural networks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers.importance import dependence
    from calipers.regressor import IntervalRegressor
    from calipers.rowblocks import RowBlocks

    load = IntervalRegressor.load

__all__ = ["IntervalRegressor", "RowBlocks", "__version__", "dependence", "load"]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    # JAX takes a second to import, which `calipers --help` and the losses on NumPy need not pay.
    if name == "IntervalRegressor":
        from calipers.regressor import IntervalRegressor

        return IntervalRegressor
    if name == "load":
        from calipers.regressor import IntervalRegressor

        return IntervalRegressor.load
    if name == "RowBlocks":
        from calipers.rowblocks import RowBlocks

        return RowBlocks
    if name == "dependence":
        from calipers.importance import dependence

        return dependence
    raise AttributeError(f"module 'calipers' has no attribute {name!r}")
