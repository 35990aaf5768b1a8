"""`doc_to_text`, `doc_to_target`, `doc_to_choice` and their like: how a value is had from a doc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmeval._task import Field
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.modules import Modules
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


@dataclass(frozen=True, slots=True)
class ConstantIndices:
    """The function behind ``doc_to_target: [1, 3]``: several right choices, the same for every doc."""

    indices: tuple[int, ...]

    def __call__(self, doc: Mapping[str, Any]) -> list[int]:
        return list(self.indices)


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads fields of the task file `home`. Lines are kept only of what is written in that file itself."""

    home: Path
    modules: Modules

    def template(self, key: str, value: Value | None) -> Field | None:
        """A field name or template; an empty one is none."""
        if value is None:
            return None
        found = typed.text(value, key)
        return Field(key, text=found, line=self._line(value)) if found else None

    def text(self, key: str, value: Value | None) -> Field | None:
        """A field name or template, a number, or a function."""
        if value is None:
            return None
        line = self._line(value)
        if isinstance(value, FunctionRef):
            return Field(key, function=self.modules.function(value, key), line=line)
        if isinstance(value, Scalar) and value.kind == "int":
            return Field(key, index=typed.whole(value, key, 0), line=line)
        return Field(key, text=typed.text(value, key), line=line)

    def target(self, key: str, value: Value | None) -> Field | None:
        """As `text`, or a list: of texts that are all right, or of the indices of right choices."""
        if not isinstance(value, Items):
            return self.text(key, value)
        line = self._line(value)
        if value.values and all(isinstance(entry, Scalar) and entry.kind == "int" for entry in value):
            indices = tuple(typed.whole(entry, key, 0) for entry in value)
            return Field(key, function=ConstantIndices(indices), line=line)
        return Field(key, choices=_filled(value, key), line=line)

    def choice(self, key: str, value: Value | None) -> Field | None:
        """A field name or template, a list of texts, a mapping to texts, or a function."""
        if value is None:
            return None
        line = self._line(value)
        if isinstance(value, FunctionRef):
            return Field(key, function=self.modules.function(value, key), line=line)
        if isinstance(value, Table):
            value = Items(value.path, value.line, tuple(value.entries.values()))
        if isinstance(value, Items):
            return Field(key, choices=_filled(value, key), line=line)
        return Field(key, text=typed.text(value, key), line=line)

    def _line(self, value: Value) -> int | None:
        return value.line if value.path == self.home else None


def _filled(value: Items, key: str) -> tuple[str, ...]:
    """Texts as written, at least one, none of them empty: an empty answer has no likelihood and no length."""
    found = typed.texts(value, key)
    if not found:
        raise typed.wrong(value, key, "the list is empty")
    if "" in found:
        raise typed.wrong(value, key, f"entry {found.index('') + 1} is an empty text")
    return found
