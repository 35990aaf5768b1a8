"""Runs spread over pytest-xdist: workers send plain records, the controller merges, judges and reports.

A worker cannot know what the others found, so gates run silently there (they only have docs scored that no doc
item covers) and the controller judges them inside the run loop: exit status, --lf, JUnit and annotations then
see them as the ordinary tests that they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import astuple
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from typing import Literal

import pytest
from _pytest.runner import runtestprotocol  # log=False is the only way to run an item without reporting it

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._results import DocResult
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import model_of
from pytest_llmeval._session.items import overrides_model
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.options import SEAT
from pytest_llmeval._session.options import STOP_SEED
from pytest_llmeval._session.scheduling import LESSONS
from pytest_llmeval._session.scheduling import BlockScheduling
from pytest_llmeval._session.scheduling import DocBlock
from pytest_llmeval._session.scheduling import Node
from pytest_llmeval._session.scheduling import Scheduling
from pytest_llmeval._session.scheduling import block_size
from pytest_llmeval._session.scheduling import blocks_of
from pytest_llmeval._session.scheduling import is_doc
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


PHASES: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")

#: The key of this plugin's data in `config.workeroutput`.
OUTPUT = "llmeval"


@dataclass(frozen=True, slots=True)
class WorkerItem:
    """A gate item, or the score item of a group (`gate_id` None), that a worker collected.

    `skip` is the reason why a score is not evaluated, known on workers only. `overridden`: a conftest.py gives the
    model.
    """

    nodeid: str
    location: tuple[str, int | None, str]
    owner: str
    gate_id: str | None
    model: str
    skip: str | None = None
    overridden: bool = False

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> WorkerItem:
        """Return the item that `dataclasses.astuple` turned into plain data."""
        nodeid, location, *rest = values
        return cls(nodeid, tuple(location), *rest)


def publish_collection(session: Session, items: Iterable[pytest.Item], problem: str | None) -> None:
    """Send the selected gates, and the files of their tasks, from a worker to the controller.

    A usage error cannot be raised here (xdist takes it for a crash). It travels as the report of a failed
    collection, the one message that the controller gets before it hands out work.
    """
    if problem:
        report = pytest.CollectReport("", "failed", problem, [])
        report.llmeval_usage_error = problem  # type: ignore[attr-defined]
        session.config.hook.pytest_collectreport(report=report)
    published = []
    for item in items:
        owner, found, model = owner_of(item), gate_of(item), model_of(item)
        if owner is None:
            continue
        skip = None
        if found is None and isinstance(owner, Group):
            skip = session.selection.deselected_below(owner, session.selection.run(model))
        gate_id = found.gate.id if found else None
        published.append(
            WorkerItem(item.nodeid, item.location, owner.name, gate_id, model, skip, overrides_model(item))
        )
    session.config.workeroutput[OUTPUT] = {  # type: ignore[attr-defined]
        "items": [list(astuple(item)) for item in published],
        "owners": {name: str(owner.path) for name, owner in session.selection.collected.items()},
    }


def size_of_blocks(session: Session) -> int | None:
    """Return how many docs of a task a worker gets together, as the controller computes it too; None: all."""
    docs = sum(len(order) for run in session.selection.runs.values() for order in run.selected_docs.values())
    return block_size(docs, session.config.workerinput["workercount"], session.judge.chunk)  # type: ignore[attr-defined]


def publish_results(session: Session) -> None:
    """Send the results that no item has reported, and the facts that every worker knows, to the controller."""
    scored = {task for run in session.selection.runs.values() for task in run.scored()}
    output = session.config.workeroutput.setdefault(OUTPUT, {})  # type: ignore[attr-defined]
    output.update(_news(session, session.evaluation.sizes, scored))


def _news(session: Session, known: Iterable[str], scored: Iterable[str]) -> dict[str, Any]:
    """Return what the controller needs of some tasks, and all results that it has not been sent."""
    evaluation = session.evaluation
    return {
        "plan": session.plan,
        "sizes": {task: list(evaluation.sizes[task]) for task in known if task in evaluation.sizes},
        "paths": {task: str(evaluation.path_of(task)) for task in scored},
        "data_errors": evaluation.data_errors,
        "runs": {model: run.news() for model, run in session.selection.runs.items()},
    }


def publish_stop(session: Session, stop: BaseException) -> None:
    """Tell the controller that `pytest.exit` was called, which ends the whole session."""
    if isinstance(stop, pytest.exit.Exception):
        output = session.config.workeroutput.setdefault(OUTPUT, {})  # type: ignore[attr-defined]
        output["stop"] = [stop.msg, stop.returncode]


def learn(session: Session, items: Iterable[pytest.Item]) -> None:
    """Take note of what happened to workers that died: docs that are given up have an error as their result."""
    for item in items:
        if found := doc_of(item):
            place = (model_of(item), found.opened.task.name, found.index)
            if reason := session.lessons.lost.get(item.nodeid):
                session.selection.run(place[0]).add(place[1], [DocResult(found.index, {}, error=reason)])
            if item.nodeid in session.lessons.alone:
                session.alone.add(place)


def prepare_on_worker(
    session: Session, item: pytest.Item, run: ModelRun, owner: Task | Group, gate: Gate | None, lm: LM
) -> None:
    """Have the docs of a gate answered that no doc item answers here, and that no other gate has answered.

    Every worker sees the same items, so all come to the same division of work.
    """
    gates = [other for other in item.session.items if owner_of(other) is not None]
    nodeids = _gate_by_task(session, gates)

    def skip(task: Task, index: int) -> bool:
        is_others = nodeids.get((run.model, task.name), item.nodeid) != item.nodeid
        return is_others or index in run.selected_docs.get(task.name, ())

    comparing = [other for other in gates if (found := gate_of(other)) and found.gate.compares]
    probes = _gate_by_task(session, comparing) if run.noise.asked_for else {}
    probed = [task for task in session.evaluation.leaves(owner) if probes.get((run.model, task.name)) == item.nodeid]
    session.judge.prepare(run, owner, gate, lm, skip=skip, probed=probed)


def _gate_by_task(session: Session, items: Iterable[pytest.Item]) -> dict[tuple[str, str], str]:
    """Return (model, task) -> node id of the gate that has the missing docs of the task answered.

    The smallest scope takes a task, so that the gates of subgroups spread over the workers instead of waiting for the
    gate of the whole group.
    """
    sizes: dict[tuple[str, str], tuple[int, str]] = {}
    for item in items:
        owner = owner_of(item)
        if owner is None:
            continue
        leaves = session.evaluation.leaves(owner)
        for task in leaves:
            key, claim = (model_of(item), task.name), (len(leaves), item.nodeid)
            if key not in sizes or claim[0] < sizes[key][0]:
                sizes[key] = claim
    return {key: nodeid for key, (_, nodeid) in sizes.items()}


def run_silently(session: Session, item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run an item whose report is the controller's to make, and send what it found, because this worker may die later.

    pytest and its plugins take no notice of a setup that passed, and so of the report that carries the results.
    """
    runtestprotocol(item, log=False, nextitem=nextitem)
    if owner := owner_of(item):
        leaves = [task.name for task in session.evaluation.leaves(owner)]
        scored = [name for name in leaves if any(run.results(name) for run in session.selection.runs.values())]
        report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "setup")
        report.llmeval_news = _news(session, leaves, scored)  # type: ignore[attr-defined]
        item.config.hook.pytest_runtest_logreport(report=report)


