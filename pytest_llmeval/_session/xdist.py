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
from pathlib import Path
from typing import Any
from typing import Literal

import pytest
from _pytest.runner import runtestprotocol  # log=False is the only way to run an item without reporting it

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import DocResult
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import variant_of
from pytest_llmeval._session.run import owner_of
from pytest_llmeval._session.session import CHUNK
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


PHASES: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")

#: The key under which everything of ours travels in `config.workeroutput`.
OUTPUT = "llmeval"


def publish_collection(session: Session, items: Iterable[pytest.Item], problem: str | None) -> None:
    """On a worker: tell the controller which gates are selected, and where their tasks are written.

    A usage error cannot be raised here (xdist takes it for a crash). It travels as the report of a failed
    collection, the one message that the controller gets before it hands out work.
    """
    if problem:
        report = pytest.CollectReport("", "failed", problem, [])
        report.llmeval_usage_error = problem  # type: ignore[attr-defined]
        session.config.hook.pytest_collectreport(report=report)
    gates = []
    for item in items:
        owner = owner_of(item)
        if owner is not None:
            found = gate_of(item)
            gate_id, variant = found.gate.id if found else None, variant_of(item)
            skip = None if found or isinstance(owner, Task) else session.left_out(owner, variant)
            gates.append([item.nodeid, list(item.location), owner.name, gate_id, variant, skip])
    session.config.workeroutput[OUTPUT] = {  # type: ignore[attr-defined]
        "gates": gates,
        "owners": {name: str(owner.path) for name, owner in session.collected.items()},
    }


def publish_results(session: Session) -> None:
    """On a worker: the results that no doc item reports, and what every worker knows of tasks and models."""
    evaluation, records = session.evaluation, []
    for variant, task in evaluation.ledger.scored():
        reported = session.selected.get((variant, task), ())
        results = evaluation.ledger.of(variant, task)
        records += [[variant, task, r.to_list()] for index, r in results.items() if index not in reported]
    session.config.workeroutput.setdefault(OUTPUT, {}).update(  # type: ignore[attr-defined]
        records=records,
        sizes={task: list(sizes) for task, sizes in evaluation.sizes.items()},
        paths={task: str(evaluation.path_of(task)) for _, task in evaluation.ledger.scored()},
        models=session.model_names,
        lacking=session.lacking,
        unasked=[[*key, reason] for key, reason in session.unasked.items()],
        described=evaluation.described,
        used=evaluation.used,
        noise=session.noise.to_list(),
    )


