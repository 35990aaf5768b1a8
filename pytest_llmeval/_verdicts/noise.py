"""The flips of a comparison that rounding may explain.

A model scores a doc a little differently when other docs share the pass, and more so in another dtype. Where two
choices are about as likely, that decides. So a probe of docs is scored again in other ways (`Noise`). The noise floor
of a metric is the move of a margin below which, with confidence .95, at least 90 % of the docs stay: one of the largest
moves seen (`noise_floor`), not the very largest, which a single odd doc decides. A flip (right before and wrong now, or
the reverse) is a noise flip if the margins of both picks, before and now, lie below the floor (`NoiseFlips`).

Noise flips may excuse and never acquit. All flips count for the bounds that a gate passes or fails by; a gate that
fails only because of its noise flips is inconclusive. If they could acquit, damage on close calls would pass: of 1,838
docs of which 10 % flip under the floor, a true drop on the margin's edge passed in 64 % of comparisons instead of 5.

Rounding has no direction, and damage has. Noise flips that go one way (exact McNemar test, one-sided .05) excuse
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import TypeAlias

from pytest_llmeval import _stats
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.sentence import number_text


#: The two-sided p below which noise flips go one way.
ONE_WAY = 0.1

#: The share of docs that move less than the floor, and the confidence of that.
SHARE, CONFIDENCE = 0.9, 0.95

#: One side of a comparison: the docs of each task.
Side: TypeAlias = Sequence[tuple[Task, Sequence[DocResult]]]


def noise_floor(moves: Sequence[float]) -> float:
    """Return an upper bound, at confidence .95, on the .9 quantile of the moves of which these are a random sample.

    The bound is the k-th smallest move with the least k for which ``P(Binomial(n, .9) < k) >= .95`` (Conover 1999,
    Practical Nonparametric Statistics, section 3.2): the third largest of 64, the largest of 29 to 45. Fewer than 29
    docs give no such bound; it is then the largest, which is less, so that fewer flips are noise flips.
    """
    from scipy.stats import quantile_test

    high = quantile_test(moves, p=SHARE, alternative="less").confidence_interval(CONFIDENCE).high
    return max(moves) if math.isnan(high) else float(high)


@dataclass(frozen=True, slots=True)
class Noise:
    """The result of rescoring `docs` docs of a task, each in all of `ways`.

    `floors`: by metric that picks a choice the noise floor of its margins, in nats (of ``acc_norm`` nats per
    character). `changed`: by ``metric,filter`` of 0/1 scores the number of docs that were not scored the same every
    time; this is all that is known where answers have no margin. `problem` is the reason why there are no numbers.
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
            return "none: its answers have no margin, so none of its flips can be distinguished from rounding"
        facts = [f"{metric} {number_text(floor)}" for metric, floor in self.floors.items()] or ["no margins"]
        scores = [f"{key.removesuffix(',none')} of {count:,}" for key, count in self.changed.items()]
        return (
            f"{', '.join(facts)}; {self.docs:,} docs scored again ({'; '.join(self.ways)}), "
            f"which changed {' and '.join(scores) or 'no score'}"
        )

    def to_list(self) -> list[Any]:
        """Return plain data, for another process."""
        return [self.docs, dict(self.floors), dict(self.changed), list(self.ways), self.problem]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Noise:
        return cls(*values)


@dataclass(frozen=True, slots=True)
class NoiseFlips:
    """The noise flips of a comparison: how many went each way, under which floors of its tasks.

    `now` holds all docs of now, those that are noise flips scored as before.
    """

    lost: int
    gained: int
    floors: tuple[float, ...]
    now: Side

    @property
    def count(self) -> int:
        return self.lost + self.gained

    @property
    def p_value(self) -> float:
        """The two-sided p of McNemar's exact test that they go neither way."""
        return _stats.mcnemar_p(self.lost, self.gained)

    @property
    def may_excuse(self) -> bool:
        """True where there are any and they do not go one way."""
        return self.count > 0 and self.p_value >= ONE_WAY

    def __str__(self) -> str:
        ends = list(dict.fromkeys(map(number_text, (min(self.floors), max(self.floors)))))
        floor = f"the noise floor{'s' * (len(ends) > 1)} {' to '.join(ends)}"
        if not self.count:
            return f"no flip lies under {floor}"
        return f"{self.count:,} flip{'s' * (self.count > 1)} under {floor} ({self.lost:,} lost, {self.gained:,} gained)"


def noise_flips(value: MetricValue, noise: Mapping[str, Noise], before: Side, now: Side) -> NoiseFlips | None:
    """Return the noise flips among the flips of all tasks; None where no noise floor is known for this metric."""
    floors = [one.floors[value.metric] for one in noise.values() if value.metric in one.floors]
    if not floors:
        return None
    flips = {id(new): old for old, new in _under_floors(value, noise, before, now)}
    gained = sum(_item(old, value) == (value.higher_is_better is False) for old in flips.values())
    settled = [
        (task, [_scored_as(flips[id(new)], new, value) if id(new) in flips else new for new in results])
        for task, results in now
    ]
    return NoiseFlips(len(flips) - gained, gained, tuple(floors), settled)


def noise_problem(noise: Mapping[str, Noise]) -> str | None:
    """Return why there is no noise floor where one was asked for; None if there is one, or nobody asked."""
    problems = [one.problem for one in noise.values() if one.problem is not None]
    return f"there is no noise floor: {problems[0]}" if problems else None


def without_margin(value: MetricValue, noise: Mapping[str, Noise]) -> str | None:
    """Return what a probe showed of 0/1 scores that have no margin; None if they have one, or nothing was probed."""
    probes = [one for one in noise.values() if one.problem is None]
    if not probes or any(value.metric in one.floors for one in probes):
        return None
    seen = ""
    if counted := [one for one in probes if value.key in one.changed]:
        changed, docs = sum(one.changed[value.key] for one in counted), sum(one.docs for one in counted)
        seen = f" (scored again otherwise {changed:,} of {docs:,} docs changed)"
    return f"{value.metric} has no margin, none of its flips can be distinguished from rounding{seen}"


def _under_floors(
    value: MetricValue, noise: Mapping[str, Noise], before: Side, now: Side
) -> Iterator[tuple[DocResult, DocResult]]:
    for (task, olds), (_, news) in zip(before, now, strict=True):
        floor = noise[task.name].floors.get(value.metric) if task.name in noise else None
        if floor is None:
            continue
        for old, new in zip(olds, news, strict=True):
            margins = [None if one.pick is None else one.pick.margin_by(value.metric) for one in (old, new)]
            close = all(margin is not None and margin < floor for margin in margins)
            if close and (_item(old, value), _item(new, value)) in ((0, 1), (1, 0)):
                yield old, new


def _item(result: DocResult, value: MetricValue) -> Any:
    return result.scores.get(value.filter, {}).get(value.metric)


def _scored_as(old: DocResult, new: DocResult, value: MetricValue) -> DocResult:
    items = {**new.scores[value.filter], value.metric: _item(old, value)}
    return replace(new, scores={**new.scores, value.filter: items})
