"""Whether a gate's verdict is proven by a part of its docs, looked at after every doc.

The docs come in a random order that no result has a say in, and only the first ones of it count, as far as all of
them are known: then the tests of `_stats.MeanTest` hold however often one looks and whenever one stops.

- A gate with a confidence asks about questions like these: independent draws, at the gate's own error. Half of that
  is kept for the last doc, after which an undecided gate is judged as ever (`Errors`).
- One with ``scope: dataset``, and one without a confidence, ask what all docs that were asked for would show: draws
  without replacement, certain at the last doc. Without a confidence the error is that of ini
  `llmeval_stop_confidence`; at 1 only that counts which the other docs cannot change.
- What is lost is lost: a doc in error or without a number, one that had to stay right, one that the baseline has
  not or with another prompt.

Scores of no known ends (perplexity, f1, what a function of the task gives without telling its range), docs that share a
passage, and groups that a function aggregates have no such test: their gates need every doc.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import takewhile
from typing import Literal

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._stats import MeanTest
from pytest_llmeval._task import Group
from pytest_llmeval._verdicts.must_stay_right import judge_must_stay_right
from pytest_llmeval._verdicts.series import Place
from pytest_llmeval._verdicts.series import Question
from pytest_llmeval._verdicts.series import Scores
from pytest_llmeval._verdicts.series import numbers_of_docs
from pytest_llmeval._verdicts.series import questions_of
from pytest_llmeval._verdicts.series import scores_of
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.wording import level_text


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors that tests which may stop early are allowed: of a wrong pass, and of a wrong failure."""

    passing: float
    failing: float


@dataclass(frozen=True, slots=True)
class Proof:
    """A verdict that needs no more docs: after `after` of the `of` docs that were asked for.

    `confidence` None: whatever the others would show. `judged`: the usual judgement of the docs so far stands, and
    says why.
    """

    outcome: Literal["passed", "failed"]
    after: int
    of: int
    confidence: float | None = None
    judged: bool = False

    def __str__(self) -> str:
        docs = f"after {self.after:,} of {self.of:,} docs"
        if self.confidence is None:
            return f"certain {docs}"
        return f"proven {docs} at {level_text(self.confidence * 100)} %"


def asks_of_data_set(gate: Gate) -> bool:
    """Whether the gate is about these docs, and not about questions like these."""
    return gate.confidence is None or gate.scope == "dataset"


def can_be_proven(gate: Gate, evidence: GateData, order: Sequence[Place]) -> bool:
    """Whether there is a test of the gate's own question, as far as that is known without the docs' scores."""
    if gate.must_stay_right is not None:
        return False
    scores = scores_of(gate, evidence, order)
    if scores is None or not questions_of(gate, scores):
        return False
    if not asks_of_data_set(gate):
        return all(part.task.cluster is None for part in evidence.tasks)
    # A limit leaves docs of the data set that no order of the others speaks of.
    return gate.confidence is None or len(order) == sum(part.n_total for part in evidence.tasks)


def proof_of(gate: Gate, evidence: GateData, order: Sequence[Place], risk: Errors, confidence: float) -> Proof | None:
    """What the docs so far prove; None if the gate needs more of them.

    `order` holds all docs that were asked for, `confidence` is what a proof is said to have.
    """
    known = {(part.task.name, result.doc): result for part in evidence.tasks for result in part.results}
    failed = Proof("failed", len(known), len(order), judged=True)
    if any(result.error is not None or result.nonfinite for result in known.values()):
        return failed
    if gate.compares and _cannot_compare(evidence):
        return failed
    if gate.must_stay_right is not None:
        return _staying(gate, evidence, known, len(order))
    if not can_be_proven(gate, evidence, order) or (gate.compares and _may_lack(evidence, order)):
        return None
    scores = scores_of(gate, evidence, order)
    first = list(takewhile(known.__contains__, order))
    if scores is None or not first:
        return None
    looks = [_look(gate, question, scores, evidence, first, order, risk) for question in questions_of(gate, scores)]
    return _together(looks, len(order), confidence)


@dataclass(frozen=True, slots=True)
class Look:
    """What one question has come to: passed or failed after so many docs, or neither; and when it became certain."""

    outcome: Literal["passed", "failed"] | None
    after: int = 0
    certain_after: int | None = None


