"""The right choices of a doc, by index, and its right answers, as texts: `doc_to_target` by output type."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any
from typing import TypeAlias


#: Option texts of a doc, None where its task has none.
Choices: TypeAlias = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Answers:
    """The right answers of a doc.

    `gold` are the indices of the right choices, `references` the right answers as texts. `problem` is the reason why
    there are none.
    """

    gold: tuple[int, ...] = ()
    references: tuple[str, ...] = ()
    problem: str | None = None


#: (entries of doc_to_target, choices, written) -> the answers.
TargetReader: TypeAlias = Callable[[list[Any], Choices, bool], Answers]


def read_answers(
    reader: TargetReader, target: Any, choices: Choices, written: bool, chosen: int | None = None
) -> Answers:
    """Return the answers of one doc, by the `read_target` of its output type.

    `written`: the target was spelled by the task file (a template or a list), so that digits which are not a choice's
    text stand for an index. `chosen`: the index that doc_to_text gave, where the choices are prompts.
    """
    entries = list(target) if isinstance(target, list | tuple) else [target]
    if chosen is not None and choices is not None:
        problem, texts = _out_of_range([chosen], choices), _texts(entries)
        return Answers(() if problem else (chosen,), texts, problem or (None if texts else "it gives no continuation"))
    return reader(entries, choices, written)


def right_choices(entries: list[Any], choices: Choices, written: bool) -> Answers:
    """Return the choices that are right, each given by its index or its text."""
    options = choices or ()
    found = [_index_in(entry, options, written) for entry in entries]
    gold = tuple(dict.fromkeys(index for index in found if index is not None))
    problem = _out_of_range(gold, options)
    if None in found:
        problem = f"{entries[found.index(None)]!r} is not one of the {len(options)} choices"
    if not entries:
        problem = "it gives no right choice"
    if problem is not None:
        return Answers((), _texts([entry for entry in entries if isinstance(entry, str)]), problem)
    return Answers(gold, tuple(options[index] for index in gold))


def right_texts(entries: list[Any], choices: Choices, written: bool) -> Answers:
    """Return the texts to compare a generation with; if there are choices, a number is the index of one."""
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


def one_text(entries: list[Any], choices: Choices, written: bool) -> Answers:
    """Return the text whose loglikelihood is computed."""
    answers = right_texts(entries, choices, written)
    several = len(answers.references) > 1
    return Answers((), answers.references, "expected one text, got several" if several else answers.problem)


def as_index(value: Any) -> int | None:
    """Return a whole number of any type as an int; None for texts, fractions and lists."""
    if isinstance(value, Integral):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def written_index(text: Any) -> int | None:
    """Return the number that a text of ASCII digits spells; None for any other text."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


def _index_in(entry: Any, choices: tuple[str, ...], written: bool) -> int | None:
    """Return the index of the choice that a text or truth value equals, else of a number; True is 1 and False is 0."""
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
