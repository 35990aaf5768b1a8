"""Running a doc item, a gate item, and the score item of a group.

A gate asks for every doc of its task or group, whatever else is selected, so it depends on no other item: -k, -m,
--lf, -x, --deselect and any order need no code here.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._evaluation import ask_model
from pytest_llmeval._lm import LM
from pytest_llmeval._results import DocResult
from pytest_llmeval._session import xdist
from pytest_llmeval._session.items import DocItem
from pytest_llmeval._session.items import GateItem
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import model_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: (model, task name, result) of a doc item that ran, for its report.
RECORD = pytest.StashKey[tuple[str, str, DocResult]]()
#: The outcome of a doc or gate item, for its report: a key of `hooks.STATUS`.
OUTCOME = pytest.StashKey[str]()


def run_doc(session: Session, item: pytest.Item, found: DocItem, lm: LM) -> None:
    """Have the model answer a doc, and those of the next wave with it, and record the outcome."""
    run, task, index = session.selection.run(model_of(item)), found.opened.task, found.index
    if index not in run.results(task.name):
        if session.joined:
            lacks = f"{task.name} doc {index}: no shard has a result of it"
            pytest.fail(run.model_errors.get(task.name, lacks), pytrace=False)
        session.announce(run, lm)
        if reason := session.judge.unneeded(run, task):
            pytest.skip(reason)
        try:
            run.score(lm, task, _wave(session, run, found.opened, index), session.progress.of(task.name))
        except LLMEvalError as error:
            run.record_error(task, error)
            raise pytest.fail.Exception(str(error), pytrace=False) from None
    result = run.results(task.name)[index]
    item.stash[RECORD] = (run.model, task.name, result)
    if result.error is not None:
        item.stash[OUTCOME] = "error"
        pytest.fail(f"{task.name} doc {index}: {result.error}", pytrace=False)
    item.user_properties.extend(_properties(result))
    item.stash[OUTCOME] = "scored" if result.correct is None else "correct" if result.correct else "wrong"
    if result.correct is False and session.wrong != "pass":
        _record_wrong(item, session.wrong, task, result)


def _wave(session: Session, run: ModelRun, opened: OpenTask, index: int) -> list[int]:
    """Return the doc and the selected ones that follow it, as many as the next wave should hold."""
    order = run.selected_docs.get(opened.task.name, {})
    place = order.get(index)
    if place is None:
        return [index]
    docs = list(order)[place : place + session.judge.wave_size(run, opened.task)]
    if session.on_worker:
        if (run.model, opened.task.name, index) in session.alone:
            return [index]
        if size := xdist.size_of_blocks(session):
            docs = docs[: size - place % size]
        docs = [doc for doc in docs if (run.model, opened.task.name, doc) not in session.alone]
    return docs


def _record_wrong(item: pytest.Item, how: str, task: Task, result: DocResult) -> None:
    sentence = f"{task.name} doc {result.doc}: wrong answer"
    if how == "xfail":
        pytest.xfail(sentence)
    if result.sample is not None:
        item.add_report_section("call", "llmeval", _show_sample(result.sample))
    pytest.fail(sentence, pytrace=False)


def _show_sample(sample: Mapping[str, Any]) -> str:
    lines = [f"target: {sample.get('target')!r}"]
    requests = zip(sample.get("arguments", ()), sample.get("resps", ()), strict=False)
    for number, (arguments, responses) in enumerate(requests):
        if number == 0:
            lines.append(f"context:\n{arguments[0]}")
        continuation = f"{arguments[1]!r} " if len(arguments) > 1 and isinstance(arguments[1], str) else ""
        lines.append(f"{continuation}-> {', '.join(map(repr, responses))}")
    return "\n".join(lines)


def _properties(result: DocResult) -> Iterator[tuple[str, object]]:
    """Yield the doc's numbers for JUnit: ``acc``, or ``exact_match,strict-match`` with several filters."""
    several = len(result.scores) > 1
    for name, metrics in result.scores.items():
        for metric, value in metrics.items():
            if isinstance(value, (int, float)):
                yield (f"{metric},{name}" if several else metric), value


def run_gate(session: Session, item: pytest.Item, found: GateItem, lm: LM) -> None:
    """Settle a gate and record its verdict. A worker of xdist only has docs answered; the controller settles."""
    run = session.selection.run(model_of(item))
    session.announce(run, lm)
    if session.on_worker:
        xdist.prepare_on_worker(session, item, run, found.owner, found.gate, lm)
        return
    verdict = session.judge.settle(run, item.nodeid, found.owner, found.gate, lambda: lm)
    if verdict is None:
        pytest.skip(run.gate_errors[item.nodeid])
    item.user_properties.extend(verdict.numbers.items())
    item.stash[OUTCOME] = verdict.outcome
    if session.judge.fails(verdict):
        pytest.fail(verdict.text, pytrace=False)


def run_score(session: Session, item: pytest.Item, owner: Group, lm: LM) -> None:
    """Have all docs of a group without gates answered, so that the report shows the group."""
    run = session.selection.run(model_of(item))
    if reason := session.selection.deselected_below(owner, run) or session.judge.stopped_below(run, owner):
        pytest.skip(reason)
    session.announce(run, lm)
    if session.on_worker:
        xdist.prepare_on_worker(session, item, run, owner, None, lm)
        return
    if session.joined is None:
        session.judge.prepare(run, owner, None, lm)
    if problem := session.judge.row_problem(run, owner):
        outcome, reason = problem
        raise (pytest.skip if outcome == "skipped" else pytest.fail).Exception(reason, pytrace=False)


def hide_own_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Let the traceback of a user's model begin where it was called; leave every other traceback as it is."""
    entries, own = excinfo.traceback, Path(__file__).parents[1]
    deepest = next((entry for entry in reversed(entries) if own in Path(entry.path).parents), None)
    if deepest is not None and deepest.frame.code.raw is ask_model.__code__ and deepest is not entries[-1]:
        excinfo.traceback = entries[entries.index(deepest) + 1 :]


def record_gate_error(session: Session, item: pytest.Item, error: BaseException) -> None:
    """Record why a gate has no verdict, if its item ended in an error before one."""
    run = session.selection.run(model_of(item))
    if gate_of(item) is None or item.nodeid in run.verdicts:
        return
    message = next(iter(str(error).strip().splitlines()), "")
    if not isinstance(error, (pytest.skip.Exception, pytest.fail.Exception)):
        message = ": ".join(filter(None, (type(error).__name__, message)))
    run.gate_errors.setdefault(item.nodeid, message)
