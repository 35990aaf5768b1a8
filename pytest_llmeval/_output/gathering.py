"""From a finished session to the runs that are written."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from pytest_llmeval._output.run import GroupRun
from pytest_llmeval._output.run import Run
from pytest_llmeval._output.run import TaskRun
from pytest_llmeval._report import members
from pytest_llmeval._report import scored_groups
from pytest_llmeval._report import scored_tasks
from pytest_llmeval._session import Session
from pytest_llmeval._task import NOTHING


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
