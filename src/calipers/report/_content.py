"""What a page is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calipers.report._answers import Answers
from calipers.report._groups import Breakdown
from calipers.report._misses import Miss
from calipers.report._numbers import Unit


@dataclass(frozen=True)
class Content:
    """Everything that the sections of a page speak of.

    Attributes
    ----------
    model : IntervalRegressor
        The fitted model.
    answers : Answers
        What it says about the rows.
    parts : list of Breakdown
        Groups of the rows.
    misses : list of Miss
        Rows farthest outside of their interval.
    names : sequence of str
        Labels of all rows.
    title, where : str
        Headline, and what was judged by which rows.
    cautions : sequence of str
        What the reader must know first.
    """

    model: Any
    answers: Answers
    parts: list[Breakdown]
    misses: list[Miss]
    names: Sequence[str]
    title: str
    where: str
    cautions: Sequence[str]

    @property
    def unit(self) -> Unit:
        """How to write values of the target."""
        return Unit.of(self.answers.target)
