"""Bounds on the mean of real-valued scores, also where docs come in clusters that share a passage.

All methods take `Totals`: the sum of the scores and the number of docs of each independent unit (a doc, or a cluster of
docs). The mean is the sum of the former divided by the sum of the latter.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from math import isclose
from typing import TYPE_CHECKING

from pytest_llmeval._stats.gaffke import lower_bound
from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.interval import error_of


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats


#: Scores that differ by less are equal.
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Totals:
    """The sum of scores and number of docs of each unit, in order of first appearance."""

    sums: Floats
    sizes: Floats

    @classmethod
    def of(cls, values: Sequence[float] | Floats, clusters: Sequence[Hashable] | None = None) -> Totals:
        """Return the sum and number of docs per unit (cluster, or doc).

        Raises ValueError for values that are not finite, and unless there is one cluster per value.
        """
        import numpy as np

        scores = np.asarray(values, dtype=np.float64)
        if not np.isfinite(scores).all():
            raise ValueError("scores must be finite numbers")
        if clusters is None:
            return cls(scores, np.ones(len(scores)))
        if len(clusters) != len(scores):
            raise ValueError(f"{len(scores)} scores have {len(clusters)} clusters")
        numbers: dict[Hashable, int] = {}
        places = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)
        return cls(np.bincount(places, scores).astype(np.float64), np.bincount(places).astype(np.float64))

    @property
    def units(self) -> int:
        return len(self.sums)

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / self.sizes.sum())

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and greatest mean of a unit; there must be at least one unit."""
        means = self.sums / self.sizes
        return float(means.min()), float(means.max())


def mean_bounds(
    values: Sequence[float],
    confidence: float,
    *,
    clusters: Sequence[Hashable] | None = None,
    support: tuple[float, float] | None = None,
    least: float = -inf,
) -> Interval:
    """Return bounds on the true mean score.

    `support`: the least and greatest score that a doc can have, if known; `least`: the least score, if only that is
    known. The bounds are Gaffke's (2005), see `gaffke_bounds`: they also hold for skewed and nearly constant scores and
    equal those of Clopper and Pearson for 0/1 scores. Without a support no bounds hold for all distributions,
    because scores too rare to be observed may be arbitrarily bad (Bahadur and Savage 1956, Ann. Math. Statist. 27,
    1115-1122); `assumed_support` is then used. Infinite for fewer than two units, or if all units are equal.
    """
    error = error_of(confidence)
    totals = Totals.of(values, clusters)
    if support is not None:
        return gaffke_bounds(totals, error, *support)
    if totals.units < 2 or isclose(*totals.extremes, rel_tol=SAME, abs_tol=SAME):
        return Interval(-inf, inf)
    return gaffke_bounds(totals, error, *assumed_support(values, least))


def assumed_support(values: Sequence[float], least: float = -inf) -> tuple[float, float]:
    """Return the assumed range of scores, [min - (max - min), max + (max - min)], where none is declared.

    It does not extend below `least`, the least score that a doc can have, unless an observed score lies below it.
    """
    low, high = min(values), max(values)
    return max(low - (high - low), min(least, low)), high + (high - low)


def gaffke_bounds(totals: Totals, error: float, low: float, high: float) -> Interval:
    """Return bounds on a mean of scores that lie in [low, high].

    The bounds are those of Gaffke (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of
    a nonnegative variable", Math. Methods Statist. 14, 451-467). The lower bound is the `error` quantile of the mean
    under random Dirichlet weights on the units and one more unit with the worst score (and as many docs as the largest
    unit). For 0/1 scores it equals Clopper and Pearson's bound. Its error is proven for special cases, no distribution
    is known that violates it (Learned-Miller and Thomas 2020, "A new confidence interval for the mean of a bounded
    random variable", arXiv:1905.06208), and the tests check it by simulation. Raises ValueError for scores outside the
    support.
    """
    if totals.units == 0:
        return Interval(low, high)
    least, most = totals.extremes
    slack = SAME * max(abs(low), abs(high), 1.0)
    if least < low - slack or most > high + slack:
        raise ValueError(f"scores must lie in [{low:g}, {high:g}], got a mean of {least:g} to {most:g}")
    return Interval(
        min(lower_bound(totals.sums, totals.sizes, low, error), totals.mean),
        max(-lower_bound(-totals.sums, totals.sizes, -high, error), totals.mean),
    )
