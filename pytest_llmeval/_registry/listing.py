"""The groups that list a task, at any depth. They are found by name, so that no task has to be loaded."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._registry.index import Index
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles


class Listing:
    """The groups that list each task or group: those that were added and, for each folder, those in it."""

    def __init__(self, files: TaskFiles, index: Index) -> None:
        self._files = files
        self._index = index
        self._added: dict[str, list[Group]] = {}
        self._by_folder: dict[Path, dict[str, list[Group]]] = {}
        self._peeked: dict[Path, Group | None] = {}

    def add(self, group: Group) -> None:
        """Add a group. Groups written in it are added one by one."""
        self._enter(self._added, [group])

    def groups_that_list(self, item: Task | Group) -> list[Group]:
        """Return the groups that list a task or group, at any depth: added groups and groups in its folder, by name."""
        found = [*self._added.get(item.name, ()), *self._in_folder(item.path.parent).get(item.name, ())]
        return sorted(found, key=lambda group: group.name)

    def _in_folder(self, folder: Path) -> dict[str, list[Group]]:
        if folder not in self._by_folder:
            peeked = (self._peek(Path(path)) for path in self._index.groups_in(folder))
            inner = (one for group in peeked if group is not None for one in with_inner(group))
            self._by_folder[folder] = {}
            self._enter(self._by_folder[folder], (one for one in inner if isinstance(one, Group)))
        return self._by_folder[folder]

    def _enter(self, listing: dict[str, list[Group]], groups: Iterable[Group]) -> None:
        for group in groups:
            for name in dict.fromkeys(self._contents(group, ())):
                listing.setdefault(name, []).append(group)

    def _contents(self, group: Group, chain: tuple[str, ...]) -> Iterator[str]:
        """Return the names of all tasks and groups in a group. Names that cannot be found are left out."""
        if group.name in chain:
            return
        for member in group.members:
            for name, inner in self._behind(member, group):
                yield name
                if inner is not None:
                    yield from self._contents(inner, (*chain, group.name))

    def _behind(self, member: str | Task | Group, group: Group) -> Iterator[tuple[str, Group | None]]:
        """Yield the name of a member, or of each task of a tag, with the group if it is one, else None."""
        if not isinstance(member, str):
            yield member.name, member if isinstance(member, Group) else None
            return
        try:
            paths = self._index.locate(member, group.path).paths
        except LLMEvalError:
            # The group itself cannot be loaded; loading it reports the error.
            return
        for path in paths:
            outline = self._index.outline(str(path))
            if outline is not None and outline.name is not None:
                yield outline.name, self._peek(path) if outline.group else None

    def _peek(self, path: Path) -> Group | None:
        """Return the group in a file without registering it; None if the file cannot be read or holds no group."""
        if path not in self._peeked:
            try:
                found = self._files.read(path)
            except LLMEvalError:
                found = None
            self._peeked[path] = found if isinstance(found, Group) else None
        return self._peeked[path]


def with_inner(item: Task | Group) -> Iterator[Task | Group]:
    """Return a task or group, and all tasks and groups that are written in it."""
    yield item
    for member in item.members if isinstance(item, Group) else ():
        if isinstance(member, Task | Group):
            yield from with_inner(member)
