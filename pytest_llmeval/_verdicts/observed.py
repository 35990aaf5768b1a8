"""Verdicts on the observed value alone: its headline, its numbers, and the reasons why no gate can pass on it.

mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from collections.abc import Mapping

from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._results import number_name
from pytest_llmeval._verdicts.sentence import basis
from pytest_llmeval._verdicts.sentence import condition
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.sentence import name_of_value
from pytest_llmeval._verdicts.verdict import Verdict


#: Values that differ by less are equal: 0.47 reaches 0.52 - 0.05, which is 0.47000000000000003 in floating point.
#: One doc in a million changes a mean by far more.
RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12

_MOST_DIGITS = 9

_STRICTLY: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.gt,
    ">": operator.gt,
    "<=": operator.lt,
    "<": operator.lt,
}


def judge_observed(gate: Gate, summary: Summary, value: MetricValue) -> Verdict:
    """Return the verdict on the observed value: passed if every bound holds."""
    met = all(holds(bound, value.value) for bound in gate.bounds)
    return Verdict(
        "passed" if met else "failed", headline_of_value(gate, summary, value), numbers_of(gate, summary, value)
    )


def holds(bound: Bound, value: float) -> bool:
    """Return True if a value meets a bound; NaN meets none.

    For a value equal to the bound, up to rounding, ``>=`` and ``<=`` hold, ``>`` and ``<`` do not.
    """
    if equal(value, bound.value):
        return bound.operator in (">=", "<=")
    return _STRICTLY[bound.operator](value, bound.value)


def equal(value: float, bound: float) -> bool:
    """Return True if two values are equal up to rounding."""
    return math.isclose(value, bound, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)


def lack_of_data(summary: Summary, missing: str | None) -> str | None:
    """Return the reason why no gate can pass on this summary; None if there is none."""
    if missing:
        return missing
    if summary.errors:
        first = f"{', the first' * (summary.errors > 1)}: {summary.first_error}" if summary.first_error else ""
        return f"{docs_text(summary.errors)} could not be evaluated{first}"
    if summary.n == 0:
        return "no docs were evaluated"
    if summary.nonfinite:
        given = f" ({', '.join(summary.nonfinite_values)})" if summary.nonfinite_values else ""
        return f"{docs_text(summary.nonfinite)} got no usable number from the model{given}"
    return None


def no_metric(gate: Gate, summary: Summary) -> str:
    """Return the reason why a summary does not have exactly one value that matches the gate."""
    known = ", ".join(value.key for value in summary.values) or "none"
    if len(summary.find(gate.metric, gate.filter)) > 1:
        return f"{gate.metric} has several filters and the gate names none (there are: {known})"
    return f"there is no metric {gate.key} (there are: {known})"


def no_number(value: MetricValue) -> str | None:
    """Return the reason why a value is not a number that can be compared; None if it is one."""
    if value.n == 0:
        return f"no doc has a score for {value.metric}"
    if not math.isfinite(value.value):
        return f"{value.metric} {value.why or f'is {number_name(value.value)}, not a finite number'}"
    return None


def headline_of_value(gate: Gate, summary: Summary, value: MetricValue) -> str:
    """Return one line with the task, its value over its docs, and the condition of the gate."""
    stderr = "" if value.stderr is None else f" +- {value.stderr:.{_least_digits(value.value)}f}"
    without = summary.n - value.n
    lacking = f" ({docs_text(without)} without a score)" if without > 0 else ""
    shown = f"{name_of_value(value)} {value.value:.{_digits(gate, value.value)}f}{stderr}"
    word = "on" if value.n < summary.n_total else "over"
    return f"{summary.name}: {shown} {word} {basis(summary, value.n)}{lacking}, required {condition(gate)}"


def _least_digits(value: float) -> int:
    """Return the number of decimals of a value and its standard error: 4, or two significant digits below 0.001."""
    return min(1 - math.floor(math.log10(abs(value))), _MOST_DIGITS) if 0 < abs(value) < 0.001 else 4


def _digits(gate: Gate, value: float) -> int:
    """Return the number of decimals, which is greater if the rounded value would not stay on its side of each bound."""
    sides = [bound.value for bound in gate.bounds if not equal(value, bound.value)]
    for digits in range(_least_digits(value), _MOST_DIGITS):
        shown = round(value, digits)
        if all(shown != side and (shown < side) == (value < side) for side in sides):
            return digits
    return _MOST_DIGITS


def numbers_of(gate: Gate, summary: Summary, value: MetricValue) -> dict[str, float | int]:
    """Return the numbers of the headline under their names in reports."""
    numbers: dict[str, float | int] = {value.metric: value.value, "docs": value.n, "docs_total": summary.n_total}
    if value.stderr is not None:
        numbers[f"{value.metric}_stderr"] = value.stderr
    for bound in gate.bounds:
        numbers["min" if bound.operator.startswith(">") else "max"] = bound.value
    return numbers
