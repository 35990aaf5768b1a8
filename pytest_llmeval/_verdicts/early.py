"""The verdicts of a run that stops early: of gates that were proven, and of those that needed every doc.

piqa: acc 0.6875 +- 0.0290 on 256 of 1,838 docs, required >= 0.6 @ 0.95; proven after 212 of 1,838 docs at 95 %
"""

from __future__ import annotations

from dataclasses import replace

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.comparisons import compared_of
from pytest_llmeval._verdicts.comparisons import seen_so_far
from pytest_llmeval._verdicts.observed import observe
from pytest_llmeval._verdicts.pairs import pairs_of
from pytest_llmeval._verdicts.proofs import Errors
from pytest_llmeval._verdicts.proofs import Proof
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.wording import level_text
from pytest_llmeval._verdicts.wording import p_text


def errors_of(gate: Gate, members: int, stop_confidence: float, *, until_the_end: bool) -> Errors:
    """The errors of a gate's tests. `members`: how many gates share the error of a wrong failure.

    `until_the_end`: the test decides at the last doc whatever comes, so nothing is kept for another judgement then.
    """
    error = 1 - (stop_confidence if gate.confidence is None else gate.confidence)
    spent = error if until_the_end else error / 2
    return Errors(spent, spent / members)


def verdict_of_proof(gate: Gate, proof: Proof, summary: Summary, evidence: GateData) -> Verdict:
    """The verdict that a proof gives, with the numbers of the docs that it was found in."""
    (value,) = summary.find(gate.metric, gate.filter)
    verdict = observe(gate, summary, value)
    if gate.change is not None and not isinstance(pairs := pairs_of(replace(evidence, drawn="random"), value), str):
        verdict = seen_so_far(gate, proof.outcome, summary, compared_of(gate, pairs, evidence, value))
    return replace(verdict, outcome=proof.outcome)


def with_proof(verdict: Verdict, proof: Proof) -> Verdict:
    """The verdict with what was proven at the end of its sentence, and in its numbers."""
    told = replace(verdict, numbers={**verdict.numbers, "proven_after": proof.after}, p_value=None)
    return told.adding(str(proof))


def at_half_error(gate: Gate) -> Gate:
    """The gate as it is judged after the last doc, at the half of its error that was kept."""
    if gate.confidence is None:
        return gate
    return replace(gate, confidence=_half(gate.confidence), written=gate.confidence)


def _half(confidence: float) -> float:
    return 1 - (1 - confidence) / 2


def final_verdict(verdict: Verdict, gate: Gate, members: int, *, looked: bool) -> Verdict:
    """A verdict over all docs, given what was spent: `looked` if tests went before, `members` share the error."""
    if gate.confidence is None:
        return verdict
    error = (1 - gate.confidence) / (2 if looked else 1)
    if looked:
        at, spent = level_text(_half(gate.confidence)), level_text(gate.confidence)
        verdict = verdict.adding(f"judged at {at}, as half of the error of {spent} went into looking early")
    if members < 2 or verdict.p_value is None:
        return verdict
    how = f"its error shared by {members} gates"
    if verdict.p_value <= error / members:
        return verdict.adding(how)
    alone = f"alone it would fail ({p_text(verdict.p_value)} for its margin), {how} it does not"
    return replace(verdict.adding(alone), outcome="inconclusive")
