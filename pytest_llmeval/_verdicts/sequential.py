"""Early stopping: gates that are proven by a part of their docs, and the verdicts on them.

The docs are scored in a random order that does not depend on any result. Tests use the docs from the first up to the
first one without a result, so that the sequential tests of `_stats.MeanTest` are valid after every doc.

- A gate with a confidence is a statement on the population: docs are independent draws, and the error is the gate's.
  Early looks may spend a share of it (ini `llmeval_stop_split`). The rest is kept for the last doc, after which an
  undecided gate is judged as usual (`final_verdict`). On a floor of a 0/1 metric of one task the early looks are
  calibrated to the number of docs, and the last doc is judged at exactly the error that they leave (`Crossing`).
- A gate with ``scope: dataset``, or without a confidence, is a statement on all selected docs: they are drawn without
  replacement, and the result is certain at the last doc. Without a confidence the error is that of ini
  `llmeval_stop_confidence`; at 1 a gate is proven only once the other docs cannot change its outcome. Floors of this
  kind also use a baseline that has all docs, because its mean over the data set is known. Gates on the population
  cannot use it, because the baseline's mean over the population is unknown.
- Some docs decide the gate at once: a doc with an error or NaN, a must-stay-right doc that became wrong, a doc without
  a partner in the baseline or with another prompt there.

Scores of unknown range (perplexity, f1, values of a function of the task without a declared range), docs that share a
passage, and groups aggregated by a function have no sequential test: their gates need every doc.

    piqa: acc 0.6875 +- 0.0290 on 256 of 1,838 docs, required >= 0.6 at 95 % confidence
      proof     proven after 212 of 1,838 docs at 95 %
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import takewhile
from math import fsum
from typing import Literal

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._stats import Crossing
from pytest_llmeval._stats import MeanTest
from pytest_llmeval._stats import threshold_for
from pytest_llmeval._verdicts.change import change_so_far
from pytest_llmeval._verdicts.family import in_company
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import paired_docs
from pytest_llmeval._verdicts.judging import judge
from pytest_llmeval._verdicts.must_stay_right import judge_must_stay_right
from pytest_llmeval._verdicts.observed import judge_observed
from pytest_llmeval._verdicts.paired import PairedEstimate
from pytest_llmeval._verdicts.sentence import percent_text
from pytest_llmeval._verdicts.series import DocPlace
from pytest_llmeval._verdicts.series import MeanQuestion
from pytest_llmeval._verdicts.series import Scores
from pytest_llmeval._verdicts.series import controls_of
from pytest_llmeval._verdicts.series import numbers_of_docs
from pytest_llmeval._verdicts.series import questions_of
from pytest_llmeval._verdicts.series import scores_of
from pytest_llmeval._verdicts.telling import with_telling_docs
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Proof:
    """An outcome that was proven after `after` of the `of` selected docs.

    `confidence` None: the outcome is certain, whatever the scores of the other docs are. `judged`: the usual judgement
    of the docs so far is the verdict and states the reason. `controlled`: the scores in the baseline were used.
    """

    outcome: Literal["passed", "failed"]
    after: int
    of: int
    confidence: float | None = None
    judged: bool = False
    controlled: bool = False

    def __str__(self) -> str:
        docs = f"after {self.after:,} of {self.of:,} docs"
        if self.confidence is None:
            return f"certain {docs}"
        control = ", with the baseline's scores of all docs as control" if self.controlled else ""
        return f"proven {docs} at {percent_text(self.confidence)}{control}"


def asks_of_data_set(gate: Gate) -> bool:
    """Return True if the gate is a statement on these docs, False if on the population."""
    return gate.confidence is None or gate.scope == "dataset"


def can_be_proven(gate: Gate, data: GateData, order: Sequence[DocPlace]) -> bool:
    """Return True if there is a sequential test for the gate, as far as is known without the scores of its docs."""
    if gate.must_stay_right is not None or gate.distance:
        return False
    scores = scores_of(gate, data, order)
    if scores is None or not questions_of(gate, scores):
        return False
    if not asks_of_data_set(gate):
        return all(one.task.cluster is None for one in data.tasks)
    # With a limit the docs left out are not in the random order, so nothing can be proven about the data set.
    return gate.confidence is None or len(order) == sum(one.n_total for one in data.tasks)


def proof_of(
    gate: Gate, data: GateData, order: Sequence[DocPlace], *, members: int, stop_confidence: float, split: float
) -> Proof | None:
    """Return the outcome that the docs so far prove; None if the gate needs more docs.

    `order` holds all selected docs. `members` gates share the error of a wrong failure. A gate without a confidence is
    proven at `stop_confidence`. `split` is the share of the error that early looks may spend.
    """
    known = {(one.task.name, result.doc): result for one in data.tasks for result in one.results}
    failed = Proof("failed", len(known), len(order), judged=True)
    if any(result.error is not None or result.nonfinite for result in known.values()):
        return failed
    if gate.compares and _cannot_compare(data):
        return failed
    if gate.must_stay_right is not None:
        return _proof_of_staying(gate, gate.must_stay_right, data, known, len(order))
    if not can_be_proven(gate, data, order) or (gate.compares and _may_lack(data, order)):
        return None
    scores = scores_of(gate, data, order)
    first = list(takewhile(known.__contains__, order))
    if scores is None or not first:
        return None
    confidence = stop_confidence if gate.confidence is None else gate.confidence
    errors = errors_of(gate, members, confidence, split)
    looks = [_look(gate, question, scores, data, first, order, errors) for question in questions_of(gate, scores)]
    return _together(looks, len(order), confidence)


def verdict_of_proof(gate: Gate, proof: Proof, summary: Summary, data: GateData) -> Verdict:
    """Return the verdict of a proof, with the numbers of the docs seen when the gate was proven."""
    data = replace(data, drawn="random")
    if proof.judged:
        verdict = judge(gate, summary, data=data)
    else:
        (value,) = summary.find(gate.metric, gate.filter)
        verdict = replace(judge_observed(gate, summary, value), outcome=proof.outcome)
        if gate.change is not None and not isinstance(paired := paired_docs(data, value), str):
            seen = PairedEstimate.of(gate, paired, data, value)
            verdict = change_so_far(gate, gate.change, proof.outcome, summary, seen)
        verdict = with_telling_docs(verdict, gate, value, data)
    proven = replace(verdict, numbers={**verdict.numbers, "proven_after": proof.after}, p_value=None)
    return proven.adding(Fact("proof", str(proof)))


def final_verdict(
    gate: Gate,
    summary: Summary,
    data: GateData,
    order: Sequence[DocPlace],
    *,
    members: int,
    split: float,
    missing: str | None = None,
) -> Verdict:
    """Return the verdict over all docs on a gate that was not proven early, at the error that is left.

    `members` gates share the error of a failure, of which early looks may spend the share `split`; `missing` states
    which docs have no result (see `judge`).
    """
    if gate.confidence is None or asks_of_data_set(gate) or not can_be_proven(gate, data, order):
        verdict = judge(gate, summary, missing=missing, data=data)
        return verdict if gate.confidence is None else _among(verdict, members, (1 - gate.confidence) / members)
    left = errors_left(gate, data, order, members, split)
    confidence = 1 - min(left.passing, left.failing)
    judged = replace(gate, confidence=confidence, written=gate.confidence)
    verdict = judge(judged, summary, missing=missing, data=data)
    at, asked = percent_text(confidence), percent_text(gate.confidence)
    how = f"judged at {at}, because early looks may spend a part of the error at {asked} confidence"
    return _among(verdict.adding(Fact("proof", how)), members, left.of_family)


def _among(verdict: Verdict, members: int, error: float) -> Verdict:
    """Return a verdict with its family considered: each of `members` gates may fail wrongly with the same `error`."""
    if members < 2 or verdict.p_value is None:
        return verdict
    return in_company(verdict, f"the error shared equally by {members} gates", fails=verdict.p_value <= error)


@dataclass(frozen=True, slots=True)
class Errors:
    """The error probabilities of a gate's sequential tests: of a wrong pass, and of a wrong failure."""

    passing: float
    failing: float


