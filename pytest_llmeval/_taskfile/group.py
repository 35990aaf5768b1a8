"""Group files: which tasks are reported together.

    group: openllm
    task:
      - arc_easy                                  a task, group or tag by name
      - {task: gsm8k, num_fewshot: 5}             the same with keys set anew
      - {task: mine, include: _base.yaml, ...}    a task written here
      - {group: inner, task: [...]}               a group written here
    num_fewshot: 0                                keys of tasks here hold for all members

What is written here is named after the group, ``openllm::mine``, as the peer does. The members of such names are
looked up by `_registry`; here they are texts of class `Member`, which carry the keys that the group sets anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import MappingProxyType

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.config import Sources
from pytest_llmeval._taskfile.modules import Modules
from pytest_llmeval._taskfile.task import TASK_KEYS
from pytest_llmeval._taskfile.task import build_task
from pytest_llmeval._taskfile.task import check_keys
from pytest_llmeval._taskfile.task import read_metadata
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


GROUP_KEYS = frozenset({"group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag", "include"})
_METRIC_KEYS = ("metric", "aggregation", "weight_by_size", "filter_list")


class Member(str):
    """A member of a group by name.

    `overrides` are the entries that the group sets anew for it, `alias` the name under which the group shows it.
    """

    line: int
    overrides: Mapping[str, Value]
    alias: str | None

    def __new__(
        cls, name: str, line: int, overrides: Mapping[str, Value] = NOTHING, alias: str | None = None
    ) -> Member:
        self = super().__new__(cls, name)
        self.line = line
        self.overrides = overrides
        self.alias = alias
        return self


def is_group(keys: AbstractSet[str], task_is_text: bool) -> bool:
    """Whether a file of these top-level keys is a group. A task of the old format has `group` as its tags."""
    return "group" in keys and (not task_is_text or keys <= GROUP_KEYS)


class GroupReader:
    """Reads the groups of one file, inline ones included."""

    def __init__(self, home: Path, sources: Sources, modules: Modules) -> None:
        self.home = home
        self.sources = sources
        self.modules = modules

    def group(self, table: Table, overrides: Mapping[str, Value] = NOTHING, parent: str = "") -> Group:
        """`overrides` come from a group that lists this one; they win over the keys that this one sets."""
        entries = table.entries
        check_keys(entries, GROUP_KEYS | TASK_KEYS)
        name = parent + typed.name(entries["group"], "group")
        alias = typed.given(entries, "group_alias")
        metadata, gates = read_metadata(entries, self.home)
        kept = {key: value for key, value in entries.items() if key not in GROUP_KEYS}
        return Group(
            name=name,
            path=self.home,
            members=self._members(table, name, {**kept, **overrides}),
            alias=None if alias is None else typed.name(alias, "group_alias"),
            metrics=self._metrics(typed.given(entries, "aggregate_metric_list")),
            version=metadata.get("version"),
            metadata=MappingProxyType(metadata),
            gates=gates,
            lines={key: value.line for key, value in entries.items() if value.path == self.home},
        )

    def _members(self, table: Table, group: str, overrides: Mapping[str, Value]) -> tuple[str | Task | Group, ...]:
        value = typed.given(table.entries, "task")
        if value is None:
            raise TaskFileError(table.path, "missing: the names of the tasks in the group", line=table.line, key="task")
        entries = value.values if isinstance(value, Items) else (value,)
        if not entries:
            raise typed.wrong(value, "task", "the list is empty")
        return tuple(self._member(one, f"task[{n}]", group, overrides) for n, one in enumerate(entries))

    def _member(self, value: Value, key: str, group: str, overrides: Mapping[str, Value]) -> str | Task | Group:
        if isinstance(value, Scalar):
            return Member(typed.name(value, key), value.line, MappingProxyType(overrides))
        entry = typed.table(value, key)
        if "group" in entry.entries and "task" in entry.entries:
            return self.group(entry, overrides, f"{group}::")
        own = {**overrides, **entry.entries}
        if "group" in entry.entries:
            check_keys(entry.entries, GROUP_KEYS | TASK_KEYS)
            return Member(typed.name(own.pop("group"), f"{key}.group"), value.line, own)
        if "task" not in entry.entries:
            raise typed.wrong(value, key, "has neither 'task' nor 'group'")
        check_keys(entry.entries, TASK_KEYS)
        if _is_complete(own.keys()):
            return self._inline(entry, own, group)
        return Member(typed.name(own.pop("task"), f"{key}.task"), value.line, own)

    def _inline(self, entry: Table, own: Mapping[str, Value], group: str) -> Task:
        merged = self.sources.merge(own, self.home, (self.home,))
        name = f"{group}::{typed.name(merged['task'], 'task')}"
        merged["task"] = Scalar(self.home, entry.entries["task"].line, name)
        return build_task(Table(self.home, entry.line, merged), self.modules)

    def _metrics(self, value: Value | None) -> tuple[GroupMetric, ...]:
        if value is None:
            return ()
        entries = (value,) if isinstance(value, Table) else typed.tables(value, "aggregate_metric_list")
        return tuple(self._metric(entry, f"aggregate_metric_list[{n}]") for n, entry in enumerate(entries))

    def _metric(self, table: Table, key: str) -> GroupMetric:
        typed.check_keys(table.entries, _METRIC_KEYS, f"{key}.")
        metric, aggregation, weight, filters = (typed.given(table.entries, name) for name in _METRIC_KEYS)
        if metric is None:
            raise typed.wrong(table, key, "has no 'metric'")
        return GroupMetric(
            metric=_metric_name(metric, f"{key}.metric"),
            filters=None if filters is None else typed.texts(filters, f"{key}.filter_list"),
            weight_by_size=True if weight is None else typed.flag(weight, f"{key}.weight_by_size"),
            aggregation=self._aggregation(aggregation, f"{key}.aggregation"),
        )

    def _aggregation(self, value: Value | None, key: str) -> DocFunction | None:
        """None is the mean, the one aggregation that has a name."""
        if isinstance(value, FunctionRef):
            return self.modules.function(value, key)
        if value is not None:
            typed.one_of(value, key, ("mean",))
        return None


def _metric_name(value: Value, key: str) -> str:
    """A metric by name; a function stands for the metric that the tasks make of it."""
    return value.text.rpartition(".")[2] if isinstance(value, FunctionRef) else typed.name(value, key)


def _is_complete(keys: AbstractSet[str]) -> bool:
    """Whether an entry of ``task`` with these keys is a task of its own, not changes to one that a file holds."""
    if "include" in keys:
        return True
    return {"doc_to_text", "doc_to_target"} <= keys and not keys.isdisjoint({"dataset_path", "custom_dataset"})
