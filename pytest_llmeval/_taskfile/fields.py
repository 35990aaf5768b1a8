"""The fields of a task (`doc_to_text`, `doc_to_target`, `doc_to_choice`, ...) and of its few-shot examples.

A field says how a value is computed from a doc (see `Field`). Few-shot examples are rendered with the fields of
`fewshot_config` where it has them, else with those of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeVar

from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import FewshotSpec
from pytest_llmeval._task import Field
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.config import INHERITED
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data


_SAMPLERS: tuple[Literal["default", "first_n"], ...] = ("default", "first_n")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConstantIndices:
    """The function behind ``doc_to_target: [1, 3]``: several right choices, the same for every doc."""

    indices: tuple[int, ...]

    def __call__(self, doc: Mapping[str, Any]) -> list[int]:
        return list(self.indices)


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads the fields of the task file `home`. Line numbers are kept only for keys written in that file itself."""

    home: Path
    modules: Modules

    def function(self, value: Value, key: str) -> DocFunction:
        """Return the function that a ``!function`` tag names."""
        if not isinstance(value, FunctionRef):
            raise typed.expects(value, key, "!function module.name")
        return self.modules.function(value, key)

    def template(self, value: Value, key: str) -> Field | None:
        """Return a field that is a column name or a template; None if it is empty."""
        found = typed.text(value, key)
        return Field(key, text=found, line=self._line(value)) if found else None

    def text(self, value: Value, key: str) -> Field:
        """Return a field that is a column name or template, a number, or a function."""
        line = self._line(value)
        if isinstance(value, FunctionRef):
            return Field(key, function=self.modules.function(value, key), line=line)
        if isinstance(value, Scalar) and value.kind == "int":
            return Field(key, index=typed.whole(value, key, least=0), line=line)
        return Field(key, text=typed.text(value, key), line=line)

    def target(self, value: Value, key: str) -> Field:
        """Return a field as `text` does; a list holds texts that are all right answers, or indices of right choices."""
        if not isinstance(value, Items):
            return self.text(value, key)
        if value.values and all(isinstance(entry, Scalar) and entry.kind == "int" for entry in value):
            indices = tuple(typed.whole(entry, key, least=0) for entry in value)
            return Field(key, function=ConstantIndices(indices), line=self._line(value))
        return Field(key, choices=_filled(value, key), line=self._line(value))

    def choice(self, value: Value, key: str) -> Field:
        """Return a field that is a column name or template, a list of texts, a mapping to texts, or a function."""
        line = self._line(value)
        if isinstance(value, FunctionRef):
            return Field(key, function=self.modules.function(value, key), line=line)
        if isinstance(value, Table):
            value = Items(value.path, value.line, tuple(value.entries.values()))
        if isinstance(value, Items):
            return Field(key, choices=_filled(value, key), line=line)
        return Field(key, text=typed.text(value, key), line=line)

    def samples(self, value: Value, key: str) -> tuple[DocData, ...] | DocFunction:
        """Return examples as they are written in the file, or the function that returns them."""
        if isinstance(value, FunctionRef):
            return self.modules.function(value, key)
        return tuple(data(table) for table in typed.tables(value, key))

    def _line(self, value: Value) -> int | None:
        return value.line if value.path == self.home else None


def read_fewshot(entries: Mapping[str, Value], fields: FieldReader) -> FewshotSpec:
    """Return the few-shot settings of a task. `fewshot_config.split` takes precedence over `fewshot_split`."""
    config = typed.given(entries, "fewshot_config")
    own = {} if config is None else typed.table(config, "fewshot_config").entries
    typed.check_keys(own, {"sampler", *INHERITED}, "fewshot_config.")

    def read(key: str, reader: Callable[[Value, str], T]) -> T | None:
        return typed.read(own, key, lambda value, key: reader(value, f"fewshot_config.{key}"))

    process_docs, gen_prefix = read("process_docs", fields.function), read("gen_prefix", fields.template)
    if process_docs is None and "process_docs" in own:
        process_docs = as_they_are
    if gen_prefix is None and "gen_prefix" in own:
        # With null or an empty text here, the examples have no prefix even if the task has one.
        gen_prefix = Field("fewshot_config.gen_prefix", text="")
    return FewshotSpec(
        sampler=read("sampler", _sampler) or "default",
        split=read("split", typed.name) if "split" in own else typed.read(entries, "fewshot_split", typed.name),
        samples=read("samples", fields.samples),
        indices=read("fewshot_indices", _indices),
        process_docs=process_docs,
        doc_to_text=read("doc_to_text", fields.text),
        doc_to_choice=read("doc_to_choice", fields.choice),
        doc_to_target=read("doc_to_target", fields.target),
        gen_prefix=gen_prefix,
        fewshot_delimiter=read("fewshot_delimiter", typed.text),
        target_delimiter=read("target_delimiter", typed.text),
    )


def as_they_are(docs: Any) -> Any:
    """Return the docs unchanged: the function of ``process_docs: null``, where the examples are not processed."""
    return docs


def _sampler(value: Value, key: str) -> Literal["default", "first_n"]:
    if isinstance(value, FunctionRef):
        raise typed.expects(value, key, "default or first_n")
    return typed.one_of(value, key, _SAMPLERS)


def _indices(value: Value, key: str) -> tuple[int, ...]:
    if not isinstance(value, Items):
        raise typed.expects(value, key, "a list of row numbers")
    return tuple(typed.whole(entry, f"{key}[{n}]", least=0) for n, entry in enumerate(value))


def _filled(value: Items, key: str) -> tuple[str, ...]:
    """Return the texts of a non-empty list, as written. An empty text is an error: it has no likelihood or length."""
    found = typed.texts(value, key)
    if not found:
        raise typed.wrong(value, key, "the list is empty")
    if "" in found:
        raise typed.wrong(value, key, f"entry {found.index('') + 1} is an empty text")
    return found
