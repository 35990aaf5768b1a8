"""What a finished session knows, as the plain values that reports and result files are made of.

From a finished session to the runs that are written.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pytest_llmeval._report.checkpoints import Comparison
from pytest_llmeval._report.lines import GateLine
from pytest_llmeval._report.lines import VariantReport
from pytest_llmeval._report.run import GroupRun
from pytest_llmeval._report.run import Run
from pytest_llmeval._report.run import TaskRun
from pytest_llmeval._report.trends import Trend
from pytest_llmeval._report.trends import trends_of_group
from pytest_llmeval._report.trends import trends_of_task
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Ledger
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


Owner = TypeVar("Owner", bound=Task | Group)


def gather(session: Session, selected: Iterable[tuple[str, str]] = ()) -> list[VariantReport]:
    """One report a model, in the order in which their first results came.

    `selected` are the gates that were to run, as (variant, node id): those without a verdict were not judged.
    """
    gates = {key: GateLine(key[1], None, session.unjudged.get(key)) for key in selected}
    gates |= {key: GateLine(key[1], verdict) for key, verdict in session.verdicts.items()}
    return [
        _report(session, variant, [line for key, line in gates.items() if key[0] == variant])
        for variant in _in_order(session, (variant for variant, _ in (*session.evaluation.ledger.scored(), *gates)))
    ]


def compare(session: Session) -> Comparison | None:
    """The models of the session side by side; None if there is one only, or nothing that they can be compared in."""
    variants = _in_order(session, (variant for variant, _ in session.evaluation.ledger.scored()))
    if len(variants) < 2:
        return None
    ledger, common = session.evaluation.ledger, _common(scored_tasks(session, variant) for variant in variants)
    trends: list[Trend] = []
    apart: dict[str, list[int]] = {}
    for task in common:
        results = [ledger.of(variant, task.name) for variant in variants]
        if len({frozenset(found) for found in results}) == 1:
            trends += trends_of_task([session.summary(task, variant) for variant in variants], results)
        else:
            apart[task.name] = [len(found) for found in results]
    groups = _common(scored_groups(session, variant) for variant in variants)
    of_groups = [
        trend
        for group in groups
        for trend in trends_of_group(group, [session.summary(group, variant) for variant in variants], trends)
    ]
    if not trends:
        return None
    names = [session.model_names.get(variant, variant) for variant in variants]
    children = {group.name: [member.name for member in members(session, group)] for group in groups}
    return Comparison(names, [*trends, *of_groups], children, apart)


def _in_order(session: Session, variants: Iterable[str]) -> list[str]:
    """Each once: in the order in which the user named the models, else in that of their first results."""
    named = [choice.name for choice in session.models.choices]
    found = list(dict.fromkeys(variants))
    return sorted(found, key=lambda variant: named.index(variant) if variant in named else len(named))


def _common(lists: Iterable[list[Owner]]) -> list[Owner]:
    """What stands in all lists, by name, in the order of the first."""
    first, *others = lists
    names = [{owner.name for owner in other} for other in others]
    return [owner for owner in first if all(owner.name in known for known in names)]


def scored_tasks(session: Session, variant: str) -> list[Task]:
    """The tasks with results of a model: those collected, and those that a collected group rests on."""
    known = {task.name: task for owner in session.collected.values() for task in session.leaves(owner)}
    scored = [name for own, name in session.evaluation.ledger.scored() if own == variant]
    return [known[name] for name in scored if name in known]


def scored_groups(session: Session, variant: str) -> list[Group]:
    """The groups of which the model answered every task, and none stopped early, the inner ones first.

    A part is not the group.
    """
    found = {group.name: group for group in _inner_first(session, session.collected.values())}
    scored = {task.name for task in scored_tasks(session, variant)}
    return [
        group
        for group in found.values()
        if scored >= {task.name for task in session.leaves(group)} and not session.stopped_below(group, variant)
    ]


def members(session: Session, group: Group) -> list[Task | Group]:
    """The direct members of a group; a tag is opened up to its tasks."""
    opened: list[Task | Group] = []
    for member in group.members:
        found = session.registry.find(member, group.path) if isinstance(member, str) else member
        opened += found if isinstance(found, tuple) else (found,)
    return opened


def _inner_first(session: Session, owners: Iterable[Task | Group]) -> Iterator[Group]:
    for owner in owners:
        if isinstance(owner, Group):
            yield from _inner_first(session, members(session, owner))
            yield owner


def _report(session: Session, variant: str, gates: list[GateLine]) -> VariantReport:
    tasks, groups = scored_tasks(session, variant), scored_groups(session, variant)
    owners: list[Task | Group] = [*tasks, *groups]
    judged = [
        result.correct for result in _results(session.evaluation.ledger, variant, tasks) if result.correct is not None
    ]
    return VariantReport(
        name=session.model_names.get(variant, variant),
        summaries=[session.summary(owner, variant) for owner in owners],
        children={group.name: [member.name for member in members(session, group)] for group in groups},
        gates=gates,
        answered=len(judged),
        wrong=judged.count(False),
    )


def _results(ledger: Ledger, variant: str, tasks: Iterable[Task]) -> Iterator[DocResult]:
    for task in tasks:
        yield from ledger.of(variant, task.name).values()


def runs_of(
    session: Session,
    *,
    specs: Mapping[str, str] = NOTHING,
    model_args: str = "",
    started: float = 0.0,
    seconds: float = 0.0,
) -> list[Run]:
    """One run a model, in the order in which their first results came.

    `specs`: variant -> what the user named (``org/name``, a path); none for a model that a fixture made. A path is
    called by the model's name in reports.
    """
    commit = git_hash(session.config.rootpath)
    runs = []
    scored = session.evaluation.ledger.scored()
    for variant in dict.fromkeys(variant for variant, _ in scored):
        spec, name = specs.get(variant, ""), session.model_names.get(variant, variant)
        facts = session.evaluation.described.get(variant, NOTHING)
        runs.append(
            Run(
                model=name if not spec or Path(spec).is_absolute() else spec,
                tasks=_tasks(session, variant),
                groups=_groups(session, variant),
                variant=variant,
                spec=spec,
                model_args=model_args,
                settings=session.settings,
                started=started,
                seconds=seconds,
                chat_template=facts.get("chat_template") if session.settings.chat_template else None,
                git_hash=commit,
                model_info=facts.get("model", NOTHING),
                tokenizer_info=facts.get("tokenizer", NOTHING),
                usage=session.evaluation.used.get(variant, NOTHING),
                verdicts={nodeid: verdict for (own, nodeid), verdict in session.verdicts.items() if own == variant},
            )
        )
    return runs


def _tasks(session: Session, variant: str) -> list[TaskRun]:
    ledger = session.evaluation.ledger
    return [
        TaskRun(task, session.summary(task, variant), list(ledger.of(variant, task.name).values()))
        for task in scored_tasks(session, variant)
    ]


def _groups(session: Session, variant: str) -> list[GroupRun]:
    return [
        GroupRun(session.summary(group, variant), [member.name for member in members(session, group)])
        for group in scored_groups(session, variant)
    ]


def git_hash(folder: Path) -> str | None:
    """What ``git describe --always`` says of a folder; None without git or outside a repository."""
    command = ["git", "-C", str(folder), "describe", "--always"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
