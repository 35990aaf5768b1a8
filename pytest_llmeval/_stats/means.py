"""Bounds on the mean of real-valued scores, also where docs come in clusters that share a passage.

`Totals` are what every method here works on: per independent unit (a doc, or a cluster of docs) the sum of its
scores and its number of docs; the mean is the ratio of the two sums.
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


#: Scores this close are one.
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Totals:
    """Per unit the sum of its scores and the number of its docs, in order of first appearance."""

    sums: Floats
    sizes: Floats

    @classmethod
    def of(cls, values: Sequence[float] | Floats, clusters: Sequence[Hashable] | None = None) -> Totals:
        """Raise ValueError for values that are not finite, or clusters that do not match them one to one."""
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
        """The least and greatest mean of a unit; there must be one."""
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

    `support`: the least and greatest score that a doc can have, where known; `least`: the least score alone. The
    bounds are Gaffke's (2005), see `gaffke_bounds`: they hold for skewed and for nearly constant scores too, and equal
    those of Clopper and Pearson for 0/1 scores. Without a support no bounds hold for all distributions: bad scores too
    rare to be seen may be arbitrarily bad (Bahadur and Savage 1956, Ann. Math. Statist. 27, 1115-1122). Then
    `assumed_support` is assumed. With fewer than two units, or equal ones only, nothing is known (infinite bounds).
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

    It does not reach below `least`, the least score that a doc can have, unless an observed score does.
    """
    low, high = min(values), max(values)
    return max(low - (high - low), min(least, low)), high + (high - low)


def gaffke_bounds(totals: Totals, error: float, low: float, high: float) -> Interval:
    """Return bounds on a mean of scores that lie in [low, high].

    They are those of Gaffke (2005, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
    nonnegative variable", Math. Methods Statist. 14, 451-467). The lower bound is the `error` quantile of the mean
    under random Dirichlet weights on the units and one more that has the worst score (with as many docs as the largest
    unit). For 0/1 scores that is Clopper and Pearson's bound. That its error is kept for every distribution is proven
    for special cases and has never been seen to fail (Learned-Miller and Thomas 2020, "A new confidence interval for
    the mean of a bounded random variable", arXiv:1905.06208); so it is checked by simulation here. Raises ValueError
    for scores outside the support.
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
