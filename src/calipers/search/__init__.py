"""Hyper-parameter search: hundreds of candidates on a few splits, trained as one bank.

Examples
--------
The paper's search, with 300 candidates from its space on five shuffled splits::

    model = IntervalRegressor.paper()
    result = search(
        model, X, y, PAPER_SPACE, select="paper", random_state=0, store="search.jsonl"
    )
    model = result.best_estimator.fit(X, y)
    result.to_frame()
"""

from calipers.search._result import SCORES, Candidate, Outcome, SearchResult, paper_score
from calipers.search._search import search
from calipers.search._space import DEFAULT_SPACE, PAPER_SPACE

__all__ = [
    "DEFAULT_SPACE",
    "PAPER_SPACE",
    "SCORES",
    "Candidate",
    "Outcome",
    "SearchResult",
    "paper_score",
    "search",
]