def _look(
    gate: Gate,
    question: Question,
    scores: Scores,
    evidence: GateData,
    first: Sequence[Place],
    order: Sequence[Place],
    risk: Errors,
) -> Look:
    numbers = numbers_of_docs(gate, question, scores, evidence, first)
    if numbers is None:
        return Look(None)
    total = len(order) if asks_of_data_set(gate) else None
    share = len(gate.bounds) or 1
    above, below = (risk.passing, risk.failing) if question.passes_above else (risk.failing, risk.passing)
    certain = None if total is None else _tested(question, numbers, 0.0, total)
    tests = {
        True: _tested(question, numbers, above / (share if not question.passes_above else 1), total),
        False: _tested(question, numbers, below / (share if question.passes_above else 1), total),
    }
    found = [
        (test.decided_after, side)
        for side, test in tests.items()
        if test is not None and test.decided_after is not None and (test.above if side else test.below)
    ]
    if not found:
        return Look(None)
    after, side = min(found)
    outcome: Literal["passed", "failed"] = "passed" if side is question.passes_above else "failed"
    return Look(outcome, after, certain.decided_after if certain else None)


def _tested(question: Question, numbers: Iterable[float], alpha: float, total: int | None) -> MeanTest | None:
    """The numbers tested; None for an error of 0 where nothing is certain."""
    if alpha <= 0 and total is None:
        return None
    test = MeanTest(question.limit, alpha, low=question.low, high=question.high, total=total)
    test.update(numbers)
    return test


def _together(looks: Sequence[Look], of: int, confidence: float) -> Proof | None:
    """A gate fails by one of its bounds and passes by all of them."""
    failed = [look for look in looks if look.outcome == "failed"]
    if not looks or not (failed or all(look.outcome for look in looks)):
        return None
    deciding = min(failed, key=lambda look: look.after) if failed else max(looks, key=lambda look: look.after)
    resting_on = [deciding] if failed else looks
    is_certain = all(look.certain_after is not None and look.certain_after <= deciding.after for look in resting_on)
    return Proof("failed" if failed else "passed", deciding.after, of, None if is_certain else confidence)


def _cannot_compare(evidence: GateData) -> bool:
    """Whether the docs so far already rule a comparison out."""
    if not evidence.baseline:
        return True
    for part in evidence.tasks:
        found = part.comparison
        if not part.results or found is None:
            continue
        # Docs of which none pairs may be followed by some that do, where others are allowed to be missing.
        waits = evidence.ignore_unpaired and found.record is not None and not found.pairing.pairs
        if not waits and found.problems(whole=False, ignore_unpaired=evidence.ignore_unpaired):
            return True
    return False


def _may_lack(evidence: GateData, order: Sequence[Place]) -> bool:
    """Whether docs of the run or of the baseline may have no partner: only a run of all docs tells which."""
    comparisons = [part.comparison for part in evidence.tasks if part.comparison and part.comparison.record]
    if len(comparisons) < len(evidence.tasks) or any(found.pairing.unknown for found in comparisons):
        return True
    whole = len(order) == sum(part.n_total for part in evidence.tasks)
    recorded = sum(len(found.record.entries) for found in comparisons if found.record)
    return whole and recorded != len(order)


def _staying(gate: Gate, evidence: GateData, known: Collection[Place], of: int) -> Proof | None:
    """Docs that must stay right: one that does not decides, or all of those that are named."""
    docs = gate.must_stay_right or ()
    named = None if docs == "all" else [doc for doc in docs if (evidence.tasks[0].task.name, doc) in known]
    if named is not None and not named:
        return None
    summary = summary_of(evidence)
    found = summary.find(gate.metric, gate.filter)
    if len(found) != 1:
        return None
    partly = replace(evidence, drawn="random")
    outcome = judge_must_stay_right(gate, docs, summary, found[0], partly).outcome
    if outcome == "failed" or (named is not None and len(named) == len(docs)):
        return Proof("failed" if outcome == "failed" else "passed", len(known), of, judged=True)
    return None


def summary_of(evidence: GateData) -> Summary:
    """The numbers of the docs of `evidence`, without standard errors that take long."""
    parts = [
        (part.task, summarize_task(part.task, part.results, n_total=part.n_total, num_fewshot=None, bootstrap_iters=0))
        for part in evidence.tasks
    ]
    return summarize_group(evidence.owner, parts) if isinstance(evidence.owner, Group) else parts[0][1]
