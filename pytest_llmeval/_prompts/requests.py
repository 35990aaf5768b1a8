"""How the texts of a task are generated in this run: its `generation_kwargs`, and what the user puts over them.

The calls of a model that a doc takes: its prompt, and what is asked about it, by output type.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._prompts.fields import Row
from pytest_llmeval._prompts.fields import text_of
from pytest_llmeval._prompts.rendering import chat_messages
from pytest_llmeval._prompts.rendering import ends_with_space
from pytest_llmeval._prompts.rendering import plain_text
from pytest_llmeval._prompts.rendering import question_turns
from pytest_llmeval._prompts.rendering import render_example
from pytest_llmeval._prompts.rendering import system_turn
from pytest_llmeval._settings import FLAG
from pytest_llmeval._settings import Settings
from pytest_llmeval._settings import ValueType
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import LIMIT_KEYS
from pytest_llmeval._taskfile import generation_settings


#: Settings that `GenerationKwargs` has a field for; all others go to the backend as they are.
_OWN = frozenset({"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k", "seed"})


def generation_kwargs(task: Task, settings: Settings) -> GenerationKwargs:
    """The settings of one generation of this task, `settings.gen_kwargs` key by key over the task's.

    Without `until` a text ends at the few-shot delimiter; empty stop strings stop nothing. Raises SettingError
    for an override that is not what its key wants.
    """
    merged = generation_settings({"until": [task.fewshot_delimiter], **task.generation_kwargs}, overrides_of(settings))
    return GenerationKwargs(
        until=tuple(stop for stop in merged["until"] if stop),
        max_gen_toks=merged["max_gen_toks"],
        do_sample=merged["do_sample"],
        temperature=merged["temperature"],
        top_p=merged.get("top_p"),
        top_k=merged.get("top_k"),
        seed=merged.get("seed") or 0,
        extra={name: value for name, value in merged.items() if name not in _OWN} or NOTHING,
    )


def written_kwargs(task: Task, settings: Settings) -> dict[str, Any]:
    """`generation_kwargs` as the task's file spells them, the user's over them: for result and sample files."""
    return {**task.config.get("generation_kwargs", task.generation_kwargs), **overrides_of(settings)}


def overrides_of(settings: Settings) -> dict[str, Any]:
    """What the user puts over the generation settings of every task, typed. Raises SettingError."""
    return {name: _typed(name, value) for name, value in settings.gen_kwargs.items()}


def _typed(name: str, value: Any) -> Any:
    """An override as what its key wants: from the command line every value comes as a text."""
    if not isinstance(value, str):
        return value
    return _TYPES.get(name, _FREE).read(value, f"--llmeval-gen-kwargs: {name}")


def _free(text: str) -> Any:
    """A number, a list, a truth value or null where the text is one, else the text."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.lower() in {"none", "null"}:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _stops(text: str) -> list[str]:
    """One stop string as it stands, or a list of them: ``["\\n", "Q:"]``."""
    stops = ast.literal_eval(text) if text.startswith("[") and text.endswith("]") else [text]
    if not all(isinstance(stop, str) for stop in stops):
        raise ValueError(text)
    return list(stops)


_FREE = ValueType("a value", _free)
_TYPES: Mapping[str, ValueType[Any]] = {
    **dict.fromkeys([*LIMIT_KEYS, "top_k", "seed"], ValueType("a whole number", int)),
    **dict.fromkeys(["temperature", "top_p"], ValueType("a number", float)),
    "do_sample": FLAG,
    "until": ValueType("a text or a list of texts", _stops),
}


def instances_for(
    task: Task, doc: RenderedDoc, shots: Sequence[DocData], settings: Settings, chat: ChatTemplate | None
) -> tuple[Instance, ...]:
    """The requests of one doc, with its examples in front; `chat` writes the prompt as messages of a chat.

    The output type says which requests these are; of a generation there is one per repeat. The contexts of one doc
    are one object where they are equal. Raises TemplateError or DataError, and SettingError for generation settings.
    """
    kind = OUTPUT_TYPES[task.output_type]
    prompts = () if kind.method == "loglikelihood_rolling" else contexts(task, doc, shots, settings, chat)
    delimiter = task.target_delimiter
    if chat is not None and kind.has_choices:
        # After a chat template's header nothing parts prompt and choice; after a begun reply the delimiter does.
        prefix = text_of(task.gen_prefix, Row(task, doc.data, f"doc {doc.index}"))
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
    """The prompts of a doc: one, or one per option where the options stand in the prompt."""
    row = Row(task, doc.data, f"doc {doc.index}")
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
