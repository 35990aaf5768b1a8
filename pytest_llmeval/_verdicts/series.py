"""The inputs of sequential tests: a number per doc, and the limit that the mean of these numbers is compared with.

The number of a doc is ``weight * (now - share * before)``: `now` and `before` are its scores in this run and in the
baseline, and `share` is 0 for a floor, 1 for an absolute tolerance and ``1 - r`` for a relative tolerance r, where the
condition is ``now >= (1 - r) * before``. Docs of a group that averages its tasks have the weight ``N / (T n_t)``, so
that their mean is the group's value. The range of a doc's score must be known beforehand: observed scores do not bound
the scores of other docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import TypeAlias

from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._task import DocMean
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.samples import weighs_by_size


#: A doc: the name of its task, and its number there.
DocPlace: TypeAlias = tuple[str, int]

#: Operator -> (sign of the numbers, True if the gate passes when their mean reaches the limit). ``x > 3`` fails if
#: ``-x >= -3``, so that a value equal to the limit is treated as the operator requires.
_SIDES: Mapping[str, tuple[int, bool]] = {">=": (1, True), ">": (-1, False), "<=": (-1, True), "<": (1, False)}


@dataclass(frozen=True, slots=True)
class MeanQuestion:
    """The hypothesis that the mean of numbers in [low, high] reaches `limit`, where the gate passes (or else fails)."""

    limit: float
    low: float
    high: float
    sign: int
    share: float
    passes_above: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """A metric as a mean of doc scores in [low, high]: how each task computes them, and the weight of its docs."""

    filter: str
    means: Mapping[str, DocMean]
    weights: Mapping[str, float]
    low: float
    high: float


def scores_of(gate: Gate, data: GateData, order: Sequence[DocPlace]) -> Scores | None:
    """Return the gate's metric as a mean of bounded scores over the docs of `order`; None if it is not one."""
    filters = {
        name
        for one in data.tasks
        for result in one.results
        for name, metrics in result.scores.items()
        if gate.metric in metrics and gate.filter in (None, name)
    }
    if len(filters) != 1:
        return None
    (filter_name,) = filters
    by_size = weighs_by_size(data.owner, gate.metric, filter_name)
    tasks = [one.task for one in data.tasks]
    means = {task.name: mean for task in tasks if (mean := _bounded_mean(task, gate.metric)) is not None}
    if by_size is None or len(means) < len(tasks) or len({mean.support for mean in means.values()}) != 1:
        return None
    support = next(iter(means.values())).support
    return support and Scores(filter_name, means, _weights(tasks, order, by_size), *support)


def questions_of(gate: Gate, scores: Scores) -> list[MeanQuestion]:
    """Return one hypothesis per bound, or one for the comparison; empty if the comparison cannot be tested this way."""
    if gate.change is not None:
        found = _about_change(gate.change, scores)
        return [found] if found else []
    return [_question(bound.operator, bound.value, 0.0, scores) for bound in gate.bounds]


def numbers_of_docs(
    gate: Gate, question: MeanQuestion, scores: Scores, data: GateData, places: Sequence[DocPlace]
) -> list[float] | None:
    """Return the number of each doc, in order; None if any doc has no number."""
    now, before = _sides(gate, scores, data, set(places))
    numbers = []
    for place in places:
        if place not in now:
            return None
        old = before.get(place, 0.0) if question.share else 0.0
        if question.share and not scores.low <= old <= scores.high:
            # The baseline is older than the declared range.
            return None
        numbers.append(question.sign * scores.weights[place[0]] * (now[place] - question.share * old))
    return numbers


def controls_of(
    gate: Gate, question: MeanQuestion, scores: Scores, data: GateData, order: Sequence[DocPlace]
) -> dict[DocPlace, float] | None:
    """Return the number of each doc by its score in the baseline; None unless the baseline has all docs of `order`.

    These numbers are known before the run, and so is their mean: tests may use them whatever they are, also where a
    doc of this number had another prompt then.
    """
    places, found = set(order), dict[DocPlace, float]()
    for one in data.tasks:
        if one.comparison is None or one.comparison.record is None:
            return None
        filters = [spec.name for spec in one.task.filters]
        before = [entry.as_result(filters) for entry in one.comparison.record.entries]
        mean, name = scores.means[one.task.name], one.task.name
        found |= _values(mean, scores.filter, gate.metric, name, before, places)
    if len(found) < len(places) or not all(scores.low <= number <= scores.high for number in found.values()):
        return None
    return {place: question.sign * scores.weights[place[0]] * found[place] for place in order}


def _bounded_mean(task: Task, name: str) -> DocMean | None:
    """Return the metric as a mean of doc scores whose range is known beforehand; None if it is not one."""
    metric = metric_of(task, name)
    mean, support = metric.aggregation.doc_mean, metric.range
    return mean and support and DocMean(mean.values, support=support, plain=mean.plain)


def _weights(tasks: Sequence[Task], order: Sequence[DocPlace], by_size: bool) -> dict[str, float]:
    if by_size:
        return {task.name: 1.0 for task in tasks}
    counts = {task.name: 0 for task in tasks}
    for name, _ in order:
        counts[name] += 1
    return {name: len(order) / (len(tasks) * count) for name, count in counts.items() if count}


def _about_change(change: Change, scores: Scores) -> MeanQuestion | None:
    offset = float(change.offset)
    if not change.relative:
        return _question(change.operator, offset, 1.0, scores)
    # For negative values a relative tolerance would have the opposite sign.
    return _question(change.operator, 0.0, 1.0 + offset, scores) if scores.low >= 0 and offset > -1 else None


def _question(operator: str, limit: float, share: float, scores: Scores) -> MeanQuestion:
    sign, passes_above = _SIDES[operator]
    least, most = scores.low - share * scores.high, scores.high - share * scores.low
    ends = [sign * weight * end for weight in scores.weights.values() for end in (least, most)]
    return MeanQuestion(sign * limit, min(ends), max(ends), sign, share, passes_above)


def _sides(
    gate: Gate, scores: Scores, data: GateData, places: set[DocPlace]
) -> tuple[dict[DocPlace, float], dict[DocPlace, float]]:
    """Return the scores of docs now and before; in a comparison both are rounded as in a baseline file."""
    now: dict[DocPlace, float] = {}
    before: dict[DocPlace, float] = {}
    for one in data.tasks:
        mean, name = scores.means[one.task.name], one.task.name
        if not gate.compares:
            now |= _values(mean, scores.filter, gate.metric, name, one.results, places)
            continue
        was, new = one.paired_results()
        # Docs of the baseline get their numbers in this run.
        old = [replace(before, doc=result.doc) for before, result in zip(was, new, strict=True)]
        before |= _values(mean, scores.filter, gate.metric, name, old, places)
        now |= {p: x for p, x in _values(mean, scores.filter, gate.metric, name, new, places).items() if p in before}
    return now, before


def _values(
    mean: DocMean, filter_name: str, metric: str, task: str, results: Sequence[DocResult], places: set[DocPlace]
) -> dict[DocPlace, float]:
    having = [
        (result.doc, result.scores[filter_name][metric])
        for result in results
        if (task, result.doc) in places and metric in result.scores.get(filter_name, {})
    ]
    try:
        numbers = mean.values([item for _, item in having])
    except (TypeError, ValueError):
        # A function of the task may return something other than a number.
        return {}
    return {(task, doc): number for (doc, _), number in zip(having, numbers, strict=True)}
