"""How the texts of a task are generated in this run: its `generation_kwargs`, and what the user puts over them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pytest_llmeval._engine import GenerationKwargs
from pytest_llmeval._errors import SettingError
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile.generation import LIMITS
from pytest_llmeval._taskfile.generation import resolve


_TRUTH = MappingProxyType({"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False})

#: Settings that `GenerationKwargs` has a field for; all others go to the backend as they are.
_OWN = frozenset({"until", "max_gen_toks", "do_sample", "temperature", "top_p", "top_k", "seed"})


def generation_kwargs(task: Task, settings: Settings) -> GenerationKwargs:
    """The settings of one generation of this task, `settings.gen_kwargs` key by key over the task's.

    Without `until` a text ends at the few-shot delimiter; empty stop strings stop nothing. Raises SettingError
    for an override that is not what its key wants.
    """
    merged = resolve({"until": [task.fewshot_delimiter], **task.generation_kwargs}, overrides_of(settings))
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
    what, read = _KINDS.get(name, ("a value", _free))
    try:
        return read(value)
    except (KeyError, ValueError, SyntaxError):
        raise SettingError(f"--llmeval-gen-kwargs: {name}: expected {what}, got {value!r}") from None


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


_KINDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys([*LIMITS, "top_k", "seed"], ("a whole number", int)),
    **dict.fromkeys(["temperature", "top_p"], ("a number", float)),
    "do_sample": ("true or false", lambda text: _TRUTH[text.lower()]),
    "until": ("a text or a list of texts", _stops),
}
