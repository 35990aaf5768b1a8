"""Estimates of a mean over docs, or of a difference of two means, for the population or for this data set.

The population (``scope: population``) is the one that the docs are drawn from. Every estimate has `bounds(confidence)`,
both one-sided, and `p_value_below(limit)`, the probability of data at least this bad if the true value is not below the
limit. The upper bound lies below the limit exactly if that p-value is at most ``1 - confidence``. Where the p-value has
no closed form, it is found from the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Protocol

from pytest_llmeval import _stats
from pytest_llmeval._gates import Operator
from pytest_llmeval._gates import Scope
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.verdict import Outcome


class Estimate(Protocol):
    """The estimate of a true value: bounds at a confidence, and p-values."""

    def bounds(self, confidence: float) -> Interval: ...

    def p_value_below(self, limit: float) -> float: ...

    def mirrored(self) -> Estimate:
        """Return the estimate of the number with its sign changed."""


#: The largest share of the docs, seen at random, for which the finite population correction is used in full.
_MOST_SEEN = 0.9

#: Bisection steps for a p-value, which is then exact to 1e-12.
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Bounded:
    """An estimate that is given by its bounds, as a function of the confidence."""

    bounds: Callable[[float], Interval]

    def p_value_below(self, limit: float) -> float:
        """Return the smallest error at which the upper bound lies below the limit; 1 if it is above one half."""
        if not self.bounds(0.5).high < limit:
            return 1.0
        small, large = 0.0, 0.5
        for _ in range(_HALVINGS):
            middle = (small + large) / 2
            if self.bounds(1 - middle).high < limit:
                large = middle
            else:
                small = middle
        return large

    def mirrored(self) -> Bounded:
        def bounds(confidence: float) -> Interval:
            found = self.bounds(confidence)
            return Interval(-found.high, -found.low)

        return Bounded(bounds)


@dataclass(frozen=True, slots=True)
class Flips:
    """The difference in accuracy on `n` docs; `down` docs went from 1 to 0 and `up` docs from 0 to 1."""

    down: int
    up: int
    n: int

    @classmethod
    def of(cls, before: Sample, now: Sample) -> Flips:
        pairs = list(zip(before.values, now.values, strict=True))
        return cls(sum(old > new for old, new in pairs), sum(old < new for old, new in pairs), len(pairs))

    def bounds(self, confidence: float) -> Interval:
        return _stats.paired_bounds(self.down, self.up, self.n, confidence)

    def p_value_below(self, limit: float) -> float:
        return _stats.drop_p(self.down, self.up, self.n, -limit)

    def mirrored(self) -> Flips:
        return Flips(self.up, self.down, self.n)


@dataclass(frozen=True, slots=True)
class MeanChange:
    """The difference of two means of the same docs."""

    before: Sample
    now: Sample

    def bounds(self, confidence: float) -> Interval:
        before, now = self.before, self.now
        return _stats.paired_mean_bounds(
            before.values, now.values, confidence, clusters=now.clusters, support=_support(before, now)
        )

    def p_value_below(self, limit: float) -> float:
        before, now = self.before, self.now
        return _stats.difference_p(
            before.values, now.values, -limit, side="beyond", clusters=now.clusters, support=_support(before, now)
        )

    def mirrored(self) -> MeanChange:
        return MeanChange(self.now, self.before)


def estimate_of(scope: Scope, draw: Draw, now: Sample, before: Sample | None = None) -> Estimate | None:
    """Return the estimate of the mean of `now`, or of its difference from the mean of `before`.

    None for ``scope: dataset`` on a group of several tasks, and for a group with tasks of too few docs.
    """
    if now.tiny or (before is not None and before.tiny):
        return None
    if scope == "population":
        return _mean_of_many(now) if before is None else _difference_of_many(before, now)
    if draw.tasks > 1:
        return None
    total, random = draw.total, draw.drawn == "random"
    if before is None:
        return _mean_of_data_set(now, total, random=random)
    return _difference_of_data_set(before, now, total, random=random)


def decide(estimate: Estimate, confidence: float, conditions: Sequence[tuple[Operator, float]]) -> Outcome:
    """Return the outcome of conditions (operator, limit) on the true value, from its bounds.

    A condition ``>= limit`` is shown to hold if the lower bound reaches the limit, and shown not to hold if the upper
    bound lies below it; for ``<=`` the other way round. Several conditions share the error of a wrong failure, because
    each could fail by chance. A pass needs no share: its error is at most that of the condition that does not hold
    (Berger 1982, Technometrics 24, 295-300).
    """
    interval = estimate.bounds(confidence)
    beyond = interval if len(conditions) < 2 else estimate.bounds(1 - (1 - confidence) / len(conditions))
    outcomes: list[Outcome] = []
    for operator, limit in conditions:
        upward = operator.startswith(">")
        low, high, needed = (interval.low, beyond.high, limit) if upward else (-interval.high, -beyond.low, -limit)
        reached = low > needed if operator in (">", "<") else low >= needed
        outcomes.append("passed" if reached else "failed" if high < needed else "inconclusive")
    return "failed" if "failed" in outcomes else "inconclusive" if "inconclusive" in outcomes else "passed"


def p_worse(estimate: Estimate, conditions: Sequence[tuple[Operator, float]]) -> tuple[float, int]:
    """Return the probability of data at least this bad if the conditions held, and the place of the one it is for.

    For several conditions it is at most the sum of the probabilities for each (Bonferroni).
    """
    found = [
        (estimate if operator.startswith(">") else estimate.mirrored()).p_value_below(
            limit if operator.startswith(">") else -limit
        )
        for operator, limit in conditions
    ]
    return min(1.0, len(found) * min(found)), found.index(min(found))


def p_better(estimate: Estimate, conditions: Iterable[tuple[Operator, float]]) -> float:
    """Return the probability of data at least this good if one of the conditions did not hold."""
    found = []
    for operator, limit in conditions:
        upward = operator.startswith(">")
        needed = -limit if upward else limit
        # A bound that is equal to the limit reaches it, unless the condition is strict.
        needed = needed if operator in (">", "<") else math.nextafter(needed, math.inf)
        found.append((estimate.mirrored() if upward else estimate).p_value_below(needed))
    return max(found)


def _mean_of_many(sample: Sample) -> Estimate:
    """Return the estimate of the mean over the population."""
    if sample.binary and sample.clusters is None:
        right, n = int(sum(sample.values)), len(sample.values)
        return Bounded(lambda confidence: _stats.exact_bounds(right, n, confidence))
    return Bounded(lambda confidence: _raised(_of_many(sample, confidence), sample.floor))


def _of_many(sample: Sample, confidence: float) -> Interval:
    return _stats.mean_bounds(
        sample.values, confidence, clusters=sample.clusters, support=sample.support, least=sample.least
    )


def _mean_of_data_set(sample: Sample, total: int, *, random: bool) -> Estimate:
    """Return the estimate of the mean over all `total` docs; not `random`: the sample is the first docs."""
    if not random:
        return Bounded(lambda confidence: _raised(_certain(sample.values, total, sample.support), sample.floor))
    if sample.binary:
        right, seen = int(sum(sample.values)), len(sample.values)
        return Bounded(lambda confidence: _stats.finite_bounds(right, seen, total, confidence))
    return Bounded(
        lambda confidence: _raised(
            _shrunk(_of_many(sample, confidence), sample.values, total, sample.support), sample.floor
        )
    )


def _difference_of_many(before: Sample, now: Sample) -> Estimate:
    """Return the estimate of the difference over the population."""
    if before.binary and now.binary and now.clusters is None:
        return Flips.of(before, now)
    return MeanChange(before, now)


def _difference_of_data_set(before: Sample, now: Sample, total: int, *, random: bool) -> Estimate:
    """Return the estimate of the difference over all `total` docs of the data set."""
    differences = [new - old for old, new in zip(before.values, now.values, strict=True)]
    support = _support(before, now)
    ends = None if support is None else (support[0] - support[1], support[1] - support[0])
    if not random:
        return Bounded(lambda confidence: _certain(differences, total, ends))
    if before.binary and now.binary:
        flips = Flips.of(before, now)
        return Bounded(lambda confidence: _finite_flips(flips, total, confidence))
    many = MeanChange(before, now)
    return Bounded(lambda confidence: _shrunk(many.bounds(confidence), differences, total, ends))


def _support(before: Sample, now: Sample) -> tuple[float, float] | None:
    """Return the least and greatest value that a doc can have on either side; None if unknown.

    For a group that averages its tasks the two sides differ, because their ranges depend on the means of the tasks.
    """
    if before.support is None or now.support is None:
        return None
    return min(before.support[0], now.support[0]), max(before.support[1], now.support[1])


def _raised(bounds: Interval, floor: float) -> Interval:
    """Return bounds whose lower one is at least `floor`, the least possible mean."""
    return replace(bounds, low=max(bounds.low, floor))


def _certain(values: Sequence[float], total: int, support: tuple[float, float] | None) -> Interval:
    """Return bounds that hold with certainty, whatever the scores of the other docs are."""
    unseen = total - len(values)
    low, high = support or (-math.inf, math.inf)
    if not unseen:
        low = high = 0.0
    return Interval((sum(values) + unseen * low) / total, (sum(values) + unseen * high) / total)


def _finite_flips(flips: Flips, total: int, confidence: float) -> Interval:
    """Return bounds on the difference from a bound on each share, each at half the error."""
    half = 1 - (1 - confidence) / 2
    down = _stats.finite_bounds(flips.down, flips.n, total, half)
    up = _stats.finite_bounds(flips.up, flips.n, total, half)
    return Interval(up.low - down.high, up.high - down.low)


def _shrunk(
    bounds: Interval, values: Sequence[float], total: int, support: tuple[float, float] | None = None
) -> Interval:
    """Return bounds on the mean over all `total` docs, from bounds on that of a population.

    With a known range (`support`) these hold here too, because docs drawn without replacement vary less (Hoeffding
    1963, JASA 58, 13-30), and no bound needs to be wider than the unseen docs allow. The finite population correction
    ``sqrt(1 - n/N)`` would narrow them, but up to 6.6 % of bounds on rare scores are then wrong, not 5 %
    (`part_errors` in perf/verdict_study.py). Where the range is unknown the bounds depend on an assumption anyway, and
    are wide; they are narrowed by that correction (Cochran 1977, section 2.6), up to n = .9 N.
    """
    if support is not None:
        certain = _certain(values, total, support)
        return Interval(max(bounds.low, certain.low), min(bounds.high, certain.high))
    mean, factor = sum(values) / len(values), math.sqrt(1 - min(len(values) / total, _MOST_SEEN))
    return Interval(mean - (mean - bounds.low) * factor, mean + (bounds.high - mean) * factor)
