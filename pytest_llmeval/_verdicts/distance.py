"""Verdicts on the distance of a run from its baseline, doc by doc: KL divergence, agreement of top tokens, flips.

    arc_easy: kl 0.0031 +- 0.0004 over 100 docs, required <= 0.01 at 95 % confidence
      value     between 0.0025 and 0.0041 (each bound holds at 95 %)
      value     at least 0.0027 by the kept tokens, with all others as one; these hold 8.1 % of the probability, ...
      docs      doc[17] moved most: kl 0.021
      range     assuming scores in [0, 0.042]

A doc's `kl` and `top1_agreement` are means over its scored positions, computed when it was answered (`Distance`), from
the token ids that the baseline keeps. The range of `kl` has no upper end, so its bounds assume one, as for other scores
of unknown range, and the verdict states it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Entry
from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import listed
from pytest_llmeval._results import Distance
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import DISTANCES
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.floor import judge_floor
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import TaskData
from pytest_llmeval._verdicts.gate_data import left_out
from pytest_llmeval._verdicts.gate_data import refusal
from pytest_llmeval._verdicts.gate_data import refused
from pytest_llmeval._verdicts.observed import judge_observed
from pytest_llmeval._verdicts.samples import FEWEST_PER_TASK
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.sentence import condition
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import percent_text
from pytest_llmeval._verdicts.telling import node_of
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


#: The number of docs that are shown.
_MOST = 5


@dataclass(frozen=True, slots=True)
class _Moved:
    """A doc, the `value` of the gate's metric for it, its rank among the docs that moved, and `how` it moved."""

    task: Task
    now: DocResult
    value: float
    rank: float
    how: str


def judge_distance(gate: Gate, summary: Summary, data: GateData | None, lack: str | None) -> Verdict:
    """Return the verdict on a gate on a distance, without its family. `lack`: the reason why no gate can pass."""
    docs: list[_Moved] | str = lack or "the results of its docs are not available"
    if lack is None and data is not None:
        docs = _flips(gate, data) if gate.metric == "flips" else _distances(gate, data)
    if data is None or isinstance(docs, str):
        headline = f"{summary.name}: {gate.key} is not known, required {condition(gate)}"
        return Verdict("failed", headline).adding(fact("reason", docs))
    metric, values = DISTANCES[gate.metric], [one.value for one in docs]
    moved = sorted((one for one in docs if one.rank > 0), key=lambda one: -one.rank)
    columns = [_column(gate, one, docs, unmoved=not moved) for one in data.tasks]
    sample = sample_of(columns, by_size=True)
    clusters = None if sample is None else sample.clusters
    stderr = _stats.standard_error(values, clusters)
    mean, n = math.fsum(values) / len(values), len(values)
    value = MetricValue(gate.metric, gate.filter or "none", mean, stderr, metric.higher_is_better, n)
    verdict = judge_observed(gate, summary, value)
    if gate.confidence is not None:
        verdict = judge_floor(gate, gate.confidence, sample, data.draw, verdict)
    if gate.metric == "kl":
        verdict = _with_parts(verdict, [one.now.distance for one in docs if one.now.distance])
    named = len(data.tasks) > 1
    first = moved[0] if moved else None
    verdict = verdict.adding(
        fact("docs", first and f"{_name(first, named)} moved most: {first.how}"),
        fact("caution", not moved and metric.range is None and gate.confidence and _unmoved(n, gate.confidence)),
        fact("caution", left_out(data)),
    )
    if verdict.outcome == "passed" or first is None:
        return verdict
    lines = tuple(f"{_name(one, named)}  {one.how}" for one in moved[:_MOST])
    show = f"pytest '{node_of(first.task, first.now.doc, data)}' --llmeval-show prints the prompt"
    return verdict.adding(Fact("most informative docs", lines=lines), Fact("next", show))


def _flips(gate: Gate, data: GateData) -> list[_Moved] | str:
    """Return the paired docs with their flips, or the reason why these are not known."""
    if reason := refusal(data, None):
        return reason
    columns = {one.task.name: _flipping(gate, one) for one in data.tasks}
    if lacking := [name for name, column in columns.items() if column is None]:
        return f"no score of {listed(lacking, 3)} is 0 or 1 for every doc"
    problems = [
        f"{one.task.name}: {', '.join(found)}"
        for one in data.tasks
        if (column := columns[one.task.name]) and one.comparison and (found := one.comparison.column_problems(*column))
    ]
    if problems:
        return refused(data) + listed(problems, 3, separator="; ", noun="tasks")
    return [
        _flip(one.task, old, new, now, ",".join(columns[one.task.name] or ()))
        for one in data.tasks
        for old, new, now in _paired(one)
    ]


