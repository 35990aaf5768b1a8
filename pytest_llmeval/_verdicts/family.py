"""Gates that one rule gives to several tasks: together they raise false alarms no more often than one alone.

With 57 subjects and a confidence of .95 three gates would fail by chance. So of gates of one rule those fail whose
p-values Holm's procedure rejects at ``1 - confidence``, all of the family's gates that were selected in this run
counted. Where the rule also gates groups that hold these tasks, half of the error goes to a closed procedure down that
tree, in which a task can fail only below groups that fail: it costs less than Holm where a fault is spread over a
group, and alone it would miss a single bad task, which hardly moves the groups above (`perf/verdict_study.py`).

A gate that passes needs no correction: its error is its own and is not made more likely by its siblings. One that
would fail alone and does not in its family is inconclusive.
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
    """Return the verdict of the member of that name, with all of its family considered."""
    own = next(member.verdict for member in members if member.name == name)
    if own.p_value is None or len(members) < 2:
        return own
    p_values = {member.name: 1.0 if (p := member.verdict.p_value) is None else p for member in members}
    parents = {member.name: _parent(member, members) for member in members}
    alpha = 1 - confidence
    if any(parents.values()):
        how = f"Holm and the tree over {len(members)} gates"
        rejected = _stats.holm(p_values, alpha / 2) | _stats.closed_tree(p_values, parents, alpha / 2)
    else:
        how, rejected = f"Holm over {len(members)} gates", _stats.holm(p_values, alpha)
    return in_company(own, how, fails=name in rejected)


def in_company(alone: Verdict, how: str, *, fails: bool) -> Verdict:
    """Return a failure among others that share its error: inconclusive unless it still fails. `how` they share it."""
    if fails or alone.p_value is None:
        return alone.adding(Fact("family", how))
    why = f"alone it would fail ({p_text(alone.p_value)} for its margin), {how} it does not"
    return replace(alone.adding(Fact("family", why)), outcome="inconclusive")


def _parent(member: Member, members: Sequence[Member]) -> str | None:
    """Return the smallest member that covers all of a member's tasks and more."""
    above = [other for other in members if other.tasks > member.tasks]
    return min(above, key=lambda other: len(other.tasks)).name if above else None
