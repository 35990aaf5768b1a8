"""Which file holds which name, for whole folders: told from the files' text, nothing is loaded.

14,000 files take well under a second, so nothing is kept on disk. Folders are read in sorted order: no answer
depends on the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmeval._taskfile import Outline
from pytest_llmeval._taskfile import outline_of


#: Folders that hold other people's files, if any.
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

#: A folder with one of these is the top of a project: names are not looked up above it.
_PROJECT = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini")

#: How far up names are looked up where no folder above is a project's. The deepest in lm_eval 0.4.13 need two.
_MOST_LEVELS = 2


@dataclass(frozen=True, slots=True)
class Names:
    """The names below a folder: tasks and groups with the files that hold them, tags with their tasks' files.

    Those of a tag are in the order of the tasks' names, as the peer has them. Files are texts here: most are never
    looked at, and 14,000 `Path` objects cost more than reading the files.
    """

    files: Mapping[str, Sequence[str]]
    tags: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Located:
    """Where a name leads: to one file, or, if it is a tag, to those of its tasks."""

    paths: tuple[Path, ...]
    tag: bool


class Index:
    """Names by folder. `root`: names for files below it are looked up no higher than there."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self._files: dict[str, Outline | None] = {}
        self._folders: dict[str, tuple[list[str], list[str]]] = {}
        self._trees: dict[Path, Names] = {}
        self._levels: dict[Path, tuple[Path, ...]] = {}

    def levels(self, near: Path) -> tuple[Path, ...]:
        """The folder of a file, or a folder, then the folders above it in which names are still looked up."""
        folder = near if near.is_dir() else near.parent
        if folder not in self._levels:
            self._levels[folder] = self._climb(folder)
        return self._levels[folder]

    def below(self, folder: Path) -> Names:
        """All names in a folder and the folders below it."""
        if folder not in self._trees:
            files: dict[str, list[str]] = {}
            tags: dict[str, list[tuple[str, str]]] = {}
            for path in self._walk(str(folder)):
                sniffed = self.outline(path)
                if sniffed is None or sniffed.name is None:
                    continue
                files.setdefault(sniffed.name, []).append(path)
                if not sniffed.group:
                    for tag in self._tags(path, sniffed, ()):
                        tags.setdefault(tag, []).append((sniffed.name, path))
            self._trees[folder] = Names(
                files, {tag: [path for _, path in sorted(found)] for tag, found in tags.items()}
            )
        return self._trees[folder]

    def groups_in(self, folder: Path) -> list[str]:
        """The group files that lie in a folder itself."""
        found = ((path, self.outline(path)) for path in self._listing(str(folder))[0])
        return [path for path, sniffed in found if sniffed is not None and sniffed.group and sniffed.name]

    def outline(self, path: str) -> Outline | None:
        if path not in self._files:
            self._files[path] = outline_of(path)
        return self._files[path]

    def _climb(self, folder: Path) -> tuple[Path, ...]:
        climbed = [folder]
        for parent in folder.parents:
            if self._is_top(climbed[-1]):
                return tuple(climbed)
            if parent.name in _SKIPPED or (_is_everyones(parent) and not self._is_top(parent)):
                break
            climbed.append(parent)
        return tuple(climbed[: _MOST_LEVELS + 1])

    def _is_top(self, folder: Path) -> bool:
        return folder == self.root or any((folder / name).exists() for name in _PROJECT)

    def _tags(self, path: str, sniffed: Outline | None, chain: tuple[str, ...]) -> tuple[str, ...]:
        """The tags of a file: its own, else those of the last include that has any."""
        if sniffed is None or path in chain:
            return ()
        if sniffed.tags is not None:
            return sniffed.tags
        for include in reversed(sniffed.includes):
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
        """The YAML files and the folders in a folder, sorted. An unreadable folder is empty, as is a Python's."""
        if folder not in self._folders:
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError:
                entries = []
            if any(entry.name == "pyvenv.cfg" for entry in entries):
                entries = []
            files = [entry.path for entry in entries if entry.name.endswith((".yaml", ".yml")) and entry.is_file()]
            self._folders[folder] = files, [entry.path for entry in entries if _is_ours(entry)]
        return self._folders[folder]


def _is_ours(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name not in _SKIPPED


def _is_everyones(folder: Path) -> bool:
    """Whether a folder holds unrelated things: a home, ``/``, ``/tmp``."""
    return folder == Path.home() or len(folder.parts) <= 2
