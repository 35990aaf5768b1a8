"""The hooks that pytest calls while items of this plugin are collected, run and reported."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pytest_llmeval._session import collect
from pytest_llmeval._session import listing
from pytest_llmeval._session import shards
from pytest_llmeval._session import xdist
from pytest_llmeval._session.checks import usage_problem
from pytest_llmeval._session.item_runs import OUTCOME
from pytest_llmeval._session.item_runs import RECORD
from pytest_llmeval._session.item_runs import hide_own_frames
from pytest_llmeval._session.item_runs import record_gate_error
from pytest_llmeval._session.item_runs import run_doc
from pytest_llmeval._session.item_runs import run_gate
from pytest_llmeval._session.item_runs import run_score
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._session.summary import close
from pytest_llmeval._task import Group


#: Category, letter and word of each outcome in pytest's report. A correct answer stays in pytest's own category, so
#: that -rp and a green summary work; only outcomes that deserve a look have their own category.
STATUS = {
    "correct": ("passed", ".", "CORRECT"),
    "scored": ("passed", ".", "SCORED"),
    "wrong": ("wrong", "w", ("WRONG", {"yellow": True})),
    "inconclusive": ("inconclusive", "i", ("INCONCLUSIVE", {"yellow": True})),
}


class Running:
    """Registered once a task file is there to be run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.on_worker = session.on_worker

    @pytest.hookimpl(tryfirst=True)  # before -m and -k look at markers
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for module in {item.parent for item in items if isinstance(item.parent, collect.TaskModule)}:
            module.add_names()
        collect.order(items)
        shards.divide(self.session, items)
        if self.session.joined:
            shards.without_model(items)

    @pytest.hookimpl(tryfirst=True)  # before a worker of xdist says that it is ready
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.session.selection.select(session.items)
        if self.session.joined:
            shards.merge(self.session, self.session.joined)
        collect.tolerate_broken_files(session)
        problem = usage_problem(self.session, session.items)
        if self.session.joined and not problem:
            problem = shards.merge_problem(self.session, self.session.joined)
        if self.on_worker:
            xdist.learn(self.session, session.items)
            xdist.publish_collection(self.session, session.items, problem)
        elif problem:
            raise pytest.UsageError(problem)

    def pytest_report_collectionfinish(self, config: pytest.Config) -> list[str]:
        return [] if self.on_worker or config.get_verbosity() < 0 else listing.gate_prospects(self.session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        return listing.show_instead_of_running(self.session, session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not self.on_worker or (owner_of(item) is None and item.nodeid not in self.session.lessons.silent):
            return None
        xdist.run_silently(self.session, item, nextitem)
        return True

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if self.on_worker:
            xdist.publish_stop(self.session, excinfo.value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a doc, gate or score item with its item at hand: a `request` fixture would cost every doc some 20 us."""
        lm: Any = pyfuncitem.funcargs.get("llmeval_model")
        if found := doc_of(pyfuncitem):
            run_doc(self.session, pyfuncitem, found, lm)
        elif gate := gate_of(pyfuncitem):
            run_gate(self.session, pyfuncitem, gate, lm)
        elif isinstance(group := owner_of(pyfuncitem), Group):
            run_score(self.session, pyfuncitem, group, lm)
        else:
            return None
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None and isinstance(item.parent, collect.TaskModule):
            hide_own_frames(call.excinfo)
            record_gate_error(self.session, item, call.excinfo.value)
        report = yield
        if call.when == "call" and (outcome := item.stash.get(OUTCOME, None)):
            report.llmeval_outcome = outcome  # type: ignore[attr-defined]
            if self.on_worker and (record := item.stash.get(RECORD, None)):
                model, task, result = record
                report.llmeval = [model, task, result.to_list()]  # type: ignore[attr-defined]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, object] | None:
        outcome = getattr(report, "llmeval_outcome", None)
        if outcome == "error":
            return "error", "E", "ERROR"
        return STATUS.get(outcome) if outcome and report.passed else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        # Workers have a terminal summary too, which nobody sees; after a usage error there is nothing to sum up.
        if not self.on_worker and exitstatus != pytest.ExitCode.USAGE_ERROR:
            close(self.session, terminalreporter)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around the terminal's summary, which may find the run unsound
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        if self.on_worker:
            xdist.publish_results(self.session)
        stopped = session.shouldfail or session.shouldstop
        self.session.interrupted = bool(stopped) or session.exitstatus == pytest.ExitCode.INTERRUPTED
        yield
        if self.session.evaluation.journal is not None:
            self.session.evaluation.journal.close()
        if self.session.settings.shard and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            # A shard may have no doc.
            session.exitstatus = pytest.ExitCode.OK
        if self.session.failed_at_end and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
