"""The gates of the ini file and the command line, and the tasks and groups that each of them selects."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence

import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import Rule
from pytest_llmeval._gates import gates_for
from pytest_llmeval._gates import is_meant
from pytest_llmeval._gates import metric_names
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


class Rules:
    """The gates that the configuration hands to tasks and groups.

    `problem` is the first mistake in them. pytest takes usage errors only when all is collected, so it is kept.
    """

    def __init__(
        self, config: pytest.Config, leaves: Callable[[Task | Group], Sequence[Task]], *, has_baseline: bool
    ) -> None:
        self.problem: str | None = None
        self._leaves = leaves
        self._rules: list[Rule] = []
        self._matched: set[Rule] = set()
        #: Rules that select something without their metric, with the suggestion of a metric of nearly the same name.
        self._misspelled: dict[Rule, str] = {}
        try:
            self._rules = _read(config, has_baseline)
        except SettingError as error:
            self.problem = str(error)

    def __len__(self) -> int:
        return len(self._rules)

    def asked(self) -> dict[str, set[str]]:
        """Return the selectors of the rules by the metric that they name."""
        found: dict[str, set[str]] = {}
        for rule in self._rules:
            found.setdefault(rule.gate.metric, set()).add(rule.selector)
        return found

    def gates_of(self, owner: Task | Group) -> tuple[Gate, ...]:
        """Return the gates of a task or group: its own, then those of the rules that select it.

        A rule that cannot apply becomes the `problem`; the task file is collected without it. Raises LLMEvalError for
        a gate of the file.
        """
        leaves = self._leaves(owner)
        for rule in self._rules:
            if is_meant(rule, owner, leaves):
                self._matched.add(rule)
            elif rule.selects(owner) and (mend := did_you_mean(rule.gate.metric, metric_names(owner))):
                self._misspelled.setdefault(rule, mend)
        try:
            return gates_for(owner, self._rules, leaves)
        except SettingError as error:
            self.problem = self.problem or str(error)
            return gates_for(owner, (), leaves)

    def unmatched(self) -> list[Rule]:
        """Return the rules that select nothing of all that was collected."""
        return [rule for rule in self._rules if rule not in self._matched]

    def unmatched_problem(self, collected: Collection[Task | Group]) -> str | None:
        """Return a message on a rule of the command line that selects nothing; None if there is none.

        A rule of the ini file may be meant for other files, unless its metric is misspelled.
        """
        for rule in self.unmatched():
            message = f"{rule.gate.place.origin}: {rule.gate.place.text!r}: selects nothing that was collected"
            if any(rule.selects(owner) for owner in collected):
                message += f" with a metric {rule.gate.key!r}"
            if mend := self._misspelled.get(rule):
                return f"{message}{mend}"
            if rule.gate.place.origin.startswith("--"):
                return message + did_you_mean(rule.selector, [owner.name for owner in collected])
        return None


def _read(config: pytest.Config, has_baseline: bool) -> list[Rule]:
    lines = [("ini llmeval_gates", line) for line in config.getini("llmeval_gates")]
    lines += [(origin_of(config, "fail-on"), line) for line in value_of(config, "fail-on") or ()]
    rules = [parse_rule(line, origin=origin) for origin, line in lines]
    for place in [rule.gate.place for rule in rules if rule.gate.compares and not has_baseline]:
        if place.origin.startswith("--"):
            raise place.error("there is no baseline to compare with: name one with --llmeval-baseline")
    return rules
