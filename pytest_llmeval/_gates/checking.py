"""Whether a gate can be meant for a task or group: its metric, its filter, its bounds, its id."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._metrics import Metric
from pytest_llmeval._metrics import metrics_of
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


def check_gate(gate: Gate, owner: Task | Group, leaves: Sequence[Task] = ()) -> None:
    """Raise unless the metric and filter exist, the filter is settled, and the bounds can be met.

    Where functions of the task name its metrics (`process_results`, a ``!function`` metric), these are known only
    when docs were scored: a gate on one that never comes up then fails.
    """
    what = f"{'task' if isinstance(owner, Task) else 'group'} {owner.name!r}"
    known = metric_names(owner)
    if gate.metric not in known and not (isinstance(owner, Task) and names_are_open(owner)):
        close = difflib.get_close_matches(gate.metric, known, 1)
        mend = f"; did you mean {close[0]!r}?" if close else ""
        listed = ", ".join(known) or "none; name some in aggregate_metric_list"
        raise gate.place.error(f"{what} has no metric {gate.metric!r} (it has: {listed}){mend}")
    filters = filter_names(owner, leaves, gate.metric)
    if gate.filter is not None and filters and gate.filter not in filters:
        raise gate.place.error(f"{what} has no filter {gate.filter!r} (it has: {', '.join(filters)})")
    if gate.filter is None and len(filters) > 1:
        example = f"{gate.metric},{filters[0]}"
        raise gate.place.error(f"{what} has the filters {', '.join(filters)}; name the one meant, e.g. {example!r}")
    if _is_proportion(gate.metric, owner, leaves):
        _check_proportion(gate)


def gate_ids(gates: Sequence[Gate], filters: Sequence[str]) -> tuple[str, ...]:
    """The ids of a module's gates: own name, else metric, with ``,filter`` where there are several filters.

    Raises TaskFileError (SettingError for a rule) if two are equal.
    """
    ids = tuple(_id(gate, several_filters=len(filters) > 1) for gate in gates)
    for gate_id, count in Counter(ids).items():
        if count > 1:
            same = [gate.place for gate, own in zip(gates, ids, strict=True) if own == gate_id]
            written = " and ".join(repr(place.text) for place in same)
            raise same[-1].error(
                f"{count} gates would be called gate[{gate_id}] ({written}): give one a name, "
                "'acc >= 0.35 as NAME' or {metric: acc, min: 0.35, name: NAME}"
            )
    return ids


def metric_names(owner: Task | Group) -> tuple[str, ...]:
    """The names under which a task's metrics come, or those of what a group aggregates."""
    if isinstance(owner, Group):
        return tuple(dict.fromkeys(metric.metric for metric in owner.metrics))
    return tuple(name for metric in _metrics(owner) for name in _names(metric))


def filter_names(owner: Task | Group, leaves: Sequence[Task] = (), metric: str | None = None) -> tuple[str, ...]:
    """The filters under which a metric is reported, or any metric. For a group those that it aggregates."""
    if isinstance(owner, Task):
        return tuple(spec.name for spec in owner.filters)
    return tuple(dict.fromkeys(_group_filters(owner, leaves, metric)))


def names_are_open(task: Task) -> bool:
    """Whether functions of the task may return scores under any name."""
    return task.process_results is not None or any(m.expands and m.code is None for m in _metrics(task))


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


def _metrics(task: Task) -> tuple[Metric, ...]:
    try:
        return metrics_of(task)
    except ValueError as error:
        raise TaskFileError(task.path, str(error), line=task.line_of("metric_list"), key="metric_list") from None


def _names(metric: Metric) -> tuple[str, ...]:
    return (metric.name,) if metric.code is None else tuple(f"pass@{k}" for k in metric.code.k)


def _is_proportion(name: str, owner: Task | Group, leaves: Sequence[Task]) -> bool:
    """Whether the value lies between 0 and 1 because this package, and no function of the user, computes it."""
    if isinstance(owner, Group) and any(m.aggregation is not None for m in owner.metrics if m.metric == name):
        return False
    tasks = (owner,) if isinstance(owner, Task) else leaves
    own_way = {(task.name, spec.name) for task in tasks for spec in task.metrics if callable(spec.aggregation)}
    found = [(task, metric) for task in tasks for metric in _metrics(task) if name in _names(metric)]
    return bool(found) and all(
        (task.name, metric.name) not in own_way
        and (metric.kind == "right" or metric.code is not None or (metric.name == "f1" and metric.kind != "any"))
        for task, metric in found
    )


def _check_proportion(gate: Gate) -> None:
    for bound in gate.bounds:
        if not 0 <= bound.value <= 1:
            mend = f"; did you mean {bound.value / 100:g}?" if 1 < bound.value <= 100 else ""
            raise gate.place.error(f"{gate.metric} lies between 0 and 1, and the bound is {bound.value:g}{mend}")


def _id(gate: Gate, *, several_filters: bool) -> str:
    if gate.name is not None:
        return gate.name
    return gate.key if several_filters else gate.metric
