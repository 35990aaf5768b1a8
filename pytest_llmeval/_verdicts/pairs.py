"""The docs of a run with their partners in the baseline, summed up on both sides alike."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_llmeval._baselines import Entry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.ties import Noise
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import TaskData


#: How many tasks of a group, or reasons, a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Pairs:
    """The paired docs of each task as results, in the same order on both sides, and the number in question of each.

    `left_out` says which docs are not compared though they were run or recorded; None if there are none. `noises` hold
    what rounding alone does, task by task.
    """

    before: Sequence[tuple[Task, Sequence[DocResult]]]
    now: Sequence[tuple[Task, Sequence[DocResult]]]
    value_before: MetricValue
    value_now: MetricValue
    left_out: str | None = None
    noises: Sequence[Noise | None] = ()

    @property
    def n(self) -> int:
        return sum(len(results) for _, results in self.now)


def pairs_of(evidence: GateData, value: MetricValue) -> Pairs | str:
    """The docs to compare, or why there are none: the reason in words."""
    if not evidence.baseline:
        return (
            "there is no baseline to compare with: name one with --llmeval-baseline (--llmeval-update-baseline writes "
            "it)"
        )
    if reasons := list(_reasons(evidence, value)):
        more = f"; and {len(reasons) - _NAMED} more tasks" if len(reasons) > _NAMED else ""
        return f"it cannot be compared with baseline {evidence.baseline!r}: {'; '.join(reasons[:_NAMED])}{more}"
    before = [(part.task, [_result(part, old) for old, _ in part.pairs]) for part in evidence.tasks]
    now = [(part.task, [_result(part, new) for _, new in part.pairs]) for part in evidence.tasks]
    old = _value(evidence, before, value, recorded=True)
    new = _value(evidence, now, value, recorded=False)
    if isinstance(old, str) or isinstance(new, str):
        return f"it cannot be compared with baseline {evidence.baseline!r}: {old if isinstance(old, str) else new}"
    noises = [part.noise for part in evidence.tasks]
    return Pairs(before, _with_clusters(evidence, now), old, new, _left_out(evidence), noises)


def _reasons(evidence: GateData, value: MetricValue) -> Iterator[str]:
    """Task by task what speaks against a comparison."""
    for part in evidence.tasks:
        if part.comparison is None:
            yield f"{part.task.name}: it has no baseline"
            continue
        found = part.comparison.problems(whole=evidence.drawn == "all", ignore_unpaired=evidence.ignore_unpaired)
        found = found or part.comparison.column_problems(value.metric, value.filter)
        if found:
            name = f"{part.task.name}: " if len(evidence.tasks) > 1 else ""
            yield name + ", ".join(found)


def _result(part: TaskData, entry: Entry) -> DocResult:
    return entry.as_result([spec.name for spec in part.task.filters])


def _with_clusters(
    evidence: GateData, now: Sequence[tuple[Task, Sequence[DocResult]]]
) -> list[tuple[Task, Sequence[DocResult]]]:
    """A baseline does not keep clusters; the run's results know them."""
    found: list[tuple[Task, Sequence[DocResult]]] = []
    for part, (task, results) in zip(evidence.tasks, now, strict=True):
        keys = {result.doc: result.key for result in part.results}
        clustered = task.cluster is not None
        found.append((task, [replace(result, key=keys[result.doc]) for result in results] if clustered else results))
    return found


def _value(
    evidence: GateData, sides: Sequence[tuple[Task, Sequence[DocResult]]], value: MetricValue, *, recorded: bool
) -> MetricValue | str:
    """The number in question over the paired docs of one side."""
    summaries = []
    for part, (task, results) in zip(evidence.tasks, sides, strict=True):
        summary = summarize_task(task, results, n_total=part.n_total, num_fewshot=None, bootstrap_iters=0)
        if not summary.find(value.metric, value.filter):
            summary = _with_whole_value(summary, part, value, recorded=recorded)
        summaries.append((task, summary))
    if isinstance(evidence.owner, Group):
        found = summarize_group(evidence.owner, summaries).find(value.metric, value.filter)
    else:
        found = summaries[0][1].find(value.metric, value.filter)
    if not found:
        return f"{value.metric} cannot be worked out from what the baseline keeps of a part of the docs"
    return found[0]


def _with_whole_value(summary: Summary, part: TaskData, value: MetricValue, *, recorded: bool) -> Summary:
    """A summary with a number whose items a baseline does not keep (texts), where both sides have the same docs."""
    comparison = part.comparison
    if comparison is None or comparison.record is None or not comparison.complete:
        return summary
    if recorded:
        number = comparison.record.header.values.get(value.key)
        whole = None if number is None else replace(value, value=number, n=summary.n, stderr=None)
    else:
        whole = next(iter(_of_run(part).find(value.metric, value.filter)), None)
    return summary if whole is None else replace(summary, values=(*summary.values, whole))


def _of_run(part: TaskData) -> Summary:
    return summarize_task(part.task, part.results, n_total=part.n_total, num_fewshot=None, bootstrap_iters=0)


def _left_out(evidence: GateData) -> str | None:
    """Which docs have no partner, where that is allowed."""
    pairings = [part.comparison.pairing for part in evidence.tasks if part.comparison is not None]
    unknown = sum(len(pairing.unknown) for pairing in pairings)
    unused = sum(len(pairing.unused) for pairing in pairings) if evidence.drawn == "all" else 0
    facts = []
    if unknown:
        facts.append(f"{unknown:,} docs of the run are not in the baseline")
    if unused:
        facts.append(f"{unused:,} docs of the baseline were not run")
    return " and ".join(facts) or None
