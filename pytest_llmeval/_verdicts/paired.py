"""A value before and now, over the same docs, with the sample of each side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from fractions import Fraction

from pytest_llmeval import _stats
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import Scope
from pytest_llmeval._results import MetricValue
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.estimate import Estimate
from pytest_llmeval._verdicts.estimate import Flips
from pytest_llmeval._verdicts.estimate import estimate_of
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import PairedDocs
from pytest_llmeval._verdicts.noise import NoiseFlips
from pytest_llmeval._verdicts.observed import equal
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.samples import columns_of
from pytest_llmeval._verdicts.samples import exact_value
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.samples import weighs_by_size


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A value before and now, over the same `n` docs.

    `exact` holds both values as fractions if every score is a whole number. `before` and `now` are the samples of the
    two sides, None if the value is not a mean over docs. `worse_is_up`: lower values are better, by the direction of
    the metric, or by the gate if the metric has none.
    """

    value_before: MetricValue
    value_now: MetricValue
    n: int
    exact: tuple[Fraction, Fraction] | None
    before: Sample | None
    now: Sample | None
    worse_is_up: bool

    @classmethod
    def of(cls, gate: Gate, paired: PairedDocs, data: GateData, value: MetricValue) -> PairedEstimate:
        """Return a value before and now, with exact fractions and samples where its docs have them."""
        by_size = weighs_by_size(data.owner, value.metric, value.filter)
        sides = [columns_of(side, value.metric, value.filter) for side in (paired.before, paired.now)]
        before, now = sides if by_size is not None and all(sides) else ([], [])
        values = (paired.value_before, paired.value_now)
        return cls.of_columns(gate, values, paired.n, before, now, by_size=bool(by_size))

    @classmethod
    def of_columns(
        cls,
        gate: Gate,
        values: tuple[MetricValue, MetricValue],
        n: int,
        before: Sequence[Column],
        now: Sequence[Column],
        *,
        by_size: bool,
    ) -> PairedEstimate:
        """Return the `values` before and now with the columns of their docs, which are empty if unknown."""
        worse_is_up = directed(gate, values[1]).higher_is_better is False
        if not before or not now:
            return cls(*values, n, None, None, None, worse_is_up)
        old, new = (exact_value(side, by_size=by_size) for side in (before, now))
        exact = None if old is None or new is None else (old, new)
        sample_before, sample_now = (sample_of(side, by_size=by_size) for side in (before, now))
        if sample_before is None or sample_now is None:
            return cls(*values, n, exact, None, None, worse_is_up)
        return cls(*values, n, exact, sample_before, sample_now, worse_is_up)

    @property
    def old(self) -> float:
        return self.value_before.value

    @property
    def new(self) -> float:
        return self.value_now.value

    @property
    def difference(self) -> float:
        """The difference of the docs' means; 0 where they are not known."""
        if self.before is None or self.now is None:
            return 0.0
        now, before = self.now.values, self.before.values
        return math.fsum(now) / len(now) - math.fsum(before) / len(before)

    @property
    def stderr(self) -> float | None:
        """The standard error of `difference`, from the differences of the docs or passages; None if unknown."""
        if self.before is None or self.now is None:
            return None
        moves = [new - old for new, old in zip(self.now.values, self.before.values, strict=True)]
        return _stats.standard_error(moves, self.now.clusters)

    @property
    def flips(self) -> Flips | None:
        """The numbers of docs that went from 1 to 0 and from 0 to 1; None where scores are not 0 and 1."""
        if self.before is None or self.now is None or not (self.before.binary and self.now.binary):
            return None
        return Flips.of(self.before, self.now)

    @property
    def unflipped(self) -> bool:
        """True if no 0/1 score of independent docs changed."""
        clusters = None if self.now is None else self.now.clusters
        return self.flips is not None and not self.flips.down + self.flips.up and clusters is None

    def estimate(self, scope: Scope, draw: Draw) -> Estimate | None:
        """Return the estimate of the difference; None if there is none."""
        if self.before is None or self.now is None:
            return None
        return estimate_of(scope, draw, self.now, self.before)

    def without(self, noise: NoiseFlips, data: GateData) -> PairedEstimate | None:
        """Return the estimate with noise flips scored as in the baseline; None if the value is not a mean over docs."""
        value = self.value_now
        by_size = weighs_by_size(data.owner, value.metric, value.filter)
        if by_size is None or self.now is None:
            return None
        return replace(self, now=sample_of(columns_of(noise.now, value.metric, value.filter), by_size=by_size))

    def counts(self) -> dict[str, int]:
        """Return the numbers of docs lost and gained; empty if scores are not 0 and 1."""
        flips = self.flips
        if flips is None:
            return {}
        lost, gained = (flips.up, flips.down) if self.worse_is_up else (flips.down, flips.up)
        return {"lost": lost, "gained": gained}

    def on_scale(self, interval: Interval) -> Interval:
        """Convert bounds from the scale of doc means (log for a perplexity) to the scale of the metric.

        A bound beyond the greatest possible change is set to that change; a bound that is not known stays infinite.
        """
        if self.now is None or self.before is None:
            return interval
        ends = (interval.low, interval.high)
        if self.now.log:
            low, high = (self.old * (math.exp(end) - 1) if abs(end) < 700 else end for end in ends)
            return Interval(low, high)
        if self.now.scale is None or self.before.scale is None:
            return interval
        low, high = min(self.before.scale[0], self.now.scale[0]), max(self.before.scale[1], self.now.scale[1])
        return Interval(*(min(max(end, low - high), high - low) for end in ends))

    def margin(self, change: Change) -> float:
        """Return the gate's limit as a difference from the baseline, on the scale of the docs' means."""
        offset = float(change.offset) * (abs(self.old) if change.relative else 1.0)
        if self.now is None or not self.now.log:
            return offset
        return math.log1p(offset / self.old) if self.old > 0 and offset > -self.old else -math.inf


def directed(gate: Gate, value: MetricValue) -> MetricValue:
    """Return the value with a direction: that of the metric or, if it has none, the one that the gate implies."""
    if value.higher_is_better is not None or gate.change is None:
        return value
    return replace(value, higher_is_better=gate.change.operator.startswith(">"))


def meets(change: Change, seen: PairedEstimate) -> bool:
    """Return True if the observed values meet the gate.

    Values of whole-number scores are compared exactly, others up to rounding: ``.47 >= .52 - .05`` holds.
    """
    old: Fraction | float
    new: Fraction | float
    old, new = seen.exact or (seen.old, seen.new)
    offset: Fraction | float = change.offset * abs(Fraction(old)) if change.relative else change.offset
    limit: Fraction | float = Fraction(old) + offset
    if seen.exact is None and equal(float(new), float(limit)):
        return change.operator in (">=", "<=")
    return {">=": new >= limit, ">": new > limit, "<=": new <= limit, "<": new < limit}[change.operator]
