"""Plain data: values that can be sent to another process or written to a file, and functions for such values.

JSON and hashes are those of lm-evaluation-harness, so that equal docs and prompts have equal hashes in both.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import time
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from typing import Generic
from typing import TypeVar


#: The start of the names of files that are being written, and the seconds after which none still is.
_PART, _OLD_SECONDS = ".writing-", 86_400
_AS_THEY_ARE = frozenset({bool, int, float, str, type(None)})


def plain(value: Any) -> Any:
    """Return a value as str, int, float, bool, None, lists and dicts, without numpy, torch or subclasses.

    Raises TypeError for a value that has no such form, e.g. a set.
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
    raise TypeError(f"a {type(value).__name__} is not a plain value: use numbers, texts, lists or dicts")


def plain_or_text(value: Any) -> Any:
    """Return `plain(value)`, or the text of a value that has no plain form."""
    try:
        return plain(value)
    except TypeError:
        return str(value)


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A cache that stores no more values once the sum of their sizes, in any unit, reaches `capacity`.

    Every model answers the same docs in the same order. So the first values stay, and those that do not fit are
    computed again each time: dropping the oldest value would lose each one just before it is needed.
    """

    def __init__(self, capacity: int) -> None:
        self._free = capacity
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value, size: int) -> None:
        if size <= self._free and key not in self._values:
            self._free -= size
            self._values[key] = value


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON: Unicode unescaped, NaN and infinities by name, other objects as number, list or text.

    A lone surrogate has no UTF-8 form: a value that contains one is written with escapes.
    """
    text = json.dumps(value, indent=indent, default=_without_json_form, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=_without_json_form)
    return text


def hash_of(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def listed(names: Iterable[object], most: int = 5, *, separator: str = ", ", noun: str = "") -> str:
    """Return the first `most` names and the number of the others, as one text.

    ::

        listed(["a", "b"])                               a, b
        listed("abcdefghij", most=3)                     a, b, c and 7 more
        listed("abcde", 3, separator="; ", noun="tasks") a; b; c; and 2 more tasks
    """
    shown = [str(name) for name in names]
    text, rest = separator.join(shown[:most]), len(shown) - most
    if rest <= 0:
        return text
    between = " " if separator == ", " else separator
    return f"{text}{between}and {rest:,} more {noun}".rstrip()


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return ``; did you mean 'close'?`` to end a message about an unknown name, or `otherwise` without a close name.

    The name itself is not suggested. `cutoff`: the least similarity of a close name, from 0 to 1 (see `difflib`).
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close and close[0] != name else otherwise


def version_of(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write a text file in UTF-8 atomically, so that readers never see a part of it, also after a loss of power.

    The pieces are written to another file in the same folder, which is created if necessary; that file is then renamed
    to `path`. Raises OSError, and the exceptions of iterating over the pieces.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_old_parts(path.parent)
    # The name contains the process id, since two processes may write the same file, and is short: `path` may be long.
    part = path.with_name(f"{_PART}{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _remove_old_parts(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed while they wrote, which nobody finishes after a day."""
    for part in folder.glob(f"{_PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _OLD_SECONDS:
                part.unlink()


def _sync_folder(folder: Path) -> None:
    """Have the name of a new file written to the disk, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def texts(value: Any) -> Any:
    """Return nested lists with each element as text, so that readers get columns of one type."""
    return [texts(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _without_json_form(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    # A numpy scalar becomes a Python number.
    number = value.item() if getattr(value, "ndim", None) == 0 else None
    return number if isinstance(number, bool | int | float) else str(value)
