"""Judging: a gate and the numbers it asks for become an outcome and the sentence that says why.

    mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35

A gate passes only on a finite number that rests on every doc asked for. Whatever is missing (docs, the metric,
an answer that is a number) fails it, each with its own sentence: there is no way to pass for lack of data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._task import NOTHING


#: `inconclusive`: the data cannot tell at the confidence asked for. A gate on the observed value never is.
Outcome: TypeAlias = Literal["passed", "failed", "inconclusive"]

#: Two values this close are equal: 0.47 reaches 0.52 - 0.05, which is 0.47000000000000003 in floating point.
#: One doc of a million moves a mean by far more.
RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12

_MOST_DIGITS = 9

_STRICTLY: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.gt,
    ">": operator.gt,
    "<=": operator.lt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sentence` is one line for reports and failure texts, `numbers` what led to it, for JUnit and the like."""

    outcome: Outcome
    sentence: str
    numbers: Mapping[str, float | int] = NOTHING

    def to_list(self) -> list[Any]:
        """The verdict as plain data, for another process."""
        return [self.outcome, self.sentence, dict(self.numbers)]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Verdict:
        return cls(*values)


def judge(gate: Gate, summary: Summary | None, *, missing: str | None = None) -> Verdict:
    """Whether the numbers of a task or group meet a gate.

    `summary` None: there are no numbers at all. `missing` says which of the docs asked for have no result; a limit
    is no lack, the sentence then says ``on 100 of 1,221 docs``.
    """
    if summary is None:
        return Verdict("failed", f"{_wanted(gate)}: {missing or 'no docs were evaluated'}")
    reason = _lack_of_data(summary, missing)
    found = summary.find(gate.metric, gate.filter)
    if len(found) != 1:
        return Verdict("failed", f"{summary.name}: {reason or _no_metric(gate, summary)}")
    (value,) = found
    reason = reason or _no_number(value)
    met = [holds(bound, value.value) for bound in gate.bounds]
    passed = reason is None and all(met)
    sentence = _sentence(gate, summary, value) + (f"; {reason}" if reason else "")
    return Verdict("passed" if passed else "failed", sentence, _numbers(gate, summary, value))


def holds(bound: Bound, value: float) -> bool:
    """Whether a value meets a bound. On the bound, up to rounding, ``>=`` and ``<=`` hold, ``>`` and ``<`` do not.

    Never true of NaN.
    """
    if _equal(value, bound.value):
        return bound.operator in (">=", "<=")
    return _STRICTLY[bound.operator](value, bound.value)


def _equal(value: float, bound: float) -> bool:
    return math.isclose(value, bound, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)


def _lack_of_data(summary: Summary, missing: str | None) -> str | None:
    """Why no gate can pass on this summary; None if one may."""
    if missing:
        return missing
    if summary.errors:
        return f"{_docs(summary.errors)} could not be evaluated"
    if summary.n == 0:
        return "no docs were evaluated"
    if summary.nonfinite:
        return f"{_docs(summary.nonfinite)} got no usable number from the model (NaN)"
    return None


def _no_metric(gate: Gate, summary: Summary) -> str:
    known = ", ".join(value.key for value in summary.values) or "none"
    if len(summary.find(gate.metric, gate.filter)) > 1:
        return f"{gate.metric} has several filters and the gate names none (there are: {known})"
    return f"there is no metric {gate.key} (there are: {known})"


def _no_number(value: MetricValue) -> str | None:
    if value.n == 0:
        return f"no doc has a score for {value.metric}"
    if not math.isfinite(value.value):
        return f"{value.metric} is not a finite number"
    return None


def _sentence(gate: Gate, summary: Summary, value: MetricValue) -> str:
    digits = _digits(gate, value.value)
    stderr = "" if value.stderr is None else f" +- {value.stderr:.4f}"
    required = " and ".join(_required(bound) for bound in gate.bounds)
    name = value.metric if value.filter == "none" else value.key
    return f"{summary.name}: {name} {value.value:.{digits}f}{stderr} {_basis(summary, value)}, required {required}"


def _basis(summary: Summary, value: MetricValue) -> str:
    """What the number rests on: ``over 135 docs``, or ``on 100 of 1,221 docs`` if it is not all of them."""
    part = value.n < summary.n_total
    docs = f"on {value.n:,} of {_docs(summary.n_total)}" if part else f"over {_docs(value.n)}"
    return f"{docs} in {len(summary.tasks)} tasks" if len(summary.tasks) > 1 else docs


def _digits(gate: Gate, value: float) -> int:
    """Four decimals, or as many as it takes for a value to look on the side of the bound that it is on."""
    sides = [bound.value for bound in gate.bounds if not _equal(value, bound.value)]
    for digits in range(4, _MOST_DIGITS):
        shown = round(value, digits)
        if all(shown != side and (shown < side) == (value < side) for side in sides):
            return digits
    return _MOST_DIGITS


def _numbers(gate: Gate, summary: Summary, value: MetricValue) -> dict[str, float | int]:
    numbers: dict[str, float | int] = {value.metric: value.value, "docs": value.n, "docs_total": summary.n_total}
    if value.stderr is not None:
        numbers[f"{value.metric}_stderr"] = value.stderr
    for bound in gate.bounds:
        numbers["min" if bound.operator.startswith(">") else "max"] = bound.value
    return numbers


def _wanted(gate: Gate) -> str:
    return f"{gate.key} {' and '.join(_required(bound) for bound in gate.bounds)}"


def _required(bound: Bound) -> str:
    whole = bound.value.is_integer() and abs(bound.value) < 1e15
    return f"{bound.operator} {int(bound.value) if whole else bound.value!r}"


def _docs(count: int) -> str:
    return f"{count:,} doc" if count == 1 else f"{count:,} docs"
