r"""A conformal test martingale, which raises an alarm when rows are no longer exchangeable.

The p-value of a score is its rank among the scores before it, with ties broken at random. Scores
are binned into `BINS` first, so that only counts have to be kept. While rows are exchangeable these
p-values are independent and uniform [1]_. A gambler who bets against that, with factors of mean 1
such as :math:`1 + e (2 p - 1)`, then has a capital that is a martingale: the probability that it
ever exceeds 100 is at most 1 in 100 (Ville's inequality). The bets are on p-values that are too
high or too low, and too extreme or too central; capital moves between them at the rate `JUMP` (the
simple jumper [2]_).

To detect a stream that differs from the calibration rows from the start, the counts begin with
`PRIOR` scores of a correct model. To that extent the alarm relies on the calibration.

.. [1] Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", chapter 8 (2022).
.. [2] Vovk, Petej, Nouretdinov, Ahlberg, Carlsson and Gammerman, "Retrain or not retrain: conformal
       test martingales for change-point detection", COPA (2021).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtr

from calipers._arrays import FloatArray

BINS = 200
PRIOR = 200.0
JUMP = 0.01
ALARM = 100.0
"""Capital at which exchangeability is rejected."""

_STAKES = np.array([0.0, -1.0, -0.5, 0.5, 1.0, -0.9, -0.5, 0.5, 0.9])
_ON_SCALE = np.arange(len(_STAKES)) > 4  # bets on extreme or central p-values
_SEED = 20_240_229


@dataclass(eq=False)
class Martingale:
    """Capital of a gambler who bets that rows are not exchangeable, starting from 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> martingale = Martingale.start()
    >>> martingale.learn(rng.standard_normal(300))
    >>> martingale.alarm
    False
    >>> martingale.learn(rng.standard_normal(100) + 1.0)
    >>> martingale.alarm
    True
    """

    counts: FloatArray  #: (BINS,): Number of scores so far in each bin.
    shares: FloatArray  #: (bets,): Fractions of the capital on each bet.
    #: (): Natural logarithm of the current capital, and of its maximum so far.
    log_capital: FloatArray
    log_highest: FloatArray
    rows: FloatArray  #: (): Number of scores so far.

    @classmethod
    def start(cls) -> Self:
        """Return the initial state, with a capital of 1."""
        shares = np.full(len(_STAKES), 1.0 / len(_STAKES))
        return cls(np.full(BINS, PRIOR / BINS), shares, *np.zeros(3))

    @property
    def alarm(self) -> bool:
        """Whether exchangeability has been rejected."""
        return bool(self.log_highest >= np.log(ALARM))

    @property
    def log10(self) -> float:
        """Decimal logarithm of the capital."""
        return float(self.log_capital / np.log(10.0))

    def learn(self, scores: FloatArray) -> None:
        """Bet on scores, one after the other."""
        bins = np.minimum((BINS * ndtr(scores)).astype(np.intp), BINS - 1)
        # One random number per row of the stream, however it is split into calls.
        random = np.random.Generator(np.random.PCG64(_SEED).advance(int(self.rows)))
        for number, tie in zip(bins, random.random(len(bins)), strict=True):
            self.counts[number] += 1.0
            below = self.counts[:number].sum() + tie * self.counts[number]
            p = below / self.counts.sum()
            bet = np.where(_ON_SCALE, 6.0 * p * (p - 1.0) + 1.0, 2.0 * p - 1.0)
            shares = (1.0 - JUMP) * self.shares + JUMP / len(_STAKES)
            shares = shares * (1.0 + _STAKES * bet)
            total = shares.sum()
            self.shares = shares / total
            self.log_capital = self.log_capital + np.log(total)
            self.log_highest = np.maximum(self.log_highest, self.log_capital)
        self.rows = self.rows + float(len(bins))
