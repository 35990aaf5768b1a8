"""Comparisons of several models: the change of each value from the first to the last model, and its standard error.

Models that answered the same docs are compared doc by doc. The change is the mean of the differences per doc from the
first model to the last. Its standard error is far smaller than two separate error bars suggest if most docs have the
same answer in both. ::

    good  1 1 1 0        damaged  0 1 1 0        differences  -1 0 0 0        change -0.25 +- 0.25
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import TypeVar

from pytest_llmeval._plain import listed
from pytest_llmeval._report.model_report import Children
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._report.table import ARROWS
from pytest_llmeval._report.table import hierarchy
from pytest_llmeval._report.table import indented
from pytest_llmeval._report.table import markdown_table
from pytest_llmeval._report.table import number_text
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import holm
from pytest_llmeval._stats import mcnemar_p
from pytest_llmeval._stats import net_moves
from pytest_llmeval._stats import standard_error
from pytest_llmeval._task import Group


_Item = TypeVar("_Item")

#: The probability that any row gets a star although nothing changed.
LEVEL = 0.05

#: The largest relative difference between the mean of the docs' scores and a value that counts as their mean.
_SAME_MEAN = 1e-9

#: From this number of models on, the common prefix of their names is left out of the column heads.
_MANY = 4


@dataclass(frozen=True, slots=True)
class Trend:
    """One metric of a task or group over several models, in their order.

    `summary` is that of the first model, `column` the values of the metric. `stderr` is the standard error of the
    change from the first model to the last; None if the value is not a mean over docs (a perplexity), or for one doc.
    `rose` and `fell` are the numbers of docs, or of passages where docs share one, whose score rose and fell.
    """

    summary: Summary
    column: Sequence[MetricValue]
    stderr: float | None = None
    rose: int = 0
    fell: int = 0

    @property
    def id(self) -> tuple[str, str]:
        """The name of the task or group and the key of the metric."""
        return self.summary.name, self.column[0].key

    @property
    def change(self) -> float:
        return self.column[-1].value - self.column[0].value

    @property
    def p_value(self) -> float | None:
        """The p-value of the sign test that scores rise as often as they fall; None if docs are not compared.

        For 0/1 scores it is McNemar's exact test. Docs or passages whose score did not change do not count
        (Dixon and Mood 1946, "The statistical sign test").
        """
        return None if self.stderr is None else mcnemar_p(self.fell, self.rose)


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The numbers of all models of a session on the same docs.

    `apart`: task -> number of docs that each model scored, if the models did not score the same docs.
    """

    models: Sequence[str]
    trends: Sequence[Trend]
    children: Children = field(default_factory=dict)
    apart: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def significant(self) -> frozenset[tuple[str, str]]:
        """Return the ids of the trends that are significant at `LEVEL` with Holm's correction (1979)."""
        return holm({trend.id: p for trend in self.trends if (p := trend.p_value) is not None}, LEVEL)

    def shown(self, *, everything: bool) -> list[Trend]:
        """Return all trends; without `everything` those of groups, of ungrouped tasks and of significant changes."""
        changed, grouped = self.significant(), {task for trend in self.trends for task in trend.summary.tasks}
        return [
            trend
            for trend in self.trends
            if everything or trend.summary.tasks or trend.summary.name not in grouped or trend.id in changed
        ]


def compare_models(reports: Sequence[ModelReport]) -> ModelComparison | None:
    """Return the comparison; None if fewer than two models have results, or if no task has the same docs in all."""
    reports = [report for report in reports if report.tasks]
    if len(reports) < 2:
        return None
    trends: list[Trend] = []
    apart: dict[str, list[int]] = {}
    for column in _common([{task.summary.name: task for task in report.tasks} for report in reports]):
        results = [task.data.results for task in column]
        if len({frozenset(result.doc for result in found) for found in results}) == 1:
            trends += trends_of_task([task.summary for task in column], results)
        else:
            apart[column[0].summary.name] = [len(found) for found in results]
    groups = _common([{group.summary.name: group for group in report.groups} for report in reports])
    of_groups = [
        trend
        for column in groups
        for trend in trends_of_group(column[0].group, [group.summary for group in column], trends)
    ]
    children = {column[0].summary.name: column[0].members for column in groups}
    names = [report.name for report in reports]
    return ModelComparison(names, [*trends, *of_groups], children, apart) if trends else None


def _common(columns: Sequence[Mapping[str, _Item]]) -> list[list[_Item]]:
    """Return the values of each name that all models have, in the order of the first model."""
    return [[one[name] for one in columns] for name in columns[0] if all(name in one for one in columns)]


