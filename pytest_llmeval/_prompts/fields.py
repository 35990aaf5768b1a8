"""The values of the fields of a task (`doc_to_text`, `doc_to_choice`, ...) for one doc, with their types.

The type of a value decides its meaning, not how it looks: a column of numbers holds indices, "12" is a text and so is
"[1, 2]". A template that outputs a single value has the type of that value.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._functions import call
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task
from pytest_llmeval._template import evaluate


@dataclass(frozen=True, slots=True)
class NamedDoc:
    """One doc of a task, or one of its examples, with its `name` in messages ("doc 3")."""

    task: Task
    data: DocData
    name: str

    def place(self, field: Field) -> str:
        """Return ``task t, doc 3, doc_to_text (benchmarks/t.yaml:7)``, without the line if it is in an include."""
        line = "" if field.line is None else f":{field.line}"
        return f"task {self.task.name}, {self.name}, {field.key} ({self.task.path}{line})"


def value_of(field: Field | None, row: NamedDoc) -> Any:
    """Return a field's value for one doc: from a column, template, function or constant; None without a field.

    Raises TemplateError if a template cannot be rendered for the doc, and TaskFileError if a function fails.
    """
    if field is None:
        return None
    if field.function is not None:
        # A copy, because changes by a function must not affect other fields of the doc or its use as an example.
        return call(field.function, row.place(field), dict(row.data))
    if field.text is not None:
        column = field.text in row.data
        return row.data[field.text] if column else evaluate(field.text, row.data, place=row.place(field))
    return field.index if field.choices is None else list(field.choices)


def text_of(field: Field | None, row: NamedDoc) -> str:
    """Return a field's value as a text; empty if there is no field or no value."""
    value = value_of(field, row)
    return "" if value is None else str(value)


def choices_of(field: Field | None, row: NamedDoc) -> tuple[str, ...] | None:
    """Return the option texts of a doc; None without a field. Raises DataError for anything but a list of texts."""
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


def is_written(field: Field, row: NamedDoc) -> bool:
    """Return True if the value is written in the task file (a template, a list), so that digits may be an index."""
    return field.function is None and field.text not in row.data


def _written_list(text: str) -> Any:
    """Return the list that a template spells out, e.g. ``['{{a}} is true', '{{a}} is false']``."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text
