"""Members whose keys a group sets anew: the same benchmark asked in another way, so under a name of its own.

    group: openllm
    task: [{task: gsm8k, num_fewshot: 5}, {task: mmlu, num_fewshot: 5}, {task: arc_easy, task_alias: ARC-e}]

gives the task ``openllm::gsm8k`` and the group ``openllm::mmlu`` with 57 tasks ``openllm::mmlu_...``. The peer keeps
the plain names, and results of two settings of one task then overwrite each other. Keys that change nothing give
no new task: here arc_easy stays itself and is shown as ARC-e.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeVar

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import GROUP_KEYS
from pytest_llmeval._taskfile import Member
from pytest_llmeval._taskfile import Scalar
from pytest_llmeval._taskfile import TaskFiles


if TYPE_CHECKING:
    from pytest_llmeval._registry import Registry


class Deriver:
    """Works out the members of one group file."""

    def __init__(self, files: TaskFiles, registry: Registry) -> None:
        self.files = files
        self.registry = registry
        #: The groups around the current one.
        self.open: list[Group] = []

    def resolved(self, group: Group, prefix: str = "") -> Group:
        """The group with every changed member as a value.

        `prefix`: the group that changes this one, in whose name everything in it is changed.
        """
        if any(group.path == one.path and group.name == one.name for one in self.open):
            names = [one.name for one in (*self.open, group)]
            chain = " -> ".join(names[names.index(group.name) :])
            raise TaskFileError(
                group.path, f"the groups list each other: {chain}", line=group.line_of("task"), key="task"
            )
        self.open.append(group)
        members = [one for member in group.members for one in self._resolved(member, group, prefix)]
        self.open.pop()
        return replace(group, members=tuple(members))

    def _resolved(self, member: str | Task | Group, group: Group, prefix: str) -> list[str | Task | Group]:
        if isinstance(member, Group):
            inner = self.resolved(member, prefix)
            return [_named(inner, prefix)]
        if isinstance(member, Task):
            return [_named(member, prefix)]
        if isinstance(member, Member) and member.overrides:
            paths = self.registry.member_files(group, member)
            return [self._changed(path, member, prefix or group.name) for path in paths]
        return [member]

    def _changed(self, path: Path, member: Member, prefix: str) -> str | Task | Group:
        found = self.files.read(path)
        return self._task(found, member, prefix) if isinstance(found, Task) else self._group(found, member, prefix)

    def _task(self, task: Task, member: Member, prefix: str) -> str | Task:
        changed = self.files.read(task.path, member.overrides)
        if not isinstance(changed, Task) or _meaning(changed.config) == _meaning(task.config):
            alias = changed.alias if changed.alias != task.alias else None
            return Member(task.name, member.line, alias=alias)
        return replace(_named(changed, prefix), alias=changed.alias or task.name)

    def _group(self, group: Group, member: Member, prefix: str) -> str | Group:
        alias = member.overrides.get("group_alias") or member.overrides.get("task_alias")
        keys = {key: value for key, value in member.overrides.items() if key not in GROUP_KEYS | {"task_alias"}}
        read = self.files.read(group.path, keys)
        if not isinstance(read, Group):
            return member
        changed = self.resolved(read, prefix)
        shown = alias.text if isinstance(alias, Scalar) else None
        if all(isinstance(one, str) for one in changed.members):
            return Member(group.name, member.line, alias=shown)
        return replace(_named(changed, prefix), alias=shown or group.display_name)


T = TypeVar("T", Task, Group)


def _named(item: T, prefix: str) -> T:
    """A task or group under the name of the group that changes it."""
    return replace(item, name=f"{prefix}::{item.name}") if prefix else item


def _meaning(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the results of a task: everything but the name that reports show."""
    return {key: value for key, value in config.items() if key != "task_alias"}
