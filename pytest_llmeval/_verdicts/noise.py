"""Noise flips: the flips of a comparison that rounding may explain.

A model scores a doc slightly differently when other docs share its forward pass, and even more so in another dtype.
Where two choices are almost equally likely, this may change the answer. A sample of docs is therefore rescored in other
ways (`Noise`). The noise floor of a metric is an upper bound, at confidence .95, on the movement that 90 % of the
margins stay below (`noise_floor`); it is not the largest movement, which may come from one unusual doc. A flip (right
before and wrong now, or the reverse) is a noise flip if the margins before and now both lie below the floor
(`NoiseFlips`).

Noise flips can make a failed gate inconclusive but never make a gate pass, because all flips count for its bounds. If
they were left out, damage on close calls would pass: with 1,838 docs of which 10 % flip under the floor, a true drop
equal to the tolerance passed in 64 % of comparisons instead of 5 %. Rounding has no direction but damage has, so noise
flips that mostly go one way (exact McNemar test, one-sided .05) do not make a gate inconclusive.
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


#: The two-sided p-value below which noise flips have a direction.
ONE_WAY = 0.1

#: The share of docs whose margins move less than the noise floor, and the confidence of that statement.
SHARE, CONFIDENCE = 0.9, 0.95

#: One side of a comparison: the docs of each task.
Side: TypeAlias = Sequence[tuple[Task, Sequence[DocResult]]]


def noise_floor(moves: Sequence[float]) -> float:
    """Return an upper bound, at confidence .95, on the .9 quantile of moves, given a random sample of them.

    The bound is the k-th smallest move with the least k for which ``P(Binomial(n, .9) < k) >= .95`` (Conover 1999,
    Practical Nonparametric Statistics, section 3.2): the third largest of 64, the largest of 29 to 45. Fewer than 29
    docs give no such bound; the largest move is then returned, which is smaller, so that fewer flips are noise flips.
    """
    from scipy.stats import quantile_test

    high = quantile_test(moves, p=SHARE, alternative="less").confidence_interval(CONFIDENCE).high
    return max(moves) if math.isnan(high) else float(high)


@dataclass(frozen=True, slots=True)
class Noise:
    """The result of rescoring `docs` docs of a task in each of `ways`.

    `floors`: metric that picks a choice -> noise floor of its margins, in nats (for ``acc_norm`` in nats per
    character). `changed`: ``metric,filter`` of 0/1 scores -> number of docs whose score was not the same every time,
    also for answers without a margin. `problem` is the reason if there are no numbers.
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
        """Return plain data that can be sent to another process."""
        return [self.docs, dict(self.floors), dict(self.changed), list(self.ways), self.problem]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Noise:
        return cls(*values)


@dataclass(frozen=True, slots=True)
class NoiseFlips:
    """The noise flips of a comparison: the numbers `lost` and `gained`, and the noise `floors` of its tasks.

    `now` holds all docs of the run, with noise flips scored as in the baseline. `net` has the numbers of passages (docs
    without one) that gained and lost.
    """

    lost: int
    gained: int
    floors: tuple[float, ...]
    now: Side
    net: tuple[int, int]

    @property
    def count(self) -> int:
        return self.lost + self.gained

    @property
    def p_value(self) -> float:
        """The two-sided p-value that losses and gains are equally likely: McNemar's exact test, on passages."""
        up, down = self.net
        return _stats.mcnemar_p(down, up)

    @property
    def may_excuse(self) -> bool:
        """True if there are noise flips and they have no direction."""
        return self.count > 0 and self.p_value >= ONE_WAY

    def __str__(self) -> str:
        ends = list(dict.fromkeys(map(number_text, (min(self.floors), max(self.floors)))))
        floor = f"the noise floor{'s' * (len(ends) > 1)} {' to '.join(ends)}"
        if not self.count:
            return f"no flip lies under {floor}"
        return f"{self.count:,} flip{'s' * (self.count > 1)} under {floor} ({self.lost:,} lost, {self.gained:,} gained)"


def noise_flips(value: MetricValue, noise: Mapping[str, Noise], before: Side, now: Side) -> NoiseFlips | None:
    """Return the noise flips of all tasks; None if the metric has no noise floor."""
    floors = [one.floors[value.metric] for one in noise.values() if value.metric in one.floors]
    if not floors:
        return None
    found = list(_under_floors(value, noise, before, now))
    flips = {id(new): old for _, old, new in found}
    worse_is_up = value.higher_is_better is False
    gains = [1 if (_item(old, value) == 1) is worse_is_up else -1 for _, old, new in found]
    clusters = [(task.name, new.key.cluster if new.key and new.key.cluster else new.doc) for task, _, new in found]
    settled = [
        (task, [_scored_as(flips[id(new)], new, value) if id(new) in flips else new for new in results])
        for task, results in now
    ]
    return NoiseFlips(gains.count(-1), gains.count(1), tuple(floors), settled, _stats.net_moves(gains, clusters))


def noise_problem(noise: Mapping[str, Noise]) -> str | None:
    """Return the reason why no noise floor could be measured; None if there is none."""
    problems = [one.problem for one in noise.values() if one.problem is not None]
    return f"there is no noise floor: {problems[0]}" if problems else None


def without_margin(value: MetricValue, noise: Mapping[str, Noise]) -> str | None:
    """Return the noise of 0/1 scores without a margin, in words; None if they have one, or none was measured."""
    probes = [one for one in noise.values() if one.problem is None]
    if not probes or any(value.metric in one.floors for one in probes):
        return None
    seen = ""
    if counted := [one for one in probes if value.key in one.changed]:
        changed, docs = sum(one.changed[value.key] for one in counted), sum(one.docs for one in counted)
        seen = f" ({changed:,} of {docs:,} rescored docs changed)"
    return f"{value.metric} has no margin, so none of its flips can be distinguished from rounding{seen}"


def _under_floors(
    value: MetricValue, noise: Mapping[str, Noise], before: Side, now: Side
) -> Iterator[tuple[Task, DocResult, DocResult]]:
    for (task, olds), (_, news) in zip(before, now, strict=True):
        floor = noise[task.name].floors.get(value.metric) if task.name in noise else None
        if floor is None:
            continue
        for old, new in zip(olds, news, strict=True):
            margins = [None if one.pick is None else one.pick.margin_by(value.metric) for one in (old, new)]
            close = all(margin is not None and margin < floor for margin in margins)
            if close and (_item(old, value), _item(new, value)) in ((0, 1), (1, 0)):
                yield task, old, new


def _item(result: DocResult, value: MetricValue) -> Any:
    return result.scores.get(value.filter, {}).get(value.metric)


def _scored_as(old: DocResult, new: DocResult, value: MetricValue) -> DocResult:
    items = {**new.scores[value.filter], value.metric: _item(old, value)}
    return replace(new, scores={**new.scores, value.filter: items})
