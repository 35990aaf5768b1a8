"""The sample of a metric: one number per doc, whose mean is the metric.

In a group that weighs its tasks by size, the docs of all tasks count equally. A group that averages its T tasks is
linearised: a score x in task t counts as ``M + (x - m_t) N / (T n_t)``, with M the group's value, m_t that of the task,
N and n_t their numbers of docs. The mean of these numbers is M, and their variance gives that of M within tasks
(Cochran 1977, section 5.3, equal weights). Where the range of scores is unknown, bounds depend on the observed spread.
It is too small by ``sqrt((n_t - 1) / n_t)`` on average, so distances from m_t are divided by that, and a task of fewer
than 10 docs, or of equal scores, leaves the group without bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._task import DocMean
from pytest_llmeval._task import Group
from pytest_llmeval._task import Item
from pytest_llmeval._task import Metric
from pytest_llmeval._task import Task


#: The choice of a run's docs: all, at random, or the first ones, which are not a random sample.
Drawn: TypeAlias = Literal["all", "random", "first"]

#: A task with fewer docs shows too little of its spread for bounds on a group that averages its tasks.
FEWEST_PER_TASK = 10

#: Log-probabilities may exceed 0 by up to this much because of rounding.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Draw:
    """The docs that were run: `seen` of `total`, from one or several data sets (`tasks`)."""

    drawn: Drawn
    seen: int
    total: int
    tasks: int = 1

    @property
    def not_random(self) -> str | None:
        """A caution that the docs are not a random sample; None if they are."""
        if self.drawn != "first":
            return None
        which = f"the first {self.seen:,} docs" if self.tasks == 1 else "the first docs of each task"
        return f"{which} are not a random sample of the others"


@dataclass(frozen=True, slots=True)
class Column:
    """The items of a task's docs for one metric, with the `clusters` of the docs if the task names their column.

    `support`: the least and greatest score that a doc can have; None if unknown. `task` is the name of the task.
    """

    metric: Metric
    items: Sequence[Item]
    clusters: Sequence[str] | None = None
    support: tuple[float, float] | None = None
    task: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One number per doc (`values`), whose mean, or with `log` its exponential, is the metric.

    `binary`: every value is 0 or 1. `support`: the least and greatest possible value of a doc, None if unknown; for
    log-probabilities only lower limits are known, `least` per doc and `floor` for the mean. `plain`: the task may
    declare the range of its docs' scores. `scale`: the least and greatest possible mean, None if unknown. `tiny`: the
    names of tasks, of a group that averages them, whose docs show too little of the spread of scores of unknown range.
    """

    values: Sequence[float]
    clusters: Sequence[str] | None = None
    log: bool = False
    binary: bool = False
    support: tuple[float, float] | None = None
    least: float = -math.inf
    floor: float = -math.inf
    plain: bool = False
    scale: tuple[float, float] | None = None
    tiny: tuple[str, ...] = ()


def columns_of(parts: Iterable[tuple[Task, Sequence[DocResult]]], metric: str, filter_name: str) -> list[Column]:
    """Return one column for each task that has the metric."""
    found = []
    for task, results in parts:
        having = [result for result in results if metric in result.scores.get(filter_name, {})]
        if not having:
            continue
        clusters = None
        if task.cluster is not None:
            # Equal passage numbers in two tasks name different passages.
            clusters = [f"{task.name}/{result.key.cluster if result.key else result.doc}" for result in having]
        items = [result.scores[filter_name][metric] for result in having]
        rules = metric_of(task, metric)
        found.append(Column(rules, items, clusters, rules.range, task.name))
    return found


