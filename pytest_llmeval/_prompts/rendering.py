"""The rendering of a doc or example: each field of its task is computed once and keeps its type."""

from __future__ import annotations

from typing import Any

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._errors import DataError
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._output_types import Answers
from pytest_llmeval._output_types import Choices
from pytest_llmeval._output_types import as_index
from pytest_llmeval._output_types import read_answers
from pytest_llmeval._output_types import written_index
from pytest_llmeval._prompts.fields import NamedDoc
from pytest_llmeval._prompts.fields import choices_of
from pytest_llmeval._prompts.fields import is_written
from pytest_llmeval._prompts.fields import text_of
from pytest_llmeval._prompts.fields import value_of
from pytest_llmeval._prompts.turns import Turn
from pytest_llmeval._prompts.turns import example_turns
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task


def render_doc(task: Task, index: int, data: DocData) -> RenderedDoc:
    """Return a doc with the values of its fields. Raises TemplateError, DataError or TaskFileError for a bad field."""
    row = NamedDoc(task, data, f"doc {index}")
    choices = choices_of(task.doc_to_choice, row)
    text, chosen = _prompt(task.doc_to_text, row, choices)
    target, answers = _answers(task.doc_to_target, row, choices, chosen)
    return RenderedDoc(
        index=index,
        data=data,
        text=text,
        choices=choices,
        gold=answers.gold,
        references=answers.references,
        target=target,
        inputs=None if chosen is None else choices,
        problem=_problem(row, choices, chosen, answers),
    )


def render_example(task: Task, data: DocData) -> tuple[Turn, ...]:
    """Return a solved example, rendered with the fields of `fewshot_config` where it has them, else with the task's."""
    own, row = task.fewshot, NamedDoc(task, data, "an example")
    choices = choices_of(own.doc_to_choice or task.doc_to_choice, row)
    text, chosen = _prompt(own.doc_to_text or task.doc_to_text, row, choices)
    field = own.doc_to_target or task.doc_to_target
    target, answers = _answers(field, row, choices, chosen)
    if field is not None and target is not None and not answers.references:
        raise DataError(f"{row.place(field)}: {answers.problem} (in the example {dict(data)!r:.200})")
    return example_turns(
        text,
        answers.references[0] if answers.references else "",
        text_of(own.gen_prefix or task.gen_prefix, row),
        task.target_delimiter if own.target_delimiter is None else own.target_delimiter,
        task.fewshot_delimiter if own.fewshot_delimiter is None else own.fewshot_delimiter,
    )


def _prompt(field: Field | None, row: NamedDoc, choices: Choices) -> tuple[str, int | None]:
    """Return the prompt of a doc and, if the choices are prompts (as in WinoGrande), the index of the right one."""
    if field is None:
        return "", None
    value = value_of(field, row)
    if choices is not None and OUTPUT_TYPES[row.task.output_type].has_choices:
        # ``{% if good %}0{% else %}1{% endif %}``: it prints no value of the doc, so digits can only be an index.
        only_digits = field.text is not None and "{%" in field.text and "{{" not in field.text
        index = written_index(value) if only_digits else as_index(value)
        if index is not None:
            return (choices[index] if 0 <= index < len(choices) else ""), index
    if isinstance(value, str | int | float):
        return str(value), None
    raise DataError(f"{row.place(field)}: expected a text, got {value!r:.80} ({type(value).__name__})")


def _answers(field: Field | None, row: NamedDoc, choices: Choices, chosen: int | None) -> tuple[Any, Answers]:
    target = value_of(field, row)
    written = field is not None and is_written(field, row)
    return target, read_answers(OUTPUT_TYPES[row.task.output_type].read_target, target, choices, written, chosen)


def _problem(row: NamedDoc, choices: Choices, chosen: int | None, answers: Answers) -> str | None:
    """Return the reason why a doc cannot be scored. `process_results` judges the answers itself."""
    task = row.task
    kind = OUTPUT_TYPES[task.output_type]
    if kind.has_choices and task.doc_to_choice is not None:
        if not choices:
            return f"{row.place(task.doc_to_choice)}: there are no choices"
        if "" in choices:
            return f"{row.place(task.doc_to_choice)}: choice {choices.index('')} is empty"
    sends_target = kind.sends_target or chosen is not None
    if answers.problem is None or (task.process_results is not None and not sends_target):
        return None
    field = task.doc_to_target if chosen is None or answers.gold else task.doc_to_text
    return f"{row.place(field) if field else f'task {task.name}, {row.name}'}: {answers.problem}"
