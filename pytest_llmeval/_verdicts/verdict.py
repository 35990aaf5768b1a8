"""The verdict on a gate: an outcome, a headline that stands alone, and the labelled facts that led to it.

    capitals: acc 0.2400, was 1.0000: fell by 0.7600, allowed 0.02 at 95 % confidence
      change    between -0.8389 and -0.6650 (each bound holds at 95 %)
      docs      75 docs compared: 57 lost, 0 gained
      noise     p < 0.0001 for a fall beyond 0.02
      family    Holm's correction over 6 gates, 4 of them set aside as on the safe side

`Verdict.text` is the text above, `Verdict.sentence` one line with the facts that matter most. Facts are added one by
one and joined only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._stats import Interval
from pytest_llmeval._task import NOTHING


#: `inconclusive`: the data do not decide the gate at its confidence. A gate on the observed value is never so.
Outcome: TypeAlias = Literal["passed", "failed", "inconclusive"]

#: The subjects of facts. Facts are shown in this order, independent of the order in which they were added.
Label: TypeAlias = Literal[
    "reason",
    "value",
    "change",
    "docs",
    "noise",
    "confirm",
    "proof",
    "family",
    "nights",
    "power",
    "needs",
    "rounding",
    "calibration",
    "range",
    "certain",
    "limit",
    "sample",
    "caution",
    "most informative docs",
    "next",
]
_ORDER = {label: place for place, label in enumerate(Label.__args__)}  # type: ignore[attr-defined]

#: The labels whose facts are in the one-line form too; their texts can be understood without the label.
_BRIEF: frozenset[Label] = frozenset(
    {"reason", "docs", "noise", "confirm", "proof", "family", "needs", "sample", "caution"}
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact behind an outcome: a labelled clause, or several `lines`."""

    label: Label
    text: str = ""
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the fact as a part of the one-line form."""
        if self.label in _BRIEF:
            return self.text
        return f"{self.label}: {self.text or '; '.join(self.lines)}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The statistics of a gate: bounds on its value, or on the change of its value, and p-values for its limit.

    `p_worse` is the probability of data at least this bad if the gate held, None for a pass; `p_better` that of data at
    least this good if it did not hold, None for a failure. Both are None if there are no bounds. `visible` is the
    smallest true loss that fails the gate in 80 % of runs.
    """

    interval: Interval | None = None
    p_worse: float | None = None
    p_better: float | None = None
    visible: float | None = None

    @property
    def p(self) -> float | None:
        """The p-value of the outcome: that of a pass, else that of a failure."""
        return self.p_better if self.p_worse is None else self.p_worse


#: The evidence of a gate that is judged without bounds.
NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a gate and the facts that led to it.

    `headline` is one line with the task, the value and the condition of the gate. `numbers` are the numbers of the
    facts, under their names in JUnit files and result files. `p_value` is set only if a gate with a confidence fails on
    its numbers: the probability of data at least this bad if the gate held.
    """

    outcome: Outcome
    headline: str
    numbers: Mapping[str, float | int] = NOTHING
    facts: tuple[Fact, ...] = ()
    p_value: float | None = None
    evidence: Evidence = NO_EVIDENCE

    @property
    def sentence(self) -> str:
        """The headline and the facts that matter most, in one line.

        An inconclusive gate adds the docs that would decide it or, where these are not known, the loss that it can see.
        """
        labels = {fact.label for fact in self.facts}
        adds_power = self.outcome == "inconclusive" and "needs" not in labels
        brief = [fact for fact in self.facts if fact.label in _BRIEF or (adds_power and fact.label == "power")]
        return "; ".join([self.headline, *(fact.text if fact.label == "power" else str(fact) for fact in brief)])

    @property
    def full_sentence(self) -> str:
        """The headline and all facts, in one line."""
        return "; ".join([self.headline, *map(str, self.facts)])

    @property
    def text(self) -> str:
        """The headline and below it all facts, each in one or several lines."""
        lines = [self.headline]
        for fact in self.facts:
            lines.append(f"  {fact.label:<8}  {fact.text}".rstrip())
            lines += [f"    {line}" for line in fact.lines]
        return "\n".join(lines)

    def adding(self, *facts: Fact | None) -> Verdict:
        """Return the verdict with more facts, without those that are None, in the order of labels."""
        together = [*self.facts, *(fact for fact in facts if fact is not None)]
        return replace(self, facts=tuple(sorted(together, key=lambda fact: _ORDER[fact.label])))


def fact(label: Label, text: object) -> Fact | None:
    """Return a fact; None if `text` is not a text or is empty."""
    return Fact(label, text) if isinstance(text, str) and text else None