def trends_of_task(summaries: Sequence[Summary], results: Sequence[Sequence[DocResult]]) -> list[Trend]:
    """Return the trends of one task, one for each value that all models have; `summaries` and `results` are per model.

    Empty if the models did not score the same docs.
    """
    scored = [{result.doc for result in found if result.error is None} for found in results]
    if not scored[0] or any(docs != scored[0] for docs in scored):
        return []
    clusters = {one.doc: one.key.cluster for one in results[0] if one.key and one.key.cluster is not None}
    trends = []
    for column in _columns(summaries):
        first, last = (_numbers(results[i], column[i]) for i in (0, -1))
        if first is None or last is None or first.keys() != last.keys() or len(first) < 2:
            trends.append(Trend(summaries[0], column))
            continue
        moves, passages = [last[doc] - first[doc] for doc in first], [clusters.get(doc, doc) for doc in first]
        trends.append(Trend(summaries[0], column, standard_error(moves, passages), *net_moves(moves, passages)))
    return trends


def trends_of_group(group: Group, summaries: Sequence[Summary], members: Sequence[Trend]) -> list[Trend]:
    """Return the trends of a group, computed from those of its tasks with the weights of its value.

    A value has no trend if one of its tasks has none.
    """
    trends = []
    for column in _columns(summaries):
        first = column[0]
        ids = {(task, first.key) for task in summaries[0].tasks}
        own = [trend for trend in members if trend.id in ids]
        if sum(trend.column[0].n for trend in own) != first.n:
            continue
        weighing = next(
            m for m in group.metrics if m.metric == first.metric and first.filter in (m.filters or [first.filter])
        )
        errors = [trend.stderr for trend in own if trend.stderr is not None]
        weights = [trend.column[0].n if weighing.weight_by_size else 1 for trend in own]
        known = len(errors) == len(own) and weighing.aggregation is None
        error = math.hypot(*(w * e for w, e in zip(weights, errors, strict=True))) / sum(weights) if known else None
        rose, fell = sum(trend.rose for trend in own), sum(trend.fell for trend in own)
        trends.append(Trend(summaries[0], column, error, rose, fell))
    return trends


def _columns(summaries: Sequence[Summary]) -> Iterator[list[MetricValue]]:
    """Yield the values of each metric and filter that all models have."""
    for value in summaries[0].values:
        column = [found for s in summaries for found in s.find(value.metric, value.filter)]
        if len(column) == len(summaries):
            yield column


def _numbers(results: Sequence[DocResult], value: MetricValue) -> dict[int, float] | None:
    """Return the score of each doc if the value is the mean of the scores, else None."""
    found: dict[int, float] = {}
    for result in results:
        item = result.scores.get(value.filter, {}).get(value.metric)
        if item is None:
            continue
        if not isinstance(item, int | float) or not math.isfinite(item):
            return None
        found[result.doc] = float(item)
    if not found or abs(math.fsum(found.values()) / len(found) - value.value) > _SAME_MEAN * max(1, abs(value.value)):
        return None
    return found


def comparison_table(comparison: ModelComparison, *, everything: bool) -> str:
    """Return the table with one row per shown trend; significant changes have a star."""
    shown, changed = comparison.shown(everything=everything), comparison.significant()
    depths, order = hierarchy(comparison.children, {trend.summary.name for trend in shown})
    rows = []
    for name in order:
        first = None
        for trend in sorted((trend for trend in shown if trend.summary.name == name), key=lambda trend: trend.id):
            first = indented(trend.summary.display_name, depths.get(name, 0)) if first is None else ""
            value, values = trend.column[0], [number_text(value.value) for value in trend.column]
            metric = value.metric if value.filter == "none" else value.key
            change = (f"{trend.change:+.4f}", "±", number_text(trend.stderr), "*" * (trend.id in changed))
            rows.append((first, metric, ARROWS[value.higher_is_better], *values, *change))
    last = 3 + len(comparison.models)
    headers = ("Tasks", "Metric", "", *_heads(comparison.models), "Change", "", "Stderr", "")
    return markdown_table(headers, rows, right={*range(3, last + 1), last + 2})


def comparison_notes(comparison: ModelComparison, *, everything: bool) -> Iterator[str]:
    """Yield the notes below the table."""
    models = comparison.models
    yield (
        f"change: from {models[0]} to {models[-1]}, doc by doc; *: more than chance explains (sign test, 5 % over all "
        "rows)"
    )
    shown = {trend.summary.name for trend in comparison.shown(everything=everything)}
    if hidden := {trend.summary.name for trend in comparison.trends} - shown:
        tasks = "1 task" if len(hidden) == 1 else f"{len(hidden)} tasks"
        yield f"not shown: {tasks} without a significant change (-v shows all)"
    for name, counts in comparison.apart.items():
        docs = listed((f"{model} {count:,}" for model, count in zip(models, counts, strict=True)), 10)
        yield f"not compared, the models scored other docs: {name} ({docs})"


def _heads(models: Sequence[str]) -> Sequence[str]:
    """Return the names, without their common prefix up to a separator if there are `_MANY` or more."""
    shared = min(models)
    while shared and not all(model.startswith(shared) for model in models):
        shared = shared[:-1]
    cut = re.fullmatch(r"(.*[-_/.=:])[^-_/.=:]*", shared)
    return [f"…{model[len(cut[1]) :]}" for model in models] if cut and len(models) >= _MANY else models
