"""The summary of a task from the results of its docs, and of a group from those of its tasks."""

from __future__ import annotations

import math
from collections import Counter
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


#: The largest number of characters of an error in a summary.
_MOST_OF_A_REASON = 400


def summarize_task(
    task: Task, results: Sequence[DocResult], *, n_total: int, num_fewshot: int | None, bootstrap_iters: int
) -> Summary:
    """Return the values of a task over `results`, which are in the order of its docs.

    Docs with an error are counted and left out of every value; `n` is the number of the others. A value that
    cannot be computed is NaN, with the reason among the notes: it never passes a gate.
    """
    scored = [result for result in results if result.error is None]
    values: list[MetricValue] = []
    for pipeline in task.filters:
        columns: dict[str, list[DocResult]] = {}
        for result in scored:
            for name in result.scores.get(pipeline.name, {}):
                columns.setdefault(name, []).append(result)
        values += [_value(task, name, pipeline.name, having, bootstrap_iters) for name, having in columns.items()]
    unusable = [result.nonfinite for result in results if result.nonfinite]
    first_error = None
    if failed := next((result for result in results if result.error is not None), None):
        doc, first_error = f"task {task.name}, doc {failed.doc}", _in_a_line(failed.error)
        first_error = first_error if doc in first_error else f"{doc}: {first_error}"
    summary = Summary(
        name=task.name,
        display_name=task.display_name,
        version=task.version,
        num_fewshot=num_fewshot,
        n=len(scored),
        n_total=n_total,
        values=tuple(values),
        nonfinite=len(unusable),
        errors=len(results) - len(scored),
        truncated=sum(result.truncated for result in results),
        cut_off=sum(result.cut_off for result in results),
        thoughts=sum(result.thoughts for result in results),
        nonfinite_values=tuple(dict.fromkeys(unusable)),
        first_error=first_error,
    )
    tied = sum(result.tied for result in results)
    doubts = _doubts(summary, Counter(unusable), tied)
    return replace(summary, notes=(*doubts, *_without_scores(task, scored), *_unused_repeats(task)))


def _value(task: Task, name: str, filter_name: str, having: Sequence[DocResult], bootstrap_iters: int) -> MetricValue:
    """Return the value of one metric over the docs that have it; if it is not finite, with the reason."""
    items = [result.scores[filter_name][name] for result in having]
    try:
        metric = metric_of(task, name)
        total = float(metric.aggregation(items))
        error_bar = stderr(metric, items, bootstrap_iters=bootstrap_iters)
    except Exception as error:  # a function of the task may raise anything
        return MetricValue(name, filter_name, math.nan, None, None, len(items), _cannot_be_computed(error))
    value = MetricValue(name, filter_name, total, error_bar, metric.higher_is_better, len(items))
    if math.isfinite(total) or any(result.nonfinite for result in having):
        # There is a separate note for unusable numbers of the model.
        return value
    named = ((result.doc, nonfinite_in(item)) for result, item in zip(having, items, strict=True))
    doc, bad = next(((doc, bad) for doc, bad in named if bad), (None, ""))
    return replace(value, why=f"is {number_name(total)}: doc[{doc}] has {bad}") if bad else value


def _cannot_be_computed(error: Exception) -> str:
    return f"cannot be computed: {_in_a_line(str(error))}"


def _in_a_line(reason: str | None) -> str:
    line = " ".join((reason or "").split())
    return line if len(line) <= _MOST_OF_A_REASON else f"{line[:_MOST_OF_A_REASON]}..."


def _doubts(summary: Summary, unusable: Mapping[str, int], tied: int) -> Iterator[str]:
    """Yield the values that are not finite with their reasons, then a sentence for each count above 0."""
    yield from (f"{value.key} {value.why}" for value in summary.values if value.why)
    for name, count in unusable.items():
        yield f"docs without a usable loglikelihood ({name}), none of them right: {count}"
    if summary.errors:
        yield f"docs that could not be evaluated, left out of the values: {summary.errors}"
    if summary.truncated:
        yield f"requests whose context was cut on the left to fit the model: {summary.truncated}"
    if summary.cut_off:
        yield f"answers that ended at their length limit: {summary.cut_off}"
    if summary.thoughts:
        yield f"generations that ended within their thought, which leaves no answer: {summary.thoughts}"
    if tied:
        yield f"docs with tied top choices, of which the first is counted: {tied}"


