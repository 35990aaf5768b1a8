"""Early stopping: the random order of docs, and the docs that no selected gate needs any more.

A task stops when all selected gates that depend on it, its own and those of groups above it, are proven by the docs so
far; a task without such a gate runs completely. Every doc has a random number by which it is sorted, within its task
and among all docs of a group. Group order and task order therefore agree: whichever gate ran first, the next one finds
a prefix of its own order already scored.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

from pytest_llmeval._docs import select
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import FIRST_WAVE
from pytest_llmeval._evaluation import LARGEST_WAVE
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._evaluation import SelectedGate
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._results import Summary
from pytest_llmeval._session.judge import Judge
from pytest_llmeval._session.judge import Skip
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import DocPlace
from pytest_llmeval._verdicts import Fact
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Proof
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import asks_of_data_set
from pytest_llmeval._verdicts import final_verdict
from pytest_llmeval._verdicts import proof_of
from pytest_llmeval._verdicts import verdict_of_proof


#: Docs of each task in a wave of a group, on average.
DOCS_PER_TASK = 4


def in_random_order(task: str, docs: Iterable[int], seed: int) -> list[tuple[float, int]]:
    """Return docs with their random numbers, by which they are sorted: functions of seed, task and doc alone.

    >>> [doc for _, doc in in_random_order("piqa", range(6), seed=0)] == sorted(range(6))
    False
    """
    wanted = sorted(docs)
    draw = random.Random(f"{seed}:{task}").random  # noqa: S311 - an order, no secret
    keys = [draw() for _ in range(wanted[-1] + 1)] if wanted else []
    return sorted((keys[doc], doc) for doc in wanted)


def wave_size(known: int, tasks: int = 1) -> int:
    """Return how many docs are asked for before gates are looked at again: a third of all known then.

    A wave of several tasks holds a few docs of each, which share the beginning of their prompts. Unlike other waves
    these do not depend on the speed of the model: the same docs are run everywhere.
    """
    size = min(LARGEST_WAVE, max(FIRST_WAVE, known // 2))
    return size if tasks == 1 else max(size, tasks * DOCS_PER_TASK)


class EarlyStop(Judge):
    """Asks for docs in random order until gates are proven."""

    chunk: int | None = None

    @cached_property
    def _orders(self) -> dict[tuple[str, ...], list[DocPlace]]:
        """The random order of the docs of some tasks, by the names of these."""
        return {}

    def docs_in_order(self, opened: OpenTask) -> Iterable[int]:
        """Return the docs asked for, in random order."""
        seed = self.evaluation.settings.stop_seed
        return [doc for _, doc in in_random_order(opened.task.name, opened.asked, seed)]

    def order(self, owner: Task | Group) -> list[DocPlace]:
        """Return all docs asked for in a task or group in random order; nothing while data of it is not open."""
        names = tuple(task.name for task in self.evaluation.leaves(owner))
        if any(name not in self.evaluation.sizes for name in names):
            return []
        if names not in self._orders:
            settings, drawn = self.evaluation.settings, []
            for name in names:
                docs = select(self.evaluation.sizes[name][1], settings)
                drawn += [(key, name, doc) for key, doc in in_random_order(name, docs, settings.stop_seed)]
            self._orders[names] = [(name, doc) for _, name, doc in sorted(drawn)]
        return self._orders[names]

    def wave_size(self, run: ModelRun, task: Task) -> int:
        """Return how many docs of a task are asked for before its gates are looked at again."""
        return wave_size(run.known(task))

    def score(self, run: ModelRun, owner: Task | Group, gate: Gate | None, lm: LM, skip: Skip) -> None:
        """Have docs answered wave by wave, until the gate is proven or a task cannot be answered.

        A gate that cannot be judged needs no more docs either.
        """
        if gate is None:
            super().score(run, owner, gate, lm, skip)
            return
        tasks = {task.name: task for task in self.evaluation.leaves(owner)}
        # Without docs this opens the data and finds the errors that keep a task from being answered.
        if not all(self._answer(run, task, lm, []) for task in tasks.values()):
            return
        waiting = [(name, doc) for name, doc in self.order(owner) if not skip(tasks[name], doc)]
        while waiting and not self._needs_no_more(run, owner, gate):
            waiting = [(name, doc) for name, doc in waiting if doc not in run.results(name)]
            size = wave_size(run.known(owner), len(tasks))
            wave: dict[str, list[int]] = {}
            for name, doc in waiting[:size]:
                wave.setdefault(name, []).append(doc)
            if not all(self._answer(run, tasks[name], lm, docs) for name, docs in wave.items()):
                return

    def relatives(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Iterator[Task | Group]:
        """Yield nothing: a gate's share of the error is its own where runs stop early."""
        yield from ()

    def is_proven(self, run: ModelRun, owner: Task | Group, gate: Gate) -> bool:
        """Return True if the docs so far prove the gate, although others have no result."""
        return self.proof(run, owner, gate) is not None

    def proof(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Proof | None:
        """Return what the docs so far prove of a gate; None if it needs more, or all are there to be judged."""
        known, order = run.known(owner), self.order(owner)
        if not known or (known >= len(order) and asks_of_data_set(gate)):
            return None

        def proven() -> Proof | None:
            settings = self.evaluation.settings
            return proof_of(
                gate,
                self._baseline.data(run, owner),
                order,
                members=_sharing(run, gate),
                stop_confidence=settings.stop_confidence,
                split=settings.stop_split,
            )

        return run.computed(owner, ("proof", owner.name, gate.id), proven)

    def verdict(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Verdict:
        """Return the proven verdict, or the verdict over all docs if nothing is proven."""
        sharing, summary = _sharing(run, gate), self.summary(run, owner)
        data = replace(self._baseline.data(run, owner), members=sharing)
        proof = self.proof(run, owner, gate)
        if proof is None:
            missing, split = run.missing(owner), self.evaluation.settings.stop_split
            return final_verdict(gate, summary, data, self.order(owner), members=sharing, split=split, missing=missing)
        if isinstance(owner, Group) and not proof.judged:
            # Beyond the first docs of the group's order its tasks may stand in any proportion.
            data = self._first_docs(run, data, owner)
            summary = data.summary()
        verdict, settings = verdict_of_proof(gate, proof, summary, data), self.evaluation.settings
        if proof.judged or asks_of_data_set(gate) or settings.limit is None or settings.sample_seed is not None:
            return verdict
        return verdict.adding(
            Fact("sample", "the docs asked for are the first ones, not a random sample of the others")
        )

    def summary(self, run: ModelRun, owner: Task | Group) -> Summary:
        """Return the numbers of a task or group over the docs known so far; a stopped task is marked."""
        summary = run.summary(owner)
        return replace(summary, stopped_early=True) if isinstance(owner, Task) and self.stopped(run, owner) else summary

    def unneeded(self, run: ModelRun, task: Task) -> str | None:
        """Return why a doc of the task that has no result needs none; None if it needs one."""
        if not self._is_settled(run, [task]):
            return None
        proofs = [f"{one} {self._state_of(run, one)}" for one in _gates_on(run, {task.name})]
        return f"not needed: {', '.join(proofs)}"

    def stopped(self, run: ModelRun, owner: Task | Group) -> list[str]:
        """Return the names of the tasks whose other docs were left out because their gates are proven."""
        return [
            task.name
            for task in self.evaluation.leaves(owner)
            if 0 < len(run.results(task.name)) < self.evaluation.asked(task.name) and self._is_settled(run, [task])
        ]

    def _is_settled(self, run: ModelRun, tasks: Iterable[Task]) -> bool:
        """Return True if every selected gate that needs one of the tasks is proven; never where there is none."""
        gates = _gates_on(run, {task.name for task in tasks})
        return bool(gates) and all(self.proof(run, one.owner, one.gate) for one in gates)

    def _needs_no_more(self, run: ModelRun, owner: Task | Group, gate: Gate) -> bool:
        """Return True if the gate is proven. On a worker, so must be the others that share its docs."""
        if self._on_worker:
            return self._is_settled(run, self.evaluation.leaves(owner))
        return self.is_proven(run, owner, gate)

    def _answer(self, run: ModelRun, task: Task, lm: LM, docs: list[int]) -> bool:
        """Have docs of a task answered. Return False, with the error recorded, if that fails."""
        report, known = self._progress.of(task.name), len(run.results(task.name))
        asked = self.evaluation.sizes.get(task.name, (len(docs), 0))[0]
        progress = None if report is None else lambda done, _, tokens: report(known + done, asked, tokens)
        try:
            run.score(lm, task, docs, progress)
        except LLMEvalError as error:
            run.record_error(task, error)
            return False
        return True

    def _state_of(self, run: ModelRun, one: SelectedGate) -> str:
        proof = self.proof(run, one.owner, one.gate)
        return f"proven after {proof.after:,} docs" if proof else "open"

    def _first_docs(self, run: ModelRun, data: GateData, owner: Group) -> GateData:
        known = {(part.task.name, result.doc) for part in data.tasks for result in part.results}
        first = set(takewhile(known.__contains__, self.order(owner)))
        return replace(data, tasks=list(_only(data.tasks, first)))


def _gates_on(run: ModelRun, tasks: set[str]) -> list[SelectedGate]:
    return [one for one in run.gates.values() if one.tasks & tasks]


def _sharing(run: ModelRun, gate: Gate) -> int:
    """Return how many gates share the error of a wrong failure with this one, which is among them."""
    return run.family_size(gate)


def _only(parts: Iterable[TaskData], places: set[DocPlace]) -> Iterator[TaskData]:
    """Yield the parts with no docs but those at the places."""
    for part in parts:
        comparison = part.comparison
        if comparison is not None:
            pairs = [pair for pair in comparison.pairing.pairs if (part.task.name, pair[1].doc) in places]
            comparison = replace(comparison, pairing=replace(comparison.pairing, pairs=pairs))
        results = [result for result in part.results if (part.task.name, result.doc) in places]
        yield replace(part, results=results, comparison=comparison)
