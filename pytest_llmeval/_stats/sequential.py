"""Sequential tests of a mean, which are valid after every doc.

The test is by betting. A capital of 1 is bet on every doc at odds that are fair if the mean equals `limit`. If the mean
does not lie on the side that the bets are placed on, the capital ever exceeds ``1 / alpha`` with probability at most
`alpha` (Ville's inequality). The method is that of Waudby-Smith and Ramdas (2023, "Estimating means of bounded random
variables by betting", J. R. Stat. Soc. B 86, 1-27; section 4 for docs drawn from a population, section 5 for a data set
without replacement; first in 2020, "Confidence sequences for sampling without replacement", NeurIPS).

The capital is the average over several strategies, each of which always stakes the same fraction of the greatest
allowed bet. Such a mixture needs no tuning to an unknown variance: its logarithm grows like that of its best strategy,
less the logarithm of the number of strategies. Five strategies need 8 to 11 % fewer docs than eight
(`perf/verdict_study.py`). For 0/1 scores of a population, of which at most a known number comes, the threshold is lower
than ``1 / alpha`` at the same error (`_stats.crossing`).

A control is a number that each doc of a data set has beforehand, such as its score in a baseline, so that its mean over
all docs is known. Half of the strategies then bet on the differences from the control, whose mean follows from that of
the values, and which vary little where both agree (control variates without replacement: Shekhar, Xu, Lipton, Liang and
Ramdas 2023, "Risk-limiting financial audits via weighted sampling without replacement", UAI). The bets are valid for
any control, and cost the logarithm of 2 where it tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
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
    With a `total`, `control` is the mean of the docs' controls in [low, high] over the whole data set.
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
        control: float | None = None,
    ) -> None:
        possible = 0 < alpha < 1 or (alpha == 0 and total is not None)
        fits = total is not None or control is None
        if not possible or not fits or not low < high or (total is not None and total < 1) or (total and most):
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
        #: The means of the values, and of the differences from the control, under the hypothesis; in [0, 1].
        self._limits = [self._limit]
        if control is not None:
            self._limits.append((self._limit - (control - low) / (high - low) + 1) / 2)
        self._sums = [0.0] * len(self._limits)
        self._logs: dict[str, Floats | float] = {"above": 0.0, "below": 0.0}
        if self._limit <= 0 or self._limit > 1:
            # Decided without data: no mean lies outside [low, high].
            self._decide(self._limit <= 0, 0)

    def update(self, values: Iterable[float], controls: Iterable[float] = ()) -> None:
        """Add the values of the next docs, with their controls if the test has any.

        Raises ValueError for values outside [low, high], for more than `total` or `most` values, and with `most` for
        values other than `low` and `high`.
        """
        import numpy as np

        given = np.fromiter(values, dtype=np.float64)
        beside = np.fromiter(controls, dtype=np.float64)
        if len(beside) != len(given) * (len(self._limits) - 1):
            raise ValueError(f"expected a control for each value if the test has them, got {len(beside)}")
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
        series = [scaled]
        if len(beside):
            series.append((scaled - np.clip((beside - self._low) / (self._high - self._low), 0, 1) + 1) / 2)
        if self.decided_after is None:
            self._look(series)
        self.seen += len(scaled)
        self._sums = [before + float(numbers.sum()) for before, numbers in zip(self._sums, series, strict=True)]
        if self._total is not None:
            least = self._sums[0]
            self._correct(bool(self._reached(least)), bool(self._reached(least + self._total - self.seen)))

    def _correct(self, certain: bool, possible: bool) -> None:
        """Set the decision to the true result once reaching the limit is certain or impossible."""
        if certain or not possible:
            self.above, self.below = certain, not certain

    def _look(self, series: Sequence[Floats]) -> None:
        """Make the decision at the first of the values that allows one; a later contrary result does not count.

        `series` holds the values, and their differences from the control if there is one.
        """
        values = series[0]
        expected = [self._expected(*one) for one in zip(series, self._limits, self._sums, strict=True)]
        pairs = list(zip(series, expected, strict=True))
        above = min(self._forced("above", values), self._crossing("above", [(x - e, e) for x, e in pairs]))
        below = min(self._forced("below", values), self._crossing("below", [(e - x, 1 - e) for x, e in pairs]))
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
        sums = self._sums[0] + np.cumsum(values)
        left = self._total - self.seen - np.arange(1, len(values) + 1)
        return _first(self._reached(sums) if side == "above" else ~self._reached(sums + left))

    def _reached(self, sums: Floats | float) -> Flags:
        """Return True for sums over the data set that reach the limit, up to rounding."""
        import numpy as np

        needed = self._limit * (self._total or 0)
        return np.asarray(sums >= needed - _TOLERANCE * max(needed, 1.0))

    def _expected(self, values: Floats, limit: float, total_before: float) -> Floats:
        """Return the expectation of each value given those before it, if the mean equals `limit`, cut to [0, 1].

        An expectation outside [0, 1] means that the result is certain already.
        """
        import numpy as np

        if self._total is None:
            return np.full(len(values), limit).clip(0, 1)
        before = total_before + np.concatenate(([0.0], np.cumsum(values)[:-1]))
        left = self._total - self.seen - np.arange(len(values))
        return np.asarray(((self._total * limit - before) / left).clip(0, 1))

    def _crossing(self, side: str, series: Sequence[tuple[Floats, Floats]]) -> int:
        """Return the index at which the capital reaches the threshold; the number of values if it does not.

        `series` holds, for each kind of bet, the gains of a unit bet on every value, and the most that it can lose.
        """
        import numpy as np

        stakes = np.array(STAKES)[:, None]
        grown = [np.log1p(stakes / np.maximum(most_lost, 1e-12) * gains) for gains, most_lost in series]
        logs = np.cumsum(np.concatenate(grown), axis=1) + np.asarray(self._logs[side]).reshape(-1, 1)
        self._logs[side] = logs[:, -1]
        if logs.max() < self._ville + (log(LEAST_PART) if self._most else 0.0):
            # The average capital does not exceed the greatest one, which is cheaper to compute.
            return int(logs.shape[1])
        capital = np.logaddexp.reduce(logs, axis=0) - log(len(logs))
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