def _without_scores(task: Task, scored: Sequence[DocResult]) -> Iterator[str]:
    """Yield sentences on listed metrics that `process_results` gives no score for, in some docs or in all."""
    if task.process_results is None:
        return
    docs = len(scored)
    for pipeline in task.filters:
        having = Counter(name for result in scored for name in result.scores.get(pipeline.name, {}))
        short = []
        for metric in task.metrics:
            if metric.listed and (n := having[metric.name]) < docs:
                short.append(f"{metric.name} ({f'{docs - n:,} of {docs:,} docs' if n else 'any doc'})")
        if short:
            where = f" by filter {pipeline.name}" if len(task.filters) > 1 else ""
            yield f"process_results gave no score{where} for {listed(short)}"


def _unused_repeats(task: Task) -> Iterator[str]:
    """Yield sentences on responses that are generated but not needed."""
    if task.repeats == 1:
        return
    for pipeline in task.filters:
        used = responses_used(pipeline, task.repeats)
        if used < task.repeats:
            yield f"filter {pipeline.name} scores {used} of {task.repeats} responses; the others are not used"
    if not task.generation_kwargs.get("do_sample", False):
        yield f"the {task.repeats} repeats of a doc are equal: decoding is greedy; set do_sample: true"


def summarize_group(group: Group, members: Sequence[tuple[Task, Summary]]) -> Summary:
    """Return the values of a group over its leaf tasks, each of which counts once however often it is listed.

    A metric is averaged over the tasks that have it, weighted by size or not, with the standard error of that
    average; the notes name the tasks that lack the metric.
    """
    leaves = {task.name: summary for task, summary in members}
    summaries = leaves.values()
    values: list[MetricValue] = []
    notes: list[str] = []
    for metric in group.metrics:
        found = sorted({value.filter for summary in summaries for value in summary.find(metric.metric)})
        for filter_name in (found or ["none"]) if metric.filters is None else metric.filters:
            having = {
                name: value
                for name, summary in leaves.items()
                for value in summary.find(metric.metric, filter_name)
                if value.n
            }
            if having:
                values.append(value := _group_value(metric, filter_name, having))
                notes += [f"{value.key} {value.why}"] if value.why else []
            if len(having) < len(leaves):
                lacking = ", ".join(name for name in leaves if name not in having)
                docs = sum(value.n for value in having.values())
                rest = f"the value is that of {docs} docs" if having else "it has no value"
                notes.append(f"metric {metric.metric},{filter_name} is missing in {lacking}; {rest}")
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
        thoughts=sum(summary.thoughts for summary in summaries),
        notes=tuple(notes),
        nonfinite_values=tuple(dict.fromkeys(name for summary in summaries for name in summary.nonfinite_values)),
        first_error=next((summary.first_error for summary in summaries if summary.first_error), None),
    )


def _group_value(metric: GroupMetric, filter_name: str, having: Mapping[str, MetricValue]) -> MetricValue:
    members = list(having.values())
    scores, sizes = [value.value for value in members], [value.n for value in members]
    why: str | None = None
    try:
        if metric.aggregation is not None:
            average = float(call(metric.aggregation, "aggregate_metric_list", scores, sizes, metric.weight_by_size))
        else:
            weights = sizes if metric.weight_by_size else [1] * len(sizes)
            average = sum(score * weight for score, weight in zip(scores, weights, strict=True)) / sum(weights)
    except Exception as error:  # a function of the group may raise anything
        average, why = math.nan, _cannot_be_computed(error)
    odd = [name for name, value in having.items() if not math.isfinite(value.value)]
    if odd and why is None and not math.isfinite(average):
        first = having[odd[0]]
        why = f"is {number_name(average)}: in {odd[0]} it {first.why or f'is {number_name(first.value)}'}"
    stderrs = [value.stderr for value in members if value.stderr is not None]
    error_bar: float | None = None
    if len(stderrs) == len(members) and metric.aggregation is None:
        error_bar = pooled_stderr(stderrs, sizes) if metric.weight_by_size else unweighted_stderr(stderrs)
    directions = {value.higher_is_better for value in members}
    return MetricValue(
        metric=metric.metric,
        filter=filter_name,
        value=average,
        stderr=error_bar,
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        n=sum(sizes),
        why=why,
    )
