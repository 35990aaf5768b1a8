"""The way of a gate to its verdict: score the docs that it needs, look at its relatives, judge, store.

Plain runs, the controller of xdist and bisect call the same method (`Judge.settle`). A `Judge` asks for every doc, so
that a gate is judged when all docs of its task or group have a result. `EarlyStop` overrides which docs are asked for,
in which order, and when they are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._evaluation import SecondAnswers
from pytest_llmeval._evaluation import usage_of
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._plain import listed
from pytest_llmeval._results import Summary
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._session.nights import with_nights
from pytest_llmeval._session.progress import ProgressLine
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Member
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import confirmed
from pytest_llmeval._verdicts import fails_by_numbers
from pytest_llmeval._verdicts import in_family
from pytest_llmeval._verdicts import judge
from pytest_llmeval._verdicts import may_be_confirmed
from pytest_llmeval._verdicts import not_confirmed
from pytest_llmeval._verdicts import second_gate


#: Returns True for a doc of a task that another item, or another worker, has answered.
Skip: TypeAlias = Callable[[Task, int], bool]

#: Docs of one task that go to one xdist worker together: whole waves, and short queues in the scheduler.
CHUNK = 1000


class Judge:
    """Brings gates to their verdicts, over all docs that the run asks for.

    Parameters
    ----------
    baseline
        Gives the docs of a task or group, paired with those of the baseline.
    on_worker
        True in a worker of xdist, which scores docs and leaves gates to the controller.
    missing_data
        ``skip`` if a gate whose data is not available is skipped; else it fails.
    inconclusive
        ``fail`` if an inconclusive gate fails the run.
    """

    #: Docs of one task that go to one worker of xdist together; None: all, because their order must not be cut.
    chunk: int | None = CHUNK

    def __init__(
        self,
        evaluation: Evaluation,
        baseline: BaselineOptions,
        progress: ProgressLine,
        *,
        on_worker: bool,
        missing_data: str,
        inconclusive: str,
    ) -> None:
        self.evaluation = evaluation
        self._baseline = baseline
        self._progress = progress
        self._on_worker = on_worker
        self._skips_missing_data = missing_data == "skip"
        self._fails_inconclusive = inconclusive == "fail"
        #: The second answers to docs by model.
        self._seconds: dict[str, SecondAnswers] = {}

    def settle(
        self,
        run: ModelRun,
        nodeid: str,
        owner: Task | Group,
        gate: Gate,
        load: Callable[[], LM],
        *,
        scores: bool = True,
    ) -> Verdict | None:
        """Return the verdict of a gate and store it in the run; None if it is not judged, with the reason stored.

        `load` returns the model, which confirms a failure and has the docs scored; the controller of xdist `scores`
        none, because its workers have done so.
        """
        if scores:
            self.prepare(run, owner, gate, load())
        if reason := self.excuse(owner, gate):
            run.gate_errors[nodeid] = reason
            return None
        if scores:
            for other in self.relatives(run, owner, gate):
                self.prepare(run, other, gate, load())
        verdict = self.verdict(run, owner, gate)
        if self.evaluation.settings.confirm and may_be_confirmed(gate) and fails_by_numbers(verdict):
            verdict = self._confirmed(run, owner, gate, load, verdict)
        run.verdicts[nodeid] = verdict = with_nights(verdict, run, owner, gate, self._baseline)
        return verdict

    def prepare(
        self,
        run: ModelRun,
        owner: Task | Group,
        gate: Gate | None,
        lm: LM,
        *,
        skip: Skip = lambda task, index: False,
        probed: Iterable[Task] | None = None,
    ) -> None:
        """Have the docs answered that a gate or the row of a group needs, and numerical noise measured.

        `probed` are the tasks whose noise is measured if the gate compares; all of its tasks by default.
        """
        self.score(run, owner, gate, lm, skip)
        if gate is not None and gate.compares:
            leaves = self.evaluation.leaves(owner) if probed is None else probed
            run.noise.measure(lm, (task for task in leaves if self._probes(task)))

    def _confirmed(
        self, run: ModelRun, owner: Task | Group, gate: Gate, load: Callable[[], LM], verdict: Verdict
    ) -> Verdict:
        """Return a failure after a second look at it, for which its docs are answered again by the model."""
        answers, second = self.second_answers(run), second_gate(gate)
        try:
            lm = load()
            other = answers.model(lm, self._baseline.dtypes(self.evaluation.leaves(owner)))
        except LLMEvalError as error:
            return not_confirmed(verdict, str(error))
        self.score(answers.run, owner, second, other, lambda task, index: False)
        run.usage = {**run.usage, **usage_of(lm)}
        first, again = (self._baseline.data(one, owner) for one in (run, answers.run))
        return confirmed(second, verdict, self.verdict(answers.run, owner, second), first, again, answers.way)

    def second_answers(self, run: ModelRun) -> SecondAnswers:
        """Return the second answers of a run, empty if no gate of it was confirmed."""
        if run.model not in self._seconds:
            self._seconds[run.model] = SecondAnswers(run)
        return self._seconds[run.model]

    def _probes(self, task: Task) -> bool:
        """Return True if the noise of a task is measured here: in the shard with its first doc."""
        if self.evaluation.shares is None or task.name in self.evaluation.data_errors:
            return True
        return any(self.evaluation.is_here(task.name, doc) for doc in self.evaluation.open(task).asked[:1])

    def excuse(self, owner: Task | Group, gate: Gate | None) -> str | None:
        """Return why a gate, or the row of a group, is skipped; None if it is not.

        A shard judges nothing, there is nothing to compare with while the baseline is written, and the configuration
        may skip tasks without data.
        """
        if shard := self.evaluation.settings.shard:
            return f"shard {shard} judges nothing: --llmeval-merge judges all shards together"
        if gate is not None and gate.needs_baseline and self._baseline.updating:
            return f"baseline {self._baseline.name!r} is being written, there is nothing to compare with"
        if not self._skips_missing_data:
            return None
        errors = self.evaluation.data_errors
        return next((errors[task.name] for task in self.evaluation.leaves(owner) if task.name in errors), None)

    def row_problem(self, run: ModelRun, group: Group) -> tuple[Literal["skipped", "failed"], str] | None:
        """Return how the score item of a group without gates ends, and why; None if the group has its numbers."""
        if reason := self.stopped_below(run, group) or self.excuse(group, None):
            return "skipped", reason
        missing = run.missing(group)
        return ("failed", f"{group.name}: {missing}") if missing else None

    def stopped_below(self, run: ModelRun, group: Group) -> str | None:
        """Return why a group has no numbers: tasks of it stopped early, each at its own time; None if none did."""
        stopped = self.stopped(run, group)
        return f"{group.name}: {len(stopped)} of its tasks stopped early ({listed(stopped, 3)})" if stopped else None

    def fails(self, verdict: Verdict) -> bool:
        """Return True if a gate with this verdict fails the run."""
        return verdict.outcome == "failed" or (verdict.outcome == "inconclusive" and self._fails_inconclusive)

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
                asked = self.evaluation.open(task).asked
                docs = [doc for doc in asked if self.evaluation.is_here(task.name, doc) and not skip(task, doc)]
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
            data = None if missing else replace(self._baseline.data(run, owner), members=run.family_size(gate))
            return judge(gate, run.summary(owner), missing=missing, data=data)

        return run.computed(owner, ("verdict", owner.name, gate.id), judged)
