"""Early stopping: a test of a mean that may be looked at after every doc, as often as one likes.

A bettor who starts with 1 and bets on every doc at odds that are fair if the mean is `limit` gets rich only if it
is not: if the mean is on the other side, the capital is ever above ``1 / alpha`` with probability `alpha` at most
(Ville's inequality). Waudby-Smith and Ramdas (2023, "Estimating means of bounded random variables by betting",
J. R. Stat. Soc. B 86, 1-27; section 4 for docs drawn from a population, section 5 for a data set without
replacement; first in 2020, "Confidence sequences for sampling without replacement", NeurIPS).

The bettor here is a crowd, each of whom stakes the same part of the greatest allowed bet all along; their joint
capital counts. Such a mixture needs no tuning to a variance that is unknown at first: its growth is that of its
best member, less the logarithm of the members.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose
from math import log
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats

#: Each member's stake as a part of the greatest bet that cannot lose all.
STAKES = tuple(0.9 / 1.9**power for power in range(8))
_TOLERANCE = 1e-9


class MeanTest:
    """Whether the mean of values in [low, high] reaches `limit`, decided as early as the data allow.

    Without `total` the values are independent draws and the question is about their expectation. With it they are
    the docs of a data set of that many, in random order, and the question is about the mean of them all: what
    follows by logic (even if all others were at the other end) counts at once, and after the last one exactly one
    of `above` and `below` is true. Either is wrong with probability `alpha` at most, over all looks together.
    `decided_after` is the number of values that were needed; those given later change nothing but the last word.

        test = MeanTest(limit=-0.01, alpha=0.05, low=-1, total=1221)
        test.update(now - before for ...)
        test.above          # the drop is within .01
    """

    def __init__(
        self, limit: float, alpha: float, *, low: float = 0.0, high: float = 1.0, total: int | None = None
    ) -> None:
        if not 0 < alpha < 1 or not low < high or (total is not None and total < 1):
            raise ValueError(f"no test has alpha {alpha!r}, values from {low!r} to {high!r}, and {total!r} in total")
        self.seen = 0
        self.above = False
        self.below = False
        self.decided_after: int | None = None
        self._low, self._high, self._total = low, high, total
        self._limit = (limit - low) / (high - low)
        self._threshold = log(1 / alpha)
        self._sum = 0.0
        self._logs: dict[str, Floats | float] = {"above": 0.0, "below": 0.0}
        self._conclude_by_logic()

    def update(self, values: Iterable[float]) -> None:
        """Take the next docs' values. Raises ValueError for one outside [low, high], and for more than `total`."""
        import numpy as np

        given = np.fromiter(values, dtype=np.float64)
        if len(given) == 0:
            return
        scaled = (given - self._low) / (self._high - self._low)
        if not ((scaled >= -_TOLERANCE) & (scaled <= 1 + _TOLERANCE)).all():
            raise ValueError(f"values must lie in [{self._low:g}, {self._high:g}], got {given.min()} to {given.max()}")
        if self._total is not None and self.seen + len(given) > self._total:
            raise ValueError(f"the data set has {self._total} docs, got {self.seen + len(given)}")
        scaled = np.clip(scaled, 0, 1)
        if self.decided_after is None:
            self._bet(scaled)
        self.seen += len(scaled)
        self._sum += float(scaled.sum())
        self._conclude_by_logic()

    def _bet(self, values: Floats) -> None:
        """Whichever capital passes the threshold first decides; the other may not follow."""
        expected = self._expected(values)
        above = self._first_crossing("above", values - expected, expected)
        below = self._first_crossing("below", expected - values, 1 - expected)
        first = min(above, below)
        if first < len(values):
            self.above, self.below = above == first, below == first
            self.decided_after = self.seen + first + 1

    def _expected(self, values: Floats) -> Floats:
        """What each value would be on average if the mean were at the limit, given those before it; in [0, 1].

        Beyond these ends logic has decided already.
        """
        import numpy as np

        if self._total is None:
            return np.full(len(values), self._limit).clip(0, 1)
        before = self._sum + np.concatenate(([0.0], np.cumsum(values)[:-1]))
        left = self._total - self.seen - np.arange(len(values))
        return np.asarray(((self._total * self._limit - before) / left).clip(0, 1))

    def _first_crossing(self, side: str, gains: Floats, most_lost: Floats) -> int:
        """Bet on all values; the index of the one with which the capital reaches the threshold, their number if none."""
        import numpy as np

        bets = np.array(STAKES)[:, None] / np.maximum(most_lost, 1e-12)
        logs = np.cumsum(np.log1p(bets * gains), axis=1) + np.asarray(self._logs[side]).reshape(-1, 1)
        self._logs[side] = logs[:, -1]
        capital = np.logaddexp.reduce(logs, axis=0) - log(len(STAKES))
        crossed = capital >= self._threshold
        return int(crossed.argmax()) if crossed.any() else len(gains)

    def _conclude_by_logic(self) -> None:
        """What no further value can change. With all docs seen the observed mean decides, whatever was thought."""
        left = None if self._total is None else self._total - self.seen
        if left is None:
            # No expectation lies outside the support.
            self.above |= self._limit <= 0
            self.below |= self._limit > 1
            return
        needed = self._limit * (self._total or 0)
        least_reaches = self._sum >= needed or isclose(self._sum, needed, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        most = self._sum + left
        most_reaches = most >= needed or isclose(most, needed, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        if least_reaches or not most_reaches:
            self.above, self.below = least_reaches, not least_reaches
