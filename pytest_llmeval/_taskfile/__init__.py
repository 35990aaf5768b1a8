"""Task files in lm-evaluation-harness's format: YAML is read into a Task or Group, and a task is checked.

yaml        values that know their file and line, and keep their text
typed       one value as a text, number, flag, list, or an error that names file, line and key
sources     the files that a task file uses: ``include`` and ``!function``
fields, generation, scoring    the parts of a task
config      a task as plain data
task, group one file as a whole
outline     the names in a file, from its text alone
findings    problems of a task that can be read
"""

from __future__ import annotations

import os
from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import with_asked
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile.findings import Finding
from pytest_llmeval._taskfile.findings import lint
from pytest_llmeval._taskfile.findings import needed_fields
from pytest_llmeval._taskfile.generation import LIMIT_KEYS
from pytest_llmeval._taskfile.generation import generation_settings
from pytest_llmeval._taskfile.group import GROUP_KEYS
from pytest_llmeval._taskfile.group import GroupReader
from pytest_llmeval._taskfile.group import MemberName
from pytest_llmeval._taskfile.group import is_group
from pytest_llmeval._taskfile.outline import Outline
from pytest_llmeval._taskfile.outline import looks_like_task
from pytest_llmeval._taskfile.outline import outline_of
from pytest_llmeval._taskfile.sources import Includes
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.task import build_task
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data
from pytest_llmeval._taskfile.yaml import read_yaml
from pytest_llmeval._taskfile.yaml import shown


class TaskFiles:
    """Reads task files; parses each YAML file and runs each module once.

    `asked`: the metrics that rules name, each with the selectors of these rules. One that lm_eval does not have is
    added to every task of its output types, and to the groups that a selector names.
    """

    def __init__(self, asked: Mapping[str, Collection[str]] = NOTHING) -> None:
        self._asked = asked
        self._includes = Includes()
        self._modules = Modules()

    def read(self, path: Path, overrides: Mapping[str, Value] = NOTHING) -> Task | Group:
        """Return the task or group of a file; `overrides` replace entries of the task, or of a group's members.

        Raises TaskFileError with ``file:line: key:``, the problem, and the remedy.
        """
        path = Path(os.path.abspath(path))
        table = self._includes.read(path)
        keys = set(table.entries)
        if not keys & {"task", "group", "class"}:
            raise TaskFileError(path, "is not a task file: it has neither 'task' nor 'group'")
        if is_group(keys, isinstance(table.entries.get("task"), Scalar)) and "class" not in keys:
            return self._completed(GroupReader(path, self._includes, self._modules).group(table, overrides))
        return self._completed(build_task(Table(path, 1, {**table.entries, **overrides}), self._modules))

    def _completed(self, found: Task | Group) -> Task | Group:
        """Return a task or group, and what is written in it, with the metrics that rules ask for."""
        if isinstance(found, Task):
            return with_asked(found, self._asked)
        members = [one if isinstance(one, str) else self._completed(one) for one in found.members]
        known = {metric.metric for metric in found.metrics}
        added = [
            GroupMetric(name, weight_by_size=all(metric.weight_by_size for metric in found.metrics))
            for name, selectors in self._asked.items()
            if name in METRICS and METRICS[name].by_rule and found.name in selectors and name not in known
        ]
        return replace(found, members=tuple(members), metrics=(*found.metrics, *added))


__all__ = [
    "GROUP_KEYS",
    "LIMIT_KEYS",
    "Finding",
    "FunctionRef",
    "Items",
    "MemberName",
    "Outline",
    "Scalar",
    "Table",
    "TaskFiles",
    "Value",
    "data",
    "generation_settings",
    "lint",
    "looks_like_task",
    "needed_fields",
    "outline_of",
    "read_yaml",
    "shown",
]
