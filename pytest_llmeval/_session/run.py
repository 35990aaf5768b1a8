"""What a doc item and a gate item do: ask the evaluation, which has a model fill the ledger.

A gate asks for every doc of its scope, whatever else is selected, so it depends on no other item: -k, -m, --lf,
-x, --deselect and any order need no code here.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._evaluation.model_calls import ask_model
from pytest_llmeval._gates import Gate
from pytest_llmeval._lm import LM
from pytest_llmeval._results import DocResult
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import variant_of
from pytest_llmeval._session.needed_docs import nothing
from pytest_llmeval._session.needed_docs import score_scope
from pytest_llmeval._session.session import Session
from pytest_llmeval._session.session import is_worker
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: (variant, task name, result) of a doc item that ran, for its report.
RECORD = pytest.StashKey[tuple[str, str, DocResult]]()
#: How a doc or gate item ended, for its report: a key of `_report.STATUS`.
OUTCOME = pytest.StashKey[str]()


def run_doc(session: Session, item: pytest.Item, opened: OpenTask, index: int, lm: LM) -> None:
    variant, task = variant_of(item), opened.task
    known = session.evaluation.ledger.of(variant, task.name)
    if index not in known:
        session.name_model(variant, lm)
        if reason := session.not_needed(task, variant):
            pytest.skip(reason)
        try:
            docs = session.wave(variant, opened, index)
            session.evaluation.score(lm, variant, task, docs, session.progress.of(task.name))
        except LLMEvalError as error:
            session.remember(error, variant, task)
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        known = session.evaluation.ledger.of(variant, task.name)
    result = known[index]
    item.stash[RECORD] = (variant, task.name, result)
    if result.error is not None:
        item.stash[OUTCOME] = "error"
        pytest.fail(f"{task.name} doc {index}: {result.error}", pytrace=False)
    item.user_properties.extend(_properties(result))
    item.stash[OUTCOME] = "scored" if result.correct is None else "correct" if result.correct else "wrong"
    if result.correct is False and session.wrong != "pass":
        _record_wrong(item, session.wrong, task, result)


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
    """The doc's numbers for JUnit and its kind: ``acc``, or ``exact_match,strict-match`` with several filters."""
    several = len(result.scores) > 1
    for name, metrics in result.scores.items():
        for metric, value in metrics.items():
            if isinstance(value, (int, float)):
                yield (f"{metric},{name}" if several else metric), value


def run_gate(session: Session, item: pytest.Item, owner: Task | Group, gate: Gate, lm: LM) -> None:
    variant = variant_of(item)
    session.name_model(variant, lm)
    if not _complete(session, item, owner, lm, gate):
        return
    for other in session.relatives(owner, variant, gate):
        score_scope(session, other, variant, lm)
        session.noise.measure(lm, variant, session.leaves(other))
    verdict = session.verdict(owner, variant, gate)
    session.verdicts[variant, item.nodeid] = verdict
    item.user_properties.extend(verdict.numbers.items())
    item.stash[OUTCOME] = verdict.outcome
    if session.failed(verdict):
        pytest.fail(verdict.sentence, pytrace=False)


def run_score(session: Session, item: pytest.Item, owner: Group, lm: LM) -> None:
    """The one item of a group without gates: have its docs answered, so that the report shows the group."""
    variant = variant_of(item)
    if reason := session.left_out(owner, variant) or session.stopped_below(owner, variant):
        pytest.skip(reason)
    session.name_model(variant, lm)
    if _complete(session, item, owner, lm) and (missing := session.missing(owner, variant)):
        pytest.fail(f"{owner.name}: {missing}", pytrace=False)


def _complete(session: Session, item: pytest.Item, owner: Task | Group, lm: LM, gate: Gate | None = None) -> bool:
    """Have what is missing in a scope answered; False on a worker, where the controller judges."""
    worker = is_worker(item.config)
    skip = _left_to_others(session, item) if worker else nothing
    score_scope(session, owner, variant_of(item), lm, skip=skip, gate=gate)
    if gate is not None and gate.compares:
        _measure_noise(session, item, owner, lm)
    if not worker and (reason := session.excuse(owner, gate)):
        pytest.skip(reason)
    return not worker


def _measure_noise(session: Session, item: pytest.Item, owner: Task | Group, lm: LM) -> None:
    """Have the tasks of a gate probed if that was asked for; on a worker those that no other gate probes."""
    tasks, variant = session.leaves(owner), variant_of(item)
    if is_worker(session.config) and session.noise.asked_for:
        comparing = [other for other in item.session.items if (found := gate_of(other)) and found.gate.compares]
        owners = scope_owners(session, comparing)
        tasks = tuple(task for task in tasks if owners[variant, task.name] == item.nodeid)
    session.noise.measure(lm, variant, tasks)


def _left_to_others(session: Session, item: pytest.Item) -> Callable[[Task, int], bool]:
    """On a worker: docs that some doc item will score, and whole tasks that another gate owns."""
    variant = variant_of(item)
    owners = scope_owners(session, item.session.items)

    def skip(task: Task, index: int) -> bool:
        return owners.get((variant, task.name), item.nodeid) != item.nodeid or index in session.selected.get(
            (variant, task.name), ()
        )

    return skip


def scope_owners(session: Session, items: Iterable[pytest.Item]) -> dict[tuple[str, str], str]:
    """(variant, task) -> node id of the gate that has its missing docs scored.

    Every worker sees the same items, so all come to the same answer. The smallest scope owns a task, so that
    the gates of subgroups spread over the workers instead of waiting for the gate of the whole.
    """
    sizes: dict[tuple[str, str], tuple[int, str]] = {}
    for item in items:
        owner = owner_of(item)
        if owner is None:
            continue
        leaves = session.leaves(owner)
        for task in leaves:
            key, claim = (variant_of(item), task.name), (len(leaves), item.nodeid)
            if key not in sizes or claim[0] < sizes[key][0]:
                sizes[key] = claim
    return {key: nodeid for key, (_, nodeid) in sizes.items()}


def owner_of(item: pytest.Item) -> Task | Group | None:
    """What a gate or score item judges; None for other items."""
    if found := gate_of(item):
        return found.owner
    owner = getattr(item.parent, "found", None)
    return owner if isinstance(owner, Group) and item.name.startswith("score") else None


def hide_own_frames(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Let the traceback of a user's model begin where it was called. Whatever else goes wrong stays as it is."""
    entries, own = excinfo.traceback, Path(__file__).parents[1]
    deepest = next((entry for entry in reversed(entries) if own in Path(entry.path).parents), None)
    if deepest is not None and deepest.frame.code.raw is ask_model.__code__ and deepest is not entries[-1]:
        excinfo.traceback = entries[entries.index(deepest) + 1 :]


def remember_unjudged(session: Session, item: pytest.Item, error: BaseException) -> None:
    """Keep why a gate has no verdict, if the error that its item ended in came before one."""
    key = (variant_of(item), item.nodeid)
    if gate_of(item) is None or key in session.verdicts:
        return
    message = next(iter(str(error).strip().splitlines()), "")
    if not isinstance(error, (pytest.skip.Exception, pytest.fail.Exception)):
        message = ": ".join(filter(None, (type(error).__name__, message)))
    session.unjudged.setdefault(key, message)
