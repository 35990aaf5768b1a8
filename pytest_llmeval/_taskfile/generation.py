"""`generation_kwargs`: how a text is continued, in one spelling.

A stop string may stand alone or in a list; the limit has four names; temperature 0 is greedy decoding whatever
`do_sample` says, and sampling without a temperature is sampling at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmeval._task import NOTHING
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


#: The names of the limit on new tokens. `max_gen_toks` is ours and the peer's.
LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")

#: New tokens at most where a task says nothing (the peer's default).
MAX_GEN_TOKS = 256


def read_generation(entries: Mapping[str, Value], output_type: str, delimiter: str) -> Mapping[str, Any]:
    """`generation_kwargs` of a task, as in its YAML but typed, `until` always a list, the limit one key.

    Without `until` a generation stops at the few-shot delimiter. Without `generation_kwargs` at all it is greedy.
    """
    value = typed.given(entries, "generation_kwargs")
    if value is None:
        if output_type != "generate_until":
            return NOTHING
        return {"until": [delimiter], "max_gen_toks": MAX_GEN_TOKS, "do_sample": False, "temperature": 0.0}
    table = typed.table(value, "generation_kwargs")
    kwargs: dict[str, Any] = {"until": [delimiter]}
    for name, entry in table.entries.items():
        if name in LIMITS:
            _add_limit(kwargs, table, name)
        elif not (name in _READERS and typed.is_null(entry)):
            kwargs[name] = _read(name, entry)
    return kwargs


def resolve(kwargs: Mapping[str, Any], overrides: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The settings of one generation, `overrides` key by key over the task's: every key that decides is there.

    ``{"until": ["Q:"], "temperature": 0.7}`` gives until ["Q:"], max_gen_toks 256, do_sample True, temperature 0.7;
    other keys pass through. An override may use any name of the limit, and a single stop string.
    """
    limits = [overrides[name] for name in LIMITS if overrides.get(name) is not None]
    merged = {**kwargs, **{name: value for name, value in overrides.items() if name not in LIMITS}}
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


def _add_limit(kwargs: dict[str, Any], table: Table, name: str) -> None:
    limit = typed.whole(table.entries[name], f"generation_kwargs.{name}", 1)
    if kwargs.setdefault("max_gen_toks", limit) != limit:
        names = " and ".join(one for one in LIMITS if one in table.entries)
        raise typed.wrong(table.entries[name], "generation_kwargs", f"{names} name one limit, with different values")


def _read(name: str, value: Value) -> Any:
    key = f"generation_kwargs.{name}"
    reader = _READERS.get(name)
    return typed.options({name: value}, "generation_kwargs")[name] if reader is None else reader(value, key)


def _until(value: Value, key: str) -> list[str]:
    return list(typed.texts(value, key))


_READERS: Mapping[str, Any] = {
    "until": _until,
    "do_sample": typed.flag,
    "temperature": typed.number,
    "top_p": typed.number,
    "top_k": lambda value, key: typed.whole(value, key, -1),
}
