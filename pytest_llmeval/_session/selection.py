"""The tasks, docs and gates of this session: everything collected, and the part of it that is selected."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._plain import listed
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import model_of
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


class Selection:
    """Everything that was collected, and the runs of the models that were selected."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        #: Model name in node ids -> its run, in the order in which the models answer.
        self.runs: dict[str, ModelRun] = {}
        #: Task or group name -> value, of everything that was collected here or in a worker.
        self.collected: dict[str, Task | Group] = {}
        #: Names of the tasks whose docs were collected, selected or not.
        self.with_docs: set[str] = set()

    def run(self, model: str) -> ModelRun:
        """Return the run of the model of that name."""
        if model not in self.runs:
            self.runs[model] = ModelRun(self.evaluation, model)
        return self.runs[model]

    def select(self, items: Iterable[pytest.Item]) -> None:
        """Record the docs and gates that run. Called when nothing is deselected any more."""
        for run in self.runs.values():
            run.selected_docs.clear()
            run.gates.clear()
        for item in items:
            if gate_item := gate_of(item):
                self.run(model_of(item)).select_gate(item.nodeid, gate_item.owner, gate_item.gate)
            if found := doc_of(item):
                order = self.run(model_of(item)).selected_docs.setdefault(found.opened.task.name, {})
                order[found.index] = len(order)
        self.evaluation.expect_models(sum(bool(run.selected_docs or run.gates) for run in self.runs.values()))

    def deselected_below(self, group: Group, run: ModelRun) -> str | None:
        """Return why a group's row is not evaluated: some of its tasks were deselected, and others were not.

        A gate needs all docs whatever is selected; a mere table row is not worth evaluating deselected docs.
        """
        collected = [task.name for task in self.evaluation.leaves(group) if task.name in self.with_docs]
        out = [name for name in collected if name not in run.selected_docs]
        if not out or len(out) == len(collected):
            return None
        return f"{group.name}: {len(out)} of its tasks are deselected ({listed(out, 3)})"
