"""The type of the estimator in the steps of its fits, which it imports and they cannot."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from calipers.regressor import IntervalRegressor

    Model: TypeAlias = IntervalRegressor
else:
    Model = Any
