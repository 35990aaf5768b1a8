"""Checks of gates against the range of a metric: a bound outside of it would hold always or never."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_llmeval._gates.gate import Bound
from pytest_llmeval._gates.gate import Change
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._task import Metric


def check_range(gate: Gate, meant: Sequence[Metric]) -> None:
    """Raise if a bound or an allowed difference of a gate always or never holds. `meant`: its metric in each task.

    If the range in one task is unknown, nothing is checked.
    """
    ranges = [ends for metric in meant if (ends := metric.value_range) is not None]
    if not ranges or len(ranges) < len(meant):
        return
    low, high = min(ends[0] for ends in ranges), max(ends[1] for ends in ranges)
    for bound in gate.bounds:
        _check_bound(gate, bound, low, high)
    if gate.change is not None:
        _check_difference(gate, gate.change, low, high)


def _check_bound(gate: Gate, bound: Bound, low: float, high: float) -> None:
    if not low <= bound.value <= high:
        is_percent = (low, high) == (0, 1) and 2 <= bound.value <= 100
        mend = f"; did you mean {bound.value / 100:g}?" if is_percent else ""
        raise gate.place.error(f"{gate.metric} {_between(low, high)}, and the bound is {bound.value:g}{mend}")
    if (bound.operator, bound.value) in ((">", high), ("<", low)):
        raise gate.place.error(
            f"{gate.metric} {_between(low, high)}: it is never {bound.operator} {bound.value:g}; did you mean "
            f"{bound.operator}= {bound.value:g}?"
        )


def _check_difference(gate: Gate, change: Change, low: float, high: float) -> None:
    size = float(abs(change.offset))
    if change.relative:
        # A value of 0 or more cannot fall by more than itself, but it may rise by more.
        idle, shown, mend = low >= 0 and change.offset <= -1, f"{size * 100:.12g}%", ""
    else:
        idle, shown = size >= high - low, f"{size:.12g}"
        mend = f"; did you mean {size / 100:.12g}?" if (low, high) == (0, 1) and size <= 100 else ""
    if idle:
        raise gate.place.error(f"{gate.metric} {_between(low, high)}: a difference of {shown} decides nothing{mend}")


def _between(low: float, high: float) -> str:
    return f"is {low:g} or more" if math.isinf(high) else f"lies between {low:g} and {high:g}"
