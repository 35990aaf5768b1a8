"""`generation_kwargs`, the settings of a generation, in one spelling.

A file may give one stop string or a list, and the limit on new tokens has four names. Temperature 0 means greedy
decoding whatever `do_sample` says; sampling without a temperature uses temperature 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._task import NOTHING
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.yaml import Value


#: The names of the limit on new tokens. This package and lm_eval use `max_gen_toks`.
LIMIT_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: The limit on new tokens where a task gives none (lm_eval's default).
MAX_GEN_TOKS = 256

_READERS: Mapping[str, Any] = {
    "until": typed.texts,
    "do_sample": typed.flag,
    "temperature": typed.number,
    "top_p": typed.number,
    "top_k": partial(typed.whole, least=-1),
}


def read_generation(entries: Mapping[str, Value], output_type: str, delimiter: str) -> Mapping[str, Any]:
    """Return the `generation_kwargs` of a task, typed, with `until` as a list and the limit under one key.

    Without `until` a generation stops at the few-shot delimiter. Without `generation_kwargs` at all it is greedy.
    """
    value = typed.given(entries, "generation_kwargs")
    if value is None:
        if not OUTPUT_TYPES[output_type].generates:
            return NOTHING
        return {"until": [delimiter], "max_gen_toks": MAX_GEN_TOKS, "do_sample": False, "temperature": 0.0}
    written = typed.table(value, "generation_kwargs").entries
    kwargs: dict[str, Any] = {"until": [delimiter]}
    for name, entry in written.items():
        key = f"generation_kwargs.{name}"
        if name in LIMIT_KEYS:
            limit = typed.whole(entry, key, least=1)
            if kwargs.setdefault("max_gen_toks", limit) != limit:
                names = " and ".join(one for one in LIMIT_KEYS if one in written)
                raise typed.wrong(entry, "generation_kwargs", f"{names} are names of one limit, with different values")
        elif name not in _READERS:
            kwargs |= typed.options({name: entry}, "generation_kwargs")
        elif not typed.is_null(entry):
            kwargs[name] = _READERS[name](entry, key)
    return {**kwargs, "until": list(kwargs["until"])}


def generation_settings(kwargs: Mapping[str, Any], overrides: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """Return the settings of one generation: the task's, overridden key by key by `overrides`, with all defaults.

    ``{"until": ["Q:"], "temperature": 0.7}`` gives until ["Q:"], max_gen_toks 256, do_sample True, temperature 0.7;
    other keys pass through. An override may use any name of the limit, and may give a single stop string.
    """
    limits = [overrides[name] for name in LIMIT_KEYS if overrides.get(name) is not None]
    merged = {**kwargs, **{name: value for name, value in overrides.items() if name not in LIMIT_KEYS}}
    until = merged.get("until") or []
    temperature = merged.get("temperature")
    sample = merged.get("do_sample", bool(temperature)) and temperature != 0
    return {
        **merged,
        "until": [until] if isinstance(until, str) else list(until),
        "max_gen_toks": int(limits[0]) if limits else merged.get("max_gen_toks", MAX_GEN_TOKS),
        "do_sample": bool(sample),
        "temperature": float(1.0 if temperature is None else temperature) if sample else 0.0,
    }
