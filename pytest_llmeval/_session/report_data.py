"""The results of a session as the plain values that reports and result files are made of, one report per model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

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
    """Return one report per model: in the order in which the user named them, else in that of their first results."""
    gates = (*session.selected_gates, *session.verdicts)
    found = dict.fromkeys(variant for variant, _ in (*session.evaluation.ledger.scored(), *gates))
    named = [choice.name for choice in session.models.choices]
    ordered = sorted(found, key=lambda variant: named.index(variant) if variant in named else len(named))
    return [model_report(session, variant) for variant in ordered]


def model_report(session: Session, variant: str) -> ModelReport:
    """Return all that a session knows of one model."""
    gates = dict.fromkeys(key for key in (*session.selected_gates, *session.verdicts) if key[0] == variant)
    # The only model has no part in item ids.
    several = len(session.models.choices) > 1
    specs = {choice.name if several else "": choice.spec for choice in session.models.choices}
    tasks = _scored_tasks(session, variant)
    return ModelReport(
        name=session.model_names.get(variant, variant),
        tasks=[
            TaskReport(
                replace(session.part(task, variant), noise=session.noise.of(variant, task.name)),
                session.summary(task, variant),
            )
            for task in tasks
        ],
        groups=[
            GroupReport(group, session.summary(group, variant), [member.name for member in _members(session, group)])
            for group in _scored_groups(session, variant, {task.name for task in tasks})
        ],
        gates=[GateLine(key[1], session.verdicts.get(key), session.unjudged.get(key)) for key in gates],
        id=variant,
        spec=specs.get(variant, ""),
        facts=session.evaluation.described.get(variant, NOTHING),
        usage=session.evaluation.used.get(variant, NOTHING),
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


def _scored_tasks(session: Session, variant: str) -> list[Task]:
    """Return the tasks with results of a model, in the order of collection: their own, then those of groups.

    Workers report in any order, and the report is to be the same.
    """
    owners = sorted(session.collected.values(), key=lambda owner: isinstance(owner, Group))
    known = {task.name: task for owner in owners for task in session.leaves(owner)}
    scored = {name for own, name in session.evaluation.ledger.scored() if own == variant}
    return [task for name, task in known.items() if name in scored]


def _scored_groups(session: Session, variant: str, scored: set[str]) -> list[Group]:
    """Return the groups of which all tasks are `scored` and none stopped early, the inner ones first.

    The numbers of a part would not be those of the group.
    """
    found = {group.name: group for group in _inner_first(session, session.collected.values())}
    return [
        group
        for group in found.values()
        if scored >= {task.name for task in session.leaves(group)} and not session.stopped_below(group, variant)
    ]


def _members(session: Session, group: Group) -> list[Task | Group]:
    """Return the direct members of a group, tasks in place of a tag."""
    opened: list[Task | Group] = []
    for member in group.members:
        found = session.registry.find(member, group.path) if isinstance(member, str) else member
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
