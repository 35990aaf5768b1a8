"""Comparisons with a baseline, doc by doc: how far the value fell or rose, and what that shows.

    capitals: acc 0.2400 (baseline 0.9600) over 75 docs, required >= baseline - 0.02 @ 0.95; drop 0.7200
    [0.6163, 0.8049], 55 lost, 1 gained, p < 0.0001; could see a drop of 0.2635

The interval's bounds are one-sided at the gate's confidence each (.95 where it has none), p is McNemar's for 0/1
scores (did anything change?), and the last number the smallest true drop that this gate fails in four of five runs.

A relative tolerance is a share of the baseline's observed value. The margin of an absolute one on a perplexity is
taken to the log scale, on which docs have a mean, at the baseline's observed value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from fractions import Fraction

from pytest_llmeval import _stats
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.advice import advice
from pytest_llmeval._verdicts.bounds import Flips
from pytest_llmeval._verdicts.bounds import Truth
from pytest_llmeval._verdicts.bounds import difference_of_data_set
from pytest_llmeval._verdicts.bounds import difference_of_many
from pytest_llmeval._verdicts.bounds import flips_of
from pytest_llmeval._verdicts.observed import equal
from pytest_llmeval._verdicts.pairs import Pairs
from pytest_llmeval._verdicts.pairs import pairs_of
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.samples import columns_of
from pytest_llmeval._verdicts.samples import exact_value
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.samples import weighs_by_size
from pytest_llmeval._verdicts.ties import Ties
from pytest_llmeval._verdicts.ties import counts_ties
from pytest_llmeval._verdicts.ties import find_ties
from pytest_llmeval._verdicts.ties import no_floor
from pytest_llmeval._verdicts.ties import no_margin
from pytest_llmeval._verdicts.ties import without_ties
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.wording import basis
from pytest_llmeval._verdicts.wording import interval_text
from pytest_llmeval._verdicts.wording import name_of_value
from pytest_llmeval._verdicts.wording import number_text
from pytest_llmeval._verdicts.wording import p_text
from pytest_llmeval._verdicts.wording import required


#: Of the interval shown for a gate without one.
USUAL_CONFIDENCE = 0.95

#: A gain of so many standard errors of a difference between independent runs is told: nobody gets better like that.
_UNUSUAL = 3.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A number before and now, over the same docs.

    `exact` holds both as fractions where every score is a whole number. `before` and `now` are the docs' own values,
    None where the number is no mean over docs; in `now` docs that are `ties`, if these count, are as before.
    `worse_is_up`: less is better, as the metric says or, where that does not, the gate.
    """

    pairs: Pairs
    exact: tuple[Fraction, Fraction] | None
    before: Sample | None
    now: Sample | None
    ties: Ties | None = None
    worse_is_up: bool = False

    @property
    def old(self) -> float:
        return self.pairs.value_before.value

    @property
    def new(self) -> float:
        return self.pairs.value_now.value

    @property
    def flips(self) -> Flips | None:
        """How many docs went from 1 to 0 and from 0 to 1; None where scores are not 0 and 1."""
        if self.before is None or self.now is None or not (self.before.binary and self.now.binary):
            return None
        return flips_of(self.before, self.now)

    @property
    def difference_without_ties(self) -> float | None:
        """None where ties make no difference."""
        if self.ties is None or not self.ties.count or not self.ties.lost + self.ties.gained:
            return None
        if self.before is None or self.now is None:
            return None
        now, before = self.now.values, self.before.values
        return math.fsum(now) / len(now) - math.fsum(before) / len(before)

    def on_scale(self, difference: float) -> float:
        """A difference of the docs' means as one of the number itself."""
        if self.now is None or not self.now.log:
            return difference
        return self.old * (math.exp(difference) - 1) if difference < 700 else math.inf

    def margin(self, change: Change) -> float:
        """Where on the scale of the docs' means the gate's limit lies, as a difference from the baseline."""
        offset = float(change.offset) * (abs(self.old) if change.relative else 1.0)
        if self.now is None or not self.now.log:
            return offset
        return math.log1p(offset / self.old) if self.old > 0 and offset > -self.old else -math.inf


