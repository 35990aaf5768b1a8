"""The docs that a gate is judged on: the docs of the run by task, and their partners in the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Comparison
from pytest_llmeval._baselines import Entry
from pytest_llmeval._plain import listed
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.noise import Noise
from pytest_llmeval._verdicts.noise import Side
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import Drawn
from pytest_llmeval._verdicts.sentence import docs_text


@dataclass(frozen=True, slots=True)
class TaskData:
    """The docs of one task: `results` in doc order, of a data set of `n_total`, and the comparison with a baseline."""

    task: Task
    results: Sequence[DocResult]
    n_total: int
    comparison: Comparison | None = None

    @property
    def pairs(self) -> Sequence[tuple[Entry, Entry]]:
        """The docs that are both in the baseline and in the run, as pairs (before, now)."""
        return () if self.comparison is None else self.comparison.pairing.pairs

    def paired_results(self) -> tuple[list[DocResult], list[DocResult]]:
        """Return the paired docs as results before and now, in the same order, both rounded as in a baseline file."""
        filters = [spec.name for spec in self.task.filters]
        before = [old.as_result(filters) for old, _ in self.pairs]
        now = [new.as_result(filters) for _, new in self.pairs]
        if self.task.cluster is None:
            return before, now
        # A baseline does not store clusters; a doc has the same cluster before and now, so those of the run are used.
        keys = {result.doc: result.key for result in self.results}
        clustered = [replace(new, key=keys[new.doc]) for new in now]
        return [replace(old, key=new.key) for old, new in zip(before, clustered, strict=True)], clustered

    def summary(self, results: Sequence[DocResult]) -> Summary:
        """Return the summary of some of the task's docs, without bootstrapped standard errors."""
        return summarize_task(self.task, results, n_total=self.n_total, num_fewshot=None, bootstrap_iters=0)


