"""Importances and dependence curves of inputs, for point predictions and for interval widths.

``permutation_importance`` shuffles a column and measures how much predictions get worse;
``dependence`` sets a column to one value after another in every row and averages the predictions
(partial dependence). Both combine values that may never occur together.
"""

from calipers.importance._dependence import Dependence, dependence
from calipers.importance._permutation import Importances, permutation_importance

__all__ = ["Dependence", "Importances", "dependence", "permutation_importance"]