class Controller:
    """The part of the plugin that lives in xdist's controlling process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        #: None until the workers have collected task files.
        self.blocks: BlockScheduling | None = None
        #: The number of workers that the session started with.
        self.workers = 0
        #: The seat of each living worker; a replacement takes that of its predecessor, and so its device.
        self.seats: dict[Node, int] = {}
        self.items: dict[str, WorkerItem] = {}
        #: The files of the tasks and groups that workers collected.
        self.paths: set[str] = set()
        #: Names of the tasks and groups that workers collected.
        self.owners: set[str] = set()
        #: The model that was loaded here to answer again, by its name in node ids, until it is closed.
        self._loaded: tuple[str, LM] | None = None
        self._opened = contextlib.ExitStack()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if problem := getattr(report, "llmeval_usage_error", None):
            raise pytest.UsageError(problem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if record := getattr(report, "llmeval", None):
            model, task, result = record
            self.session.selection.run(model).add(task, [DocResult.from_list(result)])
        node, news = getattr(report, "node", None), getattr(report, "llmeval_news", None)
        if self.blocks and node and (report.when == "teardown" or news):
            self.blocks.note_report(node, report.nodeid)
        if news:
            self._add(news)
            # The reports that follow are the controller's: one test case in JUnit, not one of each process.
            del report.llmeval_news, report.node

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Node) -> None:
        node.workerinput[STOP_SEED] = self.session.settings.stop_seed
        taken = set(self.seats.values())
        self.seats[node] = node.workerinput[SEAT] = next(seat for seat in count() if seat not in taken)
        if self.blocks:
            node.workerinput[LESSONS] = self.blocks.lessons().to_list()
        else:
            self.workers = max(self.workers, len(self.seats))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node) -> None:
        self.seats.pop(node, None)
        # A worker that died has no output.
        output = getattr(node, "workeroutput", {}).get(OUTPUT, {})
        items = [WorkerItem.from_list(values) for values in output.get("items", ())]
        self.items.update({item.nodeid: item for item in items})
        self.owners.update(output.get("owners", {}))
        self.paths.update(output.get("owners", {}).values())
        self._add(output)
        if stop := output.get("stop"):
            raise pytest.exit.Exception(*stop)

    def _add(self, news: Mapping[str, Any]) -> None:
        """Add what a worker found, as `_news` sent it."""
        evaluation = self.session.evaluation
        self.paths.update(news.get("paths", {}).values())
        self.session.plan.update(news.get("plan", {}))
        evaluation.sizes.update({task: tuple(pair) for task, pair in news.get("sizes", {}).items()})
        evaluation.data_errors.update(news.get("data_errors", {}))
        for model, plain in news.get("runs", {}).items():
            self.session.selection.run(model).merge(plain)

    @pytest.hookimpl(optionalhook=True, wrapper=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> Generator[None, object, object]:
        """Replace the scheduler of any `--dist` in a session with task files."""
        return Scheduling((yield), self._in_blocks, each=config.getvalue("dist") == "each")

    def _in_blocks(self, collections: Mapping[Node, Sequence[str]]) -> BlockScheduling:
        option, models, largest = self.session.config.option, self.session.models.each_item, self.session.judge.chunk
        each = option.dist == "each"
        reorder = getattr(option, "loadscopereorder", True) and not each

        def divide(names: Sequence[str]) -> list[DocBlock]:
            size = block_size(sum(map(is_doc, names)), self.workers, largest)
            return blocks_of(names, size, models, dist=option.dist, reorder=reorder)

        self.blocks = BlockScheduling(collections, divide, each=each)
        return self.blocks

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Report a doc that is given up as one that could not be evaluated."""
        if self.blocks and is_doc(crashitem) and (reason := self.blocks.lost.get(crashitem)):
            report.when, report.longrepr = "call", f"{crashitem}: {reason}"
            report.llmeval_outcome = "error"  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        self._restore_tasks()
        self._report_losses()
        selection = self.session.selection
        for gate in self.items.values():
            if gate.gate_id is not None:
                owner = selection.collected[gate.owner]
                selection.run(gate.model).select_gate(gate.nodeid, owner, self._gate(owner, gate.gate_id))
        self.session.evaluation.expect_models(sum(bool(run.gates) for run in selection.runs.values()))
        with self._opened:
            for gate in self.items.values():
                self._report(gate, *(("skipped", gate.skip, {}) if gate.skip else self._settle(gate)))
        return result

    def _restore_tasks(self) -> None:
        """Read the files of all tasks again here: their values do not travel, their paths do."""
        collected = self.session.selection.collected
        for path in sorted(self.paths):
            # A file that cannot be read has been reported by the worker that collected it.
            with contextlib.suppress(LLMEvalError):
                collected.update({value.name: value for value in self.session.values_in(Path(path))})
        # So that it is known which rules of the configuration select something, though their gates be deselected.
        for name in sorted(self.owners & collected.keys()):
            with contextlib.suppress(LLMEvalError):
                self.session.rules.gates_of(collected[name])

    def _report_losses(self) -> None:
        """Let docs that were given up have an error as their result; report what no worker was left to run."""
        if self.blocks is None:
            return
        losses = dict(self.blocks.unfinished())
        for nodeid in self.blocks.gates():
            if nodeid in losses and nodeid in self.items:
                self.blocks.lost[nodeid] = losses.pop(nodeid)
            elif nodeid not in self.items:
                losses[nodeid] = "not judged: no worker lived to the end of the run"
        for nodeid, reason in losses.items():
            report = pytest.TestReport(nodeid, (nodeid.partition("::")[0], None, nodeid), {}, "failed", reason, "call")
            report.llmeval_outcome = "error"  # type: ignore[attr-defined]
            self.session.config.hook.pytest_runtest_logreport(report=report)
        for nodeid, reason in self.blocks.lost.items():
            if is_doc(nodeid):
                model, task, index = self._place_of(nodeid)
                self.session.selection.run(model).add(task, [DocResult(index, {}, error=reason)])

    def _place_of(self, nodeid: str) -> tuple[str, str, int]:
        """Return the model, the task and the number of a doc by its node id."""
        path, _, name = nodeid.partition("::")
        before, _, number = name.removeprefix("doc[").removesuffix("]").rpartition("-")
        found = self.session.values_in(self.session.config.rootpath / path)
        if isinstance(found[0], Task):
            return before, found[0].name, int(number)
        task = max((one.name for one in found[1:] if f"-{before}".endswith(f"-{one.name}")), key=len)
        return before.removesuffix(task).removesuffix("-"), task, int(number)

    def _gate(self, owner: Task | Group, gate_id: str) -> Gate:
        return next(gate for gate in self.session.rules.gates_of(owner) if gate.id == gate_id)

    def _settle(self, gate: WorkerItem) -> tuple[str, str | None, Mapping[str, Any]]:
        """Return the outcome for the report, the text of a failure or skip, and the numbers of the verdict."""
        run, owner = self.session.selection.run(gate.model), self.session.selection.collected[gate.owner]
        judge = self.session.judge
        if self.blocks and (reason := self.blocks.lost.get(gate.nodeid)):
            # A task with an error is not judged; the others of a group may have their results.
            for task in self.session.evaluation.leaves(owner):
                if len(run.results(task.name)) < self.session.evaluation.asked(task.name):
                    run.model_errors.setdefault(task.name, f"{task.name}: {reason}")
        if gate.gate_id is not None:
            found = self._gate(owner, gate.gate_id)
            verdict = judge.settle(run, gate.nodeid, owner, found, lambda: self._model_of(gate), scores=False)
            if verdict is None:
                return "skipped", run.gate_errors[gate.nodeid], {}
            fails = judge.fails(verdict)
            return "failed" if fails else verdict.outcome, verdict.text if fails else None, verdict.numbers
        problem = judge.row_problem(run, owner) if isinstance(owner, Group) else None
        return (*(problem or ("passed", None)), {})

    def _model_of(self, gate: WorkerItem) -> LM:
        """Return the model of a gate, loaded here, where the workers have ended. Raises ModelError."""
        if gate.overridden:
            raise ModelError("a conftest.py gives the model, and the workers that had it have ended; run it without -n")
        if self._loaded is None or self._loaded[0] != gate.model:
            self._opened.close()
            self._loaded = None
            serve = contextlib.contextmanager(self.session.models.serve)
            try:
                lm = self._opened.enter_context(serve(gate.model or self.session.models.choices[0].name))
            except pytest.fail.Exception as error:
                raise ModelError(str(error)) from None
            self._loaded = gate.model, lm
        return self._loaded[1]

    def _report(self, gate: WorkerItem, outcome: str, text: str | None, numbers: Mapping[str, Any]) -> None:
        hook = self.session.config.hook
        hook.pytest_runtest_logstart(nodeid=gate.nodeid, location=gate.location)
        for when in PHASES:
            report = pytest.TestReport(
                gate.nodeid,
                gate.location,
                {},
                ("skipped" if outcome == "skipped" else "failed") if when == "call" and text else "passed",
                _longrepr(outcome, text, gate.location) if when == "call" else None,
                when,
                user_properties=list(numbers.items()),
            )
            if when == "call":
                report.llmeval_outcome = outcome  # type: ignore[attr-defined]
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=gate.nodeid, location=gate.location)


def _longrepr(outcome: str, text: str | None, location: tuple[Any, ...]) -> Any:
    """Return the `longrepr` that pytest expects for a failure or a skip."""
    return (str(location[0]), location[1], f"Skipped: {text}") if outcome == "skipped" else text