def sample_of(columns: Sequence[Column], *, by_size: bool) -> Sample | None:
    """Return the values of all docs; None if the metric is not a mean over docs.

    `by_size`: docs of all tasks count equally; otherwise all tasks do.
    """
    means = [column.metric.aggregation.doc_mean for column in columns]
    known = [mean for mean in means if mean is not None]
    if not columns or len(known) < len(columns) or (len(columns) > 1 and any(mean.log for mean in known)):
        return None
    try:
        values = [list(mean.values(column.items)) for mean, column in zip(known, columns, strict=True)]
        leasts = [_least(mean, column.items, own) for mean, column, own in zip(known, columns, values, strict=True)]
    except (TypeError, ValueError):
        # A function of the task may return something other than a number.
        return None
    clusters = None
    if any(column.clusters for column in columns):
        clusters = [name for place, column in enumerate(columns) for name in _clusters(place, column)]
    # Scores that are all 0 or 1 are not binary if the task declares another range, or if they are log-probabilities.
    binary = (
        all(column.support in (None, (0.0, 1.0)) for column in columns)
        and all(mean.floor is None for mean in known)
        and all(value in (0.0, 1.0) for column in values for value in column)
    )
    supports = [ends for column in columns if (ends := (0.0, 1.0) if binary else column.support)]
    flat = by_size or len({len(column) for column in values}) == 1
    together = [value for column in (values if flat else _linearised(values, values)) for value in column]
    support = scale = None
    tiny: tuple[str, ...] = ()
    if not flat and len(supports) < len(columns):
        tiny = tuple(
            column.task
            for column, own in zip(columns, values, strict=True)
            if len(own) < FEWEST_PER_TASK or min(own) == max(own)
        )
        widened = [math.sqrt(len(own) / max(len(own) - 1, 1)) for own in values]
        together = [value for column in _linearised(values, values, widened) for value in column]
    if len(supports) == len(columns):
        ends_seen = [end for ends in (*supports, *values) for end in ends]
        scale = min(ends_seen), max(ends_seen)
        counted = supports if flat else _linearised(values, supports)
        # Scores of a baseline may lie outside a range that the task declared later.
        known_values = [*together, *(end for ends in counted for end in ends)]
        support = min(known_values), max(known_values)
    least, floor = _lowest(values, leasts, known, together, flat=flat)
    plain = all(mean.plain for mean in known)
    return Sample(together, clusters, known[0].log, flat and binary, support, least, floor, plain, scale, tiny)


def exact_value(columns: Sequence[Column], *, by_size: bool) -> Fraction | None:
    """Return the mean as a fraction, for exact comparison with a limit; None unless every score is a whole number."""
    if not all(_is_whole_mean(column) for column in columns):
        return None
    sums = [Fraction(sum(int(item) for item in column.items), len(column.items)) for column in columns]
    weights = [len(column.items) if by_size else 1 for column in columns]
    return sum((value * weight for value, weight in zip(sums, weights, strict=True)), Fraction()) / sum(weights)


def weighs_by_size(owner: Task | Group, metric: str, filter_name: str) -> bool | None:
    """Return True if `owner` weighs its tasks by size for a metric; None if a function of the user aggregates it."""
    if isinstance(owner, Task):
        return True
    for entry in owner.metrics:
        if entry.metric == metric and (entry.filters is None or filter_name in entry.filters):
            return None if entry.aggregation is not None else entry.weight_by_size
    return None


def _least(mean: DocMean, items: Sequence[Item], values: Sequence[float]) -> float:
    """Return the least possible value of a doc; -inf if it is unknown, or if an observed value is below it."""
    least = -math.inf if mean.least is None else mean.least(items)
    return least if min(values) >= least - _ROUNDING else -math.inf


def _lowest(
    values: Sequence[Sequence[float]],
    leasts: Sequence[float],
    means: Sequence[DocMean],
    together: Sequence[float],
    *,
    flat: bool,
) -> tuple[float, float]:
    """Return the least possible value of a doc and of the mean; -inf if unknown."""
    if any(math.isinf(least) for least in leasts):
        return -math.inf, -math.inf
    counted = [[least] for least in leasts]
    least = min(value for column in (counted if flat else _linearised(values, counted)) for value in column)
    floors = [0.0 if mean.floor is None else mean.floor for mean in means]
    return least, min(*floors, sum(together) / len(together))


def _clusters(place: int, column: Column) -> Sequence[str]:
    """Return the cluster of each doc; a doc without one is its own cluster."""
    return column.clusters or [f"{place}:{doc}" for doc in range(len(column.items))]


def _linearised(
    values: Sequence[Sequence[float]], scores: Sequence[Sequence[float]], factors: Sequence[float] | None = None
) -> list[list[float]]:
    """Return the linearised scores of each task, given the `values` of its docs, spread by a factor per task."""
    means = [sum(column) / len(column) for column in values]
    docs, whole = sum(map(len, values)), sum(means) / len(means)
    return [
        [whole + (score - mean) * factor * docs / (len(values) * len(column)) for score in given]
        for column, mean, factor, given in zip(values, means, factors or [1.0] * len(values), scores, strict=True)
    ]


def _is_whole_mean(column: Column) -> bool:
    mean = column.metric.aggregation.doc_mean
    return (
        mean is not None
        and mean.plain
        and bool(column.items)
        and all(isinstance(item, int | float) and float(item).is_integer() for item in column.items)
    )