def errors_of(gate: Gate, members: int, confidence: float, split: float) -> Errors:
    """Return the errors of a gate's sequential tests; `members` gates share the error of a wrong failure.

    A test on the data set always decides at the last doc, so no error is kept for a final judgement.
    """
    error = 1 - confidence
    spent = error if asks_of_data_set(gate) else error * split
    return Errors(spent, spent / members)


@dataclass(frozen=True, slots=True)
class ErrorsLeft:
    """The errors at which the last doc is judged: of a pass, of a failure alone, and of a failure in its family."""

    passing: float
    failing: float
    of_family: float


def errors_left(gate: Gate, data: GateData, order: Sequence[DocPlace], members: int, split: float) -> ErrorsLeft:
    """Return the errors that early looks at a gate on the population leave for the last doc.

    A wrong decision at the last doc and an early one often go together, so that for 0/1 scores more is left than what
    was not spent. Elsewhere the errors add up.
    """
    confidence = gate.confidence or 0.0
    error, spent = 1 - confidence, errors_of(gate, members, confidence, split)
    scores = scores_of(gate, data, order)
    questions = [] if scores is None else questions_of(gate, scores)
    limits = [(question.limit - question.low) / (question.high - question.low) for question in questions]
    if not _counts_right(gate, data) or len(limits) != 1 or not 0 < limits[0] < 1:
        return ErrorsLeft(error * (1 - split), error * (1 - split), error * (1 - split) / members)
    (question,), (limit,) = questions, limits
    ends = (limit, 1 - limit) if question.passes_above else (1 - limit, limit)
    passing, failing = (
        Crossing.of(end, len(order), threshold_for(end, len(order), early))
        for end, early in zip(ends, (spent.passing, spent.failing), strict=True)
    )
    return ErrorsLeft(passing.error_left(error), failing.error_left(error), failing.error_left(error / members))


