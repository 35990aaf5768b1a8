"""Failures of comparisons that are confirmed by asking for all of their docs again (`--llmeval-confirm`).

    confirm   3 of 9 losses and 2 of 2 gains recur when 100 docs are answered again (float32), beside 1 loss and 1 gain
              that are new; the second answers do not show a fall (p = 0.52), so the gate is inconclusive

A gate fails only if both looks show a loss: the first one beyond the margin, at the error that the gate's family
leaves, the second one any loss at all, at the gate's own error. An intersection of two rejections is no more likely
than the first of them, so no error of a failure grows, whatever the second look is (a false discovery rate is that of
the first looks). A failure that is not confirmed is inconclusive: the second look never makes a gate pass.

All docs are asked for again, not only those that changed. A doc whose answers vary is right with some chance q. Of docs
with q = .9, a tenth were wrong the first time, and nine tenths of those will be right the second time, also if q fell
from .95 to .9: losses are found in the docs that the model knows, so they are undone more often than gains are,
whether there was damage or not. No estimate of the drop from the docs that flipped alone is unbiased for all q, except
that of the first look. With 1,221 docs of accuracy .9, 15 % of which flip by themselves, a gate without a margin would
find a drop of .05 in 24 % of runs instead of 99 % (0 % if it lies on all docs alike). Answers to all docs are a second
draw from the same chances: given these and the baseline both looks are equally likely to fail the gate, so both do so
at least as often as the square of one (Jensen's inequality), while a good build without a margin fails in 1 % instead
of 5 % (`confirmed_losses` in perf/verdict_study.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace
from fractions import Fraction

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.paired import directed
from pytest_llmeval._verdicts.sentence import change_shown
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.sentence import p_text
from pytest_llmeval._verdicts.telling import is_right
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


def may_be_confirmed(gate: Gate) -> bool:
    """Return True for a comparison with a confidence."""
    return gate.change is not None and gate.confidence is not None


def fails_by_numbers(verdict: Verdict) -> bool:
    """Return True for a failure that does not come from missing docs, answers or baselines."""
    return verdict.outcome == "failed" and _reason(verdict) is None


def second_gate(gate: Gate) -> Gate:
    """Return the gate of the second look, which allows no loss; where a gain is required, the same is required."""
    change = gate.change
    if change is None:
        return gate
    keep = max if change.operator.startswith(">") else min
    return replace(gate, change=replace(change, offset=keep(change.offset, Fraction(0))))


def confirmed(gate: Gate, verdict: Verdict, second: Verdict, first: GateData, again: GateData, way: str) -> Verdict:
    """Return a failure with the second look at it considered: inconclusive unless that is a failure too.

    `gate` is that of the second look and `second` its verdict, `first` and `again` are the docs of the two looks, and
    `way` is the way in which the model answered again, empty if it was asked as it is. If the second look has no
    verdict on its numbers, the failure stands.
    """
    why = _reason(second)
    if second.outcome == "failed" and why:
        return not_confirmed(verdict, why)
    recurring, p = Recurring.of(gate, first, again), second.evidence.p_worse
    numbers = {**verdict.numbers, **recurring.numbers, **({} if p is None else {"p_again": p})}
    why = why or (p_text(p) if p is not None else "")
    shown, why = _shown(gate), f" ({why})" if why else ""
    looks = f"{recurring}{f' ({way})' if way else ''}{recurring.others}; the second answers"
    verdict = replace(verdict, numbers=numbers)
    if second.outcome == "failed":
        return verdict.adding(Fact("confirm", f"{looks} show {shown} too{why}"))
    verdict = replace(verdict, outcome="inconclusive", p_value=None)
    return verdict.adding(Fact("confirm", f"{looks} do not show {shown}{why}, so the gate is inconclusive"))


def not_confirmed(verdict: Verdict, reason: str) -> Verdict:
    """Return a failure that stands because its docs could not be answered again, with the reason."""
    return verdict.adding(Fact("confirm", f"not confirmed, because the docs could not be answered again: {reason}"))


@dataclass(frozen=True, slots=True)
class Recurring:
    """The docs whose 0/1 score changed since the baseline, of `docs` docs that were answered twice.

    `lost` and `gained`: the first time; `lost_twice` and `gained_twice`: both times; `lost_then` and `gained_then`:
    only the second time. `flips`: the scores are 0 or 1, else there are no counts.
    """

    docs: int
    flips: bool
    lost: int = 0
    gained: int = 0
    lost_twice: int = 0
    gained_twice: int = 0
    lost_then: int = 0
    gained_then: int = 0

    @classmethod
    def of(cls, gate: Gate, first: GateData, again: GateData) -> Recurring:
        value, *_ = first.summary().find(gate.metric, gate.filter)
        value = directed(gate, value)
        one, two = _moves(value, first), _moves(value, again)
        both = [(one[place], two[place]) for place in one.keys() & two.keys()]
        pairs = [(move, then) for move, then in both if move is not None and then is not None]
        if len(pairs) < len(both):
            return cls(len(both), flips=False)
        losses, gains = ([then for move, then in pairs if move == way] for way in (-1, 1))
        return cls(
            docs=len(both),
            flips=True,
            lost=len(losses),
            gained=len(gains),
            lost_twice=losses.count(-1),
            gained_twice=gains.count(1),
            lost_then=sum(then < 0 <= move for move, then in pairs),
            gained_then=sum(then > 0 >= move for move, then in pairs),
        )

    def __str__(self) -> str:
        asked = f"{docs_text(self.docs)} {'is' if self.docs == 1 else 'are'} answered again"
        if not self.flips:
            return asked
        return (
            f"{self.lost_twice:,} of {_many(self.lost, 'loss', 'losses')} and {self.gained_twice:,} of "
            f"{_many(self.gained, 'gain', 'gains')} recur when {asked}"
        )

    @property
    def others(self) -> str:
        """The docs that changed the second time only, in words; empty if there are none."""
        if not self.lost_then + self.gained_then:
            return ""
        lost, gained = _many(self.lost_then, "loss", "losses"), _many(self.gained_then, "gain", "gains")
        return f", beside {lost} and {gained} that are new"

    @property
    def numbers(self) -> dict[str, int]:
        """The counts under their names in reports."""
        counts = {
            "lost_twice": self.lost_twice,
            "gained_twice": self.gained_twice,
            "lost_then": self.lost_then,
            "gained_then": self.gained_then,
        }
        return {"docs_again": self.docs, **(counts if self.flips else {})}


def _moves(value: MetricValue, data: GateData) -> dict[tuple[str, int], int | None]:
    """Return, for each doc, 1 if it became right, -1 if wrong, else 0; None if its score is not 0 or 1."""
    found: dict[tuple[str, int], int | None] = {}
    for one in data.tasks:
        for old, new in zip(*one.paired_results(), strict=True):
            before, now = is_right(old, value), is_right(new, value)
            found[one.task.name, new.doc] = None if before is None or now is None else now - before
    return found


def _shown(gate: Gate) -> str:
    """Return the loss that the second look would show: ``a fall``."""
    return "" if gate.change is None else change_shown(gate.change, above=not gate.change.operator.startswith(">"))


def _reason(verdict: Verdict) -> str | None:
    """Return the reason that a verdict states instead of its numbers; None if it states none."""
    return next((fact.text for fact in verdict.facts if fact.label == "reason"), None)


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
