"""What of ours lives as long as the pytest session: settings, tasks, results, and what was selected."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation.evaluation import Evaluation
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._evaluation.noise import NoiseFloors
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import Rule
from pytest_llmeval._gates import close_metric
from pytest_llmeval._gates import gates_for
from pytest_llmeval._gates import is_meant
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._lm import LM
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import Summary
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._session.early_stop import EarlyStop
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import variant_of
from pytest_llmeval._session.models import Models
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.options import word_of
from pytest_llmeval._session.progress import ProgressLine
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Member
from pytest_llmeval._verdicts import Proof
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import in_family
from pytest_llmeval._verdicts import judge


#: Docs of one task that go to one xdist worker together: whole waves, and short queues in the scheduler.
CHUNK = 1000

#: How many reasons why tasks have no results are told before the others are only counted.
_NAMED = 3

SESSION = pytest.StashKey["Session"]()


class Session:
    """What of ours lives as long as the pytest session."""

    def __init__(self, config: pytest.Config, settings: Settings, models: Models) -> None:
        self.config = config
        self.settings = settings
        self.models = models
        self.registry = Registry(_search_folders(config), root=config.rootpath)
        self.evaluation = Evaluation(settings, self.registry)
        #: What stops tasks whose gates are proven; None if all docs run.
        self.early = EarlyStop(self.evaluation, self.evidence, self.leaves) if settings.early_stop else None
        #: Docs of one task that go to one worker of xdist together; None: all of them, whose order must not be cut.
        self.chunk = None if settings.early_stop else CHUNK
        self.lint_only: bool = bool(value_of(config, "lint"))
        self.wrong: str = value_of(config, "wrong") or "pass"
        self.missing_data: str = word_of(config, "missing_data")
        self.inconclusive: str = word_of(config, "inconclusive")
        #: Why the session cannot run as asked: told when all is collected, which is when pytest takes usage errors.
        self.problem: str | None = None
        self.unpaired: str = word_of(config, "unpaired")
        self.rules: list[Rule] = []
        #: What runs are compared with.
        self.baseline = BaselineOptions(config, settings)
        try:
            self.rules = _read_rules(config, self.baseline)
        except SettingError as error:
            self.problem = str(error)
        self.looks_only: bool = bool(value_of(config, "list") or value_of(config, "show"))
        #: Task name -> why its docs cannot be had.
        self.lacking: dict[str, str] = {}
        #: (variant, task name) -> why a model cannot be asked.
        self.unasked: dict[tuple[str, str], str] = {}
        self.progress = ProgressLine(config)
        #: (variant, task) -> the docs that will run, in item order, each with its place in that order.
        self.selected: dict[tuple[str, str], dict[int, int]] = {}
        #: The item that is running.
        self.item: pytest.Item
        #: Names of the tasks whose docs were collected, selected or not.
        self.with_docs: set[str] = set()
        #: variant -> how reports call the model.
        self.model_names: dict[str, str] = {}
        #: (variant, family) -> task or group name -> the gate of that family there, of those that were to run.
        self.families: dict[tuple[str, str], dict[str, tuple[Task | Group, Gate]]] = {}
        #: Verdicts in the order in which they were given: (variant, node id) -> verdict.
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        #: (variant, node id) -> why a gate whose turn came has no verdict.
        self.unjudged: dict[tuple[str, str], str] = {}
        #: Task or group name -> value, of everything that was collected here or in a worker.
        self.collected: dict[str, Task | Group] = {}
        #: (variant, node id) of the gates that were to run, here or in a worker.
        self.selected_gates: list[tuple[str, str]] = []
        self.started = datetime.now()
        #: Whether something at the end went wrong that no item tells: the run then fails.
        self.unsound = False
        #: Whether the run was stopped before its end: by the user, by -x, or by an error.
        self.cut_short = False
        #: What rounding alone does to tasks that are compared.
        self.noise = NoiseFloors(self.evaluation)
        self._alone: dict[tuple[str, str, str], tuple[int, Verdict]] = {}
        self._matched: set[Rule] = set()
        #: Rules that select something that has not their metric, but one of nearly its name.
        self._misspelled: dict[Rule, str] = {}

    def gates_of(self, owner: Task | Group) -> tuple[Gate, ...]:
        """The gates of a task or group: its own, then those of the configuration that name it.

        A rule that cannot be meant is a mistake of the command line or the ini file, and becomes the problem of the
        session; the task file is collected without it. Raises LLMEvalError for a gate of the file.
        """
        leaves = self.leaves(owner)
        for rule in self.rules:
            if is_meant(rule, owner, leaves):
                self._matched.add(rule)
            elif rule.selects(owner) and (close := close_metric(rule.gate.metric, owner)):
                self._misspelled.setdefault(rule, close)
        try:
            return gates_for(owner, self.rules, leaves)
        except SettingError as error:
            self.problem = self.problem or str(error)
            return gates_for(owner, (), leaves)

    def idle_problem(self) -> str | None:
        """A gate of the command line that selects nothing. Those of the ini file may be for other files, unless their
        metric is misspelled.
        """
        for rule in self.idle_rules():
            what = f"{rule.gate.place.origin}: {rule.gate.place.text!r}: selects nothing that was collected"
            if any(rule.selects(owner) for owner in self.collected.values()):
                what += f" with a metric {rule.gate.key!r}"
            if close := self._misspelled.get(rule):
                return f"{what}; did you mean {close!r}?"
            if rule.gate.place.origin.startswith("--"):
                return what
        return None

    def idle_rules(self) -> list[Rule]:
        """The gates of the configuration that select nothing of what was collected."""
        return [rule for rule in self.rules if rule not in self._matched]

    def refusal(self, task: Task) -> str | None:
        """Why the task's generated code is not run; remembered, so that its gates say the same."""
        reason = self.evaluation.refusal(task)
        if reason is not None:
            self.lacking[task.name] = reason
        return reason

    def missing(self, owner: Task | Group, variant: str) -> str | None:
        """What keeps a verdict from being complete, in words; None if nothing does."""
        leaves = self.leaves(owner)
        found = [self.lacking.get(task.name) or self.unasked.get((variant, task.name)) for task in leaves]
        reasons = list(dict.fromkeys(reason for reason in found if reason))
        if len(reasons) > _NAMED:
            reasons[_NAMED:] = [f"and {len(reasons) - _NAMED} more tasks like that"]
        return "; ".join(reasons) or self.evaluation.missing(variant, leaves)

    def excuse(self, owner: Task | Group, gate: Gate | None) -> str | None:
        """Why a gate, or the score of a group, is skipped: there is nothing to compare with as the baseline is being
        written, or docs cannot be had and the configuration skips what lacks data.
        """
        if gate is not None and gate.compares and self.baseline.updating:
            return f"baseline {self.baseline.name!r} is being written, there is nothing to compare with"
        if self.missing_data != "skip":
            return None
        return next((self.lacking[task.name] for task in self.leaves(owner) if task.name in self.lacking), None)

    def values_in(self, path: Path) -> tuple[Task | Group, ...]:
        """What a file holds: its task or group, and the tasks written inline in a group. Raises LLMEvalError."""
        found = self.registry.load(path)
        return (found, *inline_tasks(found)) if isinstance(found, Group) else (found,)

    def leaves(self, owner: Task | Group) -> tuple[Task, ...]:
        return (owner,) if isinstance(owner, Task) else self.registry.leaves(owner)

    def in_order(self, opened: OpenTask) -> Iterable[int]:
        """The docs that are asked for, in the order of their items."""
        return opened.asked if self.early is None else self.early.docs_in_order(opened.task, opened.asked)

    def select(self, items: Iterable[pytest.Item]) -> None:
        """Note which docs will run: called when nothing will be deselected any more."""
        self.selected.clear()
        self.families.clear()
        if self.early is not None:
            self.early.forget()
        self.selected_gates = []
        for item in items:
            if gate_item := gate_of(item):
                self.selected_gates.append((variant_of(item), item.nodeid))
                self.join_family(variant_of(item), gate_item.owner, gate_item.gate)
            if found := doc_of(item):
                order = self.selected.setdefault((variant_of(item), found.opened.task.name), {})
                order[found.index] = len(order)
        if len({variant for variant, _ in (*self.selected, *self.selected_gates)}) > 1:
            self.evaluation.expect_several_models()

    def join_family(self, variant: str, owner: Task | Group, gate: Gate) -> None:
        """Count a gate that was to run among those of its rule, and among those that early stopping waits for."""
        if self.early is not None:
            self.early.watch(variant, owner, gate)
        if gate.family:
            self.families.setdefault((variant, gate.family), {})[owner.name] = (owner, gate)

    def relatives(self, owner: Task | Group, variant: str, gate: Gate) -> Iterator[Task | Group]:
        """The other tasks and groups whose results decide whether this gate, which fails alone, fails.

        Where runs stop early a gate's share of the error is its own.
        """
        if self.early is None and self.verdict_alone(owner, variant, gate).p_value is not None:
            for other, _ in self.families.get((variant, gate.family), {}).values():
                if other.name != owner.name:
                    yield other

    def left_out(self, group: Group, variant: str) -> str | None:
        """Why a group's numbers are not asked for: some of its tasks were deselected, and others were not.

        Gates rest on all docs whatever is selected; a mere table row is not worth evaluating what the user left out.
        """
        collected = [task.name for task in self.leaves(group) if task.name in self.with_docs]
        out = [name for name in collected if (variant, name) not in self.selected]
        if not out or len(out) == len(collected):
            return None
        return f"{group.name}: {len(out)} of its tasks are deselected ({', '.join(out[:3])}{', ...' * (len(out) > 3)})"

    def not_needed(self, task: Task, variant: str) -> str | None:
        """Why a doc of the task that has no result yet needs none; None if it does."""
        return None if self.early is None else self.early.excuse(task, variant)

    def stopped_below(self, group: Group, variant: str) -> str | None:
        """Why a group has no numbers: tasks of it stopped early, each at its own time."""
        if self.early is None:
            return None
        stopped = [task.name for task in self.leaves(group) if self.early.stopped(task, variant)]
        named = ", ".join(stopped[:_NAMED]) + ", ..." * (len(stopped) > _NAMED)
        return f"{group.name}: {len(stopped)} of its tasks stopped early ({named})" if stopped else None

    def proof(self, owner: Task | Group, variant: str, gate: Gate) -> Proof | None:
        """What is proven of a gate before all of its docs were run."""
        return None if self.early is None else self.early.proof(owner, variant, gate)

    def wave(self, variant: str, opened: OpenTask, index: int) -> list[int]:
        """The doc and the selected ones that follow it, as many as the next wave should hold."""
        order = self.selected.get((variant, opened.task.name), {})
        place = order.get(index)
        if place is None:
            return [index]
        size = self.evaluation.wave_size()
        if self.early is not None:
            size = self.early.wave(self.early.known(opened.task, variant), tasks=1)
        docs = list(order)[place : place + size]
        if is_worker(self.config) and self.chunk:
            docs = [doc for doc in docs if doc // self.chunk == index // self.chunk]
        return docs

    def remember(self, error: LLMEvalError, variant: str, task: Task) -> None:
        """Keep why a task has no results, for its gates."""
        if isinstance(error, ModelError):
            self.unasked[variant, task.name] = str(error)
        else:
            self.lacking[task.name] = str(error)

    def verdict(self, owner: Task | Group, variant: str, gate: Gate) -> Verdict:
        """What becomes of a gate, the others of its rule considered."""
        if self.early is not None:
            summary = self.summary(owner, variant)
            return self.early.verdict(owner, variant, gate, summary, lambda: self.missing(owner, variant))
        own = self.verdict_alone(owner, variant, gate)
        family = self.families.get((variant, gate.family), {})
        if own.p_value is None or gate.confidence is None or owner.name not in family:
            return own
        members = [
            Member(name, self.verdict_alone(other, variant, its), frozenset(task.name for task in self.leaves(other)))
            for name, (other, its) in family.items()
        ]
        return in_family(owner.name, members, gate.confidence)

    def verdict_alone(self, owner: Task | Group, variant: str, gate: Gate) -> Verdict:
        """What becomes of a gate taken by itself; worked out again when there are more results."""
        known = sum(len(self.evaluation.ledger.of(variant, task.name)) for task in self.leaves(owner))
        cached = self._alone.get((variant, owner.name, gate.id))
        if cached is None or cached[0] != known:
            summary, missing = self.summary(owner, variant), self.missing(owner, variant)
            looks_further = gate.compares or gate.confidence is not None
            evidence = self.evidence(owner, variant) if looks_further and not missing else None
            verdict = judge(gate, summary, missing=missing, evidence=evidence)
            self._alone[variant, owner.name, gate.id] = cached = (known, verdict)
        return cached[1]

    def evidence(self, owner: Task | Group, variant: str) -> GateData:
        """The docs behind the numbers of a task or group, beside the baseline."""
        parts = [self.part(task, variant) for task in self.leaves(owner)]
        whole = all(len(part.results) == part.n_total for part in parts)
        return GateData(
            owner=owner,
            tasks=parts,
            drawn="all" if whole else "first" if self.settings.sample_seed is None else "random",
            baseline=self.baseline.name,
            ignore_unpaired=self.unpaired == "ignore",
        )

    def part(self, task: Task, variant: str) -> TaskData:
        known = self.evaluation.ledger.of(variant, task.name)
        results = [known[index] for index in sorted(known)]
        total = self.evaluation.sizes.get(task.name, (0, len(results)))[1]
        comparison = self.baseline.comparison(variant, task, results)
        return TaskData(task, results, total, comparison, self.noise.needed(variant, task.name))

    def asked_result(self, name: str, variant: str, lm: LM) -> Summary:
        """The same for a test of the user's, which a name or data of no use fails with the message alone."""
        try:
            return self.result_of(name, variant, lm)
        except LLMEvalError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    def result_of(self, name: str, variant: str, lm: LM) -> Summary:
        """The numbers of a task or group by name, over all docs that this run asks for. Raises LLMEvalError."""
        owner = self.collected.get(name) or self.registry.find(name, self.config.rootpath)
        if isinstance(owner, tuple):
            raise SettingError(f"llmeval_result({name!r}): is a tag of {len(owner)} tasks; name a task or a group")
        self.name_model(variant, lm)
        self.collected.update({value.name: value for value in (*self.leaves(owner), owner)})
        for task in self.leaves(owner):
            self.evaluation.score(lm, variant, task, self.evaluation.open(task).asked, self.progress.of(task.name))
        return self.summary(owner, variant)

    def summary(self, owner: Task | Group, variant: str) -> Summary:
        if isinstance(owner, Task):
            summary = self.evaluation.summary(variant, owner)
            stopped = self.early is not None and self.early.stopped(owner, variant)
            return replace(summary, stopped_early=True) if stopped else summary
        return self.evaluation.group_summary(variant, owner)

    def name_model(self, variant: str, lm: LM) -> None:
        """Remember how reports call a model: as its id does, else as it calls itself."""
        self.model_names.setdefault(variant, variant or str(getattr(lm, "name", "") or type(lm).__name__))

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


def _read_rules(config: pytest.Config, baseline: BaselineOptions) -> list[Rule]:
    lines = [("ini llmeval_gates", line) for line in config.getini("llmeval_gates")]
    lines += [(origin_of(config, "fail-on"), line) for line in value_of(config, "fail-on") or ()]
    rules = [parse_rule(line, origin=origin) for origin, line in lines]
    for place in [rule.gate.place for rule in rules if rule.gate.compares and not baseline.name]:
        if place.origin.startswith("--"):
            raise place.error("there is no baseline to compare with: name one with --llmeval-baseline")
    return rules


def _search_folders(config: pytest.Config) -> list[Path]:
    """Where names of tasks are looked up besides near the file that uses them."""
    patterns = [str(pattern) for pattern in config.getini("llmeval_files")]
    named = [config.rootpath / pattern.split("*")[0] for pattern in patterns]
    return sorted({folder for folder in named if folder.is_dir()})
