"""Verdicts on the change of a value since the baseline, from the changes of its docs.

    capitals: acc 0.2400, was 1.0000: fell by 0.7600, allowed 0.02 at 95 % confidence
      change    between -0.8388 and -0.6652 (each bound holds at 95 %)
      docs      75 docs compared: 57 lost, 0 gained
      noise     p < 0.0001 (McNemar)
      power     a true fall of 0.2661 would fail this gate in 80 % of runs

Both bounds of the change are one-sided, at the gate's confidence (.95 where it has none). For 0/1 scores p is the
p-value of McNemar's test that nothing changed, and `power` states the smallest true loss that fails this gate in 80 %
of runs. A relative tolerance is a share of the baseline's observed value. An absolute tolerance on a perplexity is
converted to the log scale, on which the value is a mean over docs, at the baseline's observed value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace
from fractions import Fraction

from pytest_llmeval import _stats
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import Scope
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.estimate import Estimate
from pytest_llmeval._verdicts.estimate import Flips
from pytest_llmeval._verdicts.estimate import decide
from pytest_llmeval._verdicts.estimate import estimate_of
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import PairedDocs
from pytest_llmeval._verdicts.gate_data import paired_docs
from pytest_llmeval._verdicts.noise import NoiseFlips
from pytest_llmeval._verdicts.noise import noise_flips
from pytest_llmeval._verdicts.noise import noise_problem
from pytest_llmeval._verdicts.noise import without_margin
from pytest_llmeval._verdicts.observed import equal
from pytest_llmeval._verdicts.observed import headline_of_value
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.samples import columns_of
from pytest_llmeval._verdicts.samples import exact_value
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.samples import weighs_by_size
from pytest_llmeval._verdicts.sentence import advice
from pytest_llmeval._verdicts.sentence import allowance
from pytest_llmeval._verdicts.sentence import basis
from pytest_llmeval._verdicts.sentence import bounds_text
from pytest_llmeval._verdicts.sentence import name_of_value
from pytest_llmeval._verdicts.sentence import no_bounds
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import p_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


#: The confidence of the bounds that are shown for a gate without one.
USUAL_CONFIDENCE = 0.95

#: At most this p-value, flips that go one way are called unlikely to be noise.
_LIKELY_REAL = 0.05

#: A gain above this number of standard errors of the difference of two independent runs is reported as unusual.
_UNUSUAL = 3.0


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A value before and now, over the same docs.

    `exact` holds both values as fractions if every score is a whole number. `before` and `now` are the samples of the
    two sides, None if the value is not a mean over docs. `worse_is_up`: lower values are better, by the direction of
    the metric, or by the gate if the metric has none.
    """

    paired: PairedDocs
    exact: tuple[Fraction, Fraction] | None
    before: Sample | None
    now: Sample | None
    worse_is_up: bool

    @classmethod
    def of(cls, gate: Gate, paired: PairedDocs, data: GateData, value: MetricValue) -> PairedEstimate:
        """Return a value before and now, with exact fractions and samples where its docs have them."""
        worse_is_up = directed(gate, value).higher_is_better is False
        by_size = weighs_by_size(data.owner, value.metric, value.filter)
        columns = [columns_of(side, value.metric, value.filter) for side in (paired.before, paired.now)]
        if by_size is None or not all(columns):
            return cls(paired, None, None, None, worse_is_up)
        old, new = (exact_value(side, by_size=by_size) for side in columns)
        exact = None if old is None or new is None else (old, new)
        before, now = (sample_of(side, by_size=by_size) for side in columns)
        if before is None or now is None:
            return cls(paired, exact, None, None, worse_is_up)
        return cls(paired, exact, before, now, worse_is_up)

    @property
    def old(self) -> float:
        return self.paired.value_before.value

    @property
    def new(self) -> float:
        return self.paired.value_now.value

    @property
    def difference(self) -> float:
        """The difference of the docs' means; 0 where they are not known."""
        if self.before is None or self.now is None:
            return 0.0
        now, before = self.now.values, self.before.values
        return math.fsum(now) / len(now) - math.fsum(before) / len(before)

    @property
    def flips(self) -> Flips | None:
        """The numbers of docs that went from 1 to 0 and from 0 to 1; None where scores are not 0 and 1."""
        if self.before is None or self.now is None or not (self.before.binary and self.now.binary):
            return None
        return Flips.of(self.before, self.now)

    def estimate(self, scope: Scope, data: GateData) -> Estimate | None:
        """Return the estimate of the difference; None if there is none."""
        if self.before is None or self.now is None:
            return None
        return estimate_of(scope, data, self.now, self.before)

    def without(self, noise: NoiseFlips, data: GateData) -> PairedEstimate | None:
        """Return the estimate with noise flips scored as in the baseline; None if the value is not a mean over docs."""
        value = self.paired.value_now
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
        """Convert bounds from the scale of doc means (log for a perplexity) to the scale of the metric."""
        if self.now is None or not self.now.log:
            return interval
        low, high = (self.old * (math.exp(end) - 1) if end < 700 else math.inf for end in (interval.low, interval.high))
        return Interval(low, high)

    def margin(self, change: Change) -> float:
        """Return the gate's limit as a difference from the baseline, on the scale of the docs' means."""
        offset = float(change.offset) * (abs(self.old) if change.relative else 1.0)
        if self.now is None or not self.now.log:
            return offset
        return math.log1p(offset / self.old) if self.old > 0 and offset > -self.old else -math.inf