def _counts_right(gate: Gate, data: GateData) -> bool:
    """Return True if the gate bounds the share of right docs of one task, so that its early looks are calibrated.

    The calibration is for draws from one distribution, and the docs of unlike tasks of a group are not.
    """
    tasks = [one.task for one in data.tasks]
    return not gate.compares and len(tasks) == 1 and metric_of(tasks[0], gate.metric).kind == "right"


@dataclass(frozen=True, slots=True)
class Controls:
    """The numbers of the docs seen by their scores in the baseline, and the mean of these over all docs."""

    numbers: Sequence[float]
    mean: float


@dataclass(frozen=True, slots=True)
class _Look:
    """The outcome of one test after `after` docs, None if undecided, and the number of docs that made it certain."""

    outcome: Literal["passed", "failed"] | None
    after: int = 0
    certain_after: int | None = None
    controlled: bool = False


def _look(
    gate: Gate,
    question: MeanQuestion,
    scores: Scores,
    data: GateData,
    first: Sequence[DocPlace],
    order: Sequence[DocPlace],
    errors: Errors,
) -> _Look:
    numbers = numbers_of_docs(gate, question, scores, data, first)
    if numbers is None:
        return _Look(None)
    total = len(order) if asks_of_data_set(gate) else None
    most = len(order) if total is None and _counts_right(gate, data) else None
    controls = None if total is None or gate.compares else controls_of(gate, question, scores, data, order)
    beside = None
    if controls is not None:
        beside = Controls([controls[place] for place in first], fsum(controls.values()) / len(controls))
    share = len(gate.bounds) or 1
    above, below = (errors.passing, errors.failing) if question.passes_above else (errors.failing, errors.passing)
    certain = None if total is None else _tested(question, numbers, 0.0, total)
    tests = {
        True: _tested(question, numbers, above / (share if not question.passes_above else 1), total, most, beside),
        False: _tested(question, numbers, below / (share if question.passes_above else 1), total, most, beside),
    }
    found = [
        (test.decided_after, side)
        for side, test in tests.items()
        if test is not None and test.decided_after is not None and (test.above if side else test.below)
    ]
    if not found:
        return _Look(None)
    after, side = min(found)
    outcome: Literal["passed", "failed"] = "passed" if side is question.passes_above else "failed"
    return _Look(outcome, after, certain.decided_after if certain else None, beside is not None)


