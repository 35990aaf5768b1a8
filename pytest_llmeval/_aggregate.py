"""From the results of docs to the numbers of a task, and from those of tasks to the numbers of a group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from pytest_llmeval._filters import responses_used
from pytest_llmeval._functions import call
from pytest_llmeval._metrics import Item
from pytest_llmeval._metrics import Metric
from pytest_llmeval._metrics import metrics_of
from pytest_llmeval._metrics import pooled_stderr
from pytest_llmeval._metrics import stderr
from pytest_llmeval._metrics import unlisted
from pytest_llmeval._metrics import unweighted_stderr
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task


def summarize_task(
    task: Task, results: Sequence[DocResult], *, n_total: int, num_fewshot: int | None, bootstrap_iters: int
) -> Summary:
    """The numbers of a task over `results`, which are in the order of its docs.

    Docs with an error are counted and left out of every value; `n` is the number of the others. A value that
    cannot be computed is NaN, with the reason among the notes: it never passes a gate.
    """
    scored = [result for result in results if result.error is None]
    metrics = {metric.name: metric for metric in metrics_of(task)}
    values: list[MetricValue] = []
    failures: list[str] = []
    for filter_name, name, items in _columns(task, scored):
        try:
            values.append(_aggregated(_owner(name, metrics, task), name, filter_name, items, bootstrap_iters))
        except Exception as error:  # whatever a function of the task does with items of its own
            values.append(MetricValue(name, filter_name, math.nan, None, None, len(items)))
            failures.append(f"{name},{filter_name} cannot be computed: {error}")
    nonfinite = sum(result.nonfinite for result in results)
    errors = len(results) - len(scored)
    truncated = sum(result.truncated for result in results)
    cut_off = sum(result.cut_off for result in results)
    return Summary(
        name=task.name,
        display_name=task.display_name,
        version=task.version,
        num_fewshot=num_fewshot,
        n=len(scored),
        n_total=n_total,
        values=tuple(values),
        nonfinite=nonfinite,
        errors=errors,
        truncated=truncated,
        cut_off=cut_off,
        notes=(*failures, *_told(nonfinite, errors, truncated, cut_off), *_on_repeats(task)),
    )


def _columns(task: Task, scored: Sequence[DocResult]) -> Iterator[tuple[str, str, list[Item]]]:
    """(filter, metric, items of the docs that have it), filter by filter, metrics in the order of the docs."""
    for spec in task.filters:
        columns: dict[str, list[Item]] = {}
        for result in scored:
            for name, item in result.scores.get(spec.name, {}).items():
                columns.setdefault(name, []).append(item)
        for name, items in columns.items():
            yield spec.name, name, items


def metric_of(task: Task, name: str) -> Metric:
    """The metric under whose rules a number of a task is aggregated, by the name it is reported under.

    Raises ValueError if several of the task's metrics may give that name and differ in their rules.
    """
    return _owner(name, {metric.name: metric for metric in metrics_of(task)}, task)


def _owner(name: str, metrics: Mapping[str, Metric], task: Task) -> Metric:
    """The metric under whose rules a reported name is aggregated.

    A metric that returns a dict lends its rules to every key. Raises ValueError if two such metrics differ in them.
    """
    if name in metrics:
        return metrics[name]
    if task.process_results is not None:
        return unlisted(name)
    lenders = [metric for metric in metrics.values() if metric.expands]
    if name.startswith("pass@"):
        lenders = [metric for metric in lenders if metric.code is not None] or lenders
    rules = {(metric.aggregation, metric.higher_is_better) for metric in lenders}
    if len(rules) != 1:
        names = ", ".join(metric.name for metric in lenders)
        raise ValueError(f"it may come from any of the metrics {names}, which are aggregated differently")
    return lenders[0]


def _aggregated(metric: Metric, name: str, filter_name: str, items: list[Item], bootstrap_iters: int) -> MetricValue:
    value = float(metric.aggregation(items))
    error = stderr(metric, items, bootstrap_iters=bootstrap_iters)
    return MetricValue(name, filter_name, value, error, metric.higher_is_better, len(items))


def _told(nonfinite: int, errors: int, truncated: int, cut_off: int) -> Iterator[str]:
    """Sentences on what went wrong, for counts above 0."""
    if nonfinite:
        yield f"docs without a usable loglikelihood (NaN), none of them right: {nonfinite}"
    if errors:
        yield f"docs that could not be evaluated, left out of the values: {errors}"
    if truncated:
        yield f"requests whose context lost its left end to fit the model: {truncated}"
    if cut_off:
        yield f"answers that ended by their length limit: {cut_off}"


def _on_repeats(task: Task) -> Iterator[str]:
    """Sentences on responses that are asked for in vain."""
    if task.repeats == 1:
        return
    for spec in task.filters:
        used = responses_used(spec, task.repeats)
        if used < task.repeats:
            yield f"filter {spec.name} scores {used} of {task.repeats} responses; the others are not used"
    if not task.generation_kwargs.get("do_sample", False):
        yield f"the {task.repeats} repeats of a doc are equal: decoding is greedy; set do_sample: true"


def summarize_group(group: Group, members: Sequence[tuple[Task, Summary]]) -> Summary:
    """The numbers of a group over its leaf tasks, each of which counts once however often it is listed.

    A metric is averaged over the tasks that have it, by size or plainly, with the standard error of that same
    average; the notes name the tasks that lack it.
    """
    leaves = {task.name: summary for task, summary in members}
    values: list[MetricValue] = []
    notes: list[str] = []
    for metric in group.metrics:
        for filter_name in _filters_of(metric, leaves):
            having = _having(metric, filter_name, leaves)
            if having:
                value, failure = _group_value(metric, filter_name, list(having.values()))
                values.append(value)
                notes += failure
            if len(having) < len(leaves):
                notes.append(_lacking(metric, filter_name, leaves, having))
    summaries = leaves.values()
    shots = {summary.num_fewshot for summary in summaries}
    return Summary(
        name=group.name,
        display_name=group.display_name,
        version=group.version,
        num_fewshot=shots.pop() if len(shots) == 1 else None,
        n=sum(summary.n for summary in summaries),
        n_total=sum(summary.n_total for summary in summaries),
        values=tuple(values),
        tasks=tuple(leaves),
        nonfinite=sum(summary.nonfinite for summary in summaries),
        errors=sum(summary.errors for summary in summaries),
        truncated=sum(summary.truncated for summary in summaries),
        cut_off=sum(summary.cut_off for summary in summaries),
        notes=tuple(notes),
    )


def _filters_of(metric: GroupMetric, leaves: Mapping[str, Summary]) -> tuple[str, ...]:
    if metric.filters is not None:
        return metric.filters
    found = sorted({value.filter for summary in leaves.values() for value in summary.find(metric.metric)})
    return tuple(found) or ("none",)


def _having(metric: GroupMetric, filter_name: str, leaves: Mapping[str, Summary]) -> dict[str, MetricValue]:
    return {
        name: value for name, summary in leaves.items() for value in summary.find(metric.metric, filter_name) if value.n
    }


def _group_value(
    metric: GroupMetric, filter_name: str, members: Sequence[MetricValue]
) -> tuple[MetricValue, list[str]]:
    """The value, and why it is NaN if the user's function failed."""
    failure = []
    try:
        average = _average(metric, members)
    except Exception as error:  # whatever a function of the group does
        average = math.nan
        failure = [f"{metric.metric},{filter_name} cannot be computed: {error}"]
    directions = {value.higher_is_better for value in members}
    value = MetricValue(
        metric=metric.metric,
        filter=filter_name,
        value=average,
        stderr=_average_stderr(metric, members),
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        n=sum(value.n for value in members),
    )
    return value, failure


