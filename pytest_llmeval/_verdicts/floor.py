"""Verdicts on floors and ceilings with a confidence, from one-sided bounds on the value.

mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.5 at 95 % confidence
  value     between 0.4014 and 0.5476 (each bound holds at 95 %)
  power     a true shortfall of 0.1066 would fail this gate in 80 % of runs
"""

from __future__ import annotations

import math

from pytest_llmeval import _stats
from pytest_llmeval._gates import Gate
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.estimate import decide
from pytest_llmeval._verdicts.estimate import estimate_of
from pytest_llmeval._verdicts.estimate import p_better
from pytest_llmeval._verdicts.estimate import p_worse
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.sentence import advice
from pytest_llmeval._verdicts.sentence import bounds_text
from pytest_llmeval._verdicts.sentence import docs_needed
from pytest_llmeval._verdicts.sentence import no_bounds
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import p_shown
from pytest_llmeval._verdicts.sentence import passages_assumed
from pytest_llmeval._verdicts.verdict import Evidence
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


def judge_floor(gate: Gate, confidence: float, sample: Sample | None, draw: Draw, observed: Verdict) -> Verdict:
    """Return the verdict on a gate with bounds and a confidence; `observed` is the verdict on the observed value.

    The gate passes if every bound is shown to hold, and fails if one is shown not to hold. `sample` is None if the
    metric is not a mean over docs.
    """
    if gate.scope == "dataset" and draw.drawn == "all":
        return observed.adding(Fact("certain", "the whole data set was run, so this is certain"))
    estimate = None if sample is None else estimate_of(gate.scope, draw, sample)
    if sample is None or estimate is None:
        outcome, reason = no_bounds(gate.metric, sample)
        return Verdict(outcome, observed.headline, observed.numbers).adding(Fact("reason", reason))
    interval = estimate.bounds(confidence)
    limits = [(bound.operator, _limit(bound.value, sample)) for bound in gate.bounds]
    outcome = decide(estimate, confidence, limits)
    worse, broken = (None, 0) if outcome == "passed" else p_worse(estimate, limits)
    better = None if outcome == "failed" else p_better(estimate, limits)
    # A band fails at a share of its error; what is shown of other outcomes is the interval that decides them.
    at = confidence if outcome == "passed" else 1 - (1 - confidence) / len(limits)
    shown = _on_scale(interval if at == confidence else estimate.bounds(at), sample)
    visible = _visible(gate, confidence, sample)
    evidence = Evidence(shown, worse, better, visible)
    ends = (("low", shown.low), ("high", shown.high), ("p", evidence.p))
    numbers = {name: number for name, number in ends if number is not None and math.isfinite(number)}
    p_value = worse if outcome == "failed" else None
    verdict = Verdict(outcome, observed.headline, {**observed.numbers, **numbers}, p_value=p_value, evidence=evidence)
    return verdict.adding(
        Fact("value", bounds_text(shown, at)),
        fact("noise", p_shown(evidence, worse=_claim(gate, broken), better=_claim(gate))),
        fact("range", passages_assumed(gate, sample)),
        fact("range", _assumed(sample, interval)),
        fact("power", _visible_text(visible)),
        fact(
            "needs",
            docs_needed(
                outcome,
                gate,
                _mean(sample),
                [limit for _, limit in limits],
                interval,
                draw,
                varies=not (sample.binary and sample.clusters is None and min(sample.values) == max(sample.values)),
            ),
        ),
        fact("limit", len(limits) > 1 and f"the {len(limits)} bounds share the error of a wrong failure"),
        fact("sample", draw.not_random),
        fact("next", outcome == "inconclusive" and advice(gate, sample)),
    )


def _claim(gate: Gate, broken: int | None = None) -> str:
    """Return the statement that a small p-value supports: that a bound is broken, by its place, or that all hold."""
    if broken is None and len(gate.bounds) > 1:
        return f"{gate.metric} within its bounds"
    bound = gate.bounds[broken or 0]
    above = bound.operator.startswith(">") is (broken is None)
    return f"{gate.metric} {'above' if above else 'below'} {bound.value:.12g}"


def _mean(sample: Sample) -> float:
    return math.fsum(sample.values) / len(sample.values)


def _limit(limit: float, sample: Sample) -> float:
    """Return the limit of a bound on the scale of the doc mean."""
    if not sample.log:
        return limit
    return math.log(limit) if limit > 0 else -math.inf


def _on_scale(interval: Interval, sample: Sample) -> Interval:
    """Return bounds of the doc mean on the scale of the metric, and within its range."""
    ends = (interval.low, interval.high)
    if sample.log:
        # A bound that is not known stays infinite.
        return Interval(*(math.exp(end) if abs(end) < 700 else end for end in ends))
    low, high = sample.scale or (-math.inf, math.inf)
    return Interval(*(min(max(end, low), high) for end in ends))


def _assumed(sample: Sample, interval: Interval) -> str | None:
    """Return the range of scores that the bounds assume, where the range is unknown.

    Where longer docs count for more than shorter ones, the range shown is that of a doc of average length.
    """
    if sample.support is not None or math.isinf(interval.high):
        return None
    low, high = _stats.assumed_support(sample.values, sample.least)
    docs = _on_scale(Interval(max(low, sample.floor), high), sample)
    which = "scores of docs of average length" if sample.least < sample.floor else "scores"
    return f"assuming {which} in [{docs.low:.3g}, {docs.high:.3g}]"


def _visible(gate: Gate, confidence: float, sample: Sample) -> float | None:
    """Return the smallest true shortfall that fails a floor on 0/1 scores in 80 % of runs; None for other gates."""
    floors = [bound.value for bound in gate.bounds if bound.operator.startswith(">")]
    if not (sample.binary and sample.clusters is None and floors and gate.scope == "population"):
        return None
    return _stats.floor_gap(len(sample.values), floors[0], confidence)


def _visible_text(visible: float | None) -> str | None:
    if visible is None:
        return None
    if not math.isfinite(visible):
        return "too few docs to detect any shortfall"
    return f"a true shortfall of {number_text(visible)} would fail this gate in 80 % of runs"
