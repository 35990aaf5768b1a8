"""Tasks and groups by path and by name, independent of what was collected.

A name is looked up near the file that uses it: in its folder and below, then one folder further up, and so on to
the top of the project; then in the folders to search. So two trees with tasks of equal names can stand side by
side. What two files define in the same place is an error that names both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._registry.derive import Deriver
from pytest_llmeval._registry.index import Index
from pytest_llmeval._registry.index import Located
from pytest_llmeval._registry.listing import Listing
from pytest_llmeval._registry.listing import with_inner
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import Member
from pytest_llmeval._taskfile import TaskFiles


class Registry:
    """Every task and group this process knows.

    `search`: folders in which names are looked up last. `root`: names are not looked up above it for files below it.
    """

    def __init__(self, search: Sequence[Path] = (), *, root: Path | None = None) -> None:
        self._search = tuple(Path(os.path.abspath(folder)) for folder in search)
        self._files = TaskFiles()
        self._index = Index(None if root is None else Path(os.path.abspath(root)))
        self._loaded: dict[Path, Task | Group] = {}
        #: Name of a task or group -> the file that defines it.
        self._homes: dict[str, Path] = {}
        self._groups: dict[str, Group] = {}
        self._listing = Listing(self._files, self._index, self._locate)

    def load(self, path: Path) -> Task | Group:
        """The task or group of a file. The same value every time. Raises TaskFileError.

        The members of a group are names, and values where the group says more of them than their name: tasks and
        groups written in it, and others under a name of their own (``openllm::gsm8k``) whose keys it sets anew.
        """
        path = Path(os.path.abspath(path))
        if path not in self._loaded:
            found = self._files.read(path)
            if isinstance(found, Group):
                found = Deriver(self._files, self).resolved(found)
            self._remember(found, path)
            self._loaded[path] = found
        return self._loaded[path]

    def find(self, name: str, near: Path) -> Task | Group | tuple[Task, ...]:
        """The task or group of that name, or the tasks of that tag in the order of their names.

        Raises TaskFileError if nothing near the file or folder `near`, nor in the folders to search, is called so.
        """
        located = self._locate(name, near)
        if located is None:
            raise TaskFileError(near, self._unknown(name, near))
        found = [self.load(path) for path in located.paths]
        return tuple(one for one in found if isinstance(one, Task)) if located.tag else found[0]

    def leaves(self, group: Group) -> tuple[Task, ...]:
        """The tasks of a group, its groups and tags opened up, each task once, in the order of the file.

        Raises TaskFileError for an unknown member and for groups that list each other.
        """
        found: dict[str, Task] = {}
        self._open(group, (), found)
        return tuple(found.values())

    def groups(self) -> tuple[Group, ...]:
        """All groups loaded so far, in the order of loading; a group after the one in which it is written."""
        return tuple(self._groups.values())

    def markers(self, item: Task | Group) -> tuple[str, ...]:
        """The names by which a task or group can be selected, each once.

        Its own name and alias, its tags, and names and aliases of the groups that list it, at any depth: of those
        loaded so far, and of those in its own folder.
        """
        names: list[str | None] = [item.name, *_short(item.name), item.alias]
        if isinstance(item, Task):
            names += item.tags
        for group in self._listing.groups_that_list(item):
            names += [group.name, *_short(group.name), group.alias]
        return tuple(dict.fromkeys(name for name in names if name))

    def member_files(self, group: Group, member: str) -> tuple[Path, ...]:
        """The files behind a member's name: one, or a tag's, in the order of the task names.

        Raises TaskFileError with the group's file and the member's line if there is none.
        """
        located = self._locate(member, group.path)
        if located is None:
            line = member.line if isinstance(member, Member) else group.line_of("task")
            raise TaskFileError(group.path, self._unknown(member, group.path), line=line, key="task")
        return located.paths

    def _locate(self, name: str, near: Path) -> Located | None:
        """The files behind a name, or None. Raises TaskFileError if two files in one place define it."""
        near = Path(os.path.abspath(near))
        for folder in (*self._index.levels(near), *self._search):
            names = self._index.below(folder)
            if files := names.files.get(name):
                if len(files) > 1:
                    raise TaskFileError(near, f"{name!r} is defined in two files: {files[0]} and {files[1]}")
                return Located((Path(files[0]),), tag=False)
            if files := names.tags.get(name):
                return Located(tuple(Path(file) for file in files), tag=True)
        return None

    def _unknown(self, name: str, near: Path) -> str:
        """That nothing has a name: where it was looked for, and what comes near."""
        folders = dict.fromkeys((*self._index.levels(Path(os.path.abspath(near))), *self._search))
        trees = [self._index.below(folder) for folder in folders]
        known = {one for names in trees for one in (*names.files, *names.tags)}
        places = ", ".join(str(folder) for folder in folders)
        return f"no task, group or tag is called {name!r}{did_you_mean(name, known, otherwise='.')} Looked in {places}."

    def _remember(self, found: Task | Group, home: Path) -> None:
        """Take up a task or group and all that is written in it. A name may have one home and one meaning only."""
        known: dict[str, Task | Group] = {}
        for one in with_inner(found):
            if (other := self._homes.get(one.name, home)) != home:
                kind = "task" if isinstance(one, Task) else "group"
                message = f"{one.name!r} is already defined in {other}; results are known by these names"
                raise TaskFileError(home, message, line=one.line_of(kind), key=kind)
            if known.setdefault(one.name, one) != one:
                message = f"{one.name!r} is there twice; give one of them a name of its own with 'include'"
                raise TaskFileError(home, message, line=found.line_of("task"), key="task")
        for name, one in known.items():
            self._homes[name] = home
            if isinstance(one, Group):
                self._groups[name] = one
                self._listing.add(one)

    def _open(self, group: Group, chain: tuple[Group, ...], found: dict[str, Task]) -> None:
        if any(group.name == one.name for one in chain):
            names = [one.name for one in (*chain, group)]
            names = names[names.index(group.name) :]
            line = group.line_of("task")
            raise TaskFileError(group.path, f"the groups list each other: {' -> '.join(names)}", line=line, key="task")
        for member in group.members:
            for one in self._members(group, member):
                if isinstance(one, Group):
                    self._open(one, (*chain, group), found)
                else:
                    alias = member.alias if isinstance(member, Member) else None
                    found.setdefault(one.name, replace(one, alias=alias) if alias else one)

    def _members(self, group: Group, member: str | Task | Group) -> tuple[Task | Group, ...]:
        if not isinstance(member, str):
            return (member,)
        return tuple(self.load(path) for path in self.member_files(group, member))


def _short(name: str) -> tuple[str, ...]:
    """The last part of ``group::name``."""
    return (name.rpartition("::")[2],) if "::" in name else ()
