"""JSON and hashes as the peer writes them: equal docs and prompts have equal hashes in both."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Unicode as it is, NaN and infinities by these names, other objects as numbers, lists or their text.

    A lone surrogate has no UTF-8 form: a text that holds one is written with escapes.
    """
    text = json.dumps(value, indent=indent, default=_without_json_form, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=_without_json_form)
    return text


def hash_of(text: str) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def texts(value: Any) -> Any:
    """Nested lists with every leaf as text: readers get columns of one type."""
    return [texts(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _without_json_form(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    # A numpy scalar holds a number of Python.
    number = value.item() if getattr(value, "ndim", None) == 0 else None
    return number if isinstance(number, bool | int | float) else str(value)
