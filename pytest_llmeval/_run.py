"""What a doc item and a gate item do: ask the evaluation, which has a model fill the ledger.

A gate asks for every doc of its scope, whatever else is selected, so it depends on no other item: -k, -m, --lf,
-x, --deselect and any order need no code here.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._engine import LM
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluate import Evaluation
from pytest_llmeval._evaluate import OpenTask
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import Rule
from pytest_llmeval._gates import gates_for
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._items import doc_of
from pytest_llmeval._items import gate_of
from pytest_llmeval._items import variant_of
from pytest_llmeval._options import origin_of
from pytest_llmeval._options import value_of
from pytest_llmeval._progress import ProgressLine
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._serve import Models
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import judge


#: Docs of one task that go to one xdist worker together: whole waves, and short queues in the scheduler.
CHUNK = 1000

#: (variant, task name, result) of a doc item that ran, for its report.
RECORD = pytest.StashKey[tuple[str, str, DocResult]]()
#: How a doc or gate item ended, for its report: a key of `_report.STATUS`.
OUTCOME = pytest.StashKey[str]()
SESSION = pytest.StashKey["Session"]()


class Session:
    """What of ours lives as long as the pytest session."""

    def __init__(self, config: pytest.Config, settings: Settings, models: Models) -> None:
        self.config = config
        self.settings = settings
        self.models = models
        self.registry = Registry(_search_folders(config), root=config.rootpath)
        self.evaluation = Evaluation(settings, self.registry)
        self.lint_only: bool = bool(value_of(config, "lint"))
        self.wrong: str = value_of(config, "wrong") or "pass"
        self.missing_data: str = _one_of(config, "llmeval_missing_data", ("fail", "skip"))
        self.inconclusive: str = _one_of(config, "llmeval_inconclusive", ("pass", "fail"))
        #: Why the session cannot run as asked: told when all is collected, which is when pytest takes usage errors.
        self.problem: str | None = None
        self.rules: list[Rule] = []
        try:
            self.rules = _read_rules(config)
        except SettingError as error:
            self.problem = str(error)
        self.looks_only: bool = bool(value_of(config, "list") or value_of(config, "show"))
        #: Task name -> why its data cannot be had.
        self.lacking: dict[str, str] = {}
        self.progress = ProgressLine(config)
        #: (variant, task) -> the docs that will run, in item order, each with its place in that order.
        self.selected: dict[tuple[str, str], dict[int, int]] = {}
        #: The item that is running.
        self.item: pytest.Item
        #: Names of the tasks whose docs were collected, selected or not.
        self.with_docs: set[str] = set()
        #: variant -> how reports call the model.
        self.model_names: dict[str, str] = {}
        #: Verdicts in the order in which they were given: (variant, node id) -> verdict.
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        #: Task or group name -> value, of everything that was collected here or in a worker.
        self.collected: dict[str, Task | Group] = {}
        #: (variant, node id) of the gates that were to run, here or in a worker.
        self.selected_gates: list[tuple[str, str]] = []
        self.started = datetime.now()
        #: Whether a result file could not be written: the run then fails.
        self.unwritten = False
        self._matched: set[Rule] = set()

    def gates_of(self, owner: Task | Group) -> tuple[Gate, ...]:
        """The gates of a task or group: its own, then those of the configuration that name it."""
        self._matched.update(rule for rule in self.rules if rule.selects(owner))
        return gates_for(owner, self.rules, self.leaves(owner))

    def idle_rule(self) -> Rule | None:
        """A gate of the command line that selects nothing. Those of the ini file may be for other files."""
        return next((r for r in self.rules if r.gate.place.origin.startswith("--") and r not in self._matched), None)

    def refusal(self, task: Task) -> str | None:
        """Why the task's generated code is not run; remembered, so that its gates say the same."""
        reason = self.evaluation.refusal(task)
        if reason is not None:
            self.lacking[task.name] = reason
        return reason

    def missing(self, owner: Task | Group, variant: str) -> str | None:
        """What keeps a verdict from being complete, in words; None if nothing does."""
        leaves = self.leaves(owner)
        lacking = [self.lacking[task.name] for task in leaves if task.name in self.lacking]
        return "; ".join(lacking) or self.evaluation.missing(variant, leaves)

    def values_in(self, path: Path) -> tuple[Task | Group, ...]:
        """What a file holds: its task or group, and the tasks written inline in a group. Raises LLMEvalError."""
        found = self.registry.load(path)
        return (found, *inline_tasks(found)) if isinstance(found, Group) else (found,)

    def leaves(self, owner: Task | Group) -> tuple[Task, ...]:
        return (owner,) if isinstance(owner, Task) else self.registry.leaves(owner)

    def select(self, items: Iterable[pytest.Item]) -> None:
        """Note which docs will run: called when nothing will be deselected any more."""
        self.selected.clear()
        self.selected_gates = []
        for item in items:
            if gate_of(item):
                self.selected_gates.append((variant_of(item), item.nodeid))
            if found := doc_of(item):
                order = self.selected.setdefault((variant_of(item), found.opened.task.name), {})
                order[found.index] = len(order)

    def left_out(self, group: Group, variant: str) -> str | None:
        """Why a group's numbers are not asked for: some of its tasks were deselected, and others were not.

        Gates rest on all docs whatever is selected; a mere table row is not worth evaluating what the user left out.
        """
        collected = [task.name for task in self.leaves(group) if task.name in self.with_docs]
        out = [name for name in collected if (variant, name) not in self.selected]
        if not out or len(out) == len(collected):
            return None
        return f"{group.name}: {len(out)} of its tasks are deselected ({', '.join(out[:3])}{', ...' * (len(out) > 3)})"

    def wave(self, variant: str, opened: OpenTask, index: int) -> list[int]:
        """The doc and the selected ones that follow it, as many as the next wave should hold."""
        order = self.selected.get((variant, opened.task.name), {})
        place = order.get(index)
        if place is None:
            return [index]
        docs = list(order)[place : place + self.evaluation.wave_size()]
        if is_worker(self.config):
            docs = [doc for doc in docs if doc // CHUNK == index // CHUNK]
        return docs

    def score_scope(self, owner: Task | Group, variant: str, lm: LM, *, skip: Callable[[Task, int], bool]) -> None:
        """Have all docs of a scope answered but those that `skip` leaves to others."""
        for task in self.leaves(owner):
            opened = self.evaluation.open(task)
            docs = [index for index in opened.asked if not skip(task, index)]
            self.evaluation.score(lm, variant, task, docs, self.progress.of(task.name))

    def verdict(self, owner: Task | Group, variant: str, gate: Gate) -> Verdict:
        summary = self.summary(owner, variant)
        return judge(gate, summary, missing=self.missing(owner, variant))

    def result_of(self, name: str, variant: str, lm: LM) -> Summary:
        """The numbers of a task or group by name, over all docs that this run asks for. Raises LLMEvalError."""
        owner = self.collected.get(name) or self.registry.find(name, self.config.rootpath)
        if isinstance(owner, tuple):
            raise SettingError(f"llmeval_result({name!r}): is a tag of {len(owner)} tasks; name a task or a group")
        _name_model(self, variant, lm)
        self.collected.update({value.name: value for value in (*self.leaves(owner), owner)})
        self.score_scope(owner, variant, lm, skip=_nothing)
        return self.summary(owner, variant)

    def summary(self, owner: Task | Group, variant: str) -> Summary:
        if isinstance(owner, Task):
            return self.evaluation.summary(variant, owner)
        return self.evaluation.group_summary(variant, owner)

    def failed(self, verdict: Verdict) -> bool:
        return verdict.outcome == "failed" or (verdict.outcome == "inconclusive" and self.inconclusive == "fail")


def inline_tasks(group: Group) -> Iterator[Task]:
    """The tasks that are written in the group's own file, at any depth."""
    for member in group.members:
        if isinstance(member, Task):
            yield member
        elif isinstance(member, Group):
            yield from inline_tasks(member)


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def run_doc(session: Session, item: pytest.Item, opened: OpenTask, index: int, lm: LM) -> None:
    variant, task = variant_of(item), opened.task
    known = session.evaluation.ledger.of(variant, task.name)
    if index not in known:
        _name_model(session, variant, lm)
        with _plain_failure():
            docs = session.wave(variant, opened, index)
            session.evaluation.score(lm, variant, task, docs, session.progress.of(task.name))
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
    _name_model(session, variant, lm)
    if not _complete(session, item, owner, lm):
        return
    verdict = session.verdict(owner, variant, gate)
    session.verdicts[variant, item.nodeid] = verdict
    item.user_properties.extend(verdict.numbers.items())
    item.stash[OUTCOME] = verdict.outcome
    if session.failed(verdict):
        pytest.fail(verdict.sentence, pytrace=False)


def run_score(session: Session, item: pytest.Item, owner: Group, lm: LM) -> None:
    """The one item of a group without gates: have its docs answered, so that the report shows the group."""
    variant = variant_of(item)
    if reason := session.left_out(owner, variant):
        pytest.skip(reason)
    _name_model(session, variant, lm)
    if _complete(session, item, owner, lm) and (missing := session.missing(owner, variant)):
        pytest.fail(f"{owner.name}: {missing}", pytrace=False)


def _complete(session: Session, item: pytest.Item, owner: Task | Group, lm: LM) -> bool:
    """Have what is missing in a scope answered; False on a worker, where the controller judges."""
    variant, worker = variant_of(item), is_worker(item.config)
    with _plain_failure(skip=session.missing_data == "skip"):
        session.score_scope(owner, variant, lm, skip=_left_to_others(session, item) if worker else _nothing)
    return not worker


def _nothing(task: Task, index: int) -> bool:
    return False


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


def _name_model(session: Session, variant: str, lm: LM) -> None:
    if variant not in session.model_names:
        session.model_names[variant] = variant or str(getattr(lm, "name", "") or type(lm).__name__)


@contextmanager
def _plain_failure(*, skip: bool = False) -> Iterator[None]:
    """Errors of a user's making fail the item with their message alone; with `skip`, missing data skips it."""
    try:
        yield
    except LLMEvalError as error:
        message, skipped = str(error), skip and isinstance(error, DataError)
    else:
        return
    # Raised out here, so that the failure does not drag the error along as its cause.
    if skipped:
        pytest.skip(message)
    pytest.fail(message, pytrace=False)


def _one_of(config: pytest.Config, name: str, allowed: tuple[str, ...]) -> str:
    value = str(config.getini(name))
    if value not in allowed:
        raise SettingError(f"ini {name}: expected {' or '.join(allowed)}, got {value!r}")
    return value


def _read_rules(config: pytest.Config) -> list[Rule]:
    lines = [("ini llmeval_gates", line) for line in config.getini("llmeval_gates")]
    lines += [(origin_of(config, "fail-on"), line) for line in value_of(config, "fail-on") or ()]
    return [parse_rule(line, origin=origin) for origin, line in lines]


def _search_folders(config: pytest.Config) -> list[Path]:
    """Where names of tasks are looked up besides near the file that uses them."""
    patterns = [str(pattern) for pattern in config.getini("llmeval_files")]
    named = [config.rootpath / pattern.split("*")[0] for pattern in patterns]
    return sorted({folder for folder in named if folder.is_dir()})
