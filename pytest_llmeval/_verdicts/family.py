"""Families: the gates that one rule gives to several tasks, corrected for their number.

With 57 subjects and a confidence of .95 about three gates would fail by chance. Of the selected gates of one rule,
those fail whose p-values Holm's procedure rejects at ``1 - confidence``: any false alarm among them is no more likely
than for a single gate. Where the rule also applies to groups that contain these tasks, half of the error goes to a
closed test along the group hierarchy, in which a task can fail only below groups that fail. It detects more than Holm
where a fault is spread over a group, but alone it would miss a single bad task (`perf/verdict_study.py`).

A pass needs no correction, because other gates do not make its error more likely. A gate that would fail alone but not
with its family is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_llmeval import _stats
from pytest_llmeval._verdicts.sentence import p_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Member:
    """A gate of a family: the `name` of its task or group, its verdict taken alone, and the `tasks` that it covers."""

    name: str
    verdict: Verdict
    tasks: frozenset[str]


def in_family(name: str, members: Sequence[Member], confidence: float) -> Verdict:
    """Return the verdict of the member called `name`, corrected for the number of `members`."""
    own = next(member.verdict for member in members if member.name == name)
    if own.p_value is None or len(members) < 2:
        return own
    p_values = {member.name: 1.0 if (p := member.verdict.p_value) is None else p for member in members}
    parents = {member.name: _parent(member, members) for member in members}
    alpha = 1 - confidence
    if any(parents.values()):
        how = f"Holm's and the hierarchical correction over {len(members)} gates"
        rejected = _stats.holm(p_values, alpha / 2) | _stats.closed_tree(p_values, parents, alpha / 2)
    else:
        how, rejected = f"Holm's correction over {len(members)} gates", _stats.holm(p_values, alpha)
    return in_company(own, how, fails=name in rejected)


def in_company(alone: Verdict, how: str, *, fails: bool) -> Verdict:
    """Return a failure with its family considered: inconclusive unless it still `fails` with the correction `how`."""
    if fails or alone.p_value is None:
        return alone.adding(Fact("family", how))
    why = f"it would fail alone ({p_text(alone.p_value)} for its limit) but not with {how}"
    return replace(alone.adding(Fact("family", why)), outcome="inconclusive")


def _parent(member: Member, members: Sequence[Member]) -> str | None:
    """Return the name of the smallest member that covers all of a member's tasks and others; None if there is none."""
    above = [other for other in members if other.tasks > member.tasks]
    return min(above, key=lambda other: len(other.tasks)).name if above else None
