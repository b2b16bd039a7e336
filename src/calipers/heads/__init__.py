"""Heads, which interpret the raw outputs of a network.

A network maps a row to a few raw numbers. A head turns these into the parameters of a prediction:
bounds and a point, a point alone, or the location and scales of a density. To add a head, write a
subclass of ``Head`` and register it in ``HEADS``.
"""

from calipers.heads._densities import Normal, SplitNormalByMean, SplitNormalByMode
from calipers.heads._head import Free, Head, Midpoint, Ordered, Point, Values as Values

__all__ = ["HEADS", "Head"]

HEADS: dict[str, Head] = {
    head.name: head
    for head in (
        Free(),
        Midpoint(),
        Ordered(),
        Point(),
        Normal(),
        SplitNormalByMode(),
        SplitNormalByMean(),
    )
}
"""The heads by name."""
