"""YAML to Task or Group, in lm-evaluation-harness's format.

typed       one value as a text, number, flag, list, or an error that names file, line and key
modules     ``!function``: which file it means, and running it
sources     include chains
fields, generation, scoring, fewshot    the parts of a task
config      the task as plain data
task, group the whole
sniff       what a file is, from its text
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile.config import Sources
from pytest_llmeval._taskfile.group import GroupReader
from pytest_llmeval._taskfile.group import is_group
from pytest_llmeval._taskfile.modules import Modules
from pytest_llmeval._taskfile.sniff import looks_like_task
from pytest_llmeval._taskfile.task import build_task
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


class TaskFiles:
    """Reads task files, parsing each YAML file and running each module once."""

    def __init__(self) -> None:
        self._sources = Sources()
        self._modules = Modules()

    def read(self, path: Path, overrides: Mapping[str, Value] = NOTHING) -> Task | Group:
        """The task or group of a file, with some entries set anew: those of a task, or of a group's members."""
        path = Path(os.path.abspath(path))
        table = self._sources.resolve(path)
        keys = set(table.entries)
        if not keys & {"task", "group", "class"}:
            raise TaskFileError(path, "is no task file: it has neither 'task' nor 'group'")
        if is_group(keys, isinstance(table.entries.get("task"), Scalar)) and "class" not in keys:
            return GroupReader(path, self._sources, self._modules).group(table, overrides)
        return build_task(Table(path, 1, {**table.entries, **overrides}), self._modules)


def read_task_file(path: Path) -> Task | Group:
    """The task or group that a file describes: includes followed, functions loaded, everything checked.

    Raises TaskFileError with ``file:line: key:``, what is wrong, and the mend.
    """
    return TaskFiles().read(path)


__all__ = ["TaskFiles", "looks_like_task", "read_task_file"]
