"""How numbers read in a verdict's one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval


def required(gate: Gate) -> str:
    """``>= 0.35 and <= 0.99 @ 0.95``, ``>= baseline - 0.02``"""
    parts = [bound_text(bound) for bound in gate.bounds]
    if gate.change is not None:
        parts.append(str(gate.change))
    if gate.must_stay_right is not None:
        parts.append("to stay right" + ("" if gate.must_stay_right == "all" else f" on {listed(gate.must_stay_right)}"))
    confidence = gate.confidence if gate.written is None else gate.written
    asked = "" if confidence is None else f" @ {level_text(confidence)}"
    return " and ".join(parts) + asked + (" dataset" if gate.scope == "dataset" else "")


def bound_text(bound: Bound) -> str:
    whole = bound.value.is_integer() and abs(bound.value) < 1e15
    return f"{bound.operator} {int(bound.value) if whole else bound.value!r}"


def basis(summary: Summary, n: int) -> str:
    """What a number rests on: ``over 135 docs``, or ``on 100 of 1,221 docs`` if it is not all of them."""
    part = n < summary.n_total
    docs = f"on {n:,} of {docs_text(summary.n_total)}" if part else f"over {docs_text(n)}"
    return f"{docs} in {len(summary.tasks)} tasks" if len(summary.tasks) > 1 else docs


def name_of_value(value: MetricValue) -> str:
    return value.metric if value.filter == "none" else value.key


def docs_text(count: int) -> str:
    return f"{count:,} doc" if count == 1 else f"{count:,} docs"


def listed(docs: Sequence[int], most: int = 5) -> str:
    """``doc[3], doc[17], and 12 more``"""
    more = f", and {len(docs) - most} more" if len(docs) > most else ""
    return ", ".join(f"doc[{doc}]" for doc in docs[:most]) + more


def interval_text(interval: Interval) -> str:
    return f"[{number_text(interval.low)}, {number_text(interval.high)}]"


def number_text(number: float) -> str:
    """Four decimals, and more significant digits where these would be zeros."""
    if not math.isfinite(number) or number == 0 or abs(number) >= 0.001:
        return f"{number:.4f}"
    return f"{number:.2g}"


def level_text(confidence: float) -> str:
    """``0.95``, or ``95``; ``0.9999995`` does not become 1."""
    return f"{confidence:.12g}"


def p_text(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"
