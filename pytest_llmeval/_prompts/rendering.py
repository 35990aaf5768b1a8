"""The turns of a prompt, and their two spellings: plain text, or the messages of a chat.

The rules are those of lm-evaluation-harness 0.4.13. In plain text every turn is followed by its delimiter (the
target delimiter after a question, the few-shot delimiter after an answer); in a chat the template parts the
turns and the delimiters go, except inside a user message that holds several of them.

A doc with every field of its task worked out once, with the type it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._errors import DataError
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._output_types import Answers
from pytest_llmeval._output_types import Choices
from pytest_llmeval._output_types import as_index
from pytest_llmeval._output_types import read_answers
from pytest_llmeval._output_types import written_index
from pytest_llmeval._prompts.fields import Row
from pytest_llmeval._prompts.fields import choices_of
from pytest_llmeval._prompts.fields import is_written
from pytest_llmeval._prompts.fields import text_of
from pytest_llmeval._prompts.fields import value_of
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn; `delimiter` stands after it in plain text."""

    role: Literal["system", "user", "assistant"]
    content: str
    delimiter: str = ""


def system_turn(system: str | None, description: str, delimiter: str) -> tuple[Turn, ...]:
    """The system text of the run and the task's description in one turn; none if both are empty."""
    content = _joined(system or "", description, delimiter)
    return (Turn("system", content),) if content else ()


def question_turns(question: str, gen_prefix: str, target_delimiter: str) -> tuple[Turn, ...]:
    """The evaluated doc; with a `gen_prefix` the reply has begun and is left open."""
    if not gen_prefix:
        return (Turn("user", question),)
    return (Turn("user", question, _between(question, gen_prefix, target_delimiter)), Turn("assistant", gen_prefix))


def example_turns(
    question: str, answer: str, gen_prefix: str, target_delimiter: str, fewshot_delimiter: str
) -> tuple[Turn, ...]:
    """A solved example. One without an answer is a question with nothing after it, as in the peer."""
    if not answer:
        return question_turns(question, gen_prefix, target_delimiter)
    delimiter = _between(question, gen_prefix, target_delimiter) if gen_prefix else target_delimiter
    reply = _joined(gen_prefix, answer, " ")
    return (Turn("user", question, delimiter), Turn("assistant", reply, fewshot_delimiter))


def plain_text(turns: Sequence[Turn]) -> str:
    """The prompt without a chat template."""
    return "".join(turn.content + turn.delimiter for turn in turns)


def chat_messages(turns: Sequence[Turn], multiturn: bool) -> list[dict[str, str]]:
    """The prompt as chat messages: every turn one, or all examples and the question in one user message."""
    if multiturn:
        return [_message(turn) for turn in turns]
    head = list(turns[:1]) if turns[0].role == "system" else []
    tail = list(turns[-1:]) if turns[-1].role == "assistant" else []
    asked = turns[len(head) : len(turns) - len(tail)]
    content = plain_text(asked[:-1]) + asked[-1].content
    return [_message(turn) for turn in [*head, Turn("user", content), *tail]]


def ends_with_space(text: str) -> bool:
    return text[-1:].isspace()


def _message(turn: Turn) -> dict[str, str]:
    return {"role": turn.role, "content": turn.content}


def _joined(first: str, second: str, delimiter: str) -> str:
    """Both texts, with the delimiter between them unless one is empty or brings its own white space."""
    return first + (_between(first, second, delimiter) if first and second else "") + second


def _between(first: str, second: str, delimiter: str) -> str:
    return "" if not first or ends_with_space(first) or second[:1].isspace() else delimiter


def render_doc(task: Task, index: int, data: DocData) -> RenderedDoc:
    """A doc with all its fields worked out. Raises TemplateError or DataError where a field cannot be."""
    row = Row(task, data, f"doc {index}")
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
    """A solved example, written by the fields of `fewshot_config` where it has them, else by the task's."""
    own, row = task.fewshot, Row(task, data, "an example")
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


def _prompt(field: Field | None, row: Row, choices: Choices) -> tuple[str, int | None]:
    """The prompt of a doc, and its index among the choices where the options are prompts (as in WinoGrande)."""
    if field is None:
        return "", None
    value = value_of(field, row)
    if choices is not None and OUTPUT_TYPES[row.task.output_type].has_choices:
        index = written_index(value) if _writes_digits_itself(field) else as_index(value)
        if index is not None:
            return (choices[index] if 0 <= index < len(choices) else ""), index
    if isinstance(value, str | int | float):
        return str(value), None
    raise DataError(f"{row.place(field)}: expected a text, got {value!r:.80} ({type(value).__name__})")


def _writes_digits_itself(field: Field) -> bool:
    """``{% if good %}0{% else %}1{% endif %}``: no value of the doc is written, so digits can only be an index."""
    return field.text is not None and "{%" in field.text and "{{" not in field.text


def _answers(field: Field | None, row: Row, choices: Choices, chosen: int | None) -> tuple[Any, Answers]:
    target = value_of(field, row)
    written = field is not None and is_written(field, row)
    return target, read_answers(OUTPUT_TYPES[row.task.output_type].read_target, target, choices, written, chosen)


def _problem(row: Row, choices: Choices, chosen: int | None, answers: Answers) -> str | None:
    """Why a doc cannot be scored. Which answer is right a task with `process_results` judges itself."""
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