def judge_change(gate: Gate, change: Change, summary: Summary, value: MetricValue, evidence: GateData) -> Verdict:
    """A gate against the baseline, by itself."""
    pairs = pairs_of(evidence, value)
    if isinstance(pairs, str):
        shown = f"{summary.name}: {name_of_value(value)} {value.value:.4f} {basis(summary, value.n)}"
        return Verdict(
            "failed", f"{shown}, required {required(gate)}; {pairs}", {value.metric: value.value, "docs": value.n}
        )
    compared = compared_of(gate, pairs, evidence, value)
    if counts_ties(gate) and compared.flips is not None and (problem := no_floor(pairs.noises)):
        return Verdict("failed", f"{_head(gate, summary, compared)}; {problem}", _numbers(summary, compared))
    if not (math.isfinite(compared.old) and math.isfinite(compared.new)):
        return Verdict(
            "failed", f"{_head(gate, summary, compared)}; {value.metric} is not a finite number on both sides"
        )
    met = meets(change, compared)
    whole = gate.scope == "dataset" and evidence.drawn == "all"
    if gate.confidence is None or whole:
        outcome: Outcome = "passed" if met else "failed"
        certain = "the whole data set was run, so this is certain" if whole else None
        verdict = Verdict(outcome, _head(gate, summary, compared), _numbers(summary, compared))
        truth = _truth("population", compared, evidence)
        verdict = _with_difference(verdict, gate, change, compared, truth)
        return verdict.adding(
            certain,
            _in_stderrs(change, value),
            _unusual(compared, value),
            _noise_text(compared),
            *_caveats(evidence, pairs),
        )
    return _confident(gate, gate.confidence, change, summary, compared, evidence)


def seen_so_far(gate: Gate, outcome: Outcome, summary: Summary, compared: Compared) -> Verdict:
    """A comparison that was decided before its last doc: what was seen, without bounds and p.

    Those hold for a number of docs that is fixed beforehand, not for one that the results chose.
    """
    difference = compared.new - compared.old
    verdict = Verdict(outcome, _head(gate, summary, compared), _numbers(summary, compared))
    facts = [f"{_word(compared, difference)} {number_text(abs(difference))}"]
    if flips := compared.flips:
        lost, gained = (flips.up, flips.down) if compared.worse_is_up else (flips.down, flips.up)
        facts += [f"{lost:,} lost", f"{gained:,} gained"]
    return verdict.adding(", ".join(facts))


def compared_of(gate: Gate, pairs: Pairs, evidence: GateData, value: MetricValue) -> Compared:
    """Both sides of a number, as exactly as its docs allow."""
    value = _directed(gate, value)
    worse_is_up = value.higher_is_better is False
    ties = find_ties(gate, value, pairs.noises, pairs.before, pairs.now)
    by_size = weighs_by_size(evidence.owner, value.metric, value.filter)
    columns = [columns_of(side, value.metric, value.filter) for side in (pairs.before, pairs.now)]
    if by_size is None or not all(columns):
        return Compared(pairs, None, None, None, ties, worse_is_up)
    old, new = (exact_value(side, by_size=by_size) for side in columns)
    if ties is not None and ties.count:
        settled = without_ties(value, pairs.noises, pairs.before, pairs.now)
        columns[1] = columns_of(settled, value.metric, value.filter)
    before, now = (sample_of(side, by_size=by_size) for side in columns)
    exact = None if old is None or new is None else (old, new)
    if before is None or now is None:
        return Compared(pairs, exact, None, None, ties, worse_is_up)
    return Compared(pairs, exact, before, now, ties, worse_is_up)


def _directed(gate: Gate, value: MetricValue) -> MetricValue:
    """The number with the direction in which it is better: where the metric says none, the side that the gate holds."""
    if value.higher_is_better is not None or gate.change is None:
        return value
    return replace(value, higher_is_better=gate.change.operator.startswith(">"))


def meets(change: Change, compared: Compared) -> bool:
    """Whether the observed values meet the gate: exactly where scores are whole numbers, else up to rounding.

    ``.47 >= .52 - .05`` holds.
    """
    old: Fraction | float
    new: Fraction | float
    old, new = compared.exact or (compared.old, compared.new)
    offset: Fraction | float = change.offset * abs(Fraction(old)) if change.relative else change.offset
    limit: Fraction | float = Fraction(old) + offset
    if compared.exact is None and equal(float(new), float(limit)):
        return change.operator in (">=", "<=")
    return {">=": new >= limit, ">": new > limit, "<=": new <= limit, "<": new < limit}[change.operator]


