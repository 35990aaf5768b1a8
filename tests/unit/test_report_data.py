"""What reports take from a finished session, as plain values: one report per model."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import SecondAnswers
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._report import GateLine
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._session.report_data import git_hash
from pytest_llmeval._session.report_data import model_reports
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict


def a_task(name: str) -> Task:
    return Task(name, Path(f"{name}.yaml"), "multiple_choice", None, None)


class StandIn:
    """The parts of a session that reports are made from."""

    def __init__(self, **owners: Task | Group) -> None:
        evaluation: Any = SimpleNamespace(
            leaves=self.leaves, registry=SimpleNamespace(find=self.find), settings=Settings(), sizes={}
        )
        self.evaluation = evaluation
        self.models = SimpleNamespace(choices=())
        self.tasks = {name: a_task(name) for name in ("a", "b", "c")}
        self.runs: dict[str, ModelRun] = {}
        self.selection = SimpleNamespace(runs=self.runs, collected=owners)
        self.judge = SimpleNamespace(
            summary=self.summary, stopped_below=lambda run, group: None, second_answers=SecondAnswers
        )
        self.baseline = SimpleNamespace(part=self.part)

    def run(self, model: str) -> ModelRun:
        if model not in self.runs:
            self.runs[model] = ModelRun(self.evaluation, model)
            self.runs[model].name = model or "tiny"
        return self.runs[model]

    def find(self, name: str, near: Path) -> Task | tuple[Task, ...]:
        return tuple(self.tasks.values()) if name == "tag" else self.tasks[name]

    def leaves(self, owner: Task | Group) -> tuple[Task, ...]:
        if isinstance(owner, Task):
            return (owner,)
        return tuple(leaf for member in owner.members for leaf in self._leaves_of(member))

    def _leaves_of(self, member: str | Task | Group) -> tuple[Task, ...]:
        found = self.find(member, Path()) if isinstance(member, str) else member
        return found if isinstance(found, tuple) else self.leaves(found)

    def summary(self, run: ModelRun, owner: Task | Group) -> Summary:
        tasks = tuple(task.name for task in self.leaves(owner)) if isinstance(owner, Group) else ()
        return Summary(owner.name, owner.name, 1.0, 0, 10, 10, (), tasks)

    def part(self, run: ModelRun, task: Task) -> TaskData:
        return TaskData(task, list(run.results(task.name).values()), 10)

    def answer(self, model: str, task: str, *correct: bool | None) -> None:
        self.run(model).add(task, [DocResult(i, {}, right) for i, right in enumerate(correct)])


def test_a_session_of_two_models() -> None:
    session: Any = StandIn(a=a_task("a"), b=a_task("b"))
    session.answer("", "b", False)
    session.answer("", "a", True, False, None)
    session.answer("new", "a", True, True)
    gate = parse_rule("a.acc >= 0.5", origin="ini").gate
    for model, nodeid in (("", "a.yaml::gate[acc]"), ("new", "a.yaml::gate[new-acc]")):
        session.run(model).select_gate(nodeid, session.tasks["a"], gate)
    session.run("").verdicts["a.yaml::gate[acc]"] = verdict = Verdict("passed", "fine")
    session.run("new").gate_errors["a.yaml::gate[new-acc]"] = "it was skipped"
    session.run("new").facts = facts = {"model": {"model_dtype": "float32"}}
    session.run("new").usage = {"tokens": 7}
    first, second = model_reports(session)
    assert (first.name, first.id, second.name, second.id) == ("tiny", "", "new", "new")
    # In the order of collection, whichever worker answered first.
    assert [(one.summary.name, len(one.data.results)) for one in first.tasks] == [("a", 3), ("b", 1)]
    assert first.gates == [GateLine("a.yaml::gate[acc]", verdict)]
    assert [(one.summary.name, len(one.data.results)) for one in second.tasks] == [("a", 2)]
    assert second.gates == [GateLine("a.yaml::gate[new-acc]", None, "it was skipped")]
    assert (first.facts, first.usage, second.facts, second.usage) == ({}, {}, facts, {"tokens": 7})


def test_models_come_in_the_order_in_which_they_were_named() -> None:
    session: Any = StandIn(a=a_task("a"))
    session.models.choices = [SimpleNamespace(name=name, spec=f"org/{name}") for name in ("old", "new")]
    session.answer("new", "a", True)
    session.answer("old", "a", True)
    assert [(report.id, report.spec) for report in model_reports(session)] == [("old", "org/old"), ("new", "org/new")]
    session.models.choices = session.models.choices[:1]
    session.answer("", "a", True)
    assert {report.id: report.spec for report in model_reports(session)}[""] == "org/old"


def test_a_group_brings_its_inner_groups_and_tasks() -> None:
    inner = Group("inner", Path("g.yaml"), ("a",))
    session: Any = StandIn(outer=Group("outer", Path("g.yaml"), (inner, "b")))
    session.answer("", "a", True)
    session.answer("", "b", True)
    (report,) = model_reports(session)
    assert [one.name for one in report.summaries] == ["a", "b", "inner", "outer"]
    assert report.children == {"inner": ["a"], "outer": ["inner", "b"]}


def test_a_part_of_a_group_is_not_the_group() -> None:
    session: Any = StandIn(one=Group("one", Path("g.yaml"), ("a",)), two=Group("two", Path("g.yaml"), ("a", "c")))
    session.answer("", "a", True)
    (report,) = model_reports(session)
    assert [one.name for one in report.summaries] == ["a", "one"]


def test_a_tag_among_the_members_stands_for_its_tasks() -> None:
    session: Any = StandIn(one=Group("one", Path("g.yaml"), ("tag",)))
    for name in session.tasks:
        session.answer("", name, True)
    (report,) = model_reports(session)
    assert report.children == {"one": ["a", "b", "c"]}


def test_git_hash(tmp_path: Path) -> None:
    assert git_hash(tmp_path / "none") is None
    assert git_hash(tmp_path) is None or re.fullmatch(r"\S+", str(git_hash(tmp_path)))