def _tested(
    question: MeanQuestion,
    numbers: Iterable[float],
    alpha: float,
    total: int | None,
    most: int | None = None,
    controls: Controls | None = None,
) -> MeanTest | None:
    """Return the test of the numbers; None for an error of 0 without a `total`, where nothing can become certain."""
    if alpha <= 0 and total is None:
        return None
    mean, beside = (None, ()) if controls is None else (controls.mean, controls.numbers)
    test = MeanTest(question.limit, alpha, low=question.low, high=question.high, total=total, most=most, control=mean)
    test.update(numbers, beside)
    return test


def _together(looks: Sequence[_Look], of: int, confidence: float) -> Proof | None:
    """Return the proof from the tests of all bounds: a gate fails if one bound fails, and passes if all pass."""
    failed = [look for look in looks if look.outcome == "failed"]
    if not looks or not (failed or all(look.outcome for look in looks)):
        return None
    deciding = min(failed, key=lambda look: look.after) if failed else max(looks, key=lambda look: look.after)
    resting_on = [deciding] if failed else looks
    is_certain = all(look.certain_after is not None and look.certain_after <= deciding.after for look in resting_on)
    outcome: Literal["passed", "failed"] = "failed" if failed else "passed"
    if is_certain:
        return Proof(outcome, deciding.after, of)
    return Proof(outcome, deciding.after, of, confidence, controlled=deciding.controlled)


def _cannot_compare(data: GateData) -> bool:
    """Return True if the docs so far already rule out a comparison."""
    if not data.baseline:
        return True
    for one in data.tasks:
        found = one.comparison
        if not one.results or found is None:
            continue
        # Where unpaired docs are ignored, docs that pair may still follow.
        waits = data.ignore_unpaired and found.record is not None and not found.pairing.pairs
        if not waits and found.problems(whole=False, ignore_unpaired=data.ignore_unpaired):
            return True
    return False


def _may_lack(data: GateData, order: Sequence[DocPlace]) -> bool:
    """Return True if docs of the run or of the baseline may have no partner; only a run of all docs shows which."""
    comparisons = [one.comparison for one in data.tasks if one.comparison and one.comparison.record]
    if len(comparisons) < len(data.tasks) or any(found.pairing.unknown for found in comparisons):
        return True
    whole = len(order) == sum(one.n_total for one in data.tasks)
    recorded = sum(len(found.record.entries) for found in comparisons if found.record)
    return whole and recorded != len(order)


def _proof_of_staying(
    gate: Gate, docs: tuple[int, ...] | Literal["all"], data: GateData, known: Collection[DocPlace], of: int
) -> Proof | None:
    """Return the proof for docs that must stay right: one doc that became wrong, or all named docs seen; else None."""
    named = None if docs == "all" else [doc for doc in docs if (data.tasks[0].task.name, doc) in known]
    if named is not None and not named:
        return None
    summary = data.summary()
    found = summary.find(gate.metric, gate.filter)
    if len(found) != 1:
        return None
    outcome = judge_must_stay_right(gate, docs, summary, found[0], replace(data, drawn="random")).outcome
    if outcome == "failed" or (named is not None and len(named) == len(docs)):
        return Proof("failed" if outcome == "failed" else "passed", len(known), of, judged=True)
    return None
