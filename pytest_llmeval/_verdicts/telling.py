"""The most informative docs of a gate that did not pass, and the recommended next step.

      most informative docs
        doc[12]  expected 0, chose 3 (margin 2.31), before 0 (margin 0.4)
      next      pytest 'capitals.yaml::doc[12]' --llmeval-show prints the prompt; update the baseline only if ...

For a comparison these are docs that became worse, sorted by their loss and then by their margin, largest first; for a
floor they are wrong docs, those with the largest margins first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.paired import directed
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


#: The number of docs that are shown.
_MOST = 5


@dataclass(frozen=True, slots=True)
class _Telling:
    """A doc and its rank among others: `loss` is the amount by which its score became worse, or 1 for a floor."""

    task: Task
    now: DocResult
    before: DocResult | None
    loss: float
    margin: float


def with_telling_docs(verdict: Verdict, gate: Gate, value: MetricValue, data: GateData | None) -> Verdict:
    """Return the verdict with the most informative docs, if it is not a pass and has any."""
    compared = any(fact.label == "docs" for fact in verdict.facts)
    if verdict.outcome == "passed" or data is None or (gate.compares and not compared):
        return verdict
    value = directed(gate, value)
    try:
        found = list(_lost(value, data) if gate.compares else _wrong(value, data))
    except (LookupError, TypeError, ValueError):
        # A function of the task may return something other than a number.
        return verdict
    if not found:
        return verdict
    found.sort(key=lambda one: (-one.loss, -one.margin))
    named = len(data.tasks) > 1
    lines = [f"{f'{one.task.name} ' * named}doc[{one.now.doc}]  {_told(one, value)}" for one in found[:_MOST]]
    show = f"pytest '{node_of(found[0].task, found[0].now.doc, data)}' --llmeval-show prints the prompt"
    renew = "; update the baseline only if the change is intended" if gate.compares else ""
    return verdict.adding(Fact("most informative docs", lines=tuple(lines)), Fact("next", show + renew))


def _lost(value: MetricValue, data: GateData) -> Iterator[_Telling]:
    """Yield the docs whose number became worse."""
    for one in data.tasks:
        mean = metric_of(one.task, value.metric).aggregation.doc_mean
        for old, new in zip(*one.paired_results(), strict=True):
            items = [side.scores.get(value.filter, {}).get(value.metric) for side in (old, new)]
            if mean is None or None in items:
                continue
            before, now = (float(mean.values([item])[0]) for item in items)
            loss = now - before if value.higher_is_better is False else before - now
            if loss > 0:
                yield _Telling(one.task, new, old, loss, max(_margin(old, value), _margin(new, value)))


def _wrong(value: MetricValue, data: GateData) -> Iterator[_Telling]:
    """Yield the docs that are wrong by a score of 0 or 1."""
    for one in data.tasks:
        for result in one.results:
            if is_right(result, value) is False:
                yield _Telling(one.task, result, None, 1.0, _margin(result, value))


def is_right(result: DocResult, value: MetricValue) -> bool | None:
    """Return True if a doc is right by a metric; None unless its score is 0 or 1."""
    item = result.scores.get(value.filter, {}).get(value.metric)
    if item not in (0, 1):
        return None
    return bool(item) is not (value.higher_is_better is False)


def _margin(result: DocResult, value: MetricValue) -> float:
    margin = None if result.pick is None else result.pick.margin_by(value.metric)
    return -1.0 if margin is None else margin


def _told(one: _Telling, value: MetricValue) -> str:
    now, before = _answer(one.now, value), one.before and _answer(one.before, value)
    pick = one.now.pick
    expected = ""
    if pick is not None and value.metric == "acc":
        expected = f"expected {' or '.join(map(str, pick.gold)) or 'none'}, "
    return f"{expected}{now}" + (f", before {before.removeprefix('chose ').removeprefix('scored ')}" if before else "")


def _answer(result: DocResult, value: MetricValue) -> str:
    """Return the choice of a model, for ``acc``, or its score, with the margin if there is one."""
    margin = _margin(result, value)
    certainty = f" (margin {margin:.3g})" if margin >= 0 else ""
    if result.pick is not None and value.metric == "acc":
        return f"chose {result.pick.index if result.pick.index >= 0 else 'none'}{certainty}"
    item = result.scores[value.filter][value.metric]
    return f"scored {f'{item:.4g}' if isinstance(item, int | float) else item}{certainty}"


def node_of(task: Task, doc: int, data: GateData) -> str:
    """Return the node id of a doc in a run of one model."""
    path = task.path
    if data.root is not None and path.is_relative_to(data.root):
        path = path.relative_to(data.root)
    # Items of tasks that are defined in their group's file also contain the name of the task.
    inside = isinstance(data.owner, Group) and data.owner.path == task.path
    return f"{path}::doc[{f'{task.name}-' * inside}{doc}]"
