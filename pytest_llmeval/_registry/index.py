"""The files that define a name, found from the outline of each file in a folder, without loading a file.

14,000 files take well under a second, so nothing is cached on disk. Folders are read in sorted order, so that no
result depends on the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._task import Group
from pytest_llmeval._taskfile import MemberName
from pytest_llmeval._taskfile import Outline
from pytest_llmeval._taskfile import outline_of


#: Folders of installed or generated files, in which no task is looked up.
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

#: A folder with one of these is the top of a project: names are not looked up above it.
_PROJECT = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini")

#: Folders to go up if no folder above is the top of a project. The deepest tasks of lm_eval 0.4.13 need two.
_MOST_LEVELS = 2


@dataclass(frozen=True, slots=True)
class Names:
    """The names below a folder: tasks and groups with the files that hold them, tags with their tasks' files.

    The files of a tag are in the order of the tasks' names, as in lm_eval. Paths are texts here: most files are never
    opened again, and 14,000 `Path` objects cost more than reading the files.
    """

    files: Mapping[str, Sequence[str]]
    tags: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Located:
    """The files of a name: the file of a task or group, or the files of all tasks that have it as a tag."""

    paths: tuple[Path, ...]
    tag: bool


class Index:
    """Names by folder.

    `search`: folders in which names are looked up last. `root`: names are not looked up above it for files below it.
    """

    def __init__(self, search: Sequence[Path] = (), *, root: Path | None = None) -> None:
        self._search = tuple(Path(os.path.abspath(folder)) for folder in search)
        self._root = None if root is None else Path(os.path.abspath(root))
        self._files: dict[str, Outline | None] = {}
        self._folders: dict[str, tuple[list[str], list[str]]] = {}
        self._trees: dict[Path, Names] = {}
        self._climbed: dict[Path, tuple[Path, ...]] = {}

    def locate(self, name: str, near: Path, *, line: int | None = None, key: str | None = None) -> Located:
        """Return the files of a name. `line` and `key` say where the file `near` uses it, for the message.

        Raises TaskFileError if nothing has the name, or if two files in one place define it.
        """
        near = Path(os.path.abspath(near))
        folders = tuple(dict.fromkeys((*self._levels(near), *self._search)))
        for folder in folders:
            names = self.below(folder)
            if files := names.files.get(name):
                if len(files) > 1:
                    message = f"{name!r} is defined in two files: {files[0]} and {files[1]}"
                    raise TaskFileError(near, message, line=line, key=key)
                return Located((Path(files[0]),), tag=False)
            if files := names.tags.get(name):
                return Located(tuple(Path(file) for file in files), tag=True)
        trees = [self.below(folder) for folder in folders]
        mend = did_you_mean(name, {one for names in trees for one in (*names.files, *names.tags)}, otherwise=".")
        message = f"no task, group or tag is called {name!r}{mend} Looked in {', '.join(map(str, folders))}."
        raise TaskFileError(near, message, line=line, key=key)

    def files_of_member(self, group: Group, member: str) -> tuple[Path, ...]:
        """Return the files of a member: one, or those of a tag in the order of the task names.

        Raises TaskFileError with the group's file and the member's line if there is none.
        """
        line = member.line if isinstance(member, MemberName) else group.line_of("task")
        return self.locate(member, group.path, line=line, key="task").paths

    def below(self, folder: Path) -> Names:
        """Return all names in a folder and the folders below it."""
        if folder not in self._trees:
            files: dict[str, list[str]] = {}
            tags: dict[str, list[tuple[str, str]]] = {}
            for path in self._walk(str(folder)):
                outline = self.outline(path)
                if outline is None or outline.name is None:
                    continue
                files.setdefault(outline.name, []).append(path)
                if not outline.group:
                    for tag in self._tags(path, outline, ()):
                        tags.setdefault(tag, []).append((outline.name, path))
            self._trees[folder] = Names(
                files, {tag: [path for _, path in sorted(found)] for tag, found in tags.items()}
            )
        return self._trees[folder]

    def groups_in(self, folder: Path) -> list[str]:
        """Return the group files in a folder, without those in folders below it."""
        found = ((path, self.outline(path)) for path in self._listing(str(folder))[0])
        return [path for path, outline in found if outline is not None and outline.group and outline.name]

    def outline(self, path: str) -> Outline | None:
        """Return the outline of a file, read once; None if it cannot be read."""
        if path not in self._files:
            self._files[path] = outline_of(path)
        return self._files[path]

    def _levels(self, near: Path) -> tuple[Path, ...]:
        """Return the folder of the file `near`, or `near` itself, then the folders above it to look names up in."""
        folder = near if near.is_dir() else near.parent
        if folder not in self._climbed:
            self._climbed[folder] = self._climb(folder)
        return self._climbed[folder]

    def _climb(self, folder: Path) -> tuple[Path, ...]:
        climbed = [folder]
        for parent in folder.parents:
            if self._is_top(climbed[-1]):
                return tuple(climbed)
            # The home folder, ``/`` and ``/tmp`` hold unrelated files.
            holds_unrelated = parent == Path.home() or len(parent.parts) <= 2
            if parent.name in _SKIPPED or (holds_unrelated and not self._is_top(parent)):
                break
            climbed.append(parent)
        return tuple(climbed[: _MOST_LEVELS + 1])

    def _is_top(self, folder: Path) -> bool:
        return folder == self._root or any((folder / name).exists() for name in _PROJECT)

    def _tags(self, path: str, outline: Outline | None, chain: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tags of a file: its own, else those of the last include that has any."""
        if outline is None or path in chain:
            return ()
        if outline.tags is not None:
            return outline.tags
        for include in reversed(outline.includes):
            base = os.path.normpath(os.path.join(os.path.dirname(path), include))
            if tags := self._tags(base, self.outline(base), (*chain, path)):
                return tags
        return ()

    def _walk(self, folder: str) -> Iterator[str]:
        files, folders = self._listing(folder)
        yield from files
        for one in folders:
            yield from self._walk(one)

    def _listing(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the YAML files and the folders in a folder, sorted. Python environments are left out."""
        if folder not in self._folders:
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError:
                entries = []
            if any(entry.name == "pyvenv.cfg" for entry in entries):
                entries = []
            files = [entry.path for entry in entries if entry.name.endswith((".yaml", ".yml")) and entry.is_file()]
            folders = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in _SKIPPED]
            self._folders[folder] = files, [one.path for one in folders if one.is_dir(follow_symlinks=False)]
        return self._folders[folder]
