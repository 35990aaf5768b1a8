"""A doc with every field of its task worked out once, with the type it has."""

from __future__ import annotations

from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._instances.answers import Answers
from pytest_llmeval._instances.answers import read_answers
from pytest_llmeval._instances.fields import as_index
from pytest_llmeval._instances.fields import choices_of
from pytest_llmeval._instances.fields import is_written
from pytest_llmeval._instances.fields import place
from pytest_llmeval._instances.fields import text_of
from pytest_llmeval._instances.fields import value_of
from pytest_llmeval._instances.fields import written_index
from pytest_llmeval._instances.messages import Turn
from pytest_llmeval._instances.messages import example_turns
from pytest_llmeval._instances.values import RenderedDoc
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task


def render_doc(task: Task, index: int, data: DocData) -> RenderedDoc:
    """A doc with all its fields worked out. Raises TemplateError or DataError where a field cannot be."""
    which = f"doc {index}"
    choices = choices_of(task.doc_to_choice, task, data, which)
    text, chosen = _prompt(task.doc_to_text, task, data, which, choices)
    target, answers = _answers(task.doc_to_target, task, data, which, choices, chosen)
    return RenderedDoc(
        index=index,
        data=data,
        text=text,
        choices=choices,
        gold=answers.gold,
        references=answers.references,
        target=target,
        inputs=None if chosen is None else choices,
        problem=_problem(task, which, choices, answers),
    )


def render_example(task: Task, data: DocData) -> tuple[Turn, ...]:
    """A solved example, written by the fields of `fewshot_config` where it has them, else by the task's."""
    own, which = task.fewshot, "an example"
    choices = choices_of(own.doc_to_choice or task.doc_to_choice, task, data, which)
    text, chosen = _prompt(own.doc_to_text or task.doc_to_text, task, data, which, choices)
    field = own.doc_to_target or task.doc_to_target
    target, answers = _answers(field, task, data, which, choices, chosen)
    if field is not None and target is not None and not answers.references:
        raise DataError(f"{place(field, task, which)}: {answers.problem} (in the example {dict(data)!r:.200})")
    return example_turns(
        text,
        answers.references[0] if answers.references else "",
        text_of(own.gen_prefix or task.gen_prefix, task, data, which),
        task.target_delimiter if own.target_delimiter is None else own.target_delimiter,
        task.fewshot_delimiter if own.fewshot_delimiter is None else own.fewshot_delimiter,
    )


def _prompt(
    field: Field | None, task: Task, data: DocData, which: str, choices: tuple[str, ...] | None
) -> tuple[str, int | None]:
    """The prompt of a doc, and its index among the choices where the options are prompts (as in WinoGrande)."""
    if field is None:
        return "", None
    value = value_of(field, task, data, which)
    index = None
    if task.output_type == "multiple_choice" and choices is not None:
        index = as_index(value) if not _writes_digits_itself(field) else written_index(value)
    if index is not None and choices is not None:
        return (choices[index] if 0 <= index < len(choices) else ""), index
    if isinstance(value, str | int | float):
        return str(value), None
    raise DataError(f"{place(field, task, which)}: expected a text, got {value!r} ({type(value).__name__})")


def _writes_digits_itself(field: Field) -> bool:
    """``{% if good %}0{% else %}1{% endif %}``: no value of the doc is written, so digits can only be an index."""
    return field.text is not None and "{%" in field.text and "{{" not in field.text


def _answers(
    field: Field | None, task: Task, data: DocData, which: str, choices: tuple[str, ...] | None, chosen: int | None
) -> tuple[Any, Answers]:
    target = value_of(field, task, data, which)
    written = field is not None and is_written(field, data)
    return target, read_answers(task.output_type, target, choices, written, chosen)


def _problem(task: Task, which: str, choices: tuple[str, ...] | None, answers: Answers) -> str | None:
    """Why a doc cannot be scored. Whether an answer is right a task with `process_results` judges itself."""
    if task.output_type == "multiple_choice" and task.doc_to_choice is not None:
        if not choices:
            return f"{place(task.doc_to_choice, task, which)}: there are no choices"
        if "" in choices:
            return f"{place(task.doc_to_choice, task, which)}: choice {choices.index('')} is empty"
    judges_itself = task.process_results is not None and task.output_type in ("multiple_choice", "generate_until")
    if answers.problem is None or judges_itself:
        return None
    return f"task {task.name}, {which} ({task.path}:{task.line_of('doc_to_target')}): {answers.problem}"