def _average(metric: GroupMetric, members: Sequence[MetricValue]) -> float:
    scores, sizes = [value.value for value in members], [value.n for value in members]
    if metric.aggregation is not None:
        return float(call(metric.aggregation, "aggregate_metric_list", scores, sizes, metric.weight_by_size))
    weights = sizes if metric.weight_by_size else [1] * len(sizes)
    return sum(score * weight for score, weight in zip(scores, weights, strict=True)) / sum(weights)


def _average_stderr(metric: GroupMetric, values: Sequence[MetricValue]) -> float | None:
    """The error bar of that very average; None if a task has none, or a function of the user's averages."""
    stderrs = [value.stderr for value in values if value.stderr is not None]
    if len(stderrs) < len(values) or metric.aggregation is not None:
        return None
    return (
        pooled_stderr(stderrs, [value.n for value in values]) if metric.weight_by_size else unweighted_stderr(stderrs)
    )


def _lacking(
    metric: GroupMetric, filter_name: str, leaves: Mapping[str, Summary], having: Mapping[str, MetricValue]
) -> str:
    lacking = ", ".join(name for name in leaves if name not in having)
    rest = f"the value rests on {sum(value.n for value in having.values())} docs" if having else "it has no value"
    return f"metric {metric.metric},{filter_name} is missing in {lacking}; {rest}"
