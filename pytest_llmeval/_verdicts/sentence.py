"""The texts of numbers, docs and gates in verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence
from statistics import NormalDist

from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import listed
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.samples import FEWEST_PER_TASK
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.verdict import Evidence
from pytest_llmeval._verdicts.verdict import Outcome


def condition(gate: Gate) -> str:
    """Return the condition of a gate: ``>= 0.35 and <= 0.99 at 95 % confidence``, ``>= baseline - 0.02``."""
    parts = [_bound(bound.operator, bound.value) for bound in gate.bounds]
    if gate.change is not None:
        parts.append(str(gate.change))
    if gate.must_stay_right is not None:
        named = "" if gate.must_stay_right == "all" else f" on {docs_listed(gate.must_stay_right)}"
        parts.append(f"to stay right{named}")
    return " and ".join(parts) + _at_confidence(gate)


def allowance(gate: Gate, change: Change, *, worse_is_up: bool) -> str:
    """Return the condition of a comparison, in words: ``allowed 0.02 at 95 % confidence``, ``required a rise``.

    `worse_is_up`: lower values of the metric are better.
    """
    if change.operator.startswith("<") is not worse_is_up:
        # The gate limits gains, not losses.
        return f"required {condition(gate)}"
    loss = change.offset if worse_is_up else -change.offset
    gain = "fall" if worse_is_up else "rise"
    size = f"{float(abs(loss) * 100):.12g}%" if change.relative else f"{float(abs(loss)):.12g}"
    strictly = change.operator in (">", "<")
    if loss > 0:
        asked = f"allowed {'less than ' * strictly}{size}"
    elif loss < 0:
        asked = f"required a {gain} of {'more than ' * strictly}{size}"
    else:
        asked = f"required a {gain}" if strictly else f"required no {'rise' if worse_is_up else 'fall'}"
    return asked + _at_confidence(gate)


def _at_confidence(gate: Gate) -> str:
    confidence = gate.confidence if gate.written is None else gate.written
    if confidence is None:
        return ""
    return f" at {percent_text(confidence)} confidence" + (" for this data set" if gate.scope == "dataset" else "")


def _bound(operator: str, value: float) -> str:
    whole = value.is_integer() and abs(value) < 1e15
    return f"{operator} {int(value) if whole else value!r}"


def basis(summary: Summary, n: int) -> str:
    """Return the docs behind a number: ``135 docs``, ``100 of 1,221 docs``, ``14,042 docs in 57 tasks``."""
    docs = f"{n:,} of {docs_text(summary.n_total)}" if n < summary.n_total else docs_text(n)
    return f"{docs} in {len(summary.tasks)} tasks" if len(summary.tasks) > 1 else docs


def name_of_value(value: MetricValue) -> str:
    """Return the name of the metric, with its filter if it has one."""
    return value.metric if value.filter == "none" else value.key


def docs_text(count: int) -> str:
    """Return ``1 doc`` or ``1,221 docs``."""
    return f"{count:,} doc" if count == 1 else f"{count:,} docs"


def docs_listed(docs: Iterable[int]) -> str:
    """Return ``doc[3], doc[17]``; for more than five docs the first ones and the number of the others."""
    return listed(f"doc[{doc}]" for doc in docs)


def bounds_text(interval: Interval, confidence: float) -> str:
    """Return ``between 0.4014 and 0.5476 (each bound holds at 95 %)``; a bound that is not known is not shown."""
    low, high = (number_text(end + 0.0) if math.isfinite(end) else None for end in (interval.low, interval.high))
    at = percent_text(confidence)
    if low and high:
        return f"between {low} and {high} (each bound holds at {at})"
    if low or high:
        missing = "lower" if high else "upper"
        return f"at {'least' if low else 'most'} {low or high} (this bound holds at {at}; the {missing} one is unknown)"
    return "unknown: too few docs, or docs that are all alike, for bounds on a score whose range is unknown"


def change_shown(change: Change, *, above: bool) -> str:
    """Return the side of a gate's limit on which a change lies: ``a fall beyond 0.02``, ``a fall of less than 5%``."""
    size = abs(change.offset)
    text = f"{float(size * 100):.12g}%" if change.relative else f"{float(size):.12g}"
    if not size:
        return "a rise" if above else "a fall"
    word = "rise" if change.offset > 0 else "fall"
    return f"a {word} beyond {text}" if above is (change.offset > 0) else f"a {word} of less than {text}"


def number_text(number: float) -> str:
    """Return a number with four decimals, or with two significant digits if it is below 0.001."""
    if not math.isfinite(number) or number == 0 or abs(number) >= 0.001:
        return f"{number:.4f}"
    return f"{number:.2g}"


