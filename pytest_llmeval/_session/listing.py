"""``--llmeval-list`` and ``--llmeval-show``: look at what was collected, run nothing."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator

import pytest

from pytest_llmeval._doc import Instance
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._session.items import DocItem
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


def show_instead_of_running(session: Session, items: Iterable[pytest.Item]) -> bool | None:
    """Print what the options ask for and end the run loop; None if none of them was given."""
    if value_of(session.config, "list"):
        lines = _listing(session)
    elif value_of(session.config, "show"):
        lines = _prompts(session, items)
    else:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        for line in lines:
            reporter.write_line(line)
    return True


def _listing(session: Session) -> Iterator[str]:
    for value in session.collected.values():
        kind = "group" if isinstance(value, Group) else "task"
        tags = f"  tags: {', '.join(value.tags)}" if isinstance(value, Task) and value.tags else ""
        members = f"  {len(session.leaves(value))} tasks" if isinstance(value, Group) else _size(session, value)
        yield f"{kind}  {value.name}{members}{tags}"


def _size(session: Session, task: Task) -> str:
    asked, total = session.evaluation.sizes.get(task.name, (0, 0))
    return f"  {total} docs" if asked == total else f"  {asked} of {total} docs"


def _prompts(session: Session, items: Iterable[pytest.Item]) -> Iterator[str]:
    for item in items:
        found = doc_of(item)
        if found is not None:
            yield f"--- {item.nodeid}"
            yield from _prompt(found)


def _prompt(found: DocItem) -> Iterator[str]:
    try:
        doc = found.opened.render(found.index)
        # Without a model there is no chat template: this is the plain text.
        instances = found.opened.instances(doc, None)
    except LLMEvalError as error:
        yield f"error: {error}"
        return
    if doc.problem:
        yield f"error: {doc.problem}"
    shown = None
    for instance in instances:
        if instance.arguments[0] != shown:
            yield (shown := instance.arguments[0])
        yield from _continuation(instance)
    yield f"target: {doc.target!r}"


def _continuation(instance: Instance) -> Iterator[str]:
    if instance.kind == "loglikelihood":
        yield f"    -> {instance.arguments[1]!r}"
    elif instance.kind == "generate_until":
        kwargs = instance.arguments[1]
        yield f"    -> until {list(kwargs.until)!r}, at most {kwargs.max_gen_toks} tokens"
