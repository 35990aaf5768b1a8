"""Plain values: what may cross a process border or be written to a file.

What was worked out for one model and serves those that come later in the session.

JSON and hashes as the peer writes them: equal docs and prompts have equal hashes in both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Generic
from typing import TypeVar


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


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values by key, until `room` is taken: its unit is that of the sizes which `put` is told.

    Every model is asked about the same docs in the same order. So what came first stays, and what finds no room is
    worked out anew each time: to throw out the oldest would lose each value just before it is wanted.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value, size: int) -> None:
        if size <= self.room and key not in self._values:
            self.room -= size
            self._values[key] = value


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