def percent_text(share: float) -> str:
    """Return ``95 %`` for 0.95; 0.9999995 is not rounded to 100 %."""
    return f"{share * 100:.12g} %"


def p_text(p: float) -> str:
    """Return a p-value as ``p = 0.03`` or ``p < 0.0001``."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def p_shown(evidence: Evidence, *, worse: str, better: str) -> str | None:
    """Return the p-value of a gate's own limit, with the statement that a small one supports.

    ``p = 0.04 for a fall beyond 0.01``. An inconclusive gate shows the smaller one, none if neither is below one half.
    """
    sides = [(p, claim) for p, claim in ((evidence.p_worse, worse), (evidence.p_better, better)) if p is not None]
    if not sides:
        return None
    p, claim = min(sides)
    return None if len(sides) > 1 and p >= 0.5 else f"{p_text(p)} for {claim}"


def docs_needed(
    outcome: Outcome,
    gate: Gate,
    estimate: float,
    limits: Sequence[float],
    interval: Interval,
    draw: Draw,
    *,
    varies: bool = True,
) -> str | None:
    """Return the number of docs that would decide an inconclusive gate in 80 % of runs if the observed value is true.

    Bounds lie within a distance of the value that shrinks with the root of the number of docs, so that
    ``n ((z_c + z_.8) / z_c * distance / gap)**2`` docs are needed, where `distance` is that of the bound nearest to the
    limit and `gap` that of the limit (normal theory, with the z of the gate's confidence). Where all 0/1 scores are
    equal, or none changed (not `varies`), n docs like these show a gap if ``(1 - gap)**n`` is at most the error. None
    if the gate has two limits or a confidence below .6, and if bounds are unknown.
    """
    confidence = gate.confidence
    if outcome != "inconclusive" or confidence is None or len(limits) != 1:
        return None
    if gate.scope == "dataset":
        return f"all {docs_text(draw.total)} of the data set would decide it" if draw.tasks == 1 else None
    gap = abs(limits[0] - estimate)
    distance = interval.high - estimate if estimate < limits[0] else estimate - interval.low
    if confidence < 0.6 or not math.isfinite(distance) or not math.isfinite(gap):
        return None
    if not varies:
        if not 0 < gap < 1:
            return "no number of docs like these would decide it" if gap == 0 else None
        return f"{docs_text(math.ceil(math.log(1 - confidence) / math.log1p(-gap)))} like these would decide it"
    z = NormalDist().inv_cdf(confidence)
    times = math.inf if gap == 0 else ((z + NormalDist().inv_cdf(0.8)) / z * distance / gap) ** 2
    if times > 100:
        return "the value is too close to the limit for 100 times more docs to decide it"
    needed = float(f"{draw.seen * times:.2g}")
    return f"about {docs_text(int(needed))} would decide it in 80 % of runs if the observed value is the true one"


def passages_assumed(gate: Gate, sample: Sample | None) -> str | None:
    """Return the assumption on the sizes of passages that bounds on the population need; None without passages."""
    if sample is None or sample.clusters is None or gate.scope == "dataset":
        return None
    (_, most), *_ = Counter(sample.clusters).most_common(1)
    return f"assuming that no passage has more docs than the largest one here ({most})"


def no_bounds(metric: str, sample: Sample | None) -> tuple[Outcome, str]:
    """Return the outcome and the reason if there are no bounds at a confidence.

    `sample` is None if the metric is not a mean over docs; otherwise tasks of a group have too few docs, or the docs
    are a part of a group's data sets.
    """
    if sample is None:
        return "failed", f"{metric} is not a mean over docs, so there are no bounds at a confidence"
    if sample.tiny:
        few = f"fewer than {FEWEST_PER_TASK} docs, or equal scores, of unknown range in {listed(sample.tiny, 3)}"
        ways = "declare the range of a doc's score in metadata.ranges, or weigh the tasks by size"
        return "inconclusive", f"an average over tasks has no bounds with {few}: {ways}"
    return "inconclusive", "the value over all docs of a group has no bounds when only a part of them was run"


def advice(gate: Gate, *samples: Sample) -> str | None:
    """Return the ways to decide an inconclusive gate on scores of unknown range.

    None if the range is known: then only more docs would help.
    """
    if all(sample.support is not None for sample in samples):
        return None
    ways = ["run more docs"]
    if all(sample.plain for sample in samples):
        ways.insert(0, f"declare the range of a doc's score (metadata.ranges: {{{gate.metric}: [LEAST, GREATEST]}})")
    if gate.scope == "population":
        ways.append("judge this data set alone (@ CONFIDENCE dataset)")
    return f"to decide the gate, {', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}"
