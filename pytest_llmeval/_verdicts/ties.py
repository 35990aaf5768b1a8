"""Flips that rounding explains: how far margins move when nothing but the rounding changes, and which flips lie below.

A model scores a doc a little differently when other docs share the pass, and more so in another dtype. Where two
choices are about as likely, that decides. So a probe of docs is scored again in other ways. The noise floor of a metric
is the move of a margin below which, with confidence .95, at least 90 % of the docs stay: one of the largest moves seen
(`noise_floor`), not the very largest, which a single odd doc decides. A flip (right before and wrong now, or the
reverse) is a tie if the margins of both picks, before and now, lie below the floor.

Rounding has no direction, and damage has. Ties that go one way (exact McNemar test, one-sided .05) are therefore none:
they count as the flips that they are, so that a small loss on many close calls cannot pass as rounding.

Ties matter where a confidence asks about questions like these: there they are neither lost nor gained. What was
observed is compared as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_llmeval import _stats
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.wording import number_text
from pytest_llmeval._verdicts.wording import p_text


#: The two-sided p below which ties go one way.
ONE_WAY = 0.1

#: Of the docs that move less than the floor: which share, and how sure that is.
SHARE, CONFIDENCE = 0.9, 0.95


def noise_floor(moves: Sequence[float]) -> float:
    """An upper bound, at confidence .95, on the .9 quantile of the moves of which these are a random sample.

    The k-th smallest with the least k for which ``P(Binomial(n, .9) < k) >= .95`` (Conover 1999, Practical
    Nonparametric Statistics, section 3.2): the third largest of 64, the largest of 29 to 45. Fewer than 29 docs give
    no such bound; it is then the largest, which is less, so that fewer flips are ties.
    """
    n, below = len(moves), 0.0
    for k, move in enumerate(sorted(moves), 1):
        below += math.comb(n, k - 1) * SHARE ** (k - 1) * (1 - SHARE) ** (n - k + 1)
        if below >= CONFIDENCE:
            return move
    return max(moves)


@dataclass(frozen=True, slots=True)
class Noise:
    """What a probe of `docs` docs of a task showed, each scored again in all of `ways`.

    `floors`: by metric that picks a choice the move of margins that is taken for rounding, in nats (of ``acc_norm``
    nats per character). `changed`: by ``metric,filter`` of 0/1 scores how many docs were not scored the same every
    time; this is all that is known where answers have no margin. `problem` says why there are no numbers.
    """

    docs: int = 0
    floors: Mapping[str, float] = NOTHING
    changed: Mapping[str, int] = NOTHING
    ways: Sequence[str] = ()
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if not self.docs:
            return "none: its answers have no margin, so none of its flips counts as a tie"
        facts = [f"{metric} {number_text(floor)}" for metric, floor in self.floors.items()] or ["no margins"]
        scores = [f"{key.removesuffix(',none')} of {count:,}" for key, count in self.changed.items()]
        return (
            f"{', '.join(facts)}; {self.docs:,} docs scored again ({'; '.join(self.ways)}), "
            f"which changed {' and '.join(scores) or 'no score'}"
        )

    def to_list(self) -> list[Any]:
        """Plain data, for another process."""
        return [self.docs, dict(self.floors), dict(self.changed), list(self.ways), self.problem]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Noise:
        return cls(*values)


@dataclass(frozen=True, slots=True)
class Ties:
    """The flips of a comparison under the noise floor. `count`: they are neither lost nor gained."""

    lost: int
    gained: int
    floors: tuple[float, ...]
    count: bool
    one_way: bool

    def __str__(self) -> str:
        shown = list(dict.fromkeys(map(number_text, (min(self.floors), max(self.floors)))))
        floor = f"the noise floor {shown[0]}" if len(shown) == 1 else f"the noise floors {' to '.join(shown)}"
        flips = self.lost + self.gained
        if not flips:
            return f"no flip lies under {floor}"
        what = f"{flips:,} flip{'s' * (flips > 1)} under {floor} ({self.lost:,} lost, {self.gained:,} gained)"
        if self.count:
            return f"{what} count{'s' * (flips == 1)} as {'a tie' if flips == 1 else 'ties'}"
        if self.one_way:
            p = _stats.mcnemar_p(self.lost, self.gained)
            return f"{what} go one way, which rounding does not ({p_text(p)}): they are no ties"
        return what


#: One side of a comparison: the docs of each task.
Side = Sequence[tuple[Task, Sequence[DocResult]]]


def find_ties(gate: Gate, value: MetricValue, noises: Sequence[Noise | None], before: Side, now: Side) -> Ties | None:
    """The ties among the flips of all tasks; None where no noise is known for this number."""
    floors = [noise.floors[value.metric] for noise in noises if noise and value.metric in noise.floors]
    if not floors:
        return None
    flips = [(_item(old, value), _item(new, value)) for old, new in _tied(value, noises, before, now)]
    up = sum(old < new for old, new in flips)
    lost, gained = len(flips) - up, up
    if value.higher_is_better is False:
        lost, gained = gained, lost
    one_way = _stats.mcnemar_p(lost, gained) < ONE_WAY
    asked = counts_ties(gate)
    return Ties(lost, gained, tuple(floors), asked and not one_way, asked and one_way)


def counts_ties(gate: Gate) -> bool:
    """Whether a gate asks for what flips show of other questions, not for what was observed."""
    return gate.confidence is not None and gate.scope == "population"


def no_floor(noises: Sequence[Noise | None]) -> str | None:
    """Why there is no noise floor where one was asked for."""
    problems = [noise.problem for noise in noises if noise is not None and noise.problem is not None]
    return f"there is no noise floor: {problems[0]}" if problems else None


def without_ties(value: MetricValue, noises: Sequence[Noise | None], before: Side, now: Side) -> Side:
    """The docs of now, those that are ties scored as before."""
    tied = {id(new): old for old, new in _tied(value, noises, before, now)}
    return [
        (task, [_scored_as(tied[id(result)], result, value) if id(result) in tied else result for result in results])
        for task, results in now
    ]


def no_margin(value: MetricValue, noises: Sequence[Noise | None]) -> str | None:
    """What a probe tells of 0/1 scores that have no margin; None if they have one, or nothing was probed."""
    probes = [noise for noise in noises if noise is not None and noise.problem is None]
    if not probes or any(value.metric in noise.floors for noise in probes):
        return None
    looked_at = [noise for noise in probes if value.key in noise.changed]
    seen = ""
    if looked_at:
        changed, docs = sum(noise.changed[value.key] for noise in looked_at), sum(noise.docs for noise in looked_at)
        seen = f" (scored again otherwise {changed:,} of {docs:,} docs changed)"
    return f"{value.metric} has no margin, none of its flips counts as a tie{seen}"


def _tied(
    value: MetricValue, noises: Sequence[Noise | None], before: Side, now: Side
) -> Iterator[tuple[DocResult, DocResult]]:
    for noise, (_, olds), (_, news) in zip(noises, before, now, strict=True):
        floor = noise.floors.get(value.metric) if noise else None
        if floor is None:
            continue
        for old, new in zip(olds, news, strict=True):
            scores = _item(old, value), _item(new, value)
            if scores in ((0, 1), (1, 0)) and _is_close(old, value, floor) and _is_close(new, value, floor):
                yield old, new


def _is_close(result: DocResult, value: MetricValue, floor: float) -> bool:
    margin = None if result.pick is None else result.pick.margin_by(value.metric)
    return margin is not None and margin < floor


def _item(result: DocResult, value: MetricValue) -> Any:
    return result.scores.get(value.filter, {}).get(value.metric)


def _scored_as(old: DocResult, new: DocResult, value: MetricValue) -> DocResult:
    items = {**new.scores[value.filter], value.metric: _item(old, value)}
    return replace(new, scores={**new.scores, value.filter: items})
