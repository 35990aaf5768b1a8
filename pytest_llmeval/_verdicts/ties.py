"""Flips that rounding explains: how far margins move when nothing but the rounding changes, and which flips lie below.

A model scores a doc a little differently when other docs share the pass, and more so in another dtype. Where two
choices are about as likely, that decides. So a probe of docs is scored again in other ways, and the noise floor of a
metric is the largest move of a margin seen there. A flip (right before and wrong now, or the reverse) is a tie if the
margins of both picks, before and now, lie below it.

The largest of N moves leaves room: with confidence .95 at most ``1 - .05 ** (1 / N)`` of the docs move further
(Wilks 1941, Annals of Mathematical Statistics 12, 91-96): 4.6 % for N = 64. A flip moves the margin by the sum of both
picks' margins, so a tie may have moved by up to twice the floor.

Rounding has no direction, and damage has. Ties that go one way (exact McNemar test, one-sided .05) are therefore none:
they count as the flips that they are, so that a small loss on many close calls cannot pass as rounding.

Ties matter where a confidence asks about questions like these: there they are neither lost nor gained. What was
observed is compared as it is.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Noise:
    """What a probe of `docs` docs of a task showed, each scored again in all of `ways`.

    `floors`: by metric that picks a choice the largest move of a margin, in nats (of ``acc_norm`` nats per
    character). `changed`: by ``metric,filter`` of 0/1 scores how many docs were not scored the same every time; this
    is all that is known where answers have no margin. `problem` says why there are no numbers.
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
    asked = gate.confidence is not None and gate.scope == "population"
    return Ties(lost, gained, tuple(floors), asked and not one_way, asked and one_way)


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
