"""Checks of a gate against its task or group: metric, filter, bounds, direction, confidence, id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval._gates.distances import check_distance
from pytest_llmeval._gates.distances import has_distance
from pytest_llmeval._gates.distances import is_distance
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._gates.gate import Rule
from pytest_llmeval._gates.ranges import check_range
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._scoring import DISTANCES
from pytest_llmeval._task import Group
from pytest_llmeval._task import Metric
from pytest_llmeval._task import Task


def is_meant(rule: Rule, owner: Task | Group, leaves: Sequence[Task] = ()) -> bool:
    """Return True if the gate of a rule applies to a task or group.

    A rule that names the task or group applies. A glob or tag applies to those selected tasks and groups that have its
    metric and filter.
    """
    gate = rule.gate
    if rule.selector == owner.name or not rule.selects(owner):
        return rule.selector == owner.name
    if is_distance(gate, owner):
        return has_distance(gate, owner, leaves)
    listed, filters = metric_names(owner), filter_names(owner, leaves, gate.metric)
    # Metrics that `process_results` returns but the task does not list are known only after it ran.
    silent = isinstance(owner, Task) and owner.process_results is not None and bool(listed)
    has = gate.metric in listed if silent else _has(gate.metric, owner)
    return has and (gate.filter is None or not filters or gate.filter in filters)


def check_gate(gate: Gate, owner: Task | Group, leaves: Sequence[Task] = ()) -> None:
    """Raise TaskFileError or SettingError unless the metric, filter, bounds and confidence of a gate are valid.

    If functions of the task name its metrics (`process_results`, a ``!function`` metric), the names are known only
    after docs were scored, and a gate on a metric that never occurs fails then.
    """
    what = name_of_owner(owner)
    if gate.distance:
        check_distance(gate, owner, leaves)
    elif not _has(gate.metric, owner):
        mend = did_you_mean(gate.metric, [*metric_names(owner), *DISTANCES])
        listed = ", ".join(metric_names(owner)) or "none; name some in aggregate_metric_list"
        raise gate.place.error(f"{what} has no metric {gate.metric!r} (it has: {listed}){mend}")
    filters = _filters_of(gate, owner, leaves)
    if gate.filter is not None and filters and gate.filter not in filters:
        raise gate.place.error(f"{what} has no filter {gate.filter!r} (it has: {', '.join(filters)})")
    if gate.filter is None and len(filters) > 1:
        example = f"{gate.metric},{filters[0]}"
        raise gate.place.error(f"{what} has the filters {', '.join(filters)}; name the one meant, e.g. {example!r}")
    if gate.distance:
        return
    if not _is_own(gate.metric, owner):
        check_range(gate, [metric for _, metric in _meant(gate.metric, owner, leaves)])
    if gate.change is not None:
        _check_direction(gate, owner, leaves)
    if gate.confidence is not None:
        _check_confidence(gate, owner, leaves)
    if gate.must_stay_right is not None:
        _check_right_or_wrong(gate, owner, leaves)


def _filters_of(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> tuple[str, ...]:
    """Return the filters of which a gate means one; flips are those of the doc's item unless a filter is named."""
    if not gate.distance:
        return filter_names(owner, leaves, gate.metric)
    return filter_names(owner, leaves) if gate.filter is not None else ()


def directed(gate: Gate, owner: Task | Group, leaves: Sequence[Task] = ()) -> Gate:
    """Return the gate with the direction of `min_gain` resolved: below the baseline for a metric that should be low."""
    change = gate.change
    if change is None or change.word != "min_gain" or higher_is_better(gate.metric, owner, leaves) is not False:
        return gate
    return replace(gate, change=replace(change, operator="<=", offset=-change.offset))


def gate_ids(gates: Sequence[Gate], filters: Sequence[str], owner: str) -> tuple[str, ...]:
    """Return the ids of the gates of `owner`.

    An id is the gate's name, else its metric, with ``,filter`` where there are several filters, and with ``.drop`` for
    a comparison with a baseline. Raises TaskFileError (SettingError for a rule) if two ids are equal.
    """
    ids = tuple(_id(gate, several_filters=len(filters) > 1) for gate in gates)
    for gate_id, count in Counter(ids).items():
        if count > 1:
            same = [gate.place for gate, own in zip(gates, ids, strict=True) if own == gate_id]
            written = " and ".join(repr(place.text) for place in same)
            raise same[-1].error(
                f"{count} gates of {owner} would be called gate[{gate_id}] ({written}): give one a name, "
                "'acc >= 0.35 as NAME' or {metric: acc, min: 0.35, name: NAME}"
            )
    return ids


def name_of_owner(owner: Task | Group) -> str:
    return f"{'task' if isinstance(owner, Task) else 'group'} {owner.name!r}"


