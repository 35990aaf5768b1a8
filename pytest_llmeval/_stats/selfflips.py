"""The docs that an unchanged build loses and gains by itself against fixed answers, and how often they fail a gate.

Given the answers before, docs that were right are lost, and docs that were wrong are gained, independently of each
other, each doc with a probability of its own. The numbers of both are sums of such docs, of which only mean and
variance are known. Each is taken to be binomial with this mean and variance, which is exact if the docs that flip do so
with one probability: half of the time for coins, hardly ever for Poisson's rare docs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from math import inf
from math import sqrt
from typing import TYPE_CHECKING
from typing import TypeAlias

from pytest_llmeval._stats.interval import Interval


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval._stats.tango import Ints

#: Returns which outcomes fail a gate, given numbers of docs lost and gained.
Fails: TypeAlias = "Callable[[Ints, Ints], NDArray[np.bool_]]"

#: The .95 quantile of the normal distribution.
_Z = 1.6448536269514722
#: A drop is found up to this share of itself.
_PRECISION = 0.005
#: The probability of numbers of docs that are left out.
_LEFT_OUT = 1e-6
#: A variance below this share of the mean would need more docs than flips: no doc flips in more than nine of ten runs.
_LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class SelfLoss:
    """The numbers of docs, of `docs`, that a run of an unchanged build loses and gains against the answers before.

    Means and variances are estimated from `runs` runs.
    """

    docs: int
    runs: int
    lost: float
    gained: float
    lost_variance: float
    gained_variance: float

    @property
    def net(self) -> float:
        """The mean of the net loss."""
        return self.lost - self.gained

    @property
    def variance(self) -> float:
        """The variance of the net loss of one run."""
        return self.lost_variance + self.gained_variance

    @property
    def most(self) -> float:
        """The net loss that 95 % of further runs do not exceed: the upper limit of prediction of a normal variable."""
        return self.net + _Z * sqrt(self.variance * (1 + 1 / self.runs))

    def failing(self, fails: Fails) -> tuple[float, Interval]:
        """Return the share of runs that fail a gate, and its limits by the uncertainty of the mean net loss.

        Each limit holds at 95 %: the mean is moved by its score limits for sums of `runs` runs, which for no flip at
        all are those of Poisson's distribution (Wilson 1927, JASA 22, 209-212, applied to rates).
        """
        centre = _Z**2 / (2 * self.runs)
        away = centre + _Z * sqrt((self.variance + _Z**2 / (4 * self.runs)) / self.runs)
        ends = [self._moved(by)._failing(fails) for by in (-away, 0.0, away)]
        return ends[1], Interval(min(ends), max(ends))

    def detectable_drop(self, fails: Fails, least: float = 0.0, power: float = 0.8) -> float:
        """Return the smallest true drop, from `least` on, that fails a gate with probability `power`.

        Docs that are lost by the drop are lost beside those that the build loses by itself. Infinite if no drop does.
        """
        from scipy.optimize import brentq

        def lacking(drop: float) -> float:
            return power - self._failing(fails, drop)

        low, step = least, 2 / self.docs
        if lacking(low) <= 0:
            return low
        while lacking(high := min(low + step, 1.0)) > 0:
            if high == 1:
                return inf
            low, step = high, 1.5 * step
        return float(brentq(lacking, low, high, rtol=_PRECISION, xtol=_PRECISION / self.docs))

    def _moved(self, by: float) -> SelfLoss:
        """Return the same with the mean net loss moved: half by other losses, half by other gains, where possible."""
        lost = max(self.lost + by / 2, 0.0)
        gained = max(lost - self.net - by, 0.0)
        lost = gained + self.net + by
        shares = [
            variance / mean if mean else 1.0
            for variance, mean in ((self.lost_variance, self.lost), (self.gained_variance, self.gained))
        ]
        return replace(
            self, lost=lost, gained=gained, lost_variance=lost * shares[0], gained_variance=gained * shares[1]
        )

    def _failing(self, fails: Fails, drop: float = 0.0) -> float:
        import numpy as np

        lost, of_lost = self._counts(self.lost, self.lost_variance)
        gained, of_gained = self._counts(self.gained, self.gained_variance)
        if drop:
            more, of_more = self._counts(self.docs * drop, self.docs * drop * (1 - drop))
            lost = np.arange(lost[0] + more[0], lost[-1] + more[-1] + 1)
            of_lost = np.convolve(of_lost, of_more)
        return float(of_lost @ fails(lost[:, None], gained[None, :]) @ of_gained)

    def _counts(self, mean: float, variance: float) -> tuple[Ints, NDArray[np.float64]]:
        """Return the numbers of docs that are likely, and the probability of each."""
        import numpy as np
        from scipy.stats import binom

        if mean <= 0:
            return np.zeros(1, dtype=np.int64), np.ones(1)
        share = max(min(1 - variance / mean, 1 - _LEAST_SHARE), mean / self.docs)
        flipping = max(round(mean / share), 1)
        share = min(mean / flipping, 1.0)
        first, last = (int(edge) for edge in binom.ppf((_LEFT_OUT, 1 - _LEFT_OUT), flipping, share))
        counts = np.arange(first, last + 1)
        return counts, binom.pmf(counts, flipping, share)
