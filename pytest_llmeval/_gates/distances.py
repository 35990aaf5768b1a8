"""Gates on the distance of a run from its baseline: ``kl <= 0.01 @ 0.95``, ``flips <= 0.02``.

Their metrics belong to no task, so they are checked apart from those of the task. A task that has a metric of its own
under such a name keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence

from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._gates.ranges import check_range
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._scoring import DISTANCES
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


def is_distance(gate: Gate, owner: Task | Group) -> bool:
    """Return True if the metric of a gate is a distance from the baseline, and not one of the task or group itself."""
    if gate.metric not in DISTANCES:
        return False
    if isinstance(owner, Group):
        return gate.metric not in {entry.metric for entry in owner.metrics}
    return gate.metric not in {name for metric in owner.metrics for name in metric.names}


def has_distance(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> bool:
    """Return True if all tasks have what the distance is measured by, so that a glob or tag means them."""
    return not list(_lacking(gate, owner, leaves))


def check_distance(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> None:
    """Raise TaskFileError or SettingError unless a gate on a distance can be judged."""
    place, metric = gate.place, DISTANCES[gate.metric]
    operator = ">=" if metric.higher_is_better else "<="
    if not gate.bounds:
        raise place.error(f"{gate.metric} already compares with the baseline: write '{gate.metric} {operator} NUMBER'")
    if wrong := [bound.operator for bound in gate.bounds if not bound.operator.startswith(operator[0])]:
        raise place.error(f"{gate.metric} {wrong[0]} demands that the run differs from its baseline: write {operator}")
    for task, lack in _lacking(gate, owner, leaves):
        raise place.error(f"{gate.metric}: {lack} of task {task.name!r}")
    check_range(gate, [metric])
    if gate.metric != "flips" and gate.filter is not None:
        raise place.error(f"{gate.metric} is measured before any filter: omit {gate.filter!r}")
    if gate.metric == "kl" and gate.scope == "dataset":
        raise place.error(
            "kl is estimated from tokens drawn at random, so it is never certain for a data set: omit the word dataset"
        )


def _lacking(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> Iterator[tuple[Task, str]]:
    """Yield the tasks without what the distance is measured by, and what they lack."""
    for task in (owner,) if isinstance(owner, Task) else leaves:
        if gate.metric == "flips":
            if not any(metric.kind in ("right", "any") for metric in task.metrics):
                yield task, "no score is 0 or 1 for every doc"
        elif OUTPUT_TYPES[task.output_type].generates:
            yield task, "it needs log-likelihoods, and generated text has none (flips needs none): this is the output"
