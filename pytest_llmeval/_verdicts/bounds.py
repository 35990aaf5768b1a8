"""What a mean, or the difference of two, may be in truth: of questions like these, or of this whole data set.

Every class answers `bounds(confidence)`, each bound one-sided, and `below_p(limit)`: how probable the numbers are if
the truth is not below the limit. The two agree: the upper bound lies below the limit exactly if that p is at most
``1 - confidence``. Where no closed form gives the p it is found from the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_llmeval import _stats
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.samples import Sample


class Truth(Protocol):
    """What is known of a number."""

    def bounds(self, confidence: float) -> Interval: ...

    def below_p(self, limit: float) -> float: ...


#: Halvings of the interval of errors: p-values to 1e-12.
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Bounded:
    """A number of which only bounds are known, for every confidence."""

    of: Callable[[float], Interval]

    def bounds(self, confidence: float) -> Interval:
        return self.of(confidence)

    def below_p(self, limit: float) -> float:
        """The smallest error at which the upper bound lies below the limit; 1 where one half is not enough."""
        if not self.of(0.5).high < limit:
            return 1.0
        small, large = 0.0, 0.5
        for _ in range(_HALVINGS):
            middle = (small + large) / 2
            if self.of(1 - middle).high < limit:
                large = middle
            else:
                small = middle
        return large


@dataclass(frozen=True, slots=True)
class Flips:
    """Of `n` docs `down` went from 1 to 0 and `up` from 0 to 1: the difference in accuracy."""

    down: int
    up: int
    n: int

    def bounds(self, confidence: float) -> Interval:
        return _stats.paired_bounds(self.down, self.up, self.n, confidence)

    def below_p(self, limit: float) -> float:
        return _stats.drop_p(self.down, self.up, self.n, -limit)


@dataclass(frozen=True, slots=True)
class Shift:
    """The difference of two means of the same docs."""

    before: Sample
    now: Sample

    def bounds(self, confidence: float) -> Interval:
        before, now = self.before, self.now
        return _stats.paired_mean_bounds(
            before.values, now.values, confidence, clusters=now.clusters, support=_support(before, now)
        )

    def below_p(self, limit: float) -> float:
        before, now = self.before, self.now
        return _stats.difference_p(
            before.values, now.values, -limit, side="beyond", clusters=now.clusters, support=_support(before, now)
        )


def mean_of_many(sample: Sample) -> Bounded:
    """The mean over questions like these."""
    if sample.binary and sample.clusters is None:
        right, n = int(sum(sample.values)), len(sample.values)
        return Bounded(lambda confidence: _stats.exact_bounds(right, n, confidence))
    return Bounded(lambda confidence: _raised(_of_many(sample, confidence), sample.floor))


def _of_many(sample: Sample, confidence: float) -> Interval:
    return _stats.mean_bounds(
        sample.values, confidence, clusters=sample.clusters, support=sample.support, least=sample.least
    )


def mean_of_data_set(sample: Sample, total: int, *, random: bool) -> Bounded:
    """The mean over all `total` docs of the data set, of which these were drawn at random, or are just the first."""
    seen = len(sample.values)
    if not random:
        return Bounded(lambda confidence: _raised(_certain(sample.values, total, sample.support), sample.floor))
    if sample.binary:
        right = int(sum(sample.values))
        return Bounded(lambda confidence: _stats.finite_bounds(right, seen, total, confidence))
    return Bounded(
        lambda confidence: _raised(_shrunk(_of_many(sample, confidence), sample.values, total), sample.floor)
    )


def difference_of_many(before: Sample, now: Sample) -> Flips | Shift:
    """The difference over questions like these."""
    if before.binary and now.binary and now.clusters is None:
        return flips_of(before, now)
    return Shift(before, now)


def difference_of_data_set(before: Sample, now: Sample, total: int, *, random: bool) -> Bounded:
    """The difference over all `total` docs of the data set."""
    differences = [new - old for old, new in zip(before.values, now.values, strict=True)]
    if not random:
        support = _support(before, now)
        width = None if support is None else support[1] - support[0]
        return Bounded(lambda confidence: _certain(differences, total, None if width is None else (-width, width)))
    if before.binary and now.binary:
        flips = flips_of(before, now)
        return Bounded(lambda confidence: _finite_flips(flips, total, confidence))
    many = Shift(before, now)
    return Bounded(lambda confidence: _shrunk(many.bounds(confidence), differences, total))


def _support(before: Sample, now: Sample) -> tuple[float, float] | None:
    """Between which numbers the values of both lie, where known. Of a group that averages its tasks these are not
    the same: they depend on the means of its tasks.
    """
    if before.support is None or now.support is None:
        return None
    return min(before.support[0], now.support[0]), max(before.support[1], now.support[1])


def flips_of(before: Sample, now: Sample) -> Flips:
    pairs = list(zip(before.values, now.values, strict=True))
    return Flips(sum(old > new for old, new in pairs), sum(old < new for old, new in pairs), len(pairs))


def _raised(bounds: Interval, floor: float) -> Interval:
    """No mean lies below its floor."""
    return Interval(max(bounds.low, floor), bounds.high)


def _certain(values: Sequence[float], total: int, support: tuple[float, float] | None) -> Interval:
    """What holds whatever the docs not seen would show."""
    unseen = total - len(values)
    low, high = support or (-math.inf, math.inf)
    if not unseen:
        low = high = 0.0
    return Interval((sum(values) + unseen * low) / total, (sum(values) + unseen * high) / total)


def _finite_flips(flips: Flips, total: int, confidence: float) -> Interval:
    """Each share is bounded at half the error, so that both hold at once."""
    half = 1 - (1 - confidence) / 2
    down = _stats.finite_bounds(flips.down, flips.n, total, half)
    up = _stats.finite_bounds(flips.up, flips.n, total, half)
    return Interval(up.low - down.high, up.high - down.low)


def _shrunk(bounds: Interval, values: Sequence[float], total: int) -> Interval:
    """Bounds with the finite population correction ``sqrt(1 - n/N)`` (Cochran 1977, section 2.6)."""
    mean, factor = sum(values) / len(values), math.sqrt(1 - len(values) / total)
    return Interval(mean - (mean - bounds.low) * factor, mean + (bounds.high - mean) * factor)
