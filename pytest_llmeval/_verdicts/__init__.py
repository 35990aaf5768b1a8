"""Verdicts on gates: the outcome of a gate, a headline, and the facts that led to the outcome.

    mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35

A gate passes only on finite numbers over all selected docs. It fails, with the reason, if anything is missing: docs,
the metric, a finite score, or a doc's partner in the baseline. A gate therefore never passes because data is missing.
Without a confidence the observed value decides. With a confidence a gate passes if its bound shows that it holds, fails
if its bound shows that it does not hold, and is otherwise inconclusive.

judging                     the verdict on a gate by its kind
observed, floor             gates on the observed value; floors and ceilings with a confidence
comparison, change, paired  gates against the baseline: docs paired, the change judged, a value before and now
nights                      the runs of many nights together
must_stay_right, noise      docs that must stay right; flips that rounding may explain
calibration                 the flips of an unchanged build, and how often it would fail a gate
family                      the correction for the number of gates
confirmation                failures whose docs are asked for again
sequential, series          early stopping: gates that are proven by a part of their docs
samples, estimate           one number per doc; bounds and p-values of a mean or a difference
gate_data                   the docs of a gate, and their partners in the baseline
verdict, sentence, telling  outcome and facts; the texts of numbers and docs; the most informative docs
prospect                    the lines before a run: which loss a gate would see, and whether it can pass
scores                      `pytest_llmeval.judge` on plain scores
"""

from __future__ import annotations

from pytest_llmeval._verdicts.calibration import GoodBuild
from pytest_llmeval._verdicts.calibration import good_builds_line
from pytest_llmeval._verdicts.confirmation import confirmed
from pytest_llmeval._verdicts.confirmation import fails_by_numbers
from pytest_llmeval._verdicts.confirmation import may_be_confirmed
from pytest_llmeval._verdicts.confirmation import not_confirmed
from pytest_llmeval._verdicts.confirmation import second_gate
from pytest_llmeval._verdicts.family import Member
from pytest_llmeval._verdicts.family import in_family
from pytest_llmeval._verdicts.gate_data import Changes
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import TaskData
from pytest_llmeval._verdicts.gate_data import changes_of_task
from pytest_llmeval._verdicts.judging import judge
from pytest_llmeval._verdicts.nights import over_nights
from pytest_llmeval._verdicts.noise import Noise
from pytest_llmeval._verdicts.noise import noise_floor
from pytest_llmeval._verdicts.observed import holds
from pytest_llmeval._verdicts.prospect import Planned
from pytest_llmeval._verdicts.prospect import prospects
from pytest_llmeval._verdicts.sequential import Proof
from pytest_llmeval._verdicts.sequential import asks_of_data_set
from pytest_llmeval._verdicts.sequential import can_be_proven
from pytest_llmeval._verdicts.sequential import errors_left
from pytest_llmeval._verdicts.sequential import errors_of
from pytest_llmeval._verdicts.sequential import final_verdict
from pytest_llmeval._verdicts.sequential import proof_of
from pytest_llmeval._verdicts.sequential import verdict_of_proof
from pytest_llmeval._verdicts.series import DocPlace
from pytest_llmeval._verdicts.verdict import Evidence
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict


__all__ = [
    "Changes",
    "DocPlace",
    "Evidence",
    "Fact",
    "GateData",
    "GoodBuild",
    "Member",
    "Noise",
    "Outcome",
    "Planned",
    "Proof",
    "TaskData",
    "Verdict",
    "asks_of_data_set",
    "can_be_proven",
    "changes_of_task",
    "confirmed",
    "errors_left",
    "errors_of",
    "fails_by_numbers",
    "final_verdict",
    "good_builds_line",
    "holds",
    "in_family",
    "judge",
    "may_be_confirmed",
    "noise_floor",
    "not_confirmed",
    "over_nights",
    "proof_of",
    "prospects",
    "second_gate",
    "verdict_of_proof",
]
