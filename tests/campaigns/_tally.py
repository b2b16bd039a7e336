"""What a campaign tried and what became of it, counted and printed in one way."""

import time
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
        return ", ".join([*good, *self.notes])


@dataclass(frozen=True)
class Part:
    """A part of a campaign: what is tried, how often in full, and the function that does it."""

    campaign: str
    tried: str
    count: int
    run: Callable[[int, int], Tally]  # of a count and a seed
    least: int = 1

    def __call__(self, share: float, seed: int) -> dict[str, Any]:
        """Try a share of it; what came out, as plain JSON."""
        began = time.monotonic()
        count = max(self.least, round(self.count * share))
        tally = self.run(count, seed)
        return {
            "campaign": self.campaign,
            "tried": self.tried,
            "tries": tally.tries,
            "outcomes": tally.outcomes(),
            "wrong": tally.counts["wrong"],
            "findings": tally.findings[:20],
            "seconds": time.monotonic() - began,
        }
