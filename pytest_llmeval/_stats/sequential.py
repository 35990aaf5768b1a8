"""Sequential tests of a mean, which are valid after every doc.

The test is by betting. A capital of 1 is bet on every doc at odds that are fair if the mean equals `limit`. If the mean
does not lie on the side that the bets are placed on, the capital ever exceeds ``1 / alpha`` with probability at most
`alpha` (Ville's inequality). The method is that of Waudby-Smith and Ramdas (2023, "Estimating means of bounded random
variables by betting", J. R. Stat. Soc. B 86, 1-27; section 4 for docs drawn from a population, section 5 for a data set
without replacement; first in 2020, "Confidence sequences for sampling without replacement", NeurIPS).

The capital is the average over several strategies, each of which always stakes the same fraction of the greatest
allowed bet. Such a mixture needs no tuning to an unknown variance: its logarithm grows like that of its best strategy,
less the logarithm of the number of strategies. Five strategies need 8 to 13 % fewer docs than eight
(`perf/verdict_study.py`). For 0/1 scores of a population, of which at most a known number comes, the threshold is lower
than ``1 / alpha`` at the same error (`_stats.crossing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from math import log
from typing import TYPE_CHECKING

from pytest_llmeval._stats.crossing import LEAST_PART
from pytest_llmeval._stats.crossing import STAKES
from pytest_llmeval._stats.crossing import Crossing
from pytest_llmeval._stats.crossing import threshold_for


if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval._stats.tango import Floats

    Flags: TypeAlias = NDArray[np.bool_]

_TOLERANCE = 1e-9


class MeanTest:
    """A sequential test that the mean of values in [low, high] reaches `limit` (`above`) or not (`below`).

    Without `total` the values are independent draws, and the test concerns their expectation. With it they are a data
    set of `total` docs in random order, and the test concerns the mean of all docs: a decision that the other docs
    cannot change is made at once, and after the last doc exactly one of `above` and `below` is true. Each of them is
    ever wrong with probability at most `alpha`. With a `total`, `alpha` may be 0, and only certain decisions are made.
    `most`, without a `total`: every value is `low` or `high`, and no more than `most` come; fewer are then needed.
    `decided_after` is the number of values needed, None if undecided; only a certain result changes a decision later.

        test = MeanTest(limit=-0.01, alpha=0.05, low=-1, total=1221)
        test.update(now - before for ...)
        test.above          # the drop is within .01
    """

    def __init__(
        self,
        limit: float,
        alpha: float,
        *,
        low: float = 0.0,
        high: float = 1.0,
        total: int | None = None,
        most: int | None = None,
    ) -> None:
        possible = 0 < alpha < 1 or (alpha == 0 and total is not None)
        if not possible or not low < high or (total is not None and total < 1) or (total and most):
            raise ValueError(f"invalid test: alpha {alpha!r}, values in [{low!r}, {high!r}], total {total!r}")
        self.seen = 0
        self.above = False
        self.below = False
        self.decided_after: int | None = None
        self._low, self._high, self._total, self._most = low, high, total, most
        self._limit = (limit - low) / (high - low)
        self._alpha = alpha
        self._ville = -log(alpha) if alpha else inf
        #: The calibrated thresholds, by side, as far as they were needed.
        self._calibrated: dict[str, float] = {}
        self._sum = 0.0
        self._logs: dict[str, Floats | float] = {"above": 0.0, "below": 0.0}
        if self._limit <= 0 or self._limit > 1:
            # Decided without data: no mean lies outside [low, high].
            self._decide(self._limit <= 0, 0)

    def update(self, values: Iterable[float]) -> None:
        """Add the values of the next docs.

        Raises ValueError for values outside [low, high], for more than `total` or `most` values, and with `most` for
        values other than `low` and `high`.
        """
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
        if self._most is not None and (self.seen + len(given) > self._most or not np.isin(scaled, (0, 1)).all()):
            raise ValueError(f"expected up to {self._most} values {self._low:g} or {self._high:g}")
        if self.decided_after is None:
            self._look(scaled)
        self.seen += len(scaled)
        self._sum += float(scaled.sum())
        if self._total is not None:
            self._correct(bool(self._reached(self._sum)), bool(self._reached(self._sum + self._total - self.seen)))

    def _correct(self, certain: bool, possible: bool) -> None:
        """Set the decision to the true result once reaching the limit is certain or impossible."""
        if certain or not possible:
            self.above, self.below = certain, not certain

    def _look(self, values: Floats) -> None:
        """Make the decision at the first of the values that allows one; a later contrary result does not count."""
        expected = self._expected(values)
        above = min(self._forced("above", values), self._crossing("above", values - expected, expected))
        below = min(self._forced("below", values), self._crossing("below", expected - values, 1 - expected))
        first = min(above, below)
        if first < len(values):
            self._decide(above == first, self.seen + first + 1)

    def _decide(self, above: bool, after: int) -> None:
        self.above, self.below, self.decided_after = above, not above, after

    def _forced(self, side: str, values: Floats) -> int:
        """Return the index of the value after which the result is certain on `side`; the number of values if none."""
        import numpy as np

        if self._total is None:
            return len(values)
        sums = self._sum + np.cumsum(values)
        left = self._total - self.seen - np.arange(1, len(values) + 1)
        return _first(self._reached(sums) if side == "above" else ~self._reached(sums + left))

    def _reached(self, sums: Floats | float) -> Flags:
        """Return True for sums over the data set that reach the limit, up to rounding."""
        import numpy as np

        needed = self._limit * (self._total or 0)
        return np.asarray(sums >= needed - _TOLERANCE * max(needed, 1.0))

    def _expected(self, values: Floats) -> Floats:
        """Return the expectation of each value given those before it, if the mean equals the limit, cut to [0, 1].

        An expectation outside [0, 1] means that the result is certain already.
        """
        import numpy as np

        if self._total is None:
            return np.full(len(values), self._limit).clip(0, 1)
        before = self._sum + np.concatenate(([0.0], np.cumsum(values)[:-1]))
        left = self._total - self.seen - np.arange(len(values))
        return np.asarray(((self._total * self._limit - before) / left).clip(0, 1))

    def _crossing(self, side: str, gains: Floats, most_lost: Floats) -> int:
        """Return the index at which the capital reaches the threshold; the number of values if it does not."""
        import numpy as np

        bets = np.array(STAKES)[:, None] / np.maximum(most_lost, 1e-12)
        logs = np.cumsum(np.log1p(bets * gains), axis=1) + np.asarray(self._logs[side]).reshape(-1, 1)
        self._logs[side] = logs[:, -1]
        if logs.max() < self._ville + (log(LEAST_PART) if self._most else 0.0):
            # The average capital does not exceed the greatest one, which is cheaper to compute.
            return len(gains)
        capital = np.logaddexp.reduce(logs, axis=0) - log(len(STAKES))
        return _first(capital >= self._threshold(side, float(capital.max())))

    def _threshold(self, side: str, capital: float) -> float:
        """Return the threshold on `side`: the calibrated one if `capital`, the greatest so far, may reach it."""
        if self._most is None or capital < self._ville + log(LEAST_PART):
            return self._ville
        if side not in self._calibrated:
            limit = self._limit if side == "above" else 1 - self._limit
            # One computation shows whether the search, which takes several, would find a threshold below this capital.
            if Crossing.of(limit, self._most, capital).reached > self._alpha:
                return self._ville
            self._calibrated[side] = threshold_for(limit, self._most, self._alpha)
        return self._calibrated[side]


def _first(holds: Flags) -> int:
    """Return the index of the first True; the number of values if there is none."""
    return int(holds.argmax()) if holds.any() else len(holds)
