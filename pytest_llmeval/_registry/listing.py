"""Which groups list a task, at any depth: told from names, so that no task has to be loaded for it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._registry.index import Index
from pytest_llmeval._registry.index import Located
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles


class Listing:
    """Groups by what they list: those taken up, and, for each folder, those that lie in it."""

    def __init__(self, files: TaskFiles, index: Index, locate: Callable[[str, Path], Located | None]) -> None:
        self._files = files
        self._index = index
        self._locate = locate
        self._taken_up: dict[str, list[Group]] = {}
        self._by_folder: dict[Path, dict[str, list[Group]]] = {}
        self._peeked: dict[Path, Group | None] = {}

    def add(self, group: Group) -> None:
        """Take up a group; groups written in it are taken up by themselves."""
        self._enter(self._taken_up, [group])

    def groups_that_list(self, item: Task | Group) -> list[Group]:
        """The groups taken up, and those in the folder of the item, that list it at any depth; by name."""
        found = [*self._taken_up.get(item.name, ()), *self._in_folder(item.path.parent).get(item.name, ())]
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
        """The names of all tasks and groups in a group. What cannot be found is left out."""
        if group.name in chain:
            return
        for member in group.members:
            if isinstance(member, str):
                yield from self._contents_of(member, group, chain)
            else:
                yield member.name
                if isinstance(member, Group):
                    yield from self._contents(member, (*chain, group.name))

    def _contents_of(self, name: str, group: Group, chain: tuple[str, ...]) -> Iterator[str]:
        try:
            located = self._locate(name, group.path)
        except LLMEvalError:
            located = None
        for path in located.paths if located else ():
            sniffed = self._index.outline(str(path))
            if sniffed is None or sniffed.name is None:
                continue
            yield sniffed.name
            if sniffed.group and (inner := self._peek(path)) is not None:
                yield from self._contents(inner, (*chain, group.name))

    def _peek(self, path: Path) -> Group | None:
        """The group of a file as written, without taking it up; None if it cannot be read."""
        if path not in self._peeked:
            try:
                found = self._files.read(path)
            except LLMEvalError:
                found = None
            self._peeked[path] = found if isinstance(found, Group) else None
        return self._peeked[path]


def with_inner(item: Task | Group) -> Iterator[Task | Group]:
    """A task or group, and what is written in it."""
    yield item
    for member in item.members if isinstance(item, Group) else ():
        if isinstance(member, Task | Group):
            yield from with_inner(member)
