"""The texts of numbers, docs and gates in verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import listed
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.samples import Sample
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
    """Return ``between 0.4014 and 0.5476 (each bound holds at 95 %)``."""
    low, high = number_text(interval.low + 0.0), number_text(interval.high + 0.0)
    return f"between {low} and {high} (each bound holds at {percent_text(confidence)})"


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


def no_bounds(metric: str, sample: Sample | None) -> tuple[Outcome, str]:
    """Return the outcome and the reason if there are no bounds at a confidence.

    `sample` is None if the metric is not a mean over docs; otherwise the docs are a part of a group's data sets.
    """
    if sample is None:
        return "failed", f"{metric} is not a mean over docs, so there are no bounds at a confidence"
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
