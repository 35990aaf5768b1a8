"""The results of a session as the plain values that reports and result files are made of, one report per model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._report import GateLine
from pytest_llmeval._report import GroupReport
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import RunFacts
from pytest_llmeval._report import TaskReport
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


def model_reports(session: Session) -> list[ModelReport]:
    """Return one report per model: in the order in which the user named them, else in that of their first items."""
    named = [choice.name for choice in session.models.choices]
    runs = [run for run in session.selection.runs.values() if run.answered or run.gates]
    runs.sort(key=lambda run: named.index(run.model) if run.model in named else len(named))
    return [model_report(session, run) for run in runs]


def model_report(session: Session, run: ModelRun) -> ModelReport:
    """Return all that a session knows of one model."""
    # The only model has no part in item ids.
    several = len(session.models.choices) > 1
    specs = {choice.name if several else "": choice.spec for choice in session.models.choices}
    tasks, nodeids = _scored_tasks(session, run), [gate.nodeid for gate in run.gates.values()]
    return ModelReport(
        name=run.name,
        tasks=[
            TaskReport(
                session.baseline.part(run, task),
                session.judge.summary(run, task),
                run.noise.of(task.name),
                session.judge.second_answers(run).run.results(task.name),
            )
            for task in tasks
        ],
        groups=[
            GroupReport(group, session.judge.summary(run, group), [member.name for member in _members(session, group)])
            for group in _scored_groups(session, run, {task.name for task in tasks})
        ],
        gates=[GateLine(nodeid, run.verdicts.get(nodeid), run.gate_errors.get(nodeid)) for nodeid in nodeids],
        id=run.model,
        spec=specs.get(run.model, ""),
        facts=run.facts or NOTHING,
        usage=run.usage,
    )


def run_facts(session: Session) -> RunFacts:
    """Return the facts of the run that hold for all of its models."""
    return RunFacts(
        settings=session.settings,
        model_args=value_of(session.config, "model-args") or "",
        started=session.started.timestamp(),
        seconds=(datetime.now() - session.started).total_seconds(),
        git_hash=git_hash(session.config.rootpath),
    )


def _scored_tasks(session: Session, run: ModelRun) -> list[Task]:
    """Return the tasks with results of a model, in the order of collection: their own, then those of groups.

    Workers report in any order, and the report is to be the same.
    """
    owners = sorted(session.selection.collected.values(), key=lambda owner: isinstance(owner, Group))
    known = {task.name: task for owner in owners for task in session.evaluation.leaves(owner)}
    scored = run.scored()
    return [task for name, task in known.items() if name in scored]


def _scored_groups(session: Session, run: ModelRun, scored: set[str]) -> list[Group]:
    """Return the groups of which all tasks are `scored` and none stopped early, the inner ones first.

    The numbers of a part would not be those of the group.
    """
    found = {group.name: group for group in _inner_first(session, session.selection.collected.values())}
    return [
        group
        for group in found.values()
        if scored >= {task.name for task in session.evaluation.leaves(group)}
        and not session.judge.stopped_below(run, group)
    ]


def _members(session: Session, group: Group) -> list[Task | Group]:
    """Return the direct members of a group, tasks in place of a tag."""
    opened: list[Task | Group] = []
    for member in group.members:
        found = session.evaluation.registry.find(member, group.path) if isinstance(member, str) else member
        opened += found if isinstance(found, tuple) else (found,)
    return opened


def _inner_first(session: Session, owners: Iterable[Task | Group]) -> Iterator[Group]:
    for owner in owners:
        if isinstance(owner, Group):
            yield from _inner_first(session, _members(session, owner))
            yield owner


def git_hash(folder: Path) -> str | None:
    """Return the result of ``git describe --always`` in a folder; None without git or outside a repository."""
    command = ["git", "-C", str(folder), "describe", "--always"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