def _distances(gate: Gate, data: GateData) -> list[_Moved] | str:
    """Return the paired docs with the distances of their next tokens, or the reason why these are not known."""
    if reason := refusal(data, None):
        return reason
    if bare := [one.task.name for one in data.tasks if not _keeps(one)]:
        return (
            f"baseline {data.baseline!r} keeps no next tokens of {listed(bare, 3)}: write it again with "
            "--llmeval-update-baseline --llmeval-baseline-topk 4"
        )
    found = []
    for one in data.tasks:
        for _, _, now in _paired(one):
            distance = now.distance or Distance(problem="its next tokens in the baseline cannot be read")
            if distance.problem:
                return f"{one.task.name} doc[{now.doc}]: {distance.problem}"
            found.append(_moved(gate, one.task, now, distance))
    return found


def _keeps(data: TaskData) -> bool:
    return bool(data.comparison and data.comparison.record and data.comparison.record.header.next_tokens)


def _paired(data: TaskData) -> list[tuple[Entry, Entry, DocResult]]:
    """Return the docs of both sides as stored, and the result of the run."""
    results = {result.doc: result for result in data.results}
    return [(old, new, results[new.doc]) for old, new in data.pairs]


def _flipping(gate: Gate, data: TaskData) -> tuple[str, str] | None:
    """Return the first metric whose scores are 0 or 1 for every doc of the run, and its filter; None without one."""
    filter_name = gate.filter or data.task.filters[0].name
    columns = {metric: filter_name for result in data.results for metric in result.scores.get(filter_name, {})}
    for metric, name in columns.items():
        if all(result.scores.get(name, {}).get(metric) in (0, 1) for result in data.results):
            return metric, name
    return None


def _flip(task: Task, old: Entry, new: Entry, now: DocResult, column: str) -> _Moved:
    before, after = old.scores.get(column), new.scores.get(column)
    metric = column.rpartition(",")[0]
    if before == after:
        return _Moved(task, now, 0.0, 0.0, "")
    margins = [pick.margin_by(metric) for pick in (old.pick, new.pick) if pick is not None]
    known = [margin for margin in margins if margin is not None]
    margin = f" (margin {known[0]:.3g} before, {known[1]:.3g} now)" if len(known) == 2 else ""
    # Any flip ranks above no flip, and a flip of a clear choice above one of a close call.
    return _Moved(task, now, 1.0, 1.0 + max(known, default=0.0), f"{metric} was {before} and is {after}{margin}")


def _moved(gate: Gate, task: Task, now: DocResult, distance: Distance) -> _Moved:
    if gate.metric == "kl":
        return _Moved(task, now, distance.kl, distance.kl, f"kl {number_text(distance.kl)}")
    share = distance.agreement
    return _Moved(task, now, share, 1 - share, f"the same top token at {share * 100:.3g} % of its positions")


def _column(gate: Gate, data: TaskData, docs: Sequence[_Moved], *, unmoved: bool) -> Column:
    """Return the values of one task's docs."""
    metric, own = DISTANCES[gate.metric], [one for one in docs if one.task is data.task]
    clusters = None
    if data.task.cluster is not None:
        clusters = [f"{data.task.name}/{one.now.key.cluster if one.now.key else one.now.doc}" for one in own]
    support: tuple[float, float] | None = metric.range
    if unmoved and support is None and len(docs) >= FEWEST_PER_TASK:
        # Nothing moved, so nothing is assumed to move: a run of the same model passes.
        support = (0.0, 0.0)
    return Column(metric, [one.value for one in own], clusters, support, data.task.name)


def _unmoved(n: int, confidence: float) -> str:
    """Return the share of docs that may move although none did, by the exact bound on a proportion."""
    return (
        f"none of {docs_text(n)} moved, so at most {_stats.exact_bounds(0, n, confidence).high * 100:.2g} % of docs "
        f"like these do (at {percent_text(confidence)})"
    )


def _with_parts(verdict: Verdict, distances: Sequence[Distance]) -> Verdict:
    """Return a verdict on `kl` with the part of it that needs no estimate."""
    n = len(distances)
    least, rest = (math.fsum(part) / n for part in zip(*((one.least, one.rest) for one in distances), strict=True))
    numbers = {**verdict.numbers, "kl_least": least, "probability_not_kept": rest}
    return replace(verdict, numbers=numbers).adding(
        Fact(
            "value",
            f"at least {number_text(least)} by the kept tokens, with all others as one; these hold {rest * 100:.2g} % "
            "of the probability, and their part is estimated from one drawn token per position",
        )
    )


def _name(one: _Moved, named: bool) -> str:
    return f"{f'{one.task.name} ' * named}doc[{one.now.doc}]"
