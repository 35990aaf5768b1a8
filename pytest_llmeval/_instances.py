"""Docs to requests: every field of a doc worked out once, then the calls of a model that the doc takes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval import _messages
from pytest_llmeval._answers import Answers
from pytest_llmeval._answers import read_answers
from pytest_llmeval._errors import DataError
from pytest_llmeval._fields import as_index
from pytest_llmeval._fields import choices_of
from pytest_llmeval._fields import is_written
from pytest_llmeval._fields import place
from pytest_llmeval._fields import text_of
from pytest_llmeval._fields import value_of
from pytest_llmeval._fields import written_index
from pytest_llmeval._generation import generation_kwargs
from pytest_llmeval._messages import Turn
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Field
from pytest_llmeval._task import OutputType
from pytest_llmeval._task import Task


RequestKind: TypeAlias = Literal["loglikelihood", "loglikelihood_rolling", "generate_until"]

#: Renders chat messages (``{"role": ..., "content": ...}``) to a prompt. The flag asks for the header of a
#: new reply; without it the last message, an assistant's, is left open for the model to continue.
ChatTemplate: TypeAlias = Callable[[list[dict[str, str]], bool], str]


@dataclass(frozen=True, slots=True)
class RenderedDoc:
    """One doc with every field of its task worked out, once, with its type.

    `text`: the prompt of the doc itself, without description and examples. `choices`: the option texts, None
    where the task has none. `gold`: indices of the right choices, empty where none applies. `references`: the
    right answers as texts: what a generation is compared with, what a loglikelihood or rolling task scores.
    `target` is doc_to_target as it came, for sample files. `inputs`: where the options stand in the context
    (one context per option, one shared continuation), those texts; else None. `problem`: why the doc cannot
    be scored (gold out of range, an empty choice); such a doc is an error, not a wrong answer.
    """

    index: int
    data: DocData
    text: str
    choices: tuple[str, ...] | None
    gold: tuple[int, ...]
    references: tuple[str, ...]
    target: Any
    inputs: tuple[str, ...] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One call of a model: `arguments` are those of the `LM` method named by `kind`.

    `index` tells the distinct requests of a doc apart (choice 0, 1, ..., then the unconditional ones), `repeat`
    the samples of one request.
    """

    kind: RequestKind
    task: str
    doc: int
    index: int
    repeat: int
    arguments: tuple[Any, ...]


#: (index, repeat, arguments) of each request of a doc.
Requests: TypeAlias = Iterator[tuple[int, int, tuple[Any, ...]]]


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


def instances_for(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> tuple[Instance, ...]:
    """The requests of one doc, with its examples in front; `chat` writes the prompt as messages of a chat.

    ``multiple_choice``: one loglikelihood per choice, then, for acc_mutual_info, one per choice without context.
    ``loglikelihood``: one, of the target. ``loglikelihood_rolling``: one, of the whole target. ``generate_until``:
    one per repeat. The contexts of one doc are one object where they are equal. Raises TemplateError or DataError.
    """
    kind, build = _REQUESTS[task.output_type]
    return tuple(
        Instance(kind, task.name, doc.index, index, repeat, arguments)
        for index, repeat, arguments in build(task, doc, shots, settings, chat)
    )


def contexts(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> tuple[str, ...]:
    """The prompts of a doc: one, or one per option where the options stand in the prompt."""
    which = f"doc {doc.index}"
    before = _messages.system_turn(
        settings.system, text_of(task.description, task, doc.data, which), task.fewshot_delimiter
    )
    for shot in shots:
        before += _example(task, shot)
    prefix = text_of(task.gen_prefix, task, doc.data, which)
    questions, delimiter = ((doc.text,), task.target_delimiter) if doc.inputs is None else (doc.inputs, "")
    prompts = []
    for question in questions:
        turns = (*before, *_messages.question_turns(question, prefix, delimiter))
        if chat is None:
            prompts.append(_messages.plain(turns))
        else:
            prompts.append(chat(_messages.messages(turns, settings.fewshot_multiturn), not prefix))
    return tuple(prompts)


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


def _example(task: Task, data: DocData) -> tuple[Turn, ...]:
    """A solved example, written by the fields of `fewshot_config` where it has them, else by the task's."""
    own, which = task.fewshot, "an example"
    choices = choices_of(own.doc_to_choice or task.doc_to_choice, task, data, which)
    text, chosen = _prompt(own.doc_to_text or task.doc_to_text, task, data, which, choices)
    field = own.doc_to_target or task.doc_to_target
    target, answers = _answers(field, task, data, which, choices, chosen)
    if field is not None and target is not None and not answers.references:
        raise DataError(f"{place(field, task, which)}: {answers.problem} (in the example {dict(data)!r:.200})")
    return _messages.example_turns(
        text,
        answers.references[0] if answers.references else "",
        text_of(own.gen_prefix or task.gen_prefix, task, data, which),
        task.target_delimiter if own.target_delimiter is None else own.target_delimiter,
        task.fewshot_delimiter if own.fewshot_delimiter is None else own.fewshot_delimiter,
    )


def _choice_requests(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> Requests:
    prompts = contexts(task, doc, shots, settings, chat)
    delimiter = task.target_delimiter if chat is None else _delimiter_in_chat(task, doc)
    choices = doc.choices or ()
    if doc.inputs is None:
        pairs = [(prompts[0], delimiter + choice) for choice in choices]
    else:
        pairs = [(prompt, delimiter + doc.references[0]) for prompt in prompts]
    if any(metric.name == "acc_mutual_info" for metric in task.metrics):
        pairs += [("", delimiter + choice) for choice in choices]
    return ((index, 0, pair) for index, pair in enumerate(pairs))


def _delimiter_in_chat(task: Task, doc: RenderedDoc) -> str:
    """After a chat template's header nothing parts prompt and choice; after a begun reply the delimiter does."""
    prefix = text_of(task.gen_prefix, task, doc.data, f"doc {doc.index}")
    return task.target_delimiter if prefix and not _messages.ends_with_space(prefix) else ""


def _target_request(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> Requests:
    (prompt,) = contexts(task, doc, shots, settings, chat)
    yield 0, 0, (prompt, doc.references[0])


def _rolling_request(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> Requests:
    yield 0, 0, (doc.references[0],)


def _generation_requests(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> Requests:
    (prompt,) = contexts(task, doc, shots, settings, chat)
    kwargs = generation_kwargs(task, settings)
    for repeat in range(task.repeats):
        yield 0, repeat, (prompt, replace(kwargs, repeat=repeat))


_REQUESTS: Mapping[OutputType, tuple[RequestKind, Callable[..., Requests]]] = MappingProxyType(
    {
        "multiple_choice": ("loglikelihood", _choice_requests),
        "loglikelihood": ("loglikelihood", _target_request),
        "loglikelihood_rolling": ("loglikelihood_rolling", _rolling_request),
        "generate_until": ("generate_until", _generation_requests),
    }
)
