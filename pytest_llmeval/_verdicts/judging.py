"""The verdict on a gate, by its kind: floor, change, or docs that must stay right."""

from __future__ import annotations

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.calibration import with_good_build
from pytest_llmeval._verdicts.comparison import judge_comparison
from pytest_llmeval._verdicts.distance import judge_distance
from pytest_llmeval._verdicts.floor import judge_floor
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.must_stay_right import judge_must_stay_right
from pytest_llmeval._verdicts.observed import headline_of_value
from pytest_llmeval._verdicts.observed import judge_observed
from pytest_llmeval._verdicts.observed import lack_of_data
from pytest_llmeval._verdicts.observed import no_metric
from pytest_llmeval._verdicts.observed import no_number
from pytest_llmeval._verdicts.observed import numbers_of
from pytest_llmeval._verdicts.samples import columns_of
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.samples import weighs_by_size
from pytest_llmeval._verdicts.sentence import condition
from pytest_llmeval._verdicts.telling import with_telling_docs
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


def judge(gate: Gate, summary: Summary | None, *, missing: str | None = None, data: GateData | None = None) -> Verdict:
    """Return the verdict on one gate of a task or group, without its family (see `in_family`).

    `summary` None: there are no numbers at all. `missing` states which selected docs have no result; docs that a limit
    leaves out are not missing, and the headline then reads ``on 100 of 1,221 docs``. `data` holds the results of the
    docs: gates with a confidence, and gates against a baseline, fail without it.
    """
    if summary is None:
        return Verdict("failed", f"{gate.key} {condition(gate)}: {missing or 'no docs were evaluated'}")
    reason = lack_of_data(summary, missing)
    if gate.distance:
        return judge_distance(gate, summary, data, reason)
    found = summary.find(gate.metric, gate.filter)
    if len(found) != 1:
        return Verdict("failed", f"{summary.name}: {reason or no_metric(gate, summary)}")
    (value,) = found
    if reason := reason or no_number(value):
        failed = Verdict("failed", headline_of_value(gate, summary, value), numbers_of(gate, summary, value))
        return failed.adding(Fact("reason", reason))
    if gate.compares or gate.confidence is not None:
        if data is None:
            return Verdict("failed", headline_of_value(gate, summary, value)).adding(
                Fact("reason", "the results of its docs are not available")
            )
        if gate.must_stay_right is not None:
            verdict = judge_must_stay_right(gate, gate.must_stay_right, summary, value, data)
        elif gate.change is not None:
            verdict = judge_comparison(gate, gate.change, summary, value, data)
        else:
            columns = columns_of([(one.task, one.results) for one in data.tasks], value.metric, value.filter)
            by_size = weighs_by_size(data.owner, value.metric, value.filter)
            sample = None if by_size is None else sample_of(columns, by_size=by_size)
            observed = judge_observed(gate, summary, value)
            verdict = judge_floor(gate, gate.confidence or 0.5, sample, data.draw, observed)
    else:
        verdict = judge_observed(gate, summary, value)
    if data is not None:
        verdict = with_good_build(verdict, gate, data)
    return with_telling_docs(verdict, gate, value, data)
