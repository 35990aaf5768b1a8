"""``--llmeval-list`` and ``--llmeval-show``, which run nothing, and the lines before a run on its gates."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import SelectedGate
from pytest_llmeval._session.items import DocItem
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._task import Group
from pytest_llmeval._verdicts import GoodBuild
from pytest_llmeval._verdicts import Planned
from pytest_llmeval._verdicts import prospects


def show_instead_of_running(session: Session, items: Iterable[pytest.Item]) -> bool | None:
    """Print what the options ask for and end the run loop; return None if none of them was given."""
    if value_of(session.config, "list"):
        lines = _listing(session)
    elif value_of(session.config, "show"):
        docs = ((item.nodeid, found) for item in items if (found := doc_of(item)) is not None)
        lines = (line for nodeid, found in docs for line in (f"--- {nodeid}", *_prompt(found)))
    else:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        for line in lines:
            reporter.write_line(line)
    return True


def gate_prospects(session: Session) -> list[str]:
    """Return what the selected gates could show: the same for all models, so of the first one."""
    run = next((run for run in session.selection.runs.values() if run.gates), None)
    if run is None or session.settings.shard:
        return []
    planned = [
        Planned(
            str(one) if isinstance(one.owner, Group) else f"{one} of {one.owner.name}",
            one.gate,
            session.evaluation.asked(one.owner.name),
            run.family_size(one.gate),
            _good_build(session, one),
        )
        for one in run.gates.values()
    ]
    return [f"llmeval: {line}" for line in prospects(planned)]


def _good_build(session: Session, selected: SelectedGate) -> GoodBuild | None:
    """Return the good build of the baseline that a gate will compare with; None if it is not known for these docs."""
    if selected.gate.change is None or selected.gate.confidence is None:
        return None
    names = [task.name for task in session.evaluation.leaves(selected.owner)]
    good = GoodBuild.of(selected.owner, [session.baseline.record(name) for name in names], selected.gate)
    asked = sum(session.evaluation.asked(name) for name in names)
    return good if good is not None and good.loss.docs == asked else None


def _listing(session: Session) -> Iterator[str]:
    for owner in session.selection.collected.values():
        if isinstance(owner, Group):
            yield f"group  {owner.name}  {len(session.evaluation.leaves(owner))} tasks"
            continue
        asked, total = session.evaluation.sizes.get(owner.name, (0, 0))
        docs = f"{total} docs" if asked == total else f"{asked} of {total} docs"
        tags = f"  tags: {', '.join(owner.tags)}" if owner.tags else ""
        yield f"task  {owner.name}  {docs}{tags}"


def _prompt(found: DocItem) -> Iterator[str]:
    """Return the prompt of a doc, its continuations and its target. Without a model there is no chat template."""
    try:
        doc = found.opened.render(found.index)
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
        if instance.kind == "loglikelihood":
            yield f"    -> {instance.arguments[1]!r}"
        elif instance.kind == "generate_until":
            kwargs = instance.arguments[1]
            yield f"    -> until {list(kwargs.until)!r}, at most {kwargs.max_gen_toks} tokens"
    yield f"target: {doc.target!r}"
