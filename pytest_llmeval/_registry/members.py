"""Members whose keys a group overrides: the same benchmark with other settings, so under another name.

    group: openllm
    task: [{task: gsm8k, num_fewshot: 5}, {task: mmlu, num_fewshot: 5}, {task: arc_easy, task_alias: ARC-e}]

gives the task ``openllm::gsm8k`` and the group ``openllm::mmlu`` with 57 tasks ``openllm::mmlu_...``. lm_eval keeps
the plain names, and results of two settings of one task then overwrite each other. Keys that change nothing make
no new task: here arc_easy keeps its name and is shown as ARC-e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._registry.index import Index
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import GROUP_KEYS
from pytest_llmeval._taskfile import MemberName
from pytest_llmeval._taskfile import Scalar
from pytest_llmeval._taskfile import TaskFiles


class MemberReader:
    """Reads the members of one group file whose keys it overrides."""

    def __init__(self, files: TaskFiles, index: Index) -> None:
        self.files = files
        self.index = index
        #: The groups that contain the current one.
        self.open: list[Group] = []

    def resolved(self, group: Group, prefix: str = "") -> Group:
        """Return the group with every member whose keys it overrides as a value.

        `prefix`: the name of the group that overrides keys of this one; all names in it begin with it.
        """
        refuse_circle(group, self.open)
        self.open.append(group)
        members = [one for member in group.members for one in self._resolved(member, group, prefix)]
        self.open.pop()
        return replace(group, members=tuple(members))

    def _resolved(self, member: str | Task | Group, group: Group, prefix: str) -> list[str | Task | Group]:
        if isinstance(member, Group):
            return [_named(self.resolved(member, prefix), prefix)]
        if isinstance(member, Task):
            return [_named(member, prefix)]
        if isinstance(member, MemberName) and member.overrides:
            found = [self.files.read(path) for path in self.index.files_of_member(group, member)]
            prefix = prefix or group.name
            return [
                self._task(one, member, prefix) if isinstance(one, Task) else self._group(one, member, prefix)
                for one in found
            ]
        return [member]

    def _task(self, task: Task, member: MemberName, prefix: str) -> str | Task:
        changed = self.files.read(task.path, member.overrides)
        # The name shown in reports does not change the evaluation.
        shown = {"task_alias": None}
        if not isinstance(changed, Task) or {**changed.config, **shown} == {**task.config, **shown}:
            alias = changed.alias if changed.alias != task.alias else None
            return MemberName(task.name, member.line, alias=alias)
        return replace(_named(changed, prefix), alias=changed.alias or task.name)

    def _group(self, group: Group, member: MemberName, prefix: str) -> str | Group:
        alias = member.overrides.get("group_alias") or member.overrides.get("task_alias")
        keys = {key: value for key, value in member.overrides.items() if key not in GROUP_KEYS | {"task_alias"}}
        read = self.files.read(group.path, keys)
        if not isinstance(read, Group):
            return member
        changed = self.resolved(read, prefix)
        shown = alias.text if isinstance(alias, Scalar) else None
        if all(isinstance(one, str) for one in changed.members):
            return MemberName(group.name, member.line, alias=shown)
        return replace(_named(changed, prefix), alias=shown or group.display_name)


def refuse_circle(group: Group, around: Sequence[Group]) -> None:
    """Raise TaskFileError if a group is one of the groups that contain it."""
    if any(group.path == one.path and group.name == one.name for one in around):
        names = [one.name for one in (*around, group)]
        message = f"the groups list each other: {' -> '.join(names[names.index(group.name) :])}"
        raise TaskFileError(group.path, message, line=group.line_of("task"), key="task")


T = TypeVar("T", Task, Group)


def _named(item: T, prefix: str) -> T:
    """Return a task or group whose name begins with that of the group that overrides its keys."""
    return replace(item, name=f"{prefix}::{item.name}") if prefix else item
