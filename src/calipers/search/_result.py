"""The result of a search: its candidates, their scores, and the best one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.base import clone

from calipers.bank import TrainingFailedError
from calipers.regressor import IntervalRegressor

if TYPE_CHECKING:
    import pandas as pd


class Outcome(NamedTuple):
    """Measures of one candidate: means over the splits that did not fail, or NaN."""

    #: PICP, MPIW, Winkler's score and squared error of the points on the validation rows.
    coverage_rate: float
    mean_width: float
    interval_score: float
    mse: float
    epochs: float  #: Median of the best epochs that early stopping found.
    network_epochs: int  #: Epochs trained, over all networks that did not fail.
    failures: int  #: Splits in which a network failed.
    rows: int  #: Validation rows of the other splits.
    #: Standard deviation of PICP over these splits; NaN if a stored search has none.
    coverage_deviation: float = math.nan

    @property
    def whole_epochs(self) -> int:
        """Number of epochs to train with these parameters."""
        return max(1, round(self.epochs))


@dataclass(frozen=True)
class Candidate:
    """One setting that was tried."""

    number: int  #: Its index among the candidates drawn.
    params: Mapping[str, Any]  #: Its parameters.
    finalist: bool  #: Whether it was trained again, as the estimator will be.
    outcome: Outcome  #: Its measures, as a finalist if it was one.
    network_epochs: int  #: Epochs that its networks trained, in total.


def paper_score(coverage_rate: float, mean_width: float, *, coverage: float = 0.95) -> float:
    r"""Score by which the paper selected its settings; smaller is better.

    .. math::
        \mathit{MPIW} \cdot 10^{\lfloor |\gamma - \mathit{PICP}| / 0.01 \rfloor}

    Every whole percentage point between the coverage and its nominal value, on either side, makes a
    setting ten times worse.

    Parameters
    ----------
    coverage_rate : float
        PICP.
    mean_width : float
        MPIW.
    coverage : float, default 0.95
        Nominal probability :math:`\gamma`.

    Returns
    -------
    float
        Infinite where the width is not positive.

    Examples
    --------
    >>> paper_score(0.955, 1.5)
    1.5
    >>> paper_score(0.93, 1.5)
    150.0
    >>> paper_score(0.95, 0.0)
    inf
    """
    if not mean_width > 0:
        return math.inf
    # In binary, 0.95 - 0.93 is slightly less than 0.02: round off the noise before the floor.
    hundredths = math.floor(round(abs(coverage - coverage_rate) / 0.01, 9))
    return float(mean_width * 10.0**hundredths)


def _covered(outcome: Outcome, coverage: float) -> float:
    shortfall = max(0.0, coverage - outcome.coverage_rate)
    return float(outcome.interval_score * 10.0 ** (shortfall / 0.01))


def _by_deviation(outcome: Outcome, coverage: float) -> float:
    """The paper's other heuristic, which it names without a formula."""
    distance = math.hypot(outcome.coverage_rate - coverage, outcome.coverage_deviation)
    if math.isnan(distance):
        return math.inf
    return paper_score(coverage - distance, outcome.mean_width, coverage=coverage)


SCORES: dict[str, Callable[[Outcome, float], float]] = {
    "interval score": lambda outcome, coverage: outcome.interval_score,
    "covered": _covered,
    "paper": lambda outcome, coverage: paper_score(
        outcome.coverage_rate, outcome.mean_width, coverage=coverage
    ),
    "paper deviation": _by_deviation,
}
"""Scores of candidates from their outcome and the nominal coverage; smaller is better.

``"interval score"``; ``"covered"``, the interval score times ten for every percentage point of
missing coverage; ``"paper"``, see ``paper_score``; ``"paper deviation"``, the same with the root
mean squared distance of the splits' PICP from the coverage, computed from their mean and deviation.
"""


@dataclass(frozen=True)
class SearchResult:
    """Every candidate of a search, and the best of them."""

    estimator: IntervalRegressor  #: The estimator whose parameters were searched, not fitted.
    candidates: tuple[Candidate, ...]  #: In the order they were drawn.
    select: str  #: The score that ranks candidates, a key of ``SCORES``.

    def score(self, candidate: Candidate) -> float:
        """Return the score of a candidate; infinite if one of its networks failed."""
        outcome = candidate.outcome
        if outcome.failures or not outcome.rows:
            return math.inf
        return SCORES[self.select](outcome, self.estimator.coverage)

    def ranked(self) -> list[Candidate]:
        """Return the candidates from best to worst: finalists first, then by score."""

        def key(candidate: Candidate) -> tuple[bool, bool, float]:
            score = self.score(candidate)
            return math.isinf(score), not candidate.finalist, score

        return sorted(self.candidates, key=key)

    def chosen_by(self, select: str) -> "SearchResult":
        """Return the same candidates ranked by another score."""
        return replace(self, select=known_score(select))

    @property
    def best(self) -> Candidate:
        """The best candidate.

        Raises
        ------
        TrainingFailedError
            If every candidate failed.
        """
        best = self.ranked()[0]
        if math.isinf(self.score(best)):
            raise TrainingFailedError(
                f"none of {len(self.candidates)} candidates trained without a failure: try "
                "smaller learning rates, or more epochs"
            )
        return best

    @property
    def best_params(self) -> dict[str, Any]:
        """Parameters of the best candidate, with the number of epochs to train."""
        return {**self.best.params, "epochs": self.best.outcome.whole_epochs}

    @property
    def best_estimator(self) -> IntervalRegressor:
        """The estimator with these parameters and no early stopping, to be fitted on all rows."""
        best: IntervalRegressor = clone(self.estimator)
        best.set_params(**self.best_params, patience=None)
        return best

    def to_frame(self) -> "pd.DataFrame":
        """Return the candidates as a pandas frame, best first."""
        import pandas as pd  # heavy, so imported only when needed

        rows = [
            {
                "candidate": candidate.number,
                **{f"param_{name}": value for name, value in candidate.params.items()},
                "score": self.score(candidate),
                "finalist": candidate.finalist,
                **candidate.outcome._asdict(),
                "network_epochs": candidate.network_epochs,
            }
            for candidate in self.ranked()
        ]
        return pd.DataFrame(rows)


def known_score(select: str) -> str:
    """Return ``select`` if it is the name of a score; raise otherwise."""
    if select not in SCORES:
        raise ValueError(f"select must be one of {sorted(SCORES)}, got {select!r}")
    return select
