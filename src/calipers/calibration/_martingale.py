r"""An alarm for rows that are no longer exchangeable: a conformal test martingale.

Each score gets a p-value, its rank among those before it with ties broken at random; the scores are
put into `BINS` first, so that counts are all there is to keep. While rows are exchangeable these
p-values are independent and uniform [1]_. A gambler who bets against that, with factors of mean 1
such as :math:`1 + e (2 p - 1)`, then has a capital that is a martingale: it exceeds 100 with a
probability of at most 1 in 100, ever (Ville). The bets are on p-values that are too high or low,
and too far out or too central; capital moves between them at the rate `JUMP` (the simple jumper
[2]_).

So that a stream which differs from the calibration rows from the start is noticed too, counts begin
with `PRIOR` scores of a model that is right. To that extent the alarm trusts the calibration.

.. [1] Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", chapter 8 (2022).
.. [2] Vovk, Petej, Nouretdinov, Ahlberg, Carlsson and Gammerman, "Retrain or not retrain: conformal
       test martingales for change-point detection", COPA (2021).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtr

from calipers._checks import FloatArray

BINS = 200
PRIOR = 200.0
JUMP = 0.01
ALARM = 100.0
"""Capital from which on the rows are not believed to be exchangeable."""

_STAKES = np.array([0.0, -1.0, -0.5, 0.5, 1.0, -0.9, -0.5, 0.5, 0.9])
_ON_SPREAD = np.arange(len(_STAKES)) > 4
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

    counts: FloatArray  #: (BINS,): Scores so far.
    shares: FloatArray  #: (bets,): How the capital is divided.
    #: (): Natural logarithm of the capital now, and of the most it has been.
    log_capital: FloatArray
    log_highest: FloatArray
    rows: FloatArray  #: (): Scores taken in.

    @classmethod
    def start(cls) -> Self:
        """Begin with a capital of 1."""
        shares = np.full(len(_STAKES), 1.0 / len(_STAKES))
        return cls(np.full(BINS, PRIOR / BINS), shares, *np.zeros((3, 1)).reshape(3))

    @property
    def alarm(self) -> bool:
        """Whether exchangeability has stopped being credible."""
        return bool(self.log_highest >= np.log(ALARM))

    @property
    def log10(self) -> float:
        """Decimal logarithm of the capital."""
        return float(self.log_capital / np.log(10.0))

    def learn(self, scores: FloatArray) -> None:
        """Bet on scores, one after the other."""
        bins = np.minimum((BINS * ndtr(scores)).astype(np.intp), BINS - 1)
        # One number per row of the stream, wherever it is cut into calls.
        random = np.random.Generator(np.random.PCG64(_SEED).advance(int(self.rows)))
        for place, tie in zip(bins, random.random(len(bins)), strict=True):
            self.counts[place] += 1.0
            below = self.counts[:place].sum() + tie * self.counts[place]
            p = below / self.counts.sum()
            bet = np.where(_ON_SPREAD, 6.0 * p * (p - 1.0) + 1.0, 2.0 * p - 1.0)
            shares = (1.0 - JUMP) * self.shares + JUMP / len(_STAKES)
            shares = shares * (1.0 + _STAKES * bet)
            total = shares.sum()
            self.shares = shares / total
            self.log_capital = self.log_capital + np.log(total)
            self.log_highest = np.maximum(self.log_highest, self.log_capital)
        self.rows = self.rows + float(len(bins))
