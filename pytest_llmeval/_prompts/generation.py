"""The generation settings of this run: the `generation_kwargs` of a task, and the user's overrides."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._settings import FLAG
from pytest_llmeval._settings import Settings
from pytest_llmeval._settings import ValueType
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import LIMIT_KEYS
from pytest_llmeval._taskfile import generation_settings


#: Settings that are fields of `GenerationKwargs`; all others are passed to the backend unchanged.
_OWN = frozenset({"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k", "seed"})


def generation_kwargs(task: Task, settings: Settings) -> GenerationKwargs:
    """Return the settings of one generation of a task, overridden key by key by `settings.gen_kwargs`.

    Without `until` a text ends at the few-shot delimiter; empty stop strings have no effect. Raises SettingError
    for an override of the wrong type.
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
    """Return `generation_kwargs` as in the task file, with the user's overrides, for result and sample files."""
    return {**task.config.get("generation_kwargs", task.generation_kwargs), **overrides_of(settings)}


def overrides_of(settings: Settings) -> dict[str, Any]:
    """Return the user's overrides of the generation settings of every task, typed. Raises SettingError."""
    # Every value from the command line is a text.
    return {
        name: _TYPES.get(name, _FREE).read(value, f"--llmeval-gen-kwargs: {name}") if isinstance(value, str) else value
        for name, value in settings.gen_kwargs.items()
    }


def _free(text: str) -> Any:
    """Return the number, list, truth value or null that a text spells, else the text."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.lower() in {"none", "null"}:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _stops(text: str) -> list[str]:
    """Return one stop string unchanged, or a list of them: ``["\\n", "Q:"]``."""
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