def judge_change(gate: Gate, change: Change, summary: Summary, value: MetricValue, data: GateData) -> Verdict:
    """Return the verdict on a gate against the baseline, without its family."""
    paired = paired_docs(data, value)
    if isinstance(paired, str):
        numbers = {value.metric: value.value, "docs": value.n}
        return Verdict("failed", headline_of_value(gate, summary, value), numbers).adding(Fact("reason", paired))
    seen = PairedEstimate.of(gate, paired, data, value)
    verdict = Verdict("failed", _headline(gate, change, summary, seen), _numbers(summary, seen))
    of_many = gate.confidence is not None and gate.scope == "population"
    no_floor = noise_problem(data.noise)
    if of_many and no_floor and seen.flips is not None:
        return verdict.adding(Fact("reason", no_floor))
    if not (math.isfinite(seen.old) and math.isfinite(seen.new)):
        return verdict.adding(Fact("reason", f"{value.metric} is not a finite number on both sides"))
    whole = gate.scope == "dataset" and data.drawn == "all"
    observed = gate.confidence is None or whole
    confidence = gate.confidence or USUAL_CONFIDENCE
    estimate = seen.estimate("population" if observed else gate.scope, data)
    if estimate is None and not observed:
        outcome, reason = no_bounds(value.metric, seen.now)
        return replace(verdict, outcome=outcome).adding(Fact("reason", reason))
    interval = None if estimate is None else estimate.bounds(confidence)
    noise = noise_flips(directed(gate, value), data.noise, paired.before, paired.now)
    settled = seen.without(noise, data) if noise is not None and noise.may_excuse and of_many else None
    p_value, excused = None, False
    if observed or estimate is None or interval is None:
        outcome = "passed" if meets(change, seen) else "failed"
    else:
        condition = [(change.operator, seen.margin(change))]
        outcome, p_value = decide(estimate, interval, condition)
        if outcome == "failed" and settled and (other := settled.estimate(gate.scope, data)):
            excused = decide(other, other.bounds(confidence), condition)[0] != "failed"
    if excused:
        outcome, p_value = "inconclusive", None
    numbers = _numbers_of_change(seen, interval, noise, settled, p_value)
    visible = _visible(gate, change, seen)
    if visible is not None and math.isfinite(visible):
        numbers["detectable_drop"] = visible
    verdict = replace(verdict, outcome=outcome, numbers={**verdict.numbers, **numbers}, p_value=p_value)
    return verdict.adding(
        fact("reason", excused and "without the flips under the noise floor it would not fail"),
        fact("change", interval and bounds_text(seen.on_scale(interval), confidence)),
        _docs(summary, seen),
        fact("noise", "p" in numbers and _chance(numbers["p"], seen)),
        fact("range", interval and _assumed(seen)),
        fact("power", _visible_text(seen, visible)),
        fact("rounding", no_floor or _rounding(seen, noise, settled, data, asked=of_many)),
        fact("certain", whole and "the whole data set was run, so this is certain"),
        fact("limit", observed and _in_stderrs(change, value)),
        fact("caution", observed and _unusual(seen, value)),
        fact("caution", data.not_random),
        fact("caution", paired.left_out),
        fact("next", outcome == "inconclusive" and seen.now and seen.before and advice(gate, seen.before, seen.now)),
    )


def change_so_far(gate: Gate, change: Change, outcome: Outcome, summary: Summary, seen: PairedEstimate) -> Verdict:
    """Return the verdict of a comparison that stopped early, without bounds and p-values.

    These are valid for a number of docs fixed beforehand, not for a number that depends on the results.
    """
    verdict = Verdict(outcome, _headline(gate, change, summary, seen), _numbers(summary, seen))
    return verdict.adding(_docs(summary, seen))


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


def _headline(gate: Gate, change: Change, summary: Summary, seen: PairedEstimate) -> str:
    """Return one line with the task, its values now and before, their difference, and the allowed difference."""
    old, new, digits = seen.old, seen.new, 4
    while digits < 9 and old != new and f"{old:.{digits}f}" == f"{new:.{digits}f}":
        digits += 1
    moved = f"{'fell' if new < old else 'rose'} by {number_text(abs(new - old))}" if new != old else "unchanged"
    shown = f"{name_of_value(seen.paired.value_now)} {new:.{digits}f}, was {old:.{digits}f}"
    return f"{summary.name}: {shown}: {moved}, {allowance(gate, change, worse_is_up=seen.worse_is_up)}"


