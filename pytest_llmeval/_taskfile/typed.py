"""The conversion of one value of a task file to the type of its key, or an error: what was expected, what found.

Each function takes the value and the key's full name (``metric_list[0].aggregation``), for the message. Texts are
returned as they were written, so ``no``, ``3.10`` and ``2024-01-02`` stay texts where a text is expected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data
from pytest_llmeval._taskfile.yaml import shown


#: Where a truth value is expected, the words of YAML 1.1 are accepted as well.
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def wrong(value: Value, key: str, message: str) -> TaskFileError:
    """Return the error that names the place and key of a value, and what is wrong with it."""
    return TaskFileError(value.path, message, line=value.line, key=key)


def expects(value: Value, key: str, what: str, mend: str = "") -> TaskFileError:
    """Return the error for a value of the wrong type: what the key expects, what was written, and the remedy."""
    return wrong(value, key, f"expects {what}, got {shown(value)}{mend}")


def given(entries: Mapping[str, Value], name: str) -> Value | None:
    """Return the value of a key; None if it is absent or ``null``, which removes an entry of an include."""
    value = entries.get(name)
    return None if value is None or is_null(value) else value


def read(entries: Mapping[str, Value], key: str, reader: Callable[[Value, str], T]) -> T | None:
    """Return what `reader` makes of an entry and its key; None if the entry is absent or null."""
    value = given(entries, key)
    return None if value is None else reader(value, key)


def is_null(value: Value) -> bool:
    return isinstance(value, Scalar) and value.kind == "null"


def text(value: Value, key: str) -> str:
    if not isinstance(value, Scalar) or value.kind == "null":
        raise expects(value, key, "a text")
    return value.text


def name(value: Value, key: str) -> str:
    """Return a text that can stand in reports and test ids: not empty, one line."""
    found = text(value, key)
    if not found.strip() or not found.isprintable():
        raise expects(value, key, "a name of one line")
    return found


def texts(value: Value, key: str) -> tuple[str, ...]:
    """Return the texts of a list; a single text counts as a list of one."""
    if not isinstance(value, Items):
        return (text(value, key),)
    return tuple(text(entry, f"{key}[{position}]") for position, entry in enumerate(value))


def whole(value: Value, key: str, *, least: int) -> int:
    found = data(value) if isinstance(value, Scalar) and value.kind == "int" else None
    if not isinstance(found, int) or found < least:
        raise expects(value, key, f"a whole number, {least} or more")
    return found


def number(value: Value, key: str) -> float:
    """Return a finite number; ``1e-5``, a text in YAML 1.1, is accepted as well."""
    if (
        isinstance(value, Scalar)
        and value.kind in ("int", "float", "text")
        and _NUMBER.fullmatch(value.text)
        and math.isfinite(float(value.text))
    ):
        return float(value.text)
    raise expects(value, key, "a number")


def flag(value: Value, key: str) -> bool:
    if isinstance(value, Scalar) and value.kind in ("bool", "unclear") and value.text.lower() in _TRUTH:
        return _TRUTH[value.text.lower()]
    raise expects(value, key, "true or false")


def one_of(value: Value, key: str, choices: Iterable[Choice]) -> Choice:
    known = {str(choice): choice for choice in sorted(choices)}
    found = text(value, key)
    if found not in known:
        mend = did_you_mean(found, known, otherwise=".")
        raise wrong(value, key, f"{found!r} is not known{mend} Known are {', '.join(known)}.")
    return known[found]


def table(value: Value, key: str) -> Table:
    if not isinstance(value, Table):
        raise expects(value, key, "a mapping")
    return value


def tables(value: Value, key: str) -> tuple[Table, ...]:
    """Return the mappings of a list."""
    if not isinstance(value, Items):
        raise expects(value, key, "a list of mappings")
    return tuple(table(entry, f"{key}[{position}]") for position, entry in enumerate(value))


def options(entries: Mapping[str, Value], key: str) -> dict[str, Any]:
    """Return settings with any keys as plain data. A value that YAML 1.1 and 1.2 read differently is an error."""
    return {name: _option(value, f"{key}.{name}") for name, value in entries.items()}


def _option(value: Value, key: str) -> Any:
    if isinstance(value, Table):
        return options(value.entries, key)
    if isinstance(value, Items):
        return [_option(entry, f"{key}[{position}]") for position, entry in enumerate(value)]
    if isinstance(value, Scalar) and value.kind == "unclear":
        message = f"{value.text} means different things to YAML 1.1 and 1.2; quote it if it is a text"
        raise wrong(value, key, f"{message}, else write true, false or a plain decimal number")
    return data(value)


def check_keys(entries: Mapping[str, Value], known: Collection[str], prefix: str = "") -> None:
    """Raise TaskFileError for a key that is not `known`. `prefix`: the name of the mapping of the keys, and a dot."""
    for key, value in entries.items():
        if key not in known:
            message = f"unknown key{did_you_mean(key, known, otherwise='.')} Known are {', '.join(sorted(known))}."
            raise wrong(value, prefix + key, message)
