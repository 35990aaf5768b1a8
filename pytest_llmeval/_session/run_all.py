"""The strategy that asks for every doc: a gate is judged when all docs of its task or group have a result."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._results import Summary
from pytest_llmeval._session.progress import ProgressLine
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Member
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import in_family
from pytest_llmeval._verdicts import judge


#: Returns True for a doc of a task that another item, or another worker, has answered.
Skip: TypeAlias = Callable[[Task, int], bool]

#: Docs of one task that go to one xdist worker together: whole waves, and short queues in the scheduler.
CHUNK = 1000


class RunAll:
    """Decides which docs are asked for, and when a gate can be judged; `EarlyStop` overrides its methods.

    Parameters
    ----------
    data
        Returns the docs of a task or group so far, paired with those of the baseline.
    on_worker
        True in a worker of xdist, which scores docs and leaves gates to the controller.
    """

    #: Docs of one task that go to one worker of xdist together; None: all, because their order must not be cut.
    chunk: int | None = CHUNK

    def __init__(
        self,
        evaluation: Evaluation,
        data: Callable[[ModelRun, Task | Group], GateData],
        progress: ProgressLine,
        *,
        on_worker: bool = False,
    ) -> None:
        self.evaluation = evaluation
        self._data = data
        self._progress = progress
        self._on_worker = on_worker

    def docs_in_order(self, opened: OpenTask) -> Iterable[int]:
        """Return the docs asked for, in the order of their items."""
        return opened.asked

    def wave_size(self, run: ModelRun, task: Task) -> int:
        """Return how many docs the next wave of a task should hold."""
        return run.wave_size()

    def score(self, run: ModelRun, owner: Task | Group, gate: Gate | None, lm: LM, skip: Skip) -> None:
        """Have the docs answered that a gate needs, or all docs of a group without gates, but those to skip.

        An error of one task does not keep the others from being answered; it is recorded in the run.
        """
        for task in self.evaluation.leaves(owner):
            try:
                docs = [index for index in self.evaluation.open(task).asked if not skip(task, index)]
                run.score(lm, task, docs, self._progress.of(task.name))
            except LLMEvalError as error:
                run.record_error(task, error)

    def relatives(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Iterator[Task | Group]:
        """Yield the other tasks and groups whose results the verdict of a gate depends on.

        A gate that would fail alone is judged beside the other gates of its family. Those on other models are not
        needed: each model has a part of the error for itself.
        """
        if self._verdict_alone(run, owner, gate).p_value is not None:
            yield from (other.owner for other in run.family(gate) if other.owner.name != owner.name)

    def is_proven(self, run: ModelRun, owner: Task | Group, gate: Gate) -> bool:
        """Return True if the docs so far decide the gate, although others have no result."""
        return False

    def verdict(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Verdict:
        """Return the verdict over all docs, corrected for the number of gates in its family."""
        alone, family = self._verdict_alone(run, owner, gate), run.family(gate)
        if alone.p_value is None or gate.confidence is None or owner.name not in {one.owner.name for one in family}:
            return alone
        members = [
            Member(other.owner.name, self._verdict_alone(run, other.owner, other.gate), other.tasks) for other in family
        ]
        return in_family(owner.name, members, gate.confidence, fdr=gate.fdr, models=run.models_sharing)

    def summary(self, run: ModelRun, owner: Task | Group) -> Summary:
        """Return the numbers of a task or group over the docs known so far."""
        return run.summary(owner)

    def unneeded(self, run: ModelRun, task: Task) -> str | None:
        """Return why a doc of the task that has no result needs none; None if it needs one."""
        return None

    def stopped(self, run: ModelRun, owner: Task | Group) -> list[str]:
        """Return the names of the tasks whose other docs were left out because their gates are proven."""
        return []

    def _verdict_alone(self, run: ModelRun, owner: Task | Group, gate: Gate) -> Verdict:
        """Return the verdict of a gate taken by itself."""

        def judged() -> Verdict:
            missing = run.missing(owner)
            data = None if missing else replace(self._data(run, owner), members=run.family_size(gate))
            return judge(gate, run.summary(owner), missing=missing, data=data)

        return run.computed(owner, ("verdict", owner.name, gate.id), judged)
