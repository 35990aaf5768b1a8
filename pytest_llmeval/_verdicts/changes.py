"""How the docs of a task changed since the baseline, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeAlias

from pytest_llmeval._scoring import metric_of
from pytest_llmeval._task import Metric
from pytest_llmeval._verdicts.verdict import TaskData


#: A doc's score before and now.
Both: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Changes:
    """Of `docs` docs so many are `worse` and `better` by one score. `flips`: by one that is 0 or 1 for every doc."""

    worse: int
    better: int
    docs: int
    flips: bool


def changes_of_task(part: TaskData) -> Changes | None:
    """By the first score that is 0 or 1 for every doc, else by the first that is a number of which one side is better.

    None where no doc pairs, or no such score is kept.
    """
    pairs = part.pairs
    names = pairs[0][0].scores if pairs else ()
    columns = [(name, [(old.scores.get(name), new.scores.get(name)) for old, new in pairs]) for name in names]
    for name, scores in columns:
        if all(score in (0, 1) for both in scores for score in both):
            higher = metric_of(part.task, _metric_name(name)).higher_is_better is not False
            return _counted(scores, higher=higher, flips=True)
    for name, scores in columns:
        try:
            metric = metric_of(part.task, _metric_name(name))
            numbers = [(_number(metric, old), _number(metric, new)) for old, new in scores]
        except (LookupError, TypeError, ValueError):
            # What a function of the task gives for a doc need not be a number, nor have rules that are settled.
            continue
        if metric.higher_is_better is not None and all(math.isfinite(number) for both in numbers for number in both):
            return _counted(numbers, higher=metric.higher_is_better, flips=False)
    return None


def _metric_name(column: str) -> str:
    return column.rpartition(",")[0]


def _number(metric: Metric, item: Any) -> float:
    """What an item says of its doc alone."""
    mean = metric.aggregation.doc_mean
    return float(item if mean is None else mean.values([item])[0])


def _counted(scores: Sequence[Both], *, higher: bool, flips: bool) -> Changes:
    up, down = sum(old < new for old, new in scores), sum(old > new for old, new in scores)
    worse, better = (down, up) if higher else (up, down)
    return Changes(worse, better, len(scores), flips)
