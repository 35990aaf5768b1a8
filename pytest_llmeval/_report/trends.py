"""How the numbers of a task or group went from model to model, and how sure it is that they moved.

Models that answered the same docs are compared doc by doc: the difference of each doc from the first model to the
last has a mean, which is the change, and a standard error, which is far smaller than what two separate error bars
suggest where most docs are answered alike. ::

    good  1 1 1 0        damaged  0 1 1 0        differences  -1 0 0 0        change -0.25 +- 0.25
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._task import Group


#: The results of one task under one model, by doc.
Results = Mapping[int, DocResult]

#: How far the mean of what docs scored may be from a metric's value that is to be their mean.
_SAME_MEAN = 1e-9


@dataclass(frozen=True, slots=True)
class Trend:
    """One metric of a task or group over several models, in their order.

    `stderr` is the standard error of the change from the first model to the last; None where docs have no numbers of
    which the value is the mean (a perplexity), or where there is one doc only. `rose` and `fell` count docs whose
    number did so. `tasks` are those that a group rests on, none for a task; `n` is the number of docs.
    """

    name: str
    display_name: str
    metric: str
    filter: str
    higher_is_better: bool | None
    values: tuple[float, ...]
    n: int
    stderr: float | None = None
    rose: int = 0
    fell: int = 0
    tasks: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.metric},{self.filter}"

    @property
    def change(self) -> float:
        return self.values[-1] - self.values[0]

    @property
    def p(self) -> float | None:
        """How likely chance alone moves docs so unevenly: `sign_test`. None where docs are not compared."""
        return None if self.stderr is None else sign_test(self.rose, self.fell)


def trends_of_task(summaries: Sequence[Summary], results: Sequence[Results]) -> list[Trend]:
    """The trends of one task, one for each value that all models have.

    `summaries` and `results` are one a model. Empty if the models did not score the same docs: other docs are other
    questions, and side by side their numbers say nothing.
    """
    scored = [{doc for doc, result in found.items() if result.error is None} for found in results]
    if not scored[0] or any(docs != scored[0] for docs in scored):
        return []
    return [_trend(column, summaries[0], results) for column in _columns(summaries)]


def trends_of_group(group: Group, summaries: Sequence[Summary], members: Sequence[Trend]) -> list[Trend]:
    """The trends of a group, by those of its tasks: weighted as its value is.

    Empty for a value of which some task has no trend.
    """
    trends = []
    for column in _columns(summaries):
        first = column[0]
        own = [trend for trend in members if trend.key == first.key and trend.name in summaries[0].tasks]
        if sum(trend.n for trend in own) != first.n:
            continue
        weighing = next(
            m for m in group.metrics if m.metric == first.metric and first.filter in (m.filters or [first.filter])
        )
        errors = [trend.stderr for trend in own if trend.stderr is not None]
        weights = [trend.n if weighing.weight_by_size else 1 for trend in own]
        known = len(errors) == len(own) and weighing.aggregation is None
        error = math.hypot(*(w * e for w, e in zip(weights, errors, strict=True))) / sum(weights) if known else None
        rose, fell = sum(trend.rose for trend in own), sum(trend.fell for trend in own)
        trends.append(_of(column, summaries[0], error, rose, fell))
    return trends


def sign_test(rose: int, fell: int) -> float:
    """Two-sided exact p-value of the sign test; for right and wrong answers it is McNemar's exact test.

    Assumes that docs are independent of each other; nothing of how their scores are distributed. Docs that did not
    move say nothing (Dixon and Mood 1946, "The statistical sign test"; McNemar 1947).

    >>> sign_test(1, 7)
    0.0703125
    """
    n = rose + fell
    term = total = 1
    for k in range(1, min(rose, fell) + 1):
        term = term * (n - k + 1) // k
        total += term
    return min(1.0, float(Fraction(2 * total, 2**n)))


def significant(trends: Sequence[Trend], level: float = 0.05) -> set[tuple[str, str]]:
    """(name, key) of the trends that chance does not explain, all of them together at this level (Holm 1979)."""
    tested = sorted((p, trend.name, trend.key) for trend in trends if (p := trend.p) is not None)
    found = set()
    for place, (p, name, key) in enumerate(tested):
        if p > level / (len(tested) - place):
            break
        found.add((name, key))
    return found


def _columns(summaries: Sequence[Summary]) -> Iterator[list[MetricValue]]:
    """The values of each metric and filter that all models have."""
    for value in summaries[0].values:
        column = [found for s in summaries for found in s.find(value.metric, value.filter)]
        if len(column) == len(summaries):
            yield column


def _trend(column: Sequence[MetricValue], summary: Summary, results: Sequence[Results]) -> Trend:
    first, last = (_numbers(results[i], column[i]) for i in (0, -1))
    if first is None or last is None or first.keys() != last.keys() or len(first) < 2:
        return _of(column, summary, None, 0, 0)
    moved = [last[doc] - first[doc] for doc in first]
    mean = math.fsum(moved) / len(moved)
    variance = math.fsum((d - mean) ** 2 for d in moved) / (len(moved) - 1)
    return _of(column, summary, math.sqrt(variance / len(moved)), sum(d > 0 for d in moved), sum(d < 0 for d in moved))


def _of(column: Sequence[MetricValue], summary: Summary, stderr: float | None, rose: int, fell: int) -> Trend:
    first = column[0]
    values = tuple(value.value for value in column)
    known = (first.metric, first.filter, first.higher_is_better, values, first.n, stderr, rose, fell, summary.tasks)
    return Trend(summary.name, summary.display_name, *known)


def _numbers(results: Results, value: MetricValue) -> dict[int, float] | None:
    """What each doc scored, if the value is the mean of that; else None."""
    found: dict[int, float] = {}
    for doc, result in results.items():
        item = result.scores.get(value.filter, {}).get(value.metric)
        if item is None:
            continue
        if not isinstance(item, int | float) or not math.isfinite(item):
            return None
        found[doc] = float(item)
    if not found or abs(math.fsum(found.values()) / len(found) - value.value) > _SAME_MEAN * max(1, abs(value.value)):
        return None
    return found
