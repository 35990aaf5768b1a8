"""YAML as it was written: nodes that know their file and line, and scalars that keep their text.

YAML 1.1 reads ``no`` as false, ``010`` as eight, ``12:30`` as 750 and ``2024-01-02`` as a date; YAML 1.2 reads all
four as texts or other numbers. So the type is not decided here: a `Scalar` holds its text and the type that both
versions agree on, or "unclear" (`kind`). A reader of texts uses `Scalar.text`, a reader of data calls `data`.

    doc_to_choice: [no, 3.10, "x"]     Items((Scalar("no", "unclear"), Scalar("3.10", "float"), Scalar("x", "text")))

The tag ``!function module.name`` becomes a `FunctionRef`; every other tag that is not YAML's own is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeAlias

import yaml

from pytest_llmeval._errors import TaskFileError


ScalarKind = Literal["text", "null", "bool", "int", "float", "unclear"]

#: The scalars that YAML 1.1 and the core schema of YAML 1.2 read alike. A scalar that 1.1 reads as one of these kinds
#: and that does not match here is "unclear". (A number in 1.2 alone, such as 1e5, is a text in lm_eval.)
AGREED: Mapping[str, re.Pattern[str]] = {
    "null": re.compile(r"|~|null|Null|NULL"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
}

#: The largest number of values in one file; only nested aliases can give more.
MOST_VALUES = 200_000

_STANDARD = "tag:yaml.org,2002:"
_TAGS = frozenset({"map", "seq", "str", "null", "bool", "int", "float", "timestamp", "value", "merge"})
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, truth value or null, as written. In a mapping, `line` is that of the key."""

    path: Path
    line: int
    text: str
    kind: ScalarKind = "text"


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """``!function module.name``; `text` is what follows the tag."""

    path: Path
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    path: Path
    line: int
    values: tuple[Value, ...]

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping, in the order of the file. Its values may come from several files (see `Value.path`)."""

    path: Path
    line: int
    entries: Mapping[str, Value]


Value: TypeAlias = Scalar | FunctionRef | Items | Table


def read_yaml(path: Path) -> Table:
    """Return the mapping that a YAML file holds. Raises TaskFileError with file, line, column and the problem."""
    try:
        node = _compose(_read_text(path), path)
        value = None if node is None else _Builder(path).build(node, 1)
    except RecursionError:
        raise TaskFileError(path, "not readable as YAML: nested too deeply") from None
    if value is None:
        raise TaskFileError(path, "the file is empty; a task file is a mapping of keys to values")
    if not isinstance(value, Table):
        raise TaskFileError(path, f"expects a mapping of keys to values, got {shown(value)}", line=1)
    return value


def data(value: Value) -> Any:
    """Return plain Python data: scalars that both YAML versions type alike are typed, others stay texts as written."""
    if isinstance(value, Table):
        return {key: data(entry) for key, entry in value.entries.items()}
    if isinstance(value, Items):
        return [data(entry) for entry in value]
    if isinstance(value, FunctionRef):
        raise TaskFileError(value.path, f"!function {value.text} is not allowed here", line=value.line)
    return _TYPED[value.kind](value.text)


def shown(value: Value) -> str:
    """Return a value as it was written, for messages: ``the text 'x'``, ``1_000``, ``the list [a, b]``."""
    if isinstance(value, FunctionRef):
        return _inline(value)
    if isinstance(value, Scalar) and value.kind == "null":
        return "nothing"
    text = value.text if isinstance(value, Scalar) else _inline(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, Scalar):
        return f"the text {text!r}" if value.kind == "text" else text
    return f"the {'mapping' if isinstance(value, Table) else 'list'} {text}"


def _inline(value: Value, depth: int = 3) -> str:
    """Return a value on one line; values inside more than `depth` brackets are left out."""
    if isinstance(value, Table):
        entries = (f"{key}: {_inline(entry, depth - 1)}" for key, entry in value.entries.items())
        return "{" + ("..." if not depth else ", ".join(entries)) + "}"
    if isinstance(value, Items):
        return "[" + ("..." if not depth else ", ".join(_inline(entry, depth - 1) for entry in value)) + "]"
    if isinstance(value, FunctionRef):
        return f"!function {value.text}"
    return value.text if value.text.isprintable() else repr(value.text)


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TaskFileError(path, f"cannot be read: {error.strerror or error}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8 text (byte 0x{raw[error.start]:02x}); save the file as UTF-8"
        raise TaskFileError(path, message, line=line) from None


def _compose(text: str, path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:
        pass
    # The pure Python parser words an error in the same way where libyaml is missing or of another version.
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not readable as YAML: {', '.join(part for part in (error.context, error.problem) if part)}"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        message = f"not readable as YAML: character U+{ord(text[error.position]):04X} is not allowed"
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
    raise TaskFileError(path, message, line=line, column=column)


class _Builder:
    """Turns the composed nodes of one file into values."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.built = 0
        #: The nodes that contain the current one: expanding an alias to one of them would never end.
        self.open: list[yaml.Node] = []

    def build(self, node: yaml.Node, line: int) -> Value:
        self.built += 1
        if node in self.open:
            raise self._wrong(node, "an alias refers to a value that contains it")
        if self.built > MOST_VALUES:
            raise self._wrong(node, f"aliases expand to more than {MOST_VALUES:,} values")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        self._check_tag(node)
        self.open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return Table(self.path, line, self._entries(node))
            return Items(self.path, line, tuple(self.build(n, n.start_mark.line + 1) for n in node.value))
        finally:
            self.open.pop()

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Value:
        if node.tag == "!function":
            return FunctionRef(self.path, line, node.value.strip())
        self._check_tag(node)
        kind = node.tag.removeprefix(_STANDARD)
        if kind == "timestamp" or (kind in AGREED and not AGREED[kind].fullmatch(node.value)):
            return Scalar(self.path, line, node.value, "unclear")
        return Scalar(self.path, line, node.value, kind if kind in AGREED else "text")  # type: ignore[arg-type]

    def _check_tag(self, node: yaml.Node) -> None:
        if node.tag == "!function":
            raise self._wrong(node, "!function takes the text module.name")
        if node.tag.removeprefix(_STANDARD) not in _TAGS or not node.tag.startswith(_STANDARD):
            raise self._wrong(node, f"unknown tag {node.tag}; the only one known is !function")

    def _entries(self, node: yaml.MappingNode) -> dict[str, Value]:
        entries: dict[str, Value] = {}
        inherited: dict[str, Value] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(key, "a key must be a plain text")
            line = key.start_mark.line + 1
            if key.tag == _STANDARD + "merge":
                inherited = self._merged(value) | inherited
                continue
            entry = self.build(value, line)
            earlier = entries.get(key.value)
            # A key that is written twice with the same scalar is untidy, but nothing is lost.
            same = isinstance(earlier, Scalar) and replace(earlier, line=line) == entry
            if earlier is not None and not same:
                message = f"the key is written twice, in lines {earlier.line} and {line}; remove one"
                raise TaskFileError(self.path, message, line=line, key=key.value)
            entries[key.value] = entry
        return inherited | entries

    def _merged(self, node: yaml.Node) -> dict[str, Value]:
        """Return the entries that ``<<`` merges in; of several mappings the first wins."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Value] = {}
        for one in nodes:
            table = self.build(one, one.start_mark.line + 1)
            if not isinstance(table, Table):
                raise self._wrong(one, "<< takes a mapping or a list of mappings")
            merged = dict(table.entries) | merged
        return merged

    def _wrong(self, node: yaml.Node, message: str) -> TaskFileError:
        mark = node.start_mark
        return TaskFileError(self.path, message, line=mark.line + 1, column=mark.column + 1)


_TYPED: Mapping[ScalarKind, Any] = {
    "text": str,
    "unclear": str,
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text, 16) if text.startswith("0x") else int(text),
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
