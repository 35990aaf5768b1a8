"""What the fields of a task (`doc_to_text`, `doc_to_choice`, ...) give for one doc, with the type it has there.

The type decides what a value means, never its look: a column of numbers holds indices, the text "12" is a text
and so is "[1, 2]". A template that puts out a single value has the type of that value.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task
from pytest_llmeval._template import evaluate


@dataclass(frozen=True, slots=True)
class Row:
    """One doc of a task, or one of its examples; `name` says which in messages ("doc 3")."""

    task: Task
    data: DocData
    name: str

    def place(self, field: Field) -> str:
        """``task t, doc 3, doc_to_text (benchmarks/t.yaml:7)``; without a line where it comes from an include."""
        line = "" if field.line is None else f":{field.line}"
        return f"task {self.task.name}, {self.name}, {field.key} ({self.task.path}{line})"


def value_of(field: Field | None, row: Row) -> Any:
    """The field's value for one doc: a column's, a template's, a function's, or a constant; None without a field.

    Raises TemplateError where a template does not fit the doc, and DataError where a function fails.
    """
    if field is None:
        return None
    if field.function is not None:
        return _called(field.function, row.data, row.place(field))
    if field.text is not None:
        column = field.text in row.data
        return row.data[field.text] if column else evaluate(field.text, row.data, place=row.place(field))
    return field.index if field.choices is None else list(field.choices)


def text_of(field: Field | None, row: Row) -> str:
    """The field's value as a text; empty where there is no field or no value."""
    value = value_of(field, row)
    return "" if value is None else str(value)


def choices_of(field: Field | None, row: Row) -> tuple[str, ...] | None:
    """The option texts of a doc; None without a field. Raises DataError for anything but a list of texts."""
    if field is None:
        return None
    value = value_of(field, row)
    if isinstance(value, str) and is_written(field, row):
        value = _written_list(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, Sequence) or isinstance(value, str) or any(choice is None for choice in value):
        shown = f"{value!r:.80} ({type(value).__name__})"
        raise DataError(f"{row.place(field)}: expected a list of texts, got {shown}")
    return tuple(str(choice) for choice in value)


def is_written(field: Field, row: Row) -> bool:
    """Whether the task file itself spells the value (a template, a list): there, digits may stand for an index."""
    return field.function is None and field.text not in row.data


def as_index(value: Any) -> int | None:
    """The number that a value is, whatever class it has; None for texts, fractions and lists."""
    if isinstance(value, Integral):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def written_index(text: Any) -> int | None:
    """The number that a text of ASCII digits spells; None for any other text."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


def _called(function: DocFunction, data: DocData, where: str) -> Any:
    try:
        # A copy: what a function does to its doc must not reach the other fields, nor the next use as an example.
        return function(dict(data))
    except Exception as error:
        name = getattr(function, "__name__", "its function")
        raise DataError(f"{where}: {name} raised {type(error).__name__}: {error}") from error


def _written_list(text: str) -> Any:
    """The list that a template wrote piece by piece, e.g. ``['{{a}} is true', '{{a}} is false']``."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text
