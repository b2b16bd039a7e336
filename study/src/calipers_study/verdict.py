"""The published numbers, and the rule that decides whether ours agree, are better or are worse."""

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources

NOMINAL = 0.95
"""Nominal coverage of the paper's intervals."""

_TINY = 1e-12  # tolerance for rounding of decimal numbers that are just equal

AGREES, BETTER, WORSE, MISSING = "agrees", "better", "worse", "missing"


@dataclass(frozen=True)
class Published:
    """One cell of the paper's tables, as printed."""

    #: Position of the cell.
    table: str
    dataset: str
    method: str
    metric: str
    printed: str  #: The number as printed; its digits tell how it was rounded.
    sem: float | None  #: Standard error, where one was printed.

    @property
    def mean(self) -> float:
        """The number itself."""
        return float(self.printed)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed digit.

        Examples
        --------
        >>> Published("table2", "naval", "MSE", "MSE", "4.8e-5", 0.0).half_unit
        5e-07
        """
        exponent = Decimal(self.printed).as_tuple().exponent
        return float(Decimal(5).scaleb(int(exponent) - 1))


def published_cells() -> list[Published]:
    """Every cell of the paper's six tables, in the order of its columns and rows."""
    text = resources.files("calipers_study").joinpath("published", "tables.csv").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [
        Published(
            row["table"],
            row["dataset"],
            row["method"],
            row["metric"],
            row["mean"],
            float(row["sem"]) if row["sem"] else None,
        )
        for row in csv.DictReader(lines)
    ]


def verdict(
    cell: Published, mean: float | None, sem: float | None, *, coverage_verdict: str = AGREES
) -> str:
    """Compare our mean with a published one.

    They agree if they differ by no more than two combined standard errors and the rounding of the
    published digits. Otherwise PICP is better when it is closer to 0.95; MPIW when it is lower and
    the same method's PICP is not worse; MSE when it is lower; counts of failures when there are
    fewer. The standard error of a count is its square root, since the paper prints none.

    Parameters
    ----------
    cell : Published
        The published number.
    mean, sem : float or None
        Ours; a missing standard error counts as zero.
    coverage_verdict : str
        Verdict on the same method's PICP, which affects that on MPIW.

    Returns
    -------
    str
        "agrees", "better", "worse", or "missing" where we have no number.

    Examples
    --------
    >>> cell = Published("table1", "boston", "SNM-QD+", "PICP", "0.95", 0.01)
    >>> verdict(cell, 0.97, 0.0), verdict(cell, 0.98, 0.001)
    ('agrees', 'worse')
    """
    if mean is None:
        return MISSING
    if cell.metric == "failures":
        error = math.hypot(math.sqrt(mean), math.sqrt(cell.mean))
    elif cell.metric == "target_models":
        return AGREES if mean == cell.mean else WORSE
    else:
        error = math.hypot(sem or 0.0, cell.sem or 0.0)
    if abs(mean - cell.mean) <= (2 * error + cell.half_unit) * (1 + _TINY):
        return AGREES
    if cell.metric == "PICP":
        closer = abs(mean - NOMINAL) < abs(cell.mean - NOMINAL) - _TINY
        return BETTER if closer else WORSE
    if cell.metric == "MPIW" and coverage_verdict == WORSE:
        return WORSE
    return BETTER if mean < cell.mean else WORSE
