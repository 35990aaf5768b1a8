"""Group files, which list the tasks that are reported together.

    group: openllm
    task:
      - arc_easy                                  a task, group or tag by name
      - {task: gsm8k, num_fewshot: 5}             the same with keys overridden
      - {task: mine, include: _base.yaml, ...}    a task written here
      - {group: inner, task: [...]}               a group written here
    num_fewshot: 0                                keys of tasks here hold for all members

Tasks and groups written here are named after the group, ``openllm::mine``, as in lm_eval. Members given by name are
looked up by `_registry`; here they are texts of class `MemberName`, which carry the keys that the group overrides.
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
from pytest_llmeval._taskfile.sources import Includes
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.task import TASK_KEYS
from pytest_llmeval._taskfile.task import build_task
from pytest_llmeval._taskfile.task import check_keys
from pytest_llmeval._taskfile.task import read_metadata
from pytest_llmeval._taskfile.typed import read
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


GROUP_KEYS = frozenset({"group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag", "include"})
_METRIC_KEYS = ("metric", "aggregation", "weight_by_size", "filter_list")


class MemberName(str):
    """The name of a member of a group, and the line on which it is written.

    `overrides` are the entries that the group overrides for it, `alias` the name under which the group shows it.
    """

    line: int
    overrides: Mapping[str, Value]
    alias: str | None

    def __new__(
        cls, name: str, line: int, overrides: Mapping[str, Value] = NOTHING, alias: str | None = None
    ) -> MemberName:
        self = super().__new__(cls, name)
        self.line = line
        self.overrides = overrides
        self.alias = alias
        return self


def is_group(keys: AbstractSet[str], task_is_text: bool) -> bool:
    """Return True if a file of these top-level keys is a group. In old task files `group` holds tags."""
    return "group" in keys and (not task_is_text or keys <= GROUP_KEYS)


class GroupReader:
    """Reads the groups of one file, inline ones included."""

    def __init__(self, home: Path, includes: Includes, modules: Modules) -> None:
        self.home = home
        self.includes = includes
        self.modules = modules

    def group(self, table: Table, overrides: Mapping[str, Value] = NOTHING, parent: str = "") -> Group:
        """Return the group that a mapping describes. `overrides`, from a group that lists it, win over its own keys."""
        entries = table.entries
        check_keys(entries, GROUP_KEYS | TASK_KEYS)
        name = parent + typed.name(entries["group"], "group")
        metadata, gates, gates_path = read_metadata(entries, self.home)
        kept = {key: value for key, value in entries.items() if key not in GROUP_KEYS}
        return Group(
            name=name,
            path=self.home,
            members=self._members(table, name, {**kept, **overrides}),
            alias=read(entries, "group_alias", typed.name),
            metrics=read(entries, "aggregate_metric_list", self._metrics) or (),
            version=metadata.get("version"),
            metadata=MappingProxyType(metadata),
            gates=gates,
            gates_path=gates_path,
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
            return MemberName(typed.name(value, key), value.line, MappingProxyType(overrides))
        entry = typed.table(value, key)
        if "group" in entry.entries and "task" in entry.entries:
            return self.group(entry, overrides, f"{group}::")
        own = {**overrides, **entry.entries}
        if "group" in entry.entries:
            check_keys(entry.entries, GROUP_KEYS | TASK_KEYS)
            return MemberName(typed.name(own.pop("group"), f"{key}.group"), value.line, own)
        if "task" not in entry.entries:
            raise typed.wrong(value, key, "has neither 'task' nor 'group'")
        check_keys(entry.entries, TASK_KEYS)
        fields = {"doc_to_text", "doc_to_target"}
        if "include" in own or (fields <= own.keys() and not own.keys().isdisjoint({"dataset_path", "custom_dataset"})):
            # A new task, not changes to the task of another file.
            merged = self.includes.merge(own, self.home, (self.home,))
            name = f"{group}::{typed.name(merged['task'], 'task')}"
            merged["task"] = Scalar(self.home, entry.entries["task"].line, name)
            return build_task(Table(self.home, entry.line, merged), self.modules)
        return MemberName(typed.name(own.pop("task"), f"{key}.task"), value.line, own)

    def _metrics(self, value: Value, key: str) -> tuple[GroupMetric, ...]:
        entries = (value,) if isinstance(value, Table) else typed.tables(value, key)
        return tuple(self._metric(entry, f"{key}[{n}]") for n, entry in enumerate(entries))

    def _metric(self, table: Table, key: str) -> GroupMetric:
        typed.check_keys(table.entries, _METRIC_KEYS, f"{key}.")
        metric, aggregation, weight, filters = (typed.given(table.entries, name) for name in _METRIC_KEYS)
        if metric is None:
            raise typed.wrong(table, key, "has no 'metric'")
        if isinstance(metric, FunctionRef):
            # A function is known by the name of the metric that the tasks make from it.
            name = metric.text.rpartition(".")[2]
        else:
            name = typed.name(metric, f"{key}.metric")
        # The mean is the only aggregation with a name, and the default.
        function: DocFunction | None = None
        if isinstance(aggregation, FunctionRef):
            function = self.modules.function(aggregation, f"{key}.aggregation")
        elif aggregation is not None:
            typed.one_of(aggregation, f"{key}.aggregation", ("mean",))
        return GroupMetric(
            metric=name,
            filters=None if filters is None else typed.texts(filters, f"{key}.filter_list"),
            weight_by_size=True if weight is None else typed.flag(weight, f"{key}.weight_by_size"),
            aggregation=function,
        )