@dataclass(frozen=True, slots=True)
class GateData:
    """The docs of the task or group `owner`, by task, for gates that depend on more than the observed value.

    `baseline` is the name that the user gave, empty if none. `ignore_unpaired`: docs that only the run or only the
    baseline has are left out of comparisons instead of failing them. `noise` holds the measured noise of each task, if
    ``--llmeval-noise`` is given. Paths of task files are shown relative to `root`. `members` counts the gates of the
    family that the judged gate belongs to.
    """

    owner: Task | Group
    tasks: Sequence[TaskData]
    drawn: Drawn = "all"
    baseline: str = ""
    ignore_unpaired: bool = False
    noise: Mapping[str, Noise] = NOTHING
    root: Path | None = None
    members: int = 1

    @property
    def draw(self) -> Draw:
        """The docs that were run, and how they were chosen."""
        seen, total = sum(len(one.results) for one in self.tasks), sum(one.n_total for one in self.tasks)
        return Draw(self.drawn, seen, total, len(self.tasks))

    def summary(self) -> Summary:
        """Return the summary of all docs, without bootstrapped standard errors."""
        return self._together([data.summary(data.results) for data in self.tasks])

    def _together(self, summaries: Sequence[Summary]) -> Summary:
        if not isinstance(self.owner, Group):
            return summaries[0]
        return summarize_group(
            self.owner, [(data.task, summary) for data, summary in zip(self.tasks, summaries, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class PairedDocs:
    """The paired docs of each task, in the same order on both sides, and the value of the gate's metric on each side.

    `left_out` states which docs were run or recorded but are not compared; None if there are none.
    """

    before: Side
    now: Side
    value_before: MetricValue
    value_now: MetricValue
    left_out: str | None = None

    @property
    def n(self) -> int:
        return sum(len(results) for _, results in self.now)


def refusal(data: GateData, column: tuple[str, str] | None) -> str | None:
    """Return the reason why the docs cannot be compared with the baseline, by a metric and filter; None if they can."""
    if not data.baseline:
        return (
            "there is no baseline to compare with: name one with --llmeval-baseline (--llmeval-update-baseline writes "
            "it)"
        )
    if reasons := list(_reasons(data, column)):
        return refused(data) + listed(reasons, 3, separator="; ", noun="tasks")
    return None


def refused(data: GateData) -> str:
    """Return the beginning of a message on a comparison that is refused."""
    return f"it cannot be compared with baseline {data.baseline!r}: "


def paired_docs(data: GateData, value: MetricValue) -> PairedDocs | str:
    """Return the docs to compare, or the reason why they cannot be compared."""
    if reason := refusal(data, (value.metric, value.filter)):
        return reason
    sides = [task_data.paired_results() for task_data in data.tasks]
    before, now = ([(one.task, side[i]) for one, side in zip(data.tasks, sides, strict=True)] for i in (0, 1))
    old = _value(data, before, value, recorded=True)
    new = _value(data, now, value, recorded=False)
    if old is None or new is None:
        return f"{refused(data)}{value.metric} of a part of its docs cannot be computed from what it stores"
    return PairedDocs(before, now, old, new, left_out(data))


def _reasons(data: GateData, column: tuple[str, str] | None) -> Iterator[str]:
    """Yield the reasons against a comparison, task by task."""
    for one in data.tasks:
        if one.comparison is None:
            yield f"{one.task.name}: it has no baseline"
            continue
        found = one.comparison.problems(whole=data.drawn == "all", ignore_unpaired=data.ignore_unpaired)
        if not found and column is not None:
            found = one.comparison.column_problems(*column)
        if found:
            name = f"{one.task.name}: " if len(data.tasks) > 1 else ""
            yield name + ", ".join(found)


def _value(data: GateData, side: Side, value: MetricValue, *, recorded: bool) -> MetricValue | None:
    """Return the value of the gate's metric over the paired docs of one side; None if it cannot be computed."""
    summaries = []
    for one, (_, results) in zip(data.tasks, side, strict=True):
        summary = one.summary(results)
        if not summary.find(value.metric, value.filter):
            summary = _with_whole_value(summary, one, value, recorded=recorded)
        summaries.append(summary)
    return next(iter(data._together(summaries).find(value.metric, value.filter)), None)


def _with_whole_value(summary: Summary, data: TaskData, value: MetricValue, *, recorded: bool) -> Summary:
    """Add a value whose items (texts) a baseline does not store, if both sides have the same docs."""
    comparison = data.comparison
    if comparison is None or comparison.record is None or not comparison.complete:
        return summary
    if recorded:
        number = comparison.record.header.values.get(value.key)
        whole = None if number is None else replace(value, value=number, n=summary.n, stderr=None)
    else:
        whole = next(iter(data.summary(data.results).find(value.metric, value.filter)), None)
    return summary if whole is None else replace(summary, values=(*summary.values, whole))


def left_out(data: GateData) -> str | None:
    """Return the numbers of docs without a partner, in words; None if there are none."""
    pairings = [one.comparison.pairing for one in data.tasks if one.comparison is not None]
    unknown = sum(len(pairing.unknown) for pairing in pairings)
    unused = sum(len(pairing.unused) for pairing in pairings) if data.drawn == "all" else 0
    facts = []
    if unknown:
        facts.append(f"{docs_text(unknown)} of the run {'is' if unknown == 1 else 'are'} not in the baseline")
    if unused:
        facts.append(f"{docs_text(unused)} of the baseline {'was' if unused == 1 else 'were'} not run")
    return " and ".join(facts) or None


#: Above this p-value a gain may be luck.
_LUCK = 0.05


@dataclass(frozen=True, slots=True)
class Changes:
    """The numbers of docs, among `docs` docs, whose score became worse and better.

    `flips`: the score is 0 or 1 for every doc.
    """

    worse: int
    better: int
    docs: int
    flips: bool

    @property
    def lucky(self) -> bool:
        """True if 0/1 scores of independent docs rose, but so little that it may be luck (one-sided exact .05)."""
        risen = self.flips and self.better > self.worse
        return risen and not _stats.drop_fails(self.better, self.worse, self.docs, 0.0, _LUCK)


def changes_of_task(data: TaskData) -> Changes | None:
    """Return the numbers of docs that changed since the baseline, by the first score that is 0 or 1 for every doc.

    If there is none, the first numeric score with a known direction counts. None if no docs are paired, or if no score
    of either kind is stored.
    """
    pairs = data.pairs
    names = pairs[0][0].scores if pairs else ()
    columns: list[tuple[str, list[list[Any]]]] = [
        (name, [[side.scores.get(name) for side in both] for both in pairs]) for name in names
    ]
    for name, scores in columns:
        if all(score in (0, 1) for both in scores for score in both):
            higher = metric_of(data.task, name.rpartition(",")[0]).higher_is_better is not False
            return _counted(scores, higher=higher, flips=True)
    for name, scores in columns:
        try:
            metric = metric_of(data.task, name.rpartition(",")[0])
            mean = metric.aggregation.doc_mean
            # Each doc is passed alone, because the values of a list of docs may depend on each other.
            numbers = [[float(item if mean is None else mean.values([item])[0]) for item in both] for both in scores]
        except (LookupError, TypeError, ValueError):
            # A function of the task may return something other than a number, or a metric that the task does not list.
            continue
        if metric.higher_is_better is not None and all(math.isfinite(number) for both in numbers for number in both):
            return _counted(numbers, higher=metric.higher_is_better, flips=False)
    return None


def _counted(scores: Sequence[Sequence[Any]], *, higher: bool, flips: bool) -> Changes:
    up, down = sum(old < new for old, new in scores), sum(old > new for old, new in scores)
    worse, better = (down, up) if higher else (up, down)
    return Changes(worse, better, len(scores), flips)