def run_silently(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run an item whose report is the controller's to make."""
    runtestprotocol(item, log=False, nextitem=nextitem)


class Controller:
    """The part of the plugin that lives in xdist's controlling process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.gates: dict[str, list[Any]] = {}
        self.paths: dict[str, str] = {}
        #: Names of what workers collected.
        self.owners: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if problem := getattr(report, "llmeval_usage_error", None):
            raise pytest.UsageError(problem)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add([record] if (record := getattr(report, "llmeval", None)) else [])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has no output: its gates are then found incomplete.
        output = getattr(node, "workeroutput", {}).get(OUTPUT, {})
        self._add(output.get("records", ()))
        self.gates.update({gate[0]: gate for gate in output.get("gates", ())})
        self.paths.update(output.get("owners", {}))
        self.owners.update(output.get("owners", {}))
        self.paths.update(output.get("paths", {}))
        sizes = {task: tuple(pair) for task, pair in output.get("sizes", {}).items()}
        self.session.evaluation.sizes.update(sizes)
        self.session.model_names.update(output.get("models", {}))
        self.session.evaluation.described.update(output.get("described", {}))
        for variant, used in output.get("used", {}).items():
            self.session.evaluation.add_usage(variant, used)
        self.session.noise.add(output.get("noise", ()))
        self.session.lacking.update(output.get("lacking", {}))
        self.session.unasked.update({(variant, task): why for variant, task, why in output.get("unasked", ())})
        self.session.selected_gates = [(gate[4], gate[0]) for gate in self.gates.values() if gate[3] is not None]

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """A task stays on one worker in pieces of `CHUNK` docs: whole waves, and its prompt prefix shared."""
        if config.getvalue("dist") != "load":
            return None
        from xdist.scheduler import LoadScopeScheduling

        models, chunk = self.session.models.each_item, self.session.chunk
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
        for _, _, owner, gate_id, variant, _ in self.gates.values():
            if gate_id is not None:
                value = self.session.collected[owner]
                self.session.join_family(variant, value, _gate(self.session, value, gate_id))
        for nodeid, location, owner, gate_id, variant, skip in self.gates.values():
            judged = ("skipped", skip, {}) if skip else self._judge(nodeid, owner, gate_id, variant)
            self._report(nodeid, tuple(location), *judged)
        return result

    def _add(self, records: Iterable[list[Any]]) -> None:
        for variant, task, result in records:
            self.session.evaluation.ledger.add(variant, task, [DocResult.from_list(result)])

    def _restore_tasks(self) -> None:
        """Read the files of all tasks again here: their values do not travel, their paths do."""
        for path in sorted(set(self.paths.values())):
            # A file that cannot be read has been reported by the worker that collected it.
            with contextlib.suppress(LLMEvalError):
                self.session.collected.update({value.name: value for value in self.session.values_in(Path(path))})
        # So that it is known which rules of the configuration select something, though their gates be deselected.
        for name in sorted(self.owners & self.session.collected.keys()):
            with contextlib.suppress(LLMEvalError):
                self.session.gates_of(self.session.collected[name])

    def _judge(
        self, nodeid: str, owner: str, gate_id: str | None, variant: str
    ) -> tuple[str, str | None, Mapping[str, Any]]:
        """(outcome for the report, failure text, numbers)."""
        value = self.session.collected[owner]
        gate = None if gate_id is None else _gate(self.session, value, gate_id)
        if reason := self.session.excuse(value, gate):
            self.session.unjudged[variant, nodeid] = reason
            return "skipped", reason, {}
        if gate is None and isinstance(value, Group) and (reason := self.session.stopped_below(value, variant)):
            return "skipped", reason, {}
        if gate is None:
            missing = self.session.missing(value, variant)
            return ("failed" if missing else "passed"), missing and f"{owner}: {missing}", {}
        verdict = self.session.verdict(value, variant, gate)
        self.session.verdicts[variant, nodeid] = verdict
        failed = self.session.failed(verdict)
        return ("failed" if failed else verdict.outcome), verdict.sentence if failed else None, verdict.numbers

    def _report(
        self, nodeid: str, location: tuple[Any, ...], outcome: str, text: str | None, numbers: Mapping[str, Any]
    ) -> None:
        hook = self.session.config.hook
        hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
        for when in PHASES:
            report = pytest.TestReport(
                nodeid,
                location,
                {},
                ("skipped" if outcome == "skipped" else "failed") if when == "call" and text else "passed",
                _longrepr(outcome, text, location) if when == "call" else None,
                when,
                user_properties=list(numbers.items()),
            )
            if when == "call":
                report.llmeval_outcome = outcome  # type: ignore[attr-defined]
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


def _longrepr(outcome: str, text: str | None, location: tuple[Any, ...]) -> Any:
    """What pytest wants to know of a failure, and of a skip."""
    return (str(location[0]), location[1], f"Skipped: {text}") if outcome == "skipped" else text


def _gate(session: Session, owner: Task | Group, gate_id: str) -> Gate:
    return next(gate for gate in session.gates_of(owner) if gate.id == gate_id)


def scope_of(nodeid: str, models: Sequence[str] = (), chunk: int | None = CHUNK) -> str:
    """The unit of work that a node id belongs to: a piece of a task file under one of the models.

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
