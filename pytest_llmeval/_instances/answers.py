"""What `doc_to_target` means for each output type: right choices by index, and right answers as texts."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._instances.fields import as_index
from pytest_llmeval._instances.fields import written_index
from pytest_llmeval._task import OutputType


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