def _confident(
    gate: Gate, confidence: float, change: Change, summary: Summary, compared: Compared, evidence: GateData
) -> Verdict:
    head, numbers = _head(gate, summary, compared), _numbers(summary, compared)
    truth = _truth(gate.scope, compared, evidence)
    if truth is None:
        if compared.now is None:
            why = f"{compared.pairs.value_now.metric} is no mean over docs: there are no bounds at a confidence"
            return Verdict("failed", f"{head}; {why}", numbers)
        why = "what all docs of a group would show is not known from a part of them"
        return Verdict("inconclusive", f"{head}; {why}", numbers)
    limit = compared.margin(change)
    interval = truth.bounds(confidence)
    against = _against(change, truth, compared, evidence, gate) if _excluded(change, interval, limit) else None
    outcome: Outcome = (
        "failed" if against is not None else "passed" if _shown(change, interval, limit) else "inconclusive"
    )
    verdict = Verdict(outcome, head, numbers, against)
    verdict = _with_difference(verdict, gate, change, compared, truth)
    told = advice(gate, outcome, compared.before, compared.now) if compared.before and compared.now else None
    return verdict.adding(_noise_text(compared), told, *_caveats(evidence, compared.pairs))


def _truth(scope: str, compared: Compared, evidence: GateData) -> Truth | None:
    """The difference that is asked about; None if nothing can be said of it."""
    before, now = compared.before, compared.now
    if before is None or now is None:
        return None
    if scope == "population":
        return difference_of_many(before, now)
    if len(evidence.tasks) > 1:
        return None
    return difference_of_data_set(before, now, evidence.tasks[0].n_total, random=evidence.drawn == "random")


def _shown(change: Change, interval: Interval, limit: float) -> bool:
    """Whether the bound on the near side meets the gate."""
    return {
        ">=": interval.low >= limit,
        ">": interval.low > limit,
        "<=": interval.high <= limit,
        "<": interval.high < limit,
    }[change.operator]


def _excluded(change: Change, interval: Interval, limit: float) -> bool:
    """Whether the bound on the far side shows that the gate does not hold."""
    return interval.high < limit if change.operator.startswith(">") else interval.low > limit


def _against(change: Change, truth: Truth, compared: Compared, evidence: GateData, gate: Gate) -> float:
    """How probable the numbers are if the gate holds."""
    limit = compared.margin(change)
    if change.operator.startswith(">"):
        return truth.below_p(limit)
    mirrored = _truth(gate.scope, _mirrored(compared), evidence)
    return truth.below_p(limit) if mirrored is None else mirrored.below_p(-limit)


def _mirrored(compared: Compared) -> Compared:
    """The two sides exchanged: what rose then fell."""
    return Compared(compared.pairs, None, compared.now, compared.before)


def _head(gate: Gate, summary: Summary, compared: Compared) -> str:
    old, new = compared.old, compared.new
    digits = 4
    while digits < 9 and old != new and f"{old:.{digits}f}" == f"{new:.{digits}f}":
        digits += 1
    shown = f"{name_of_value(compared.pairs.value_now)} {new:.{digits}f} (baseline {old:.{digits}f})"
    return f"{summary.name}: {shown} {basis(summary, compared.pairs.n)}, required {required(gate)}"


