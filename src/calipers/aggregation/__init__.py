"""From the members of an ensemble to one prediction.

Every aggregation takes the members' lower bounds, points and upper bounds, each of shape
(members, rows), and the coverage they were trained for, so that they can be called alike. Two of
them give a distribution, from which intervals of any coverage follow; the others give an
`Interval` for the coverage of the members. The final point of the paper is the mean of the
members' points, whatever becomes of their bounds, and not the mean of a mixture.

To add one, write an ``Aggregation`` and put it into ``AGGREGATIONS``.
"""

from calipers.aggregation._mean_bounds import (
    MEAN,
    NONE,
    SEM,
    STD,
    Aggregation,
    Interval,
    mean,
    none,
    sem,
    std,
)
from calipers.aggregation._snm import NORMAL, SNM, normal, snm

__all__ = ["AGGREGATIONS", "Aggregation", "Interval", "mean", "none", "normal", "sem", "snm", "std"]

AGGREGATIONS: dict[str, Aggregation] = {
    "snm": SNM,
    "sem": SEM,
    "std": STD,
    "mean": MEAN,
    "normal": NORMAL,
    "none": NONE,
}
"""The aggregations by name."""
