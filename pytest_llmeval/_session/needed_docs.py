"""Having the docs answered that a gate rests on: all of its scope, or as many as it takes to prove it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._session.early_stop import EarlyStop
from pytest_llmeval._session.session import Session
from pytest_llmeval._session.session import is_worker
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: Whether a doc of a task is left to others.
Skip: TypeAlias = Callable[[Task, int], bool]


def nothing(task: Task, index: int) -> bool:
    """Leaves no doc to others."""
    return False


def score_scope(
    session: Session, owner: Task | Group, variant: str, lm: LM, *, skip: Skip = nothing, gate: Gate | None = None
) -> None:
    """Have all docs of a scope answered but those that `skip` leaves to others, or that `gate` does not need.

    A task that cannot be answered keeps no other from it; why is remembered, and then `Session.missing`.
    """
    if session.early is not None and gate is not None:
        _score_until_proven(session, session.early, owner, variant, lm, skip, gate)
        return
    for task in session.leaves(owner):
        try:
            docs = [index for index in session.evaluation.open(task).asked if not skip(task, index)]
            session.evaluation.score(lm, variant, task, docs, session.progress.of(task.name))
        except LLMEvalError as error:
            session.remember(error, variant, task)


def _score_until_proven(
    session: Session, early: EarlyStop, owner: Task | Group, variant: str, lm: LM, skip: Skip, gate: Gate
) -> None:
    """Wave by wave in random order. A gate that cannot be judged needs no more docs either."""
    tasks = {task.name: task for task in session.leaves(owner)}
    # Without docs this opens the data and finds what keeps the task from being answered.
    if not all(_is_answered(session, task, variant, lm, []) for task in tasks.values()):
        return
    waiting = [(name, doc) for name, doc in early.order(owner) if not skip(tasks[name], doc)]
    while waiting and not _is_proven(session, early, owner, variant, gate):
        known = {name: session.evaluation.ledger.of(variant, name) for name in tasks}
        waiting = [(name, doc) for name, doc in waiting if doc not in known[name]]
        wave: dict[str, list[int]] = {}
        for name, doc in waiting[: early.wave(early.known(owner, variant), len(tasks))]:
            wave.setdefault(name, []).append(doc)
        if not all(_is_answered(session, tasks[name], variant, lm, docs) for name, docs in wave.items()):
            return


def _is_proven(session: Session, early: EarlyStop, owner: Task | Group, variant: str, gate: Gate) -> bool:
    """Whether the gate needs no more. On a worker others, which rest on the same docs, look to it for them."""
    if is_worker(session.config):
        return early.is_settled(session.leaves(owner), variant)
    return early.proof(owner, variant, gate) is not None


def _is_answered(session: Session, task: Task, variant: str, lm: LM, docs: list[int]) -> bool:
    """Have docs of a task answered; False if that cannot be, and why is remembered."""
    evaluation, report = session.evaluation, session.progress.of(task.name)
    known = len(evaluation.ledger.of(variant, task.name))
    asked = evaluation.sizes.get(task.name, (len(docs), 0))[0]
    progress = None if report is None else lambda done, _, tokens: report(known + done, asked, tokens)
    try:
        evaluation.score(lm, variant, task, docs, progress)
    except LLMEvalError as error:
        session.remember(error, variant, task)
        return False
    return True
