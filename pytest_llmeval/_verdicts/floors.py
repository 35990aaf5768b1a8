"""Floors and ceilings with confidence: passed if the bound shows it, failed if it shows the contrary.

mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35 @ 0.95; it lies in [0.4014, 0.5476]
"""

from __future__ import annotations

import math

from pytest_llmeval import _stats
from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.advice import advice
from pytest_llmeval._verdicts.bounds import Bounded
from pytest_llmeval._verdicts.bounds import mean_of_data_set
from pytest_llmeval._verdicts.bounds import mean_of_many
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.samples import columns_of
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.samples import weighs_by_size
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.wording import interval_text
from pytest_llmeval._verdicts.wording import number_text


def judge_floor(gate: Gate, confidence: float, value: MetricValue, evidence: GateData, observed: Verdict) -> Verdict:
    """A gate with bounds and a confidence; `observed` is the verdict on the value alone, which is sound.

    The gate passes if every bound is shown to hold and fails if one is shown not to.
    """
    whole = gate.scope == "dataset" and evidence.drawn == "all"
    if whole:
        return observed.adding("the whole data set was run, so this is certain")
    columns = columns_of([(part.task, part.results) for part in evidence.tasks], value.metric, value.filter)
    sample = _sample(columns, evidence, value)
    if sample is None:
        return _fails(observed, f"{value.metric} is no mean over docs: there are no bounds at a confidence")
    truth = _truth(gate, sample, evidence)
    if truth is None:
        return _unknown(observed, "what all docs of a group would show is not known from a part of them")
    interval = truth.bounds(confidence)
    outcomes = [_outcome(bound, interval, sample) for bound in gate.bounds]
    outcome = _all(outcomes)
    shown = _on_scale(interval, sample)
    numbers = dict(observed.numbers) | {
        name: number for name, number in (("low", shown.low), ("high", shown.high)) if math.isfinite(number)
    }
    against = None
    if outcome == "failed":
        against = min(_against(bound, truth, sample) for bound in gate.bounds)
        numbers["p"] = against
    seen = _visible(gate, confidence, sample)
    verdict = Verdict(outcome, observed.sentence, numbers, against)
    lies = f"it lies in {interval_text(shown)}"
    told = advice(gate, outcome, sample)
    return verdict.adding(lies, _assumed(sample, interval), seen, told, evidence.first_ones)


def _sample(columns: list[Column], evidence: GateData, value: MetricValue) -> Sample | None:
    by_size = weighs_by_size(evidence.owner, value.metric, value.filter)
    return None if by_size is None else sample_of(columns, by_size=by_size)


def _truth(gate: Gate, sample: Sample, evidence: GateData) -> Bounded | None:
    """What is asked about: questions like these, or this data set. None if that cannot be known."""
    if gate.scope == "population":
        return mean_of_many(sample)
    if len(evidence.tasks) > 1:
        return None
    return mean_of_data_set(sample, evidence.tasks[0].n_total, random=evidence.drawn == "random")


def _outcome(bound: Bound, interval: Interval, sample: Sample) -> Outcome:
    limit = _limit(bound, sample)
    low, high = (interval.low, interval.high) if bound.operator.startswith(">") else (-interval.high, -interval.low)
    limit = limit if bound.operator.startswith(">") else -limit
    reached = low > limit if bound.operator in (">", "<") else low >= limit
    return "passed" if reached else "failed" if high < limit else "inconclusive"


def _against(bound: Bound, truth: Bounded, sample: Sample) -> float:
    """How probable the numbers are if the bound holds."""
    limit = _limit(bound, sample)
    if bound.operator.startswith(">"):
        return truth.below_p(limit)
    return Bounded(lambda confidence: _mirrored(truth.bounds(confidence))).below_p(-limit)


def _mirrored(interval: Interval) -> Interval:
    return Interval(-interval.high, -interval.low)


def _limit(bound: Bound, sample: Sample) -> float:
    if not sample.log:
        return bound.value
    return math.log(bound.value) if bound.value > 0 else -math.inf


def _all(outcomes: list[Outcome]) -> Outcome:
    if "failed" in outcomes:
        return "failed"
    return "inconclusive" if "inconclusive" in outcomes else "passed"


def _on_scale(interval: Interval, sample: Sample) -> Interval:
    """The bounds on the metric's own scale."""
    return Interval(_exp(interval.low), _exp(interval.high)) if sample.log else interval


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


def _assumed(sample: Sample, interval: Interval) -> str | None:
    """What the bounds rest on where the range of scores is not known.

    A doc that is longer than others counts for more, above the average as well as below it; what is shown is what a doc
    of average length can have.
    """
    if sample.support is not None or math.isinf(interval.high):
        return None
    low, high = _stats.assumed_support(sample.values, sample.least)
    docs = _on_scale(Interval(max(low, sample.floor), high), sample)
    which = "docs of average length" if sample.least < sample.floor else "docs"
    return f"taking {which} to lie in [{docs.low:.3g}, {docs.high:.3g}]"


def _visible(gate: Gate, confidence: float, sample: Sample) -> str | None:
    """The least shortfall that a floor on 0/1 scores would have shown in four of five runs."""
    floors = [bound.value for bound in gate.bounds if bound.operator.startswith(">")]
    if not (sample.binary and sample.clusters is None and floors and gate.scope == "population"):
        return None
    gap = _stats.floor_gap(len(sample.values), floors[0], confidence)
    return f"could see a shortfall of {number_text(gap)}" if math.isfinite(gap) else "too few docs to see any shortfall"


def _fails(observed: Verdict, why: str) -> Verdict:
    return Verdict("failed", observed.sentence, observed.numbers).adding(why)


def _unknown(observed: Verdict, why: str) -> Verdict:
    return Verdict("inconclusive", observed.sentence, observed.numbers).adding(why)
