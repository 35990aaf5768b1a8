"""Include chains: one mapping out of a file and the files that it builds on.

``include`` names a file or a list of files, relative to the file that says so, with any suffix or none. A later
include wins over an earlier one, and the file's own keys win over all. Values are replaced, never merged. A file
may be reached twice (a diamond); one that includes itself is an error that prints the chain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_llmeval._taskfile import typed
from pytest_llmeval._yaml import Table
from pytest_llmeval._yaml import Value
from pytest_llmeval._yaml import read_yaml


class Sources:
    """Reads YAML files, each once."""

    def __init__(self) -> None:
        self._tables: dict[Path, Table] = {}

    def resolve(self, path: Path) -> Table:
        """The mapping of a file with everything it includes. Raises TaskFileError."""
        table = self._read(path)
        return Table(path, 1, self.merge(table.entries, path, (path,)))

    def merge(self, entries: Mapping[str, Value], origin: Path, chain: tuple[Path, ...]) -> dict[str, Value]:
        """`entries` over what their ``include`` names. `chain`: the files that led here, `origin` last."""
        merged: dict[str, Value] = {}
        include = typed.given(entries, "include")
        if include is not None:
            for name in typed.texts(include, "include"):
                path = Path(os.path.normpath(origin.parent / name))
                merged |= self._included(path, include, chain)
        merged |= {key: value for key, value in entries.items() if key != "include"}
        return merged

    def _included(self, path: Path, include: Value, chain: tuple[Path, ...]) -> dict[str, Value]:
        if path in chain:
            # The chain is shown from the file that closes it.
            names = [_shown(one, chain[0]) for one in (*chain[chain.index(path) :], path)]
            raise typed.wrong(include, "include", f"the files include each other: {' -> '.join(names)}")
        if not path.is_file():
            raise typed.wrong(include, "include", f"there is no file {path}")
        return self.merge(self._read(path).entries, path, (*chain, path))

    def _read(self, path: Path) -> Table:
        if path not in self._tables:
            self._tables[path] = read_yaml(path)
        return self._tables[path]


def _shown(path: Path, first: Path) -> str:
    """A file of a chain as seen from the folder of the first one."""
    return Path(os.path.relpath(path, first.parent)).as_posix()