def _with_difference(verdict: Verdict, gate: Gate, change: Change, compared: Compared, truth: Truth | None) -> Verdict:
    """The verdict with the difference in words: its interval, the flips, p, and what could have been seen."""
    difference, confidence = compared.new - compared.old, gate.confidence or USUAL_CONFIDENCE
    facts = [f"{_word(compared, difference)} {number_text(abs(difference))}"]
    numbers: dict[str, float | int] = {"difference": difference}
    if (settled := compared.difference_without_ties) is not None:
        sign = 1 if _word(compared, difference) in ("gain", "rise") else -1
        facts[0] += f", without ties {number_text(sign * settled + 0.0)}"
        numbers["difference_without_ties"] = settled
    if compared.ties is not None:
        numbers["flips_under_noise"] = compared.ties.lost + compared.ties.gained
    if truth is not None:
        interval = truth.bounds(confidence)
        low, high = compared.on_scale(interval.low), compared.on_scale(interval.high)
        numbers |= {name: n for name, n in (("difference_low", low), ("difference_high", high)) if math.isfinite(n)}
        size = Interval(low, high) if _word(compared, difference) in ("gain", "rise") else Interval(-high, -low)
        facts[0] += f" {interval_text(Interval(size.low + 0.0, size.high + 0.0))}"
    if flips := compared.flips:
        lost, gained = (flips.up, flips.down) if compared.worse_is_up else (flips.down, flips.up)
        p = _stats.mcnemar_p(lost, gained)
        facts += [f"{lost:,} lost", f"{gained:,} gained", p_text(p)]
        numbers |= {"lost": lost, "gained": gained, "p": p}
    elif verdict.p_value is not None:
        facts.append(p_text(verdict.p_value))
        numbers["p"] = verdict.p_value
    assumed = None if truth is None else _assumed(compared)
    visible = _visible(gate, change, compared)
    if visible is not None and math.isfinite(visible):
        numbers["detectable_drop"] = visible
    verdict = Verdict(verdict.outcome, verdict.sentence, {**verdict.numbers, **numbers}, verdict.p_value)
    return verdict.adding(", ".join(facts), assumed, _visible_text(compared, visible))


def _word(compared: Compared, difference: float) -> str:
    """A drop and a gain, or of a metric that should be low a rise and a fall."""
    if compared.worse_is_up:
        return "fall" if difference < 0 else "rise"
    return "gain" if difference > 0 else "drop"


def _assumed(compared: Compared) -> str | None:
    """What the interval rests on where the range of scores is not known."""
    before, now = compared.before, compared.now
    if before is None or now is None or (before.support is not None and now.support is not None):
        return None
    most = _stats.assumed_change(before.values, now.values)
    size = f"a factor of {math.exp(min(most, 700)):.3g}" if now.log else f"{most:.3g}"
    return f"taking docs to change by at most {size}" if most else None


def _visible(gate: Gate, change: Change, compared: Compared) -> float | None:
    """The least true loss that the gate would have shown in four of five runs; of 0/1 scores alone it is known."""
    flips = compared.flips
    loses = change.operator.startswith("<") if compared.worse_is_up else change.operator.startswith(">")
    if flips is None or not loses or gate.confidence is None or gate.scope == "dataset" or compared.now is None:
        return None
    if compared.now.clusters is not None:
        return None
    margin = -compared.margin(change) if change.operator.startswith(">") else compared.margin(change)
    # At least one doc: without any flip nothing is known of how many there would be.
    discordance = max(flips.down + flips.up, 1) / flips.n
    return _stats.detectable_drop(flips.n, discordance, gate.confidence, margin=max(margin, 0.0))


def _visible_text(compared: Compared, visible: float | None) -> str | None:
    if visible is None:
        return None
    word = "rise" if compared.worse_is_up else "drop"
    return (
        f"could see a {word} of {number_text(visible)}" if math.isfinite(visible) else f"too few docs to see any {word}"
    )


def _numbers(summary: Summary, compared: Compared) -> Mapping[str, float | int]:
    metric = compared.pairs.value_now.metric
    return {
        metric: compared.new,
        f"{metric}_baseline": compared.old,
        "docs": compared.pairs.n,
        "docs_total": summary.n_total,
    }


def _in_stderrs(change: Change, value: MetricValue) -> str | None:
    """What a tolerance without a confidence amounts to: below one standard error it decides by chance."""
    if not change.offset or change.relative or not value.stderr:
        return None
    return f"the tolerance is {abs(float(change.offset)) / value.stderr:.1f} standard errors"


def _unusual(compared: Compared, value: MetricValue) -> str | None:
    gain = (compared.new - compared.old) * (-1 if compared.worse_is_up else 1)
    unusual = value.stderr and gain > _UNUSUAL * value.stderr * math.sqrt(2)
    return "an unusual gain: look whether both runs are what they seem" if unusual else None


def _noise_text(compared: Compared) -> str | None:
    """What rounding has to do with the flips."""
    if problem := no_floor(compared.pairs.noises):
        return problem
    if compared.ties is not None:
        return str(compared.ties)
    return no_margin(compared.pairs.value_now, compared.pairs.noises) if compared.flips else None


def _caveats(evidence: GateData, pairs: Pairs) -> tuple[str | None, ...]:
    return evidence.first_ones, pairs.left_out
