"""The prospects of gates with a confidence: can they pass on so few docs, and which loss would they see?

    gate[acc] of capitals: cannot pass on 75 docs even if all are right: >= 0.98 at 95 % confidence needs 149
    acc >= baseline - 0.02 at 95 % confidence: a true fall of 0.1342 on 75 docs would fail in 80 % of runs, if 5 % of
    the docs flip anyway (a guess)

Only of metrics whose scores are surely 0 and 1. Where the baseline is calibrated, its flips take the
place of the guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval import _stats
from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import listed
from pytest_llmeval._verdicts.calibration import GoodBuild
from pytest_llmeval._verdicts.sentence import condition
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import percent_text


#: Metrics of 0/1 scores, all of them better if higher.
_RIGHT_OR_WRONG = frozenset({"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"})

#: The share of docs taken to flip although nothing changed, about that of another batch size or 16-bit weights.
_GUESSED_FLIPS = 0.05


@dataclass(frozen=True, slots=True)
class Planned:
    """A gate before its run: its `name` in reports, the number of docs, and the number of gates of its family.

    `good` is the good build of the baseline, if that is calibrated for these docs.
    """

    name: str
    gate: Gate
    docs: int
    members: int = 1
    good: GoodBuild | None = None

    @property
    def error(self) -> float:
        return 1 - (self.gate.confidence or 0.0)

    @property
    def allowed(self) -> float | None:
        """The allowed loss in accuracy; None if the gate limits none, or one that depends on the baseline's value."""
        change = self.gate.change
        if change is None or change.relative or not change.operator.startswith(">") or change.offset > 0:
            return None
        return -float(change.offset)

    @property
    def needed(self) -> float:
        """The least number of docs on which the gate can pass, without gains if a loss is allowed; 0 if not known."""
        if self.allowed:
            return _stats.docs_to_pass(self.allowed, self.error)
        floors = [bound.value for bound in self.gate.bounds if bound.operator.startswith(">")]
        return max((_stats.docs_to_pass_floor(floor, self.error) for floor in floors), default=0)


def prospects(gates: Iterable[Planned]) -> Iterator[str]:
    """Yield a line for each condition that cannot be met, and one for the loss that each comparison would see."""
    conditions: dict[tuple[str, int, bool], list[Planned]] = {}
    for one in gates:
        gate = one.gate
        if gate.metric in _RIGHT_OR_WRONG and gate.confidence and gate.scope == "population" and one.docs:
            asked = f"{gate.key} {condition(gate)}"
            conditions.setdefault((asked, one.members, one.good is not None), []).append(one)
    for (text, members, _), alike in conditions.items():
        needed = alike[0].needed
        if short := [one for one in alike if one.docs < needed]:
            yield _short(short, text, needed)
        if alike[0].allowed is not None:
            yield _seen(alike, text, members, alike[0].allowed)


def _short(gates: Sequence[Planned], text: str, needed: float) -> str:
    most = docs_text(max(one.docs for one in gates))
    names = listed((one.name for one in gates), 3)
    if math.isinf(needed):
        return f"{names}: can never pass: no number of docs shows {text}"
    best = "without gains" if gates[0].gate.change else "even if all are right"
    return f"{names}: cannot pass on {most} {best}: {text} needs {docs_text(int(needed))}"


def _seen(gates: Sequence[Planned], text: str, members: int, allowed: float) -> str:
    """Return the loss that gates of one condition would see, on the fewest and on the most docs."""
    ends = {one.docs: one for one in (min(gates, key=_docs_of), max(gates, key=_docs_of))}
    error = gates[0].error / members
    drops = [
        one.good.visible_drop(error, allowed)
        if one.good
        else _stats.detectable_drop(n, _GUESSED_FLIPS, error, margin=allowed)
        for n, one in ends.items()
    ]
    found = [
        f"a true fall of {number_text(drop)} on {docs_text(n)}" if math.isfinite(drop) else f"no fall on {docs_text(n)}"
        for n, drop in zip(ends, drops, strict=True)
    ]
    family = f", and no other of its {members} gates fails" if members > 1 else ""
    flips = f"if {percent_text(_GUESSED_FLIPS)} of the docs flip anyway (a guess)"
    if measured := [one.good for one in ends.values() if one.good]:
        shares = " and ".join(dict.fromkeys(f"{100 * good.flips / good.loss.docs:.2g} %" for good in measured))
        flips = f"as {shares} of the docs flip anyway (measured in {min(good.runs for good in measured)} runs)"
    return f"{text}: {' and '.join(found)} would fail in 80 % of runs, {flips}{family}"


def _docs_of(gate: Planned) -> int:
    return gate.docs
