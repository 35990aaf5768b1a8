"""A task file as a pytest module: its docs are items, its gates are items.

`TaskModule._getobj` ("may be overwritten by subclasses") hands pytest a synthetic module of a few functions;
`pytest_generate_tests` parametrizes them. So fixtures, parametrized or overridden ones included, work as they do
in any module, and nothing private of pytest is needed here beyond `item.callspec`.
"""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._session.file_patterns import pass_by
from pytest_llmeval._session.file_patterns import wants
from pytest_llmeval._session.items import DocItem
from pytest_llmeval._session.items import GateItem
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import model_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._session.startup import session_of
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import Finding
from pytest_llmeval._taskfile import lint
from pytest_llmeval._taskfile import looks_like_task


#: How many task files could not be collected.
BROKEN = pytest.StashKey[int]()


# Their parameters tell pytest which fixtures an item needs; `hooks.Running.pytest_pyfunc_call` runs the item.
def doc(llmeval_doc: DocItem, llmeval_model: Any) -> None: ...


@pytest.mark.llmeval_gate
def gate(llmeval_gate: GateItem, llmeval_model: Any) -> None: ...


def score(llmeval_model: Any) -> None: ...


class TaskModule(pytest.Module):
    """One task or group file."""

    llmeval_session: Session
    #: The task or group in the file, once collected.
    found: Task | Group
    docs: list[DocItem]
    gates: list[GateItem]

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            self.found = self.llmeval_session.evaluation.registry.load(self.path)
            functions = self._functions()
        except (LLMEvalError, LLMEvalWarning) as error:  # a warning is raised where the user's filters say so
            self.config.stash[BROKEN] = self.config.stash.get(BROKEN, 0) + 1
            raise self.CollectError(str(error)) from None
        self.add_names()
        self.synthetic = types.ModuleType(self.path.stem)
        for function in functions:
            setattr(self.synthetic, function.__name__, self._placed(function))
        yield from super().collect()

    def _getobj(self) -> types.ModuleType:
        return self.synthetic

    def llmeval_generate(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the functions of this module."""
        if "llmeval_doc" in metafunc.fixturenames:
            metafunc.parametrize("llmeval_doc", self.docs, ids=[doc.id for doc in self.docs])
        elif "llmeval_gate" in metafunc.fixturenames:
            metafunc.parametrize("llmeval_gate", self.gates, ids=[gate.id for gate in self.gates])

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that are written in this file, inline ones of a group included."""
        if isinstance(self.found, Task):
            return (self.found,)
        return self.found.inline_tasks()

    def add_names(self) -> None:
        """Register every name that selects the tasks of this file as a marker, and mark the module with it.

        Called again when all files are collected: groups found later add theirs.
        """
        known = {mark.name for mark in self.iter_markers()}
        for name in self.llmeval_session.evaluation.registry.names_of(self.found):
            if name not in known and re.fullmatch(r"[^\W_][^:(]*", name):
                self.config.addinivalue_line("markers", f"{name}: language-model task, tag or group")
                self.add_marker(name)
                self.add_marker(pytest.mark.llmeval(group=name))
        if not any(mark.kwargs.get("task") for mark in self.iter_markers("llmeval")):
            for task in self.tasks():
                self.add_marker(pytest.mark.llmeval(task=task.name))

    def _functions(self) -> list[Callable[..., None]]:
        """Return the test functions of the module, in the order in which they run."""
        session = self.llmeval_session
        self.gates = [GateItem(gate.id, self.found, gate) for gate in session.rules.gates_of(self.found)]
        session.selection.collected[self.found.name] = self.found
        self.docs = []
        if session.lint_only:
            return [_lint_function(session, [finding for task in self.tasks() for finding in lint(task, None)])]
        functions: list[Callable[..., None]] = []
        for task in self.tasks():
            session.selection.collected[task.name] = task
            prefix = "" if task is self.found else f"{task.name}-"
            if prefix:
                self.gates += [GateItem(prefix + gate.id, task, gate) for gate in session.rules.gates_of(task)]
            if reason := session.refusal(task):
                functions.append(_skipping("code", reason))
                continue
            try:
                opened = session.evaluation.open(task)
                if not (self.config.option.collectonly or session.looks_only):
                    opened.check_examples()
            except (DataError, TaskFileError) as error:
                session.evaluation.data_errors[task.name] = str(error)
                functions.append(_data_function(session, str(error)))
                continue
            self._report(lint(task, opened.docs.columns))
            session.selection.with_docs.add(task.name)
            self.docs += [DocItem(f"{prefix}{index}", opened, index) for index in session.judge.docs_in_order(opened)]
        if self.docs:
            functions.append(doc)
        if self.gates:
            functions.append(gate)
        elif isinstance(self.found, Group):
            functions.append(score)
        return functions

    def _report(self, findings: list[Finding]) -> None:
        """Raise LLMEvalError for errors, and for warnings under --llmeval-strict; warn of the others."""
        errors = [f for f in findings if f.severity == "error" or self.llmeval_session.settings.strict]
        if errors:
            raise LLMEvalError("\n".join(str(finding) for finding in errors))
        for finding in findings:
            warnings.warn_explicit(str(finding), LLMEvalWarning, str(finding.path), finding.line or 1)

    def _placed(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return a copy of the function as if written in the task file: reports and annotations show that place."""
        lines = {"gate": [line for _, line in self.found.gates], "doc": [self.found.line_of("doc_to_text")]}
        line = next(iter(lines.get(function.__name__, [])), 1)
        code = function.__code__.replace(co_filename=str(self.path), co_firstlineno=line)
        placed = types.FunctionType(code, function.__globals__, function.__name__, closure=function.__closure__)
        placed.__dict__.update(function.__dict__)
        placed.__module__ = self.synthetic.__name__
        # Whatever the user's python_functions is, these are tests.
        placed.__test__ = True  # type: ignore[attr-defined]
        return placed


def _data_function(session: Session, reason: str) -> Callable[..., None]:
    if session.missing_data == "skip":
        return _skipping("data", reason)

    def data() -> None:
        pytest.fail(reason, pytrace=False)

    return data


def _skipping(name: str, reason: str) -> Callable[..., None]:
    def skipping() -> None:
        pytest.skip(reason)

    skipping.__name__ = name
    return skipping


def _lint_function(session: Session, findings: list[Finding]) -> Callable[..., None]:
    def lint() -> None:
        if any(finding.severity == "error" or session.settings.strict for finding in findings):
            pytest.fail("\n".join(str(finding) for finding in findings), pytrace=False)
        for finding in findings:
            warnings.warn_explicit(str(finding), LLMEvalWarning, str(finding.path), finding.line or 1)

    return lint


def order(items: list[pytest.Item]) -> None:
    """Put every item that looks at a whole group right after the last item of its model.

    A plain "groups last" would make pytest set up each model twice.
    """
    groups = {item for item in items if _is_group_item(item)}
    if not groups:
        return
    last: dict[str, int] = {}
    rest = [item for item in items if item not in groups]
    for position, item in enumerate(rest):
        if isinstance(item.parent, TaskModule):
            last[model_of(item)] = position
    places = {item: (position, 0) for position, item in enumerate(rest)}
    places.update({item: (last.get(model_of(item), len(rest)), 1) for item in groups})
    items.sort(key=places.__getitem__)


def _is_group_item(item: pytest.Item) -> bool:
    module = item.parent
    return isinstance(module, TaskModule) and isinstance(module.found, Group) and doc_of(item) is None


def module_for(path: Path, parent: pytest.Collector) -> TaskModule | None:
    """Return the module of a task or group file; None for any other YAML file."""
    named = parent.session.isinitpath(path)
    if not named and not wants(parent.config, path):
        pass_by(parent.config, path)
        return None
    if not named and not looks_like_task(path):
        return None
    module = TaskModule.from_parent(parent, path=path)
    module.llmeval_session = session_of(parent.config)
    return module


def tolerate_broken_files(session: pytest.Session) -> None:
    """Let the run go on if nothing but task files failed to be collected: one bad task must not stop the others.

    The failures are reported and counted all the same.
    """
    failed = session.config.stash.get(BROKEN, 0)
    if failed and session.testsfailed == failed:
        session.config.option.continue_on_collection_errors = True
