"""The way of a gate to its verdict: score the docs that it needs, look at its relatives, judge, store.

Plain runs, the controller of xdist and bisect call the same method (`Judge.settle`); which docs a gate needs, and in
which order they are asked for, is decided by a strategy: `RunAll` or `EarlyStop`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._plain import listed
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._session.early_stop import EarlyStop
from pytest_llmeval._session.progress import ProgressLine
from pytest_llmeval._session.run_all import RunAll
from pytest_llmeval._session.run_all import Skip
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict


class Judge:
    """Brings gates to their verdicts.

    Parameters
    ----------
    missing_data
        ``skip`` if a gate whose data is not available is skipped; else it fails.
    unpaired
        ``ignore`` if docs without a partner in the baseline are left out of comparisons.
    inconclusive
        ``fail`` if an inconclusive gate fails the run.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        baseline: BaselineOptions,
        progress: ProgressLine,
        *,
        on_worker: bool,
        missing_data: str,
        unpaired: str,
        inconclusive: str,
        root: Path,
    ) -> None:
        self.evaluation = evaluation
        self.baseline = baseline
        strategy = EarlyStop if evaluation.settings.early_stop else RunAll
        self.strategy = strategy(evaluation, self.data, progress, on_worker=on_worker)
        self._skips_missing_data = missing_data == "skip"
        self.ignores_unpaired = unpaired == "ignore"
        self._fails_inconclusive = inconclusive == "fail"
        self._root = root

    def settle(
        self, run: ModelRun, nodeid: str, owner: Task | Group, gate: Gate, lm: LM | None = None
    ) -> Verdict | None:
        """Return the verdict of a gate and store it in the run; None if it is not judged, with the reason stored.

        Without `lm` nothing is scored: the workers of xdist have done so.
        """
        if lm is not None:
            self.prepare(run, owner, gate, lm)
        if reason := self.excuse(owner, gate):
            run.gate_errors[nodeid] = reason
            return None
        if lm is not None:
            for other in self.strategy.relatives(run, owner, gate):
                self.prepare(run, other, gate, lm)
        run.verdicts[nodeid] = verdict = self.strategy.verdict(run, owner, gate)
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
        self.strategy.score(run, owner, gate, lm, skip)
        if gate is not None and gate.compares:
            run.noise.measure(lm, self.evaluation.leaves(owner) if probed is None else probed)

    def excuse(self, owner: Task | Group, gate: Gate | None) -> str | None:
        """Return why a gate, or the row of a group, is skipped; None if it is not.

        There is nothing to compare with while the baseline is written, and the configuration may skip tasks without
        data.
        """
        if gate is not None and gate.compares and self.baseline.updating:
            return f"baseline {self.baseline.name!r} is being written, there is nothing to compare with"
        if not self._skips_missing_data:
            return None
        errors = self.evaluation.data_errors
        return next((errors[task.name] for task in self.evaluation.leaves(owner) if task.name in errors), None)

    def stopped_below(self, run: ModelRun, group: Group) -> str | None:
        """Return why a group has no numbers: tasks of it stopped early, each at its own time; None if none did."""
        stopped = self.strategy.stopped(run, group)
        return f"{group.name}: {len(stopped)} of its tasks stopped early ({listed(stopped, 3)})" if stopped else None

    def data(self, run: ModelRun, owner: Task | Group) -> GateData:
        """Return the docs of a task or group, paired with those of the baseline."""
        parts = [self.part(run, task) for task in self.evaluation.leaves(owner)]
        whole = all(len(part.results) == part.n_total for part in parts)
        first = self.evaluation.settings.sample_seed is None
        return GateData(
            owner=owner,
            tasks=parts,
            drawn="all" if whole else "first" if first else "random",
            baseline=self.baseline.name,
            ignore_unpaired=self.ignores_unpaired,
            noise={part.task.name: noise for part in parts if (noise := run.noise.needed(part.task.name))},
            root=self._root,
        )

    def part(self, run: ModelRun, task: Task) -> TaskData:
        """Return the docs of one task in doc order, paired with those of the baseline."""
        known = run.results(task.name)
        results = [known[index] for index in sorted(known)]
        total = self.evaluation.sizes.get(task.name, (0, len(results)))[1]
        key = ("comparison", task.name)
        comparison = run.computed(task, key, lambda: self.baseline.comparison(task, results))
        return TaskData(task, results, total, comparison)

    def row_problem(self, run: ModelRun, group: Group) -> tuple[Literal["skipped", "failed"], str] | None:
        """Return how the score item of a group without gates ends, and why; None if the group has its numbers."""
        if reason := self.stopped_below(run, group) or self.excuse(group, None):
            return "skipped", reason
        missing = run.missing(group)
        return ("failed", f"{group.name}: {missing}") if missing else None

    def fails(self, verdict: Verdict) -> bool:
        """Return True if a gate with this verdict fails the run."""
        return verdict.outcome == "failed" or (verdict.outcome == "inconclusive" and self._fails_inconclusive)
