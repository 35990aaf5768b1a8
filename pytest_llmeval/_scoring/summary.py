"""From the results of docs to the numbers of a task, and from those of tasks to the numbers of a group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval._functions import call
from pytest_llmeval._plain import listed
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._results import nonfinite_in
from pytest_llmeval._results import number_name
from pytest_llmeval._scoring.filters import responses_used
from pytest_llmeval._scoring.metric import metric_of
from pytest_llmeval._scoring.metric import stderr
from pytest_llmeval._scoring.standard_errors import pooled_stderr
from pytest_llmeval._scoring.standard_errors import unweighted_stderr
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task


#: Characters of why a doc could not be evaluated that one line holds, and how many metrics one names.
_MOST_OF_A_REASON = 400


def summarize_task(
    task: Task, results: Sequence[DocResult], *, n_total: int, num_fewshot: int | None, bootstrap_iters: int
) -> Summary:
    """The numbers of a task over `results`, which are in the order of its docs.

    Docs with an error are counted and left out of every value; `n` is the number of the others. A value that
    cannot be computed is NaN, with the reason among the notes: it never passes a gate.
    """
    scored = [result for result in results if result.error is None]
    values: list[MetricValue] = []
    for filter_name, name, having in _columns(task, scored):
        items = [result.scores[filter_name][name] for result in having]
        try:
            metric = metric_of(task, name)
            total = float(metric.aggregation(items))
            error_bar = stderr(metric, items, bootstrap_iters=bootstrap_iters)
            value = MetricValue(name, filter_name, total, error_bar, metric.higher_is_better, len(items))
        except Exception as error:  # whatever a function of the task does with items of its own
            why = f"cannot be computed: {_in_a_line(str(error))}"
            value = MetricValue(name, filter_name, math.nan, None, None, len(items), why)
        values.append(_explained(value, having))
    unusable = [result.nonfinite for result in results if result.nonfinite]
    errors = len(results) - len(scored)
    truncated = sum(result.truncated for result in results)
    cut_off = sum(result.cut_off for result in results)
    tied = sum(result.tied for result in results)
    return Summary(
        name=task.name,
        display_name=task.display_name,
        version=task.version,
        num_fewshot=num_fewshot,
        n=len(scored),
        n_total=n_total,
        values=tuple(values),
        nonfinite=len(unusable),
        errors=errors,
        truncated=truncated,
        cut_off=cut_off,
        notes=(
            *(f"{value.key} {value.why}" for value in values if value.why),
            *_told(unusable, errors, truncated, cut_off, tied),
            *_left_out(task, scored),
            *_on_repeats(task),
        ),
        nonfinite_values=tuple(dict.fromkeys(unusable)),
        first_error=_first_error(task, results),
    )


def _columns(task: Task, scored: Sequence[DocResult]) -> Iterator[tuple[str, str, list[DocResult]]]:
    """(filter, metric, docs that have it), filter by filter, metrics in the order of the docs."""
    for spec in task.filters:
        columns: dict[str, list[DocResult]] = {}
        for result in scored:
            for name in result.scores.get(spec.name, {}):
                columns.setdefault(name, []).append(result)
        for name, having in columns.items():
            yield spec.name, name, having


def _explained(value: MetricValue, having: Sequence[DocResult]) -> MetricValue:
    """A value that is no finite number with the doc that made it so; what a model gave instead is told elsewhere."""
    if math.isfinite(value.value) or value.why or any(result.nonfinite for result in having):
        return value
    for result in having:
        if bad := nonfinite_in(result.scores[value.filter][value.metric]):
            return replace(value, why=f"is {number_name(value.value)}: doc[{result.doc}] has {bad}")
    return value


def _first_error(task: Task, results: Iterable[DocResult]) -> str | None:
    """Which doc is the first that could not be evaluated, and why, in one line."""
    for result in results:
        if result.error is not None:
            reason = _in_a_line(result.error)
            names_doc = f"task {task.name}, doc {result.doc}" in reason
            return reason if names_doc else f"task {task.name}, doc {result.doc}: {reason}"
    return None


def _in_a_line(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _MOST_OF_A_REASON else f"{line[:_MOST_OF_A_REASON]}..."


def _told(unusable: Sequence[str], errors: int, truncated: int, cut_off: int, tied: int) -> Iterator[str]:
    """Sentences on what puts the numbers in doubt, for counts above 0."""
    for name, count in Counter(unusable).items():
        yield f"docs without a usable loglikelihood ({name}), none of them right: {count}"
    if errors:
        yield f"docs that could not be evaluated, left out of the values: {errors}"
    if truncated:
        yield f"requests whose context lost its left end to fit the model: {truncated}"
    if cut_off:
        yield f"answers that ended by their length limit: {cut_off}"
    if tied:
        yield f"docs whose likeliest choices are equally likely, the first of them taken: {tied}"


def _left_out(task: Task, scored: Sequence[DocResult]) -> Iterator[str]:
    """Sentences on metrics of the task's list that its function gives no score for, in some docs or in all."""
    if task.process_results is None:
        return
    for spec in task.filters:
        having = Counter(name for result in scored for name in result.scores.get(spec.name, {}))
        short = [
            f"{metric.name} ({_docs_without(len(scored), having[metric.name])})"
            for metric in task.metrics
            if metric.listed and having[metric.name] < len(scored)
        ]
        if short:
            where = f" by filter {spec.name}" if len(task.filters) > 1 else ""
            yield f"process_results gave no score{where} for {listed(short)}"


def _docs_without(docs: int, having: int) -> str:
    return f"{docs - having:,} of {docs:,} docs" if having else "any doc"


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
                values.append(value := _group_value(metric, filter_name, having))
                notes += [f"{value.key} {value.why}"] if value.why else []
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
        nonfinite_values=tuple(dict.fromkeys(name for summary in summaries for name in summary.nonfinite_values)),
        first_error=next((summary.first_error for summary in summaries if summary.first_error), None),
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


def _group_value(metric: GroupMetric, filter_name: str, having: Mapping[str, MetricValue]) -> MetricValue:
    members = list(having.values())
    why: str | None = None
    try:
        average = _average(metric, members)
    except Exception as error:  # whatever a function of the group does
        average, why = math.nan, f"cannot be computed: {_in_a_line(str(error))}"
    odd = [name for name, value in having.items() if not math.isfinite(value.value)]
    if odd and why is None and not math.isfinite(average):
        named = number_name(having[odd[0]].value)
        why = f"is {number_name(average)}: in {odd[0]} it {having[odd[0]].why or f'is {named}'}"
    directions = {value.higher_is_better for value in members}
    return MetricValue(
        metric=metric.metric,
        filter=filter_name,
        value=average,
        stderr=_average_stderr(metric, members),
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        n=sum(value.n for value in members),
        why=why,
    )


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