def _numbers(summary: Summary, seen: PairedEstimate) -> dict[str, float | int]:
    metric, n = seen.paired.value_now.metric, seen.paired.n
    return {metric: seen.new, f"{metric}_baseline": seen.old, "docs": n, "docs_total": summary.n_total}


def _numbers_of_change(
    seen: PairedEstimate,
    interval: Interval | None,
    noise: NoiseFlips | None,
    settled: PairedEstimate | None,
    p_value: float | None,
) -> dict[str, float | int]:
    numbers: dict[str, float | int] = {"difference": seen.new - seen.old}
    if settled is not None:
        numbers["difference_without_ties"] = settled.difference
    if noise is not None:
        numbers["flips_under_noise"] = noise.count
    if interval is not None:
        shown = seen.on_scale(interval)
        ends = (("difference_low", shown.low), ("difference_high", shown.high))
        numbers |= {name: end for name, end in ends if math.isfinite(end)}
    if counts := seen.counts():
        numbers |= {**counts, "p": _stats.mcnemar_p(**counts)}
    elif p_value is not None:
        numbers["p"] = p_value
    return numbers


def _docs(summary: Summary, seen: PairedEstimate) -> Fact:
    flips = ", ".join(f"{count:,} {name}" for name, count in seen.counts().items())
    return Fact("docs", f"{basis(summary, seen.paired.n)} compared" + (f": {flips}" if flips else ""))


def _chance(p: float, seen: PairedEstimate) -> str:
    if not seen.flips:
        return f"{p_text(p)} if the gate held"
    if not seen.flips.down + seen.flips.up:
        return f"{p_text(p)} (McNemar)"
    return f"{p_text(p)} (McNemar): {'unlikely to be noise' if p <= _LIKELY_REAL else 'it may be noise'}"


def _assumed(seen: PairedEstimate) -> str | None:
    """Return the largest change of a doc's score that the bounds assume, where the score's range is unknown."""
    before, now = seen.before, seen.now
    if before is None or now is None or (before.support is not None and now.support is not None):
        return None
    most = _stats.assumed_change(before.values, now.values)
    size = f"a factor of {math.exp(min(most, 700)):.3g}" if now.log else f"{most:.3g}"
    return f"assuming that a doc's score changes by at most {size}" if most else None


def _visible(gate: Gate, change: Change, seen: PairedEstimate) -> float | None:
    """Return the smallest true loss that fails the gate in 80 % of runs; None if scores are not 0 and 1."""
    flips = seen.flips
    holds_losses = change.operator.startswith("<") is seen.worse_is_up
    if flips is None or not holds_losses or gate.confidence is None or gate.scope == "dataset" or seen.now is None:
        return None
    if seen.now.clusters is not None:
        return None
    margin = -seen.margin(change) if change.operator.startswith(">") else seen.margin(change)
    # At least one doc: observing no flip does not show that flips are impossible.
    discordance = max(flips.down + flips.up, 1) / flips.n
    return _stats.detectable_drop(flips.n, discordance, gate.confidence, margin=max(margin, 0.0))


def _visible_text(seen: PairedEstimate, visible: float | None) -> str | None:
    if visible is None:
        return None
    word = "rise" if seen.worse_is_up else "fall"
    if not math.isfinite(visible):
        return f"too few docs to detect any {word}"
    return f"a true {word} of {number_text(visible)} would fail this gate in 80 % of runs"


def _rounding(
    seen: PairedEstimate, noise: NoiseFlips | None, settled: PairedEstimate | None, data: GateData, *, asked: bool
) -> str | None:
    """Return the part of the flips that may be rounding; `asked`: it can make the gate inconclusive."""
    if noise is None:
        return without_margin(seen.paired.value_now, data.noise) if seen.flips else None
    if settled is not None:
        moved = f"{'fell' if settled.difference < 0 else 'rose'} by {number_text(abs(settled.difference))}"
        return f"{noise} may be rounding; without them it {moved if settled.difference else 'is unchanged'}"
    if asked and noise.count:
        return f"{noise} mostly go one way ({p_text(noise.p_value)}), so none is attributed to rounding"
    return str(noise)


def _in_stderrs(change: Change, value: MetricValue) -> str | None:
    """Return the tolerance in standard errors; below one, chance decides a gate without a confidence."""
    if not change.offset or change.relative or not value.stderr:
        return None
    return f"the tolerance is {abs(float(change.offset)) / value.stderr:.1f} standard errors"


def _unusual(seen: PairedEstimate, value: MetricValue) -> str | None:
    gain = (seen.new - seen.old) * (-1 if seen.worse_is_up else 1)
    unusual = value.stderr and gain > _UNUSUAL * value.stderr * math.sqrt(2)
    return "an unusually large gain: check that both runs are set up as intended" if unusual else None
