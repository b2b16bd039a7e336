"""Aggregation of the members of an ensemble into one prediction.

Every aggregation has the same signature: it takes the members' lower bounds, points and upper
bounds, each of shape (members, rows), and the coverage they were trained for. Two of them return a
distribution, which gives intervals of any coverage; the others return an `Interval` for the
coverage of the members. The point prediction of the paper is always the mean of the members'
points, not the mean of a mixture.

To add an aggregation, write an ``Aggregation`` and register it in ``AGGREGATIONS``.
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
