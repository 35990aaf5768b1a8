"""Families: gates that ask the same of several tasks, corrected for their number.

With 57 subjects and a confidence of .95 about three gates would fail by chance. Of the selected gates with one metric
and condition, those fail whose p-values a procedure rejects at ``1 - confidence``: any false alarm among them is then
no more likely than for a single gate. With `fdr`, false alarms are at most that share of all failures, on average.

- Gates of tasks, whose docs are independent draws: Holm's procedure, from three gates on without those that are on the
  safe side of their limits (`_stats.conditional_holm`); with `fdr`, the procedure of Benjamini and Hochberg.
- Gates of groups, whose docs are those of the tasks: a fifth of the error, by Holm's procedure, which needs no
  independence. More for groups would find hardly more of them, and fewer tasks.
- Several models answer the same docs, so their gates are not independent either: each model has an equal part of the
  error. The verdicts on one model therefore do not wait for the next.

Different tasks are taken to have different docs. Two tasks that ask the same questions in two ways are not independent;
with `rule`, and a rule for each of them, they are not in one family.

A pass needs no correction, because other gates do not make its error more likely. A gate that would fail alone but not
with its family is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_llmeval import _stats
from pytest_llmeval._verdicts.sentence import p_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


#: The share of the error that gates of groups have, where there are gates of tasks too.
_SHARE_OF_GROUPS = 0.2

#: Two gates lose by being conditioned: one of them has half of the error in any case.
_FEWEST_CONDITIONED = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A gate of a family: the `name` of its task or group, its verdict taken alone, and the `tasks` that it covers."""

    name: str
    verdict: Verdict
    tasks: frozenset[str]

    @property
    def p_value(self) -> float:
        """The probability of data at least this bad if the gate held; NaN if there is none, as without docs."""
        if (p := self.verdict.p_value) is not None or (p := self.verdict.evidence.p_worse) is not None:
            return p
        return 1.0 if self.verdict.outcome == "passed" else math.nan


def in_family(
    name: str, members: Sequence[Member], confidence: float, *, fdr: bool = False, models: int = 1
) -> Verdict:
    """Return the verdict of the member called `name`, corrected for the number of `members` and of `models`."""
    own = next(member for member in members if member.name == name)
    if own.verdict.p_value is None or len(members) * models < 2:
        return own.verdict
    independent = _independent(members)
    wide = [member for member in members if member not in independent]
    peers, error = (wide, _SHARE_OF_GROUPS) if own in wide else (independent, 1 - _SHARE_OF_GROUPS * bool(wide))
    p_values = {member.name: member.p_value for member in peers}
    alpha = (1 - confidence) * error / models
    how = f"correction over {len(peers)} gate" + "s" * (len(peers) > 1)
    if own in wide:
        how, rejected = f"Holm's {how} of groups", _stats.holm(p_values, alpha)
    elif fdr:
        how, rejected = f"the false discovery {how}", _stats.benjamini_hochberg(p_values, alpha)
    elif len(peers) < _FEWEST_CONDITIONED:
        how, rejected = f"Holm's {how}", _stats.holm(p_values, alpha)
    else:
        safe = sum(p > 0.5 for p in p_values.values())
        how = f"Holm's {how}" + (f", {safe} of them set aside as on the safe side" if safe else "")
        rejected = _stats.conditional_holm(p_values, alpha)
    shares = [f"{error:.0%} of the error"] * bool(wide) + [f"the error divided by {models} models"] * (models > 1)
    return in_company(own.verdict, ", ".join([how, *shares]), fails=name in rejected)


def in_company(alone: Verdict, how: str, *, fails: bool) -> Verdict:
    """Return a failure with its family considered: inconclusive unless it still `fails` with the correction `how`."""
    if fails or alone.p_value is None:
        return alone.adding(Fact("family", how))
    why = f"it would fail alone ({p_text(alone.p_value)} for its limit) but not with {how}"
    return replace(alone.adding(Fact("family", why)), outcome="inconclusive")


def _independent(members: Sequence[Member]) -> list[Member]:
    """Return members without a task in common, small ones first, so that groups give way to their tasks."""
    taken: set[str] = set()
    found = []
    for member in sorted(members, key=lambda member: (len(member.tasks), member.name)):
        if taken.isdisjoint(member.tasks):
            taken |= member.tasks
            found.append(member)
    return found
