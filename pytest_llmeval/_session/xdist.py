"""Runs spread over pytest-xdist: workers send plain records, the controller merges, judges and reports.

A worker cannot know what the others found, so gates run silently there (they only have docs scored that no doc
item covers) and the controller judges them inside the run loop: exit status, --lf, JUnit and annotations then
see them as the ordinary tests that they are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import astuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Literal

import pytest
from _pytest.runner import runtestprotocol  # log=False is the only way to run an item without reporting it

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._results import DocResult
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import model_of
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.judge import CHUNK
from pytest_llmeval._session.options import STOP_SEED
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


PHASES: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")

#: The key of this plugin's data in `config.workeroutput`.
OUTPUT = "llmeval"


@dataclass(frozen=True, slots=True)
class WorkerItem:
    """A gate item, or the score item of a group (`gate_id` None), that a worker collected.

    `skip` is the reason why a score is not evaluated, known on workers only.
    """

    nodeid: str
    location: tuple[str, int | None, str]
    owner: str
    gate_id: str | None
    model: str
    skip: str | None = None

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
        published.append(list(astuple(WorkerItem(item.nodeid, item.location, owner.name, gate_id, model, skip))))
    session.config.workeroutput[OUTPUT] = {  # type: ignore[attr-defined]
        "items": published,
        "owners": {name: str(owner.path) for name, owner in session.selection.collected.items()},
    }


def publish_results(session: Session) -> None:
    """Send the results that no doc item reports, and the facts that every worker knows, to the controller."""
    evaluation, runs = session.evaluation, session.selection.runs
    scored = {task for run in runs.values() for task in run.scored()}
    session.config.workeroutput.setdefault(OUTPUT, {}).update(  # type: ignore[attr-defined]
        sizes={task: list(sizes) for task, sizes in evaluation.sizes.items()},
        paths={task: str(evaluation.path_of(task)) for task in scored},
        data_errors=evaluation.data_errors,
        runs={model: run.to_plain() for model, run in runs.items()},
    )


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


def run_silently(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run an item whose report is the controller's to make."""
    runtestprotocol(item, log=False, nextitem=nextitem)


class Controller:
    """The part of the plugin that lives in xdist's controlling process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.items: dict[str, WorkerItem] = {}
        #: The files of the tasks and groups that workers collected.
        self.paths: set[str] = set()
        #: Names of the tasks and groups that workers collected.
        self.owners: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if problem := getattr(report, "llmeval_usage_error", None):
            raise pytest.UsageError(problem)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if record := getattr(report, "llmeval", None):
            model, task, result = record
            self.session.selection.run(model).add(task, [DocResult.from_list(result)])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[STOP_SEED] = self.session.settings.stop_seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has no output: its gates are then found incomplete.
        output = getattr(node, "workeroutput", {}).get(OUTPUT, {})
        items = [WorkerItem.from_list(values) for values in output.get("items", ())]
        self.items.update({item.nodeid: item for item in items})
        self.owners.update(output.get("owners", {}))
        self.paths.update(output.get("owners", {}).values(), output.get("paths", {}).values())
        evaluation = self.session.evaluation
        evaluation.sizes.update({task: tuple(pair) for task, pair in output.get("sizes", {}).items()})
        evaluation.data_errors.update(output.get("data_errors", {}))
        for model, plain in output.get("runs", {}).items():
            self.session.selection.run(model).merge(plain)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return a scheduler that sends a task to one worker, in pieces of `CHUNK` docs, which are whole waves."""
        if config.getvalue("dist") != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        models, chunk = self.session.models.each_item, self.session.judge.chunk
        if len(models) > 1:
            # Largest first would mix the models: each worker would load them over and over.
            config.option.loadscopereorder = False

        class ByTask(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return scope_of(nodeid, models, chunk)

        return ByTask(config, log)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        self._restore_tasks()
        selection = self.session.selection
        for gate in self.items.values():
            if gate.gate_id is not None:
                owner = selection.collected[gate.owner]
                selection.run(gate.model).select_gate(gate.nodeid, owner, self._gate(owner, gate.gate_id))
        self.session.evaluation.expect_models(sum(bool(run.gates) for run in selection.runs.values()))
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

    def _gate(self, owner: Task | Group, gate_id: str) -> Gate:
        return next(gate for gate in self.session.rules.gates_of(owner) if gate.id == gate_id)

    def _settle(self, gate: WorkerItem) -> tuple[str, str | None, Mapping[str, Any]]:
        """Return the outcome for the report, the text of a failure or skip, and the numbers of the verdict."""
        run, owner = self.session.selection.run(gate.model), self.session.selection.collected[gate.owner]
        judge = self.session.judge
        if gate.gate_id is not None:
            verdict = judge.settle(run, gate.nodeid, owner, self._gate(owner, gate.gate_id))
            if verdict is None:
                return "skipped", run.gate_errors[gate.nodeid], {}
            fails = judge.fails(verdict)
            return "failed" if fails else verdict.outcome, verdict.text if fails else None, verdict.numbers
        problem = judge.row_problem(run, owner) if isinstance(owner, Group) else None
        return (*(problem or ("passed", None)), {})

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


def scope_of(nodeid: str, models: Sequence[str] = (), chunk: int | None = CHUNK) -> str:
    """Return the unit of work that a node id belongs to: a piece of a task file under one of the models.

    Other tests stand alone. `chunk` None: task files are not cut into pieces.

    >>> scope_of("b/mmlu.yaml::doc[1234]")
    'b/mmlu.yaml::1'
    >>> scope_of("b/mmlu.yaml::doc[ckpt-9-1234]", ["ckpt", "ckpt-9"])
    'b/mmlu.yaml::ckpt-9::1'
    """
    path, _, name = nodeid.partition("::")
    if not path.endswith((".yaml", ".yml")):
        return nodeid
    inside = name.partition("[")[2]
    model = max((model for model in models if inside.startswith((f"{model}-", f"{model}]"))), key=len, default="")
    number = re.search(r"(\d+)\]$", name) if name.startswith("doc[") else None
    piece = int(number[1]) // chunk if number and chunk else 0
    return f"{path}::{model}::{piece}" if model else f"{path}::{piece}"
