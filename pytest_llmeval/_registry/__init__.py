"""Tasks and groups by path and by name, independent of what was collected.

A name is looked up near the file that uses it: in its folder and below, then one folder further up, and so on to
the top of the project; then in the search folders. So two folders can have tasks with the same names.
A name that two files in the same place define is an error that names both.

index      names by folder, and the files that a name leads to
members    members whose keys a group overrides
listing    the groups that list a task
"""

from __future__ import annotations

import os
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._registry.index import Index
from pytest_llmeval._registry.listing import Listing
from pytest_llmeval._registry.listing import with_inner
from pytest_llmeval._registry.members import MemberReader
from pytest_llmeval._registry.members import refuse_circle
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import MemberName
from pytest_llmeval._taskfile import TaskFiles


class Registry:
    """All tasks and groups that this process knows.

    `search`: folders in which names are looked up last. `root`: names are not looked up above it for files below it.
    `asked`: metrics that rules name, as for `TaskFiles`.
    """

    def __init__(
        self,
        search: Sequence[Path] = (),
        *,
        root: Path | None = None,
        asked: Mapping[str, Collection[str]] = NOTHING,
    ) -> None:
        self._files = TaskFiles(asked)
        self._index = Index(search, root=root)
        self._loaded: dict[Path, Task | Group] = {}
        #: Name of a task or group -> the file that defines it.
        self._homes: dict[str, Path] = {}
        self._groups: dict[str, Group] = {}
        self._listing = Listing(self._files, self._index)

    def load(self, path: Path) -> Task | Group:
        """Return the task or group of a file, the same value every time. Raises TaskFileError.

        The members of a group are names, or values: tasks and groups written in its file, and members whose keys it
        overrides, under a name of their own (``openllm::gsm8k``).
        """
        path = Path(os.path.abspath(path))
        if path not in self._loaded:
            found = self._files.read(path)
            if isinstance(found, Group):
                found = MemberReader(self._files, self._index).resolved(found)
            self._remember(found, path)
            self._loaded[path] = found
        return self._loaded[path]

    def find(self, name: str, near: Path) -> Task | Group | tuple[Task, ...]:
        """Return the task or group of that name, or the tasks of that tag in the order of their names.

        Raises TaskFileError if nothing near the file or folder `near`, nor in the search folders, has the name.
        """
        located = self._index.locate(name, near)
        found = [self.load(path) for path in located.paths]
        return tuple(one for one in found if isinstance(one, Task)) if located.tag else found[0]

    def leaves(self, group: Group) -> tuple[Task, ...]:
        """Return the tasks of a group, also those of its groups and tags, each task once, in the order of the file.

        Raises TaskFileError for an unknown member and for groups that list each other.
        """
        found: dict[str, Task] = {}
        self._collect_leaves(group, (), found)
        return tuple(found.values())

    def groups(self) -> tuple[Group, ...]:
        """Return all groups loaded so far, in the order of loading; an inline group after the one that contains it."""
        return tuple(self._groups.values())

    def names_of(self, item: Task | Group) -> tuple[str, ...]:
        """Return the names by which a task or group can be selected, each once.

        These are its name and alias, its tags, and the names and aliases of the groups that list it, at any depth:
        groups loaded so far, and groups in its own folder. The last part of ``group::name`` is a name as well.
        """
        tags = item.tags if isinstance(item, Task) else ()
        names = [item.name, item.name.rpartition("::")[2], item.alias, *tags]
        for group in self._listing.groups_that_list(item):
            names += [group.name, group.name.rpartition("::")[2], group.alias]
        return tuple(dict.fromkeys(name for name in names if name))

    def _remember(self, found: Task | Group, home: Path) -> None:
        """Add a task or group and all that is written in it. Raises TaskFileError for a name that is in use."""
        known: dict[str, Task | Group] = {}
        for one in with_inner(found):
            if (other := self._homes.get(one.name, home)) != home:
                kind = "task" if isinstance(one, Task) else "group"
                message = f"{one.name!r} is already defined in {other}; results are known by these names"
                raise TaskFileError(home, message, line=one.line_of(kind), key=kind)
            if known.setdefault(one.name, one) != one:
                message = f"{one.name!r} is defined twice; give one of them a name of its own with 'include'"
                raise TaskFileError(home, message, line=found.line_of("task"), key="task")
        for name, one in known.items():
            self._homes[name] = home
            if isinstance(one, Group):
                self._groups[name] = one
                self._listing.add(one)

    def _collect_leaves(self, group: Group, around: tuple[Group, ...], found: dict[str, Task]) -> None:
        refuse_circle(group, around)
        for member in group.members:
            if isinstance(member, str):
                members = [self.load(path) for path in self._index.files_of_member(group, member)]
            else:
                members = [member]
            for one in members:
                if isinstance(one, Group):
                    self._collect_leaves(one, (*around, group), found)
                else:
                    alias = member.alias if isinstance(member, MemberName) else None
                    found.setdefault(one.name, replace(one, alias=alias) if alias else one)


__all__ = ["Index", "Registry"]
