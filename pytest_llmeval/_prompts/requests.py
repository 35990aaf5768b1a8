"""The requests to a model for one doc: its prompts, with the arguments that the output type needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._prompts.fields import NamedDoc
from pytest_llmeval._prompts.fields import text_of
from pytest_llmeval._prompts.generation import generation_kwargs
from pytest_llmeval._prompts.rendering import render_example
from pytest_llmeval._prompts.turns import chat_messages
from pytest_llmeval._prompts.turns import ends_with_space
from pytest_llmeval._prompts.turns import plain_text
from pytest_llmeval._prompts.turns import question_turns
from pytest_llmeval._prompts.turns import system_turn
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


def instances_for(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> tuple[Instance, ...]:
    """Return the requests of one doc, with its examples `shots` in the prompt; `chat` renders it as chat messages.

    The output type decides which requests these are; a generation has one per repeat. Equal contexts of one doc are
    one object. Raises TemplateError or DataError, and SettingError for generation settings.
    """
    kind = OUTPUT_TYPES[task.output_type]
    prompts = () if kind.method == "loglikelihood_rolling" else contexts(task, doc, shots, settings, chat)
    delimiter = task.target_delimiter
    if chat is not None and kind.has_choices:
        # A chat template's header needs no delimiter before the choice; a reply begun by `gen_prefix` needs one.
        prefix = text_of(task.gen_prefix, NamedDoc(task, doc.data, f"doc {doc.index}"))
        delimiter = delimiter if prefix and not ends_with_space(prefix) else ""
    unconditional = any(metric.unconditional for metric in task.metrics)
    requests = kind.requests(doc, prompts, delimiter, unconditional)
    if not kind.generates:
        return tuple(
            Instance(kind.method, task.name, doc.index, index, 0, arguments) for index, arguments in enumerate(requests)
        )
    kwargs = generation_kwargs(task, settings)
    return tuple(
        Instance(kind.method, task.name, doc.index, index, repeat, (*arguments, replace(kwargs, repeat=repeat)))
        for index, arguments in enumerate(requests)
        for repeat in range(task.repeats)
    )


def contexts(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> tuple[str, ...]:
    """Return the prompts of a doc: one, or one per choice where the choices are part of the prompt."""
    row = NamedDoc(task, doc.data, f"doc {doc.index}")
    before = system_turn(settings.system, text_of(task.description, row), task.fewshot_delimiter)
    for shot in shots:
        before += render_example(task, shot)
    prefix = text_of(task.gen_prefix, row)
    questions, delimiter = ((doc.text,), task.target_delimiter) if doc.inputs is None else (doc.inputs, "")
    prompts = []
    for question in questions:
        turns = (*before, *question_turns(question, prefix, delimiter))
        if chat is None:
            prompts.append(plain_text(turns))
        else:
            prompts.append(chat(chat_messages(turns, settings.fewshot_multiturn), not prefix))
    return tuple(prompts)
