"""What a campaign tried and what became of it, counted and printed in one way."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDERS = Path(__file__).parents[1] / "data" / "model-0.1"
"""Small models to work on."""


@dataclass
class Tally:
    """Counts of outcomes; what was not to happen is a finding, with the words that reproduce it."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slowest: float = 0.0
    """Seconds of a try, where they count."""

    def add(self, outcome: str, tries: int = 1) -> None:
        self.counts[outcome] += tries

    def wrong(self, finding: str) -> None:
        self.counts["wrong"] += 1
        self.findings.append(finding)

    def check(self, holds: bool, outcome: str, finding: str) -> None:
        """Count an outcome if it holds, a finding otherwise."""
        if holds:
            self.add(outcome)
        else:
            self.wrong(finding)

    @property
    def tries(self) -> int:
        return self.counts.total()

    def outcomes(self) -> str:
        """Counts in words, those of what went wrong last."""
        good = [f"{n:,} {kind}" for kind, n in self.counts.most_common() if kind != "wrong"]
        slowest = [f"the slowest in {self.slowest:.1f} s"] if self.slowest else []
        return ", ".join([*good, *self.notes, *slowest])

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.counts + other.counts,
            self.findings + other.findings,
            self.notes + other.notes,
            max(self.slowest, other.slowest),
        )


@dataclass(frozen=True)
class Part:
    """A part of a campaign: what is tried, how often in full, and the function that does it.

    Tries beyond ``at_once`` are those of the next seeds, which may be tried side by side.
    """

    campaign: str
    tried: str
    count: int
    run: Callable[[int, int], Tally]  # of a count and a seed
    least: int = 1
    at_once: int = 10**9

    def pieces(self, share: float, seed: int) -> list[tuple[int, int]]:
        """Counts and seeds of a share of it."""
        count = max(self.least, round(self.count * share))
        starts = range(0, count, self.at_once)
        return [(min(self.at_once, count - n), seed + i) for i, n in enumerate(starts)]

    def result(self, tally: Tally, seconds: float) -> dict[str, Any]:
        """What came out, as plain JSON."""
        return {
            "campaign": self.campaign,
            "tried": self.tried,
            "tries": tally.tries,
            "outcomes": tally.outcomes(),
            "wrong": tally.counts["wrong"],
            "findings": tally.findings[:20],
            "seconds": seconds,
        }
