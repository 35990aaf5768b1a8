"""``--llmeval-bisect GOOD BAD``: a search for the first saved checkpoint on which a selected gate fails.

Which model is asked next depends on the last verdict, and pytest parametrizes before anything runs. So the search
is a run loop of its own over the gate items: it loads one checkpoint after the other, has each gate's docs answered
and judges it as any run does. No test is run; each checkpoint is reported as one, for JUnit files and the like.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._lm import LM
from pytest_llmeval._models import first_bad
from pytest_llmeval._plain import listed
from pytest_llmeval._report import append_lines
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import overrides_model
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Verdict


@dataclass(frozen=True, slots=True)
class JudgedCheckpoint:
    """One checkpoint and its `verdicts` by node id; `failed`: node ids of the gates that make it bad."""

    name: str
    verdicts: dict[str, Verdict]
    failed: tuple[str, ...]

    @property
    def outcome(self) -> str:
        return "bad" if self.failed else "good"

    def lines(self) -> Iterator[str]:
        counts = {
            "failed": len(self.failed),
            "passed": sum(verdict.outcome == "passed" for verdict in self.verdicts.values()),
            "inconclusive": len(self._open()),
        }
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
        yield f"{self.name}: {self.outcome} (gates: {told})"
        yield from (f"  gate failed: {nodeid}: {self.verdicts[nodeid].sentence}" for nodeid in self.failed)
        for nodeid in self._open():
            yield f"  gate inconclusive, taken as not failing: {nodeid}: {self.verdicts[nodeid].sentence}"

    def _open(self) -> list[str]:
        found = [nodeid for nodeid, verdict in self.verdicts.items() if verdict.outcome == "inconclusive"]
        return [nodeid for nodeid in found if nodeid not in self.failed]


class UndecidedError(Exception):
    """A checkpoint cannot be judged, or the search has no ground to stand on; the message says why."""


class Bisection:
    """The part of the plugin that runs a search. Raises SettingError where it cannot: under xdist."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.names = [choice.name for choice in session.models.choices]
        self.conclusion: list[str] = []
        if session.config.getoption("dist", "no") != "no":
            raise SettingError("--llmeval-bisect: the search loads one checkpoint after the other; run it without -n")
        if session.baseline.updating:
            raise SettingError(
                "--llmeval-update-baseline: a baseline holds the answers of one model; run it without --llmeval-bisect"
            )

    @pytest.hookimpl(trylast=True)  # after -m and -k, which choose the gates
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if owner_of(item) is None]
        if others and not self._looks_only():
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if owner_of(item) is not None]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self._looks_only():
            return
        if not any(gate_of(item) for item in session.items):
            raise pytest.UsageError("--llmeval-bisect: no gate is selected, and gates are what tells good from bad")
        if any(overrides_model(item) for item in session.items):
            raise pytest.UsageError(
                "--llmeval-bisect: loads checkpoints by itself, but a conftest.py overrides the fixture llmeval_model; "
                "register a scheme for such models (hook pytest_llmeval_register_models) and remove the fixture"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self._looks_only():
            return None
        if session.testsfailed:
            raise session.Interrupted("a task file could not be collected: its gates would be missing")
        # No item runs with the model of its own that a report could miss.
        for run in self.session.selection.runs.values():
            run.gates.clear()
        try:
            found = self._search(session.items)
        except UndecidedError as error:
            self.conclusion.append(f"no first bad checkpoint found: {error}")
            found = False
        session.testsfailed += not found
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Steps are counted as good and bad; their lines are written already."""
        outcome = getattr(report, "llmeval_step", None)
        return outcome and (outcome, "", "")

    @pytest.hookimpl(trylast=True)  # behind the tables
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if not self.conclusion:
            return
        terminalreporter.write_sep("=", "llmeval: bisect")
        for line in self.conclusion:
            terminalreporter.write_line(line, bold=True)
        try:
            append_lines(["## llmeval: bisect\n", *(f"{line}  " for line in self.conclusion), ""], os.environ)
        except SettingError as error:
            self.session.failed_at_end = True
            terminalreporter.write_line(f"ERROR: {error}", red=True)

    def _looks_only(self) -> bool:
        return bool(self.session.config.option.collectonly or self.session.looks_only)

    def _search(self, items: Sequence[pytest.Item]) -> bool:
        """Return True if the first bad checkpoint is found, False if it is one of several. Raises UndecidedError."""
        count = len(self.names)
        steps: dict[int, JudgedCheckpoint] = {}
        gates = sum(gate_of(item) is not None for item in items)
        most = 2 + math.ceil(math.log2(count - 1))
        self.session.evaluation.expect_models(most)
        self._write(
            f"bisect: {count} checkpoints from {self.names[0]} to {self.names[-1]}, {_many(gates, 'gate')}; "
            f"at most {most} are loaded"
        )

        def is_bad(place: int) -> bool:
            steps[place] = step = self._step(self.names[place], items)
            return bool(step.failed)

        def is_bad_if_judged(place: int) -> bool | None:
            try:
                return is_bad(place)
            except UndecidedError as error:
                self._write(f"{error}; left out")
                return None

        if is_bad(0):
            raise UndecidedError(f"GOOD {self.names[0]} fails {_gates(steps[0])}")
        if not is_bad(count - 1):
            raise UndecidedError(f"BAD {self.names[-1]} fails no gate")
        good, bad = first_bad(count, is_bad_if_judged)
        unjudged = self.names[good + 1 : bad]
        self.conclusion += self._conclude(steps[good], steps[bad], unjudged, items)
        return not unjudged

    def _step(self, name: str, items: Sequence[pytest.Item]) -> JudgedCheckpoint:
        """Load one checkpoint, judge and report it, and close it. Raises UndecidedError if it cannot be judged."""
        try:
            with contextmanager(self.session.models.serve)(name) as lm:
                verdicts = self._verdicts(name, lm, items)
        except UndecidedError:
            raise
        except (pytest.fail.Exception, Exception) as error:  # whatever a model of the user's raises
            raise UndecidedError(f"{name} cannot be judged: {error or type(error).__name__}") from error
        failed = [nodeid for nodeid, verdict in verdicts.items() if self.session.judge.fails(verdict)]
        step = JudgedCheckpoint(name, verdicts, tuple(failed))
        for line in step.lines():
            self._write(line)
        self._report(step)
        return step

    def _report(self, step: JudgedCheckpoint) -> None:
        """Count the step as a test that passed: that a checkpoint is bad is what was asked, no failure of the run."""
        nodeid = f"bisect::{step.name}"
        phases: tuple[Literal["call", "teardown"], ...] = ("call", "teardown")
        for when in phases:
            report = pytest.TestReport(nodeid, ("bisect", None, step.name), {}, "passed", None, when)
            if when == "call":
                report.user_properties.append(("outcome", step.outcome))
                report.llmeval_step = step.outcome  # type: ignore[attr-defined]
            self.session.config.hook.pytest_runtest_logreport(report=report)

    def _verdicts(self, name: str, lm: LM, items: Sequence[pytest.Item]) -> dict[str, Verdict]:
        """Return the verdicts of one checkpoint by node id. Raises UndecidedError if it cannot be judged."""
        run, judge, verdicts = self.session.selection.run(name), self.session.judge, {}
        self.session.announce(run, lm)
        for item in items:
            if found := gate_of(item):
                run.select_gate(item.nodeid, found.owner, found.gate)
        for item in items:
            owner, found = owner_of(item), gate_of(item)
            if found is None:
                if owner is not None:
                    judge.prepare(run, owner, None, lm)
                continue
            verdict = judge.settle(run, item.nodeid, found.owner, found.gate, lambda: lm)
            if verdict is None:
                continue
            # A gate that fails for lack of answers says nothing of the checkpoint.
            proven = self.session.judge.is_proven(run, found.owner, found.gate)
            if reason := (None if proven else run.missing(found.owner)) or self._refused(run, found.owner):
                raise UndecidedError(f"{name} cannot be judged: {item.nodeid}: {reason}")
            verdicts[item.nodeid] = verdict
        if not verdicts:
            raise UndecidedError("no selected gate has its data")
        return verdicts

    def _refused(self, run: ModelRun, owner: Task | Group) -> str | None:
        """Return how many docs could not be evaluated, and why the first of them could not; None if all were."""
        results = [r for task in self.session.evaluation.leaves(owner) for r in run.results(task.name).values()]
        errors = [result.error for result in results if result.error is not None]
        return f"{_many(len(errors), 'doc')} could not be evaluated: {errors[0]}" if errors else None

    def _conclude(
        self, good: JudgedCheckpoint, bad: JudgedCheckpoint, unjudged: Sequence[str], items: Sequence[pytest.Item]
    ) -> Iterator[str]:
        doubt = f", or one before it that cannot be judged: {listed(unjudged, 10)}" if unjudged else ""
        yield f"first bad: {bad.name} ({_gates(bad)}){doubt}; last good: {good.name}"
        owners = [owner for item in items if item.nodeid in bad.failed and (owner := owner_of(item))]
        leaves = {task.name: task for owner in owners for task in self.session.evaluation.leaves(owner)}
        lost = {name: docs for name, task in leaves.items() if (docs := self._lost(task, good.name, bad.name))}
        if lost:
            total = sum(map(len, lost.values()))
            yield f"look at: {_many(total, 'answer')} right on {good.name} and wrong on {bad.name}:"
            yield from (f"  {name}: docs {listed(docs, 10)}" for name, docs in lost.items())

    def _lost(self, task: Task, good: str, bad: str) -> list[int]:
        before, after = (self.session.selection.run(name).results(task.name) for name in (good, bad))
        return [doc for doc in before if before[doc].correct and doc in after and after[doc].correct is False]

    def _write(self, line: str) -> None:
        reporter = self.session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)


def _gates(step: JudgedCheckpoint) -> str:
    return listed(step.failed, 10)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)