def _has(metric: str, owner: Task | Group) -> bool:
    return metric in metric_names(owner) or (isinstance(owner, Task) and names_are_open(owner))


def metric_names(owner: Task | Group) -> tuple[str, ...]:
    """Return the names of the metrics that a task reports or a group aggregates."""
    if isinstance(owner, Group):
        return tuple(dict.fromkeys(metric.metric for metric in owner.metrics))
    return tuple(name for metric in owner.metrics for name in metric.names)


def filter_names(owner: Task | Group, leaves: Sequence[Task] = (), metric: str | None = None) -> tuple[str, ...]:
    """Return the filters of a metric, or of all metrics; for a group those that it aggregates."""
    if isinstance(owner, Task):
        return tuple(spec.name for spec in owner.filters)
    return tuple(dict.fromkeys(_group_filters(owner, leaves, metric)))


def names_are_open(task: Task) -> bool:
    """Return True if functions of the task may return scores under any name."""
    return task.process_results is not None or any(metric.names_are_open for metric in task.metrics)


def higher_is_better(name: str, owner: Task | Group, leaves: Sequence[Task]) -> bool | None:
    """Return True if a high value of a metric is good; None if that is unknown or differs between tasks."""
    found = {metric.higher_is_better for _, metric in _meant(name, owner, leaves)}
    return found.pop() if len(found) == 1 else None


def _meant(name: str, owner: Task | Group, leaves: Sequence[Task]) -> list[tuple[Task, Metric]]:
    """Return the metrics of that name, each with its task."""
    tasks = (owner,) if isinstance(owner, Task) else leaves
    return [(task, metric) for task in tasks for metric in task.metrics if name in metric.names]


def _group_filters(group: Group, leaves: Sequence[Task], metric: str | None) -> Iterator[str]:
    for entry in group.metrics:
        if metric not in (None, entry.metric):
            continue
        if entry.filters is not None:
            yield from entry.filters
            continue
        for task in leaves:
            if entry.metric in metric_names(task) or names_are_open(task):
                yield from filter_names(task)


def _is_own(name: str, owner: Task | Group) -> bool:
    """Return True if a function of the user aggregates this metric of a group."""
    return isinstance(owner, Group) and any(m.aggregation is not None for m in owner.metrics if m.metric == name)


def _check_direction(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> None:
    """Raise unless a comparison limits losses, given the direction in which the metric is better."""
    change, higher = gate.change, higher_is_better(gate.metric, owner, leaves)
    if change is None or change.word == "min_gain":
        if higher is None:
            raise gate.place.error(
                f"the direction in which {gate.metric} is better is unknown: set higher_is_better, or write "
                f"'{gate.metric} >= baseline + ...' or '<= baseline - ...'"
            )
        return
    if higher is not None and higher is not change.operator.startswith(">"):
        better, mend = ("higher", "max_drop or >= baseline") if higher else ("lower", "max_rise or <= baseline")
        written = change.word or f"{change.operator} baseline"
        raise gate.place.error(f"{gate.metric} is better when {better}, so {written} limits no loss: write {mend}")


def _check_confidence(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> None:
    """Raise unless the metric has bounds at a confidence: it must be a mean over docs, or a mean of such means."""
    if isinstance(owner, Task):
        known = [name for name in metric_names(owner) if _is_mean(name, owner, leaves)]
    else:
        known = [one.metric for one in owner.metrics if one.aggregation is None and _is_mean(one.metric, owner, leaves)]
    named = gate.metric in metric_names(owner)
    if gate.metric in known or not named:
        return
    why = "not a mean over docs" if isinstance(owner, Task) else "not a mean over the docs of its tasks"
    taking = ", ".join(dict.fromkeys(known)) or "none here"
    raise gate.place.error(
        f"{gate.metric} is {why}, so there are no bounds at a confidence (metrics that have them: {taking}); omit "
        "the confidence to judge the observed value"
    )


def _is_mean(name: str, owner: Task | Group, leaves: Sequence[Task]) -> bool:
    """Return True if the value is a mean over docs or, for a task, the exponential of a mean, such as perplexity."""
    means = [metric.aggregation.doc_mean for _, metric in _meant(name, owner, leaves)]
    return all(mean is not None and (isinstance(owner, Task) or not mean.log) for mean in means)


def _check_right_or_wrong(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> None:
    numbers = [metric for _, metric in _meant(gate.metric, owner, leaves) if metric.kind not in ("right", "any")]
    if numbers:
        raise gate.place.error(f"{gate.metric} does not show whether a doc is right or wrong")
    if isinstance(owner, Group) and gate.must_stay_right != "all":
        raise gate.place.error("doc numbers belong to one task: write the gate in its task file, or write all")


def _id(gate: Gate, *, several_filters: bool) -> str:
    if gate.name is not None:
        return gate.name
    return (gate.key if several_filters else gate.metric) + (".drop" if gate.compares else "")
