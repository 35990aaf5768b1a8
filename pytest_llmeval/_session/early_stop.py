"""Early stopping: in which order docs are asked for, and which of them no selected gate needs any more.

A task stops when all selected gates that rest on it, its own and those of groups above it, are proven by the docs so
far; one that no gate rests on runs whole. Every doc has a random number by which it is sorted, within its task and
among all docs of a group alike: so a group's order and its tasks' orders agree, and each gate finds the first docs
of its own order known, whoever had asked for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import takewhile

from pytest_llmeval._docs import select
from pytest_llmeval._evaluation.evaluation import FIRST_WAVE
from pytest_llmeval._evaluation.evaluation import LARGEST_WAVE
from pytest_llmeval._evaluation.evaluation import Evaluation
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Place
from pytest_llmeval._verdicts import Proof
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import asks_of_data_set
from pytest_llmeval._verdicts import at_half_error
from pytest_llmeval._verdicts import can_be_proven
from pytest_llmeval._verdicts import errors_of
from pytest_llmeval._verdicts import final_verdict
from pytest_llmeval._verdicts import judge
from pytest_llmeval._verdicts import proof_of
from pytest_llmeval._verdicts import summary_of
from pytest_llmeval._verdicts import verdict_of_proof
from pytest_llmeval._verdicts import with_proof


#: Docs of each task in a wave of a group.
SHARING = 4


@dataclass(frozen=True, slots=True)
class Watched:
    """A gate that was to run, with what it rests on."""

    owner: Task | Group
    gate: Gate
    tasks: frozenset[str]

    def __str__(self) -> str:
        return f"gate[{self.gate.id}]" + (f" of {self.owner.name}" if isinstance(self.owner, Group) else "")


def in_random_order(task: str, docs: Iterable[int], seed: int) -> list[tuple[float, int]]:
    """Docs with the random numbers by which they are sorted: a function of seed, task and doc, the same everywhere.

    >>> [doc for _, doc in in_random_order("piqa", range(6), seed=0)] == sorted(range(6))
    False
    """
    wanted = sorted(docs)
    draw = random.Random(f"{seed}:{task}").random  # noqa: S311 - an order, no secret
    keys = [draw() for _ in range(wanted[-1] + 1)] if wanted else []
    return sorted((keys[doc], doc) for doc in wanted)


class EarlyStop:
    """What a session that stops early knows of its gates. `evidence` gives the docs so far, beside the baseline."""

    def __init__(
        self,
        evaluation: Evaluation,
        evidence: Callable[[Task | Group, str], GateData],
        leaves: Callable[[Task | Group], Sequence[Task]],
    ) -> None:
        self.evaluation = evaluation
        self._evidence = evidence
        self._leaves = leaves
        self._watched: dict[str, dict[tuple[str, str], Watched]] = {}
        self._orders: dict[tuple[str, ...], list[Place]] = {}
        self._proofs: dict[tuple[str, str, str], tuple[int, Proof | None]] = {}

    def watch(self, variant: str, owner: Task | Group, gate: Gate) -> None:
        """Count a gate among those that must be proven before what it rests on stops."""
        tasks = frozenset(task.name for task in self._leaves(owner))
        self._watched.setdefault(variant, {})[owner.name, gate.id] = Watched(owner, gate, tasks)

    def forget(self) -> None:
        self._watched.clear()

    def docs_in_order(self, task: Task, docs: Iterable[int]) -> list[int]:
        """Docs of one task in the order in which they are asked for."""
        return [doc for _, doc in in_random_order(task.name, docs, self.evaluation.settings.stop_seed)]

    def order(self, owner: Task | Group) -> list[Place]:
        """All docs that are asked for in a scope, in random order; nothing while data of it are not open."""
        names = tuple(task.name for task in self._leaves(owner))
        if any(name not in self.evaluation.sizes for name in names):
            return []
        if names not in self._orders:
            settings, drawn = self.evaluation.settings, []
            for name in names:
                docs = select(self.evaluation.sizes[name][1], settings)
                drawn += [(key, name, doc) for key, doc in in_random_order(name, docs, settings.stop_seed)]
            self._orders[names] = [(name, doc) for _, name, doc in sorted(drawn)]
        return self._orders[names]

    def wave(self, known: int, tasks: int) -> int:
        """How many docs may be asked for before one looks again: a third of all then, so little runs in vain.

        Of several tasks at least a few each, which share their prompts' beginning. Unlike other waves these do not
        depend on how fast the model is: the same docs are run everywhere.
        """
        size = min(LARGEST_WAVE, max(FIRST_WAVE, known // 2))
        return size if tasks == 1 else max(size, tasks * SHARING)

    def known(self, owner: Task | Group, variant: str) -> int:
        return sum(len(self.evaluation.ledger.of(variant, task.name)) for task in self._leaves(owner))

    def proof(self, owner: Task | Group, variant: str, gate: Gate) -> Proof | None:
        """What the docs so far prove of a gate; None if it needs more of them, or all are there to be judged."""
        known, order = self.known(owner, variant), self.order(owner)
        if not known or (known >= len(order) and asks_of_data_set(gate)):
            return None
        cached = self._proofs.get((variant, owner.name, gate.id))
        if cached is None or cached[0] != known:
            confidence = self.evaluation.settings.stop_confidence if gate.confidence is None else gate.confidence
            risk = errors_of(gate, self._members(variant, gate), confidence, until_the_end=asks_of_data_set(gate))
            proof = proof_of(gate, self._evidence(owner, variant), order, risk, confidence)
            self._proofs[variant, owner.name, gate.id] = cached = (known, proof)
        return cached[1]

    def is_settled(self, tasks: Iterable[Task], variant: str) -> bool:
        """Whether every selected gate that rests on one of the tasks is proven; never where there is none."""
        watched = self._resting_on({task.name for task in tasks}, variant)
        return bool(watched) and all(self.proof(one.owner, variant, one.gate) for one in watched)

    def stopped(self, owner: Task | Group, variant: str) -> bool:
        """Whether docs of a scope were left out because its gates needed them no more."""
        return any(
            0 < len(self.evaluation.ledger.of(variant, task.name)) < self.evaluation.sizes.get(task.name, (0, 0))[0]
            and self.is_settled([task], variant)
            for task in self._leaves(owner)
        )

    def excuse(self, task: Task, variant: str) -> str | None:
        """Why a doc that was not asked for is not needed; None if it is."""
        if not self.is_settled([task], variant):
            return None
        watched = self._resting_on({task.name}, variant)
        proofs = [f"{one} {self._told(one, variant)}" for one in watched]
        return f"not needed: {', '.join(proofs)}"

    def verdict(
        self, owner: Task | Group, variant: str, gate: Gate, summary: Summary, missing: Callable[[], str | None]
    ) -> Verdict:
        """What becomes of a gate: what is proven of it, else the usual judgement of all docs. `missing` says what
        then keeps that from being complete.
        """
        evidence, members = self._evidence(owner, variant), self._members(variant, gate)
        proof = self.proof(owner, variant, gate)
        if proof is None:
            looked = not asks_of_data_set(gate) and can_be_proven(gate, evidence, self.order(owner))
            final = at_half_error(gate) if looked else gate
            verdict = judge(final, summary, missing=missing(), evidence=evidence)
            return final_verdict(verdict, gate, members, looked=looked)
        partly = replace(evidence, drawn="random")
        if proof.judged:
            return with_proof(judge(gate, summary, evidence=partly), proof)
        if isinstance(owner, Group):
            # Beyond the first docs of the group's order its tasks may stand in any proportion.
            partly = self._of_first_docs(partly, owner)
            summary = summary_of(partly)
        return with_proof(verdict_of_proof(gate, proof, summary, partly), proof).adding(self._first_ones(gate))

    def _first_ones(self, gate: Gate) -> str | None:
        """What to say of docs that are no sample of the others."""
        settings = self.evaluation.settings
        if asks_of_data_set(gate) or settings.limit is None or settings.sample_seed is not None:
            return None
        return "the docs asked for are the first ones, no random sample of the others"

    def _told(self, one: Watched, variant: str) -> str:
        proof = self.proof(one.owner, variant, one.gate)
        return f"proven after {proof.after:,} docs" if proof else "open"

    def _resting_on(self, tasks: set[str], variant: str) -> list[Watched]:
        return [one for one in self._watched.get(variant, {}).values() if one.tasks & tasks]

    def _members(self, variant: str, gate: Gate) -> int:
        """How many gates share the error of a wrong failure with this one, which is among them."""
        if not gate.family:
            return 1
        return max(1, sum(one.gate.family == gate.family for one in self._watched.get(variant, {}).values()))

    def _of_first_docs(self, evidence: GateData, owner: Group) -> GateData:
        known = {(part.task.name, result.doc) for part in evidence.tasks for result in part.results}
        first = set(takewhile(known.__contains__, self.order(owner)))
        return replace(evidence, tasks=list(_only(evidence.tasks, first)))


def _only(parts: Iterable[TaskData], places: set[Place]) -> Iterator[TaskData]:
    """The parts with no docs but those at the places."""
    for part in parts:
        comparison = part.comparison
        if comparison is not None:
            pairs = [pair for pair in comparison.pairing.pairs if (part.task.name, pair[1].doc) in places]
            comparison = replace(comparison, pairing=replace(comparison.pairing, pairs=pairs))
        results = [result for result in part.results if (part.task.name, result.doc) in places]
        yield replace(part, results=results, comparison=comparison)
