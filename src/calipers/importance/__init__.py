"""What drives a model's points and what drives its widths: importances and dependence curves.

``permutation_importance`` shuffles a column and measures what gets worse by that; ``dependence``
gives a column one value after another in every row and averages the predictions. Both put values
together that may never occur together.
"""

from calipers.importance._dependence import Dependence, dependence
from calipers.importance._permutation import Importances, permutation_importance

__all__ = ["Dependence", "Importances", "dependence", "permutation_importance"]
