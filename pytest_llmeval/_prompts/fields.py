"""What the fields of a task (`doc_to_text`, `doc_to_choice`, ...) give for one doc, with the type it has there.

The type decides what a value means, never its look: a column of numbers holds indices, the text "12" is a text
and so is "[1, 2]". A template that puts out a single value has the type of that value.

What `doc_to_target` means for each output type: right choices by index, and right answers as texts.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._functions import call
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import OutputType
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

    Raises TemplateError where a template does not fit the doc, and TaskFileError where a function fails.
    """
    if field is None:
        return None
    if field.function is not None:
        # A copy: what a function does to its doc must not reach the other fields, nor the next use as an example.
        return call(field.function, row.place(field), dict(row.data))
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


def _written_list(text: str) -> Any:
    """The list that a template wrote piece by piece, e.g. ``['{{a}} is true', '{{a}} is false']``."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


#: Option texts of a doc, None where its task has none.
Choices = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Answers:
    """`gold`: indices of the right choices. `references`: the right answers as texts. `problem`: why neither."""

    gold: tuple[int, ...] = ()
    references: tuple[str, ...] = ()
    problem: str | None = None


def read_answers(
    output_type: OutputType, target: Any, choices: Choices, written: bool, chosen: int | None = None
) -> Answers:
    """The answers of one doc.

    `written`: the target was spelled by the task file (a template or a list), so that digits which are no choice's
    text stand for an index. `chosen`: the index that doc_to_text gave, where the choices are prompts.
    """
    entries = list(target) if isinstance(target, list | tuple) else [target]
    if chosen is not None and choices is not None:
        problem, texts = _out_of_range([chosen], choices), _texts(entries)
        return Answers(() if problem else (chosen,), texts, problem or (None if texts else "it gives no continuation"))
    return _READERS[output_type](entries, choices, written)


def _right_choices(entries: list[Any], choices: Choices, written: bool) -> Answers:
    options = choices or ()
    found = [_index_in(entry, options, written) for entry in entries]
    gold = tuple(dict.fromkeys(index for index in found if index is not None))
    problem = _out_of_range(gold, options)
    if None in found:
        problem = f"{entries[found.index(None)]!r} is none of the {len(options)} choices"
    if not entries:
        problem = "it gives no right choice"
    if problem is not None:
        return Answers((), _texts([entry for entry in entries if isinstance(entry, str)]), problem)
    return Answers(gold, tuple(options[index] for index in gold))


def _right_texts(entries: list[Any], choices: Choices, written: bool) -> Answers:
    """Texts to compare a generation with; where there are choices a number stands for the text of one."""
    texts: list[str] = []
    for entry in entries:
        index = None if choices is None else _index_in(entry, choices, written)
        if choices is None or index is None:
            texts += _texts([entry])
        elif problem := _out_of_range([index], choices):
            return Answers(problem=problem)
        else:
            texts.append(choices[index])
    return Answers((), tuple(texts), None if texts else "it gives no right answer")


def _one_text(entries: list[Any], choices: Choices, written: bool) -> Answers:
    """The text whose likelihood is asked for."""
    answers = _right_texts(entries, choices, written)
    several = len(answers.references) > 1
    return Answers((), answers.references, "expected one text, got several" if several else answers.problem)


def _index_in(entry: Any, choices: tuple[str, ...], written: bool) -> int | None:
    """A text is the choice that reads like it; a truth value too, else it counts as the number 0 or 1."""
    if isinstance(entry, bool | str) and str(entry) in choices:
        return choices.index(str(entry))
    if isinstance(entry, str):
        return written_index(entry) if written else None
    return as_index(entry)


def _out_of_range(indices: Sequence[int], choices: tuple[str, ...]) -> str | None:
    wrong = [index for index in indices if not 0 <= index < len(choices)]
    return f"{wrong[0]} is out of range: there are {len(choices)} choices, counted from 0" if wrong else None


def _texts(entries: list[Any]) -> tuple[str, ...]:
    return tuple(str(entry) for entry in entries if entry is not None)


_READERS: Mapping[OutputType, Callable[[list[Any], Choices, bool], Answers]] = MappingProxyType(
    {
        "multiple_choice": _right_choices,
        "generate_until": _right_texts,
        "loglikelihood": _one_text,
        "loglikelihood_rolling": _one_text,
    }
)
