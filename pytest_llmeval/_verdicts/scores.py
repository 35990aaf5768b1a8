"""Verdicts on plain numbers: one score per doc, from any program.

    >>> from pytest_llmeval import judge
    >>> judgement = judge("acc >= baseline - 0.02 @ 0.95", [1] * 180 + [0] * 20, [1] * 200)
    >>> judgement.outcome
    'failed'

Gates of the plugin are judged by the same functions (`judge_floor`, `judge_change`), after their docs were gathered.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from dataclasses import dataclass
from dataclasses import replace
from numbers import Integral
from typing import Any
from typing import Literal

from pytest_llmeval._errors import ArgumentError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import check_range
from pytest_llmeval._gates import parse_gate_text
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._stats import Interval
from pytest_llmeval._stats import standard_error
from pytest_llmeval._task import Metric
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._verdicts.change import judge_change
from pytest_llmeval._verdicts.floor import judge_floor
from pytest_llmeval._verdicts.observed import judge_observed
from pytest_llmeval._verdicts.paired import PairedEstimate
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict


#: Larger scores are mistakes, and their squares would overflow.
_GREATEST = 1e100
#: A `total` of more docs than this is a mistake.
_MOST_DOCS = 10**12


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a gate over plain scores.

    Attributes
    ----------
    outcome
        ``"passed"``, ``"failed"`` or ``"inconclusive"``; never the latter without a confidence.
    value, baseline
        The means of the scores and of the baseline's scores; `baseline` is None for a gate that does not compare.
    interval
        Bounds on the value, or on the change ``value - baseline`` for a gate that compares: each bound alone holds at
        the gate's confidence (.95 where it has none). An end is infinite where nothing is known, None: the outcome is
        certain or needs no bounds.
    p
        The one-sided p-value of the gate's own limit: of data at least this bad if the gate held, or for a passed gate
        of data at least this good if it did not hold. None where there is no interval.
    visible_drop
        The smallest true loss (for a floor: the distance below it) that fails this gate in 80 % of runs, for 0/1 scores
        and a gate on the population at a confidence; infinite if the docs cannot show any. Else None.
    sentence, text
        The verdict in one line, and in several with all facts.
    numbers
        The numbers of the facts under their names in JUnit files.
    """

    outcome: Outcome
    value: float
    baseline: float | None
    interval: Interval | None
    p: float | None
    visible_drop: float | None
    sentence: str
    text: str
    numbers: Mapping[str, float | int]


def judge(
    gate: str,
    scores: Iterable[float],
    baseline: Iterable[float] | None = None,
    *,
    clusters: Iterable[Hashable] | None = None,
    total: int | None = None,
    range: tuple[float, float] | None = None,
    drawn: Literal["random", "first"] = "random",
    name: str = "scores",
) -> Judgement:
    """Return the verdict on a gate over plain scores: one number per doc, whose mean is the metric.

    Parameters
    ----------
    gate
        A gate as in task files: ``acc >= 0.35 @ 0.95``, ``acc >= baseline - 0.01 @ 0.95 dataset``,
        ``loss <= baseline + 5%``. The metric's name is free; ``<=`` means that lower scores are better.
    scores, baseline
        The scores of the docs now and before, in the same order: lists, arrays or other iterables of finite numbers.
        Scores that are all 0 or 1 are judged by exact tests.
    clusters
        The passage of each doc, if several docs share one; bounds then count passages.
    total
        The number of docs of the data set, if the scores are those of a part of it.
    range
        The least and greatest score that a doc can have. Without it bounds on scores other than 0 and 1 depend on
        an assumption, which the verdict names.
    drawn
        The choice of a part: ``"random"``, or ``"first"`` for the first docs, which are not a random sample.
    name
        The name with which the sentence begins.

    Raises
    ------
    ArgumentError
        For a gate that cannot be read or that needs single docs (``stays right``), and for scores that are empty, not
        finite, not within `range`, of different lengths, or more than `total`. It is also a ValueError.
    """
    condition = _gate_of(gate)
    now = _numbers("scores", scores)
    before = None if baseline is None else _numbers("baseline", baseline)
    if condition.compares and before is None:
        raise ArgumentError(f"baseline: the gate {gate!r} compares, so it needs the scores before")
    if before is not None and len(before) != len(now):
        raise ArgumentError(f"baseline: {len(before):,} scores before and {len(now):,} now do not pair")
    metric = Metric(condition.metric, "number", AGGREGATIONS["mean"], None, declared_range=_range(range, now, before))
    passages = None if clusters is None else _passages(clusters, len(now))
    if total is not None and not (isinstance(total, Integral) and total < _MOST_DOCS):
        raise ArgumentError(f"total: expected the number of docs of the data set, got {total!r}")
    if total is not None and total < len(now):
        raise ArgumentError(f"total: {len(now):,} scores are more than the {total:,} docs of the data set")
    if drawn not in ("random", "first"):
        raise ArgumentError(f"drawn: expected 'random' or 'first', got {drawn!r}")
    _check_limits(condition, metric, now, before or ())
    of = len(now) if total is None else int(total)
    draw = Draw("all" if len(now) == of else drawn, len(now), of)
    value = _value(condition, now, passages)
    summary = Summary(name, name, None, None, len(now), of, (value,))
    column = Column(metric, now, passages, metric.range)
    if condition.change is not None and before is not None:
        old = _value(condition, before, passages)
        column_before = Column(metric, before, passages, metric.range)
        values = (old, value)
        seen = PairedEstimate.of_columns(condition, values, len(now), [column_before], [column], by_size=True)
        return _judgement(judge_change(condition, condition.change, summary, seen, draw), value.value, old.value)
    verdict = judge_observed(condition, summary, value)
    if condition.confidence is not None:
        sample = sample_of([column], by_size=True)
        verdict = judge_floor(condition, condition.confidence, sample, draw, verdict)
    return _judgement(verdict, value.value, None)


