"""Plain values: what may cross a process border or be written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any


_AS_THEY_ARE = frozenset({bool, int, float, str, type(None)})


def plain(value: Any) -> Any:
    """A value as str, int, float, bool, None, lists and dicts: no numpy, no torch, no subclasses.

    Raises TypeError for what has no such form (sets, objects of other classes).
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item) for item in value]
    raise TypeError(f"a {type(value).__name__} is no plain value: use numbers, texts, lists or dicts")


def plain_or_text(value: Any) -> Any:
    """The same for showing: what has no plain form is shown by its text."""
    try:
        return plain(value)
    except TypeError:
        return str(value)
