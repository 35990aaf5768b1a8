"""Judging: a gate and the numbers it asks for become an outcome and the sentence that says why.

    mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35

A gate passes only on finite numbers that rest on every doc asked for. Whatever is missing (docs, the metric, an
answer that is a number, a doc's partner in the baseline) fails it, each with its own sentence: there is no way to
pass for lack of data. Without a confidence the observed value decides. With one a gate passes when its bound shows
that it holds, fails when its bound shows that it does not, and is inconclusive between.
"""

from __future__ import annotations

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.changes import Changes
from pytest_llmeval._verdicts.changes import changes_of_task
from pytest_llmeval._verdicts.comparisons import judge_change
from pytest_llmeval._verdicts.early import at_half_error
from pytest_llmeval._verdicts.early import errors_of
from pytest_llmeval._verdicts.early import final_verdict
from pytest_llmeval._verdicts.early import verdict_of_proof
from pytest_llmeval._verdicts.early import with_proof
from pytest_llmeval._verdicts.families import Member
from pytest_llmeval._verdicts.families import in_family
from pytest_llmeval._verdicts.floors import judge_floor
from pytest_llmeval._verdicts.must_stay_right import judge_must_stay_right
from pytest_llmeval._verdicts.observed import holds
from pytest_llmeval._verdicts.observed import lack_of_data
from pytest_llmeval._verdicts.observed import no_metric
from pytest_llmeval._verdicts.observed import no_number
from pytest_llmeval._verdicts.observed import numbers_of
from pytest_llmeval._verdicts.observed import observe
from pytest_llmeval._verdicts.observed import sentence_of
from pytest_llmeval._verdicts.proofs import Proof
from pytest_llmeval._verdicts.proofs import asks_of_data_set
from pytest_llmeval._verdicts.proofs import can_be_proven
from pytest_llmeval._verdicts.proofs import proof_of
from pytest_llmeval._verdicts.proofs import summary_of
from pytest_llmeval._verdicts.series import Place
from pytest_llmeval._verdicts.ties import Noise
from pytest_llmeval._verdicts.ties import noise_floor
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import TaskData
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.wording import required


__all__ = [
    "Changes",
    "GateData",
    "Member",
    "Noise",
    "Outcome",
    "Place",
    "Proof",
    "TaskData",
    "Verdict",
    "asks_of_data_set",
    "at_half_error",
    "can_be_proven",
    "changes_of_task",
    "errors_of",
    "final_verdict",
    "holds",
    "in_family",
    "judge",
    "noise_floor",
    "proof_of",
    "summary_of",
    "verdict_of_proof",
    "with_proof",
]


def judge(
    gate: Gate, summary: Summary | None, *, missing: str | None = None, evidence: GateData | None = None
) -> Verdict:
    """Whether the numbers of a task or group meet a gate, taken by itself (`in_family` for gates that go together).

    `summary` None: there are no numbers at all. `missing` says which of the docs asked for have no result; a limit
    is no lack, the sentence then says ``on 100 of 1,221 docs``. `evidence` holds the docs themselves: gates with a
    confidence, and those against a baseline, fail without it.
    """
    if summary is None:
        return Verdict("failed", f"{gate.key} {required(gate)}: {missing or 'no docs were evaluated'}")
    reason = lack_of_data(summary, missing)
    found = summary.find(gate.metric, gate.filter)
    if len(found) != 1:
        return Verdict("failed", f"{summary.name}: {reason or no_metric(gate, summary)}")
    (value,) = found
    if reason := reason or no_number(value):
        numbers = numbers_of(gate, summary, value)
        return Verdict("failed", f"{sentence_of(gate, summary, value)}; {reason}", numbers)
    if not gate.compares and gate.confidence is None:
        return observe(gate, summary, value)
    if evidence is None:
        return Verdict("failed", f"{sentence_of(gate, summary, value)}; its docs are not known")
    if gate.must_stay_right is not None:
        return judge_must_stay_right(gate, gate.must_stay_right, summary, value, evidence)
    if gate.change is not None:
        return judge_change(gate, gate.change, summary, value, evidence)
    return judge_floor(gate, gate.confidence or 0.5, value, evidence, observe(gate, summary, value))