def _gate_of(text: str) -> Gate:
    if not isinstance(text, str):
        raise ArgumentError(f"gate: expected a text such as 'acc >= 0.35 @ 0.95', got {text!r}")
    try:
        gate = parse_gate_text(text)
    except SettingError as error:
        raise ArgumentError(str(error)) from None
    if gate.must_stay_right is not None:
        raise ArgumentError(f"gate: {text!r} asks for single docs; compare their scores directly")
    return gate


def _check_limits(gate: Gate, metric: Metric, now: Sequence[float], before: Sequence[float]) -> None:
    """Raise ArgumentError for a limit that always or never holds, by the declared range or for scores of 0 and 1."""
    if metric.range is None and all(score in (0, 1) for score in (*now, *before)):
        metric = replace(metric, declared_range=ScoreRange(0.0, 1.0))
    try:
        check_range(gate, [metric])
    except SettingError as error:
        raise ArgumentError(str(error)) from None


def _numbers(what: str, given: Iterable[Any]) -> list[float]:
    """Return finite numbers; raise ArgumentError with the place of the first one that is not."""
    found: list[float] = []
    if isinstance(given, str | bytes | Mapping | Set) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{what}: expected one number per doc, got a {type(given).__name__}")
    for place, item in enumerate(given):
        try:
            number = math.nan if isinstance(item, str | bytes) else float(item)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) < _GREATEST:
            raise ArgumentError(f"{what}[{place}]: expected a finite number, got {item!r}")
        found.append(number)
    if not found:
        raise ArgumentError(f"{what}: there are no scores")
    return found


def _range(
    given: tuple[float, float] | None, now: Sequence[float], before: Sequence[float] | None
) -> ScoreRange | None:
    if given is None:
        return None
    ends = _numbers("range", given)
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ArgumentError(f"range: expected (LEAST, GREATEST), got {given!r}")
    low, high = ends
    for what, scores in (("scores", now), ("baseline", before or ())):
        for place, score in enumerate(scores):
            if not low <= score <= high:
                raise ArgumentError(f"{what}[{place}]: {score:g} is outside of the range from {low:g} to {high:g}")
    return ScoreRange(low, high)


def _passages(clusters: Iterable[Hashable], n: int) -> list[str]:
    numbers: dict[Hashable, int] = {}
    try:
        found = [str(numbers.setdefault(cluster, len(numbers))) for cluster in clusters]
    except TypeError:
        raise ArgumentError("clusters: expected one hashable value per doc, such as a text or a number") from None
    if len(found) != n:
        raise ArgumentError(f"clusters: {len(found):,} clusters for {n:,} scores; each doc has one")
    return found


def _value(gate: Gate, scores: Sequence[float], clusters: Sequence[str] | None) -> MetricValue:
    mean, stderr = math.fsum(scores) / len(scores), standard_error(scores, clusters)
    return MetricValue(gate.metric, gate.filter or "none", mean, stderr, None, len(scores))


def _judgement(verdict: Verdict, value: float, baseline: float | None) -> Judgement:
    evidence = verdict.evidence
    return Judgement(
        verdict.outcome,
        value,
        baseline,
        evidence.interval,
        evidence.p,
        evidence.visible,
        verdict.sentence,
        verdict.text,
        verdict.numbers,
    )
