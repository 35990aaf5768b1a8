"""The outline of a YAML file, read from its text: whether it is a task or a group, its names and its includes.

No file is parsed as YAML, so this is fast enough to search 14,000 files, and safe for files of unknown origin.
A task or group file has ``task:`` or ``group:`` at the start of a line, and either both of them or another key that
only task and group files have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from pytest_llmeval._taskfile.group import is_group


#: Keys of task and group files only. Files of other tools have a `task` or a `group` too.
_TELLING = frozenset(
    {
        "dataset_path",
        "dataset_name",
        "output_type",
        "doc_to_text",
        "doc_to_target",
        "include",
        "aggregate_metric_list",
        "group_alias",
        "class",
        "tag",
    }
)
_KEY = re.compile(r"^([\"']?)([A-Za-z_]+)\1[ \t]*:(?=[ \t\r\n]|$)", re.MULTILINE)
#: A value that ends on its line: plain, or quoted without escapes.
_PLAIN = re.compile(
    r"""[ \t]*(?:"([^"\\\r\n]*)"|'([^'\r\n]*)'|([\w/][^\s#:"']*))[ \t]*(?:[ \t]\#[^\r\n]*)?(?=\r?\n(?![ \t])|\Z)"""
)


@dataclass(frozen=True, slots=True)
class Outline:
    """The names in a file. `name` is None if it defines no task or group; `tags` is None if `includes` give them."""

    name: str | None
    group: bool
    tags: tuple[str, ...] | None
    includes: tuple[str, ...]


def looks_like_task(path: Path) -> bool:
    """Return True if a file is a task or a group, from its text alone; False for files that cannot be read."""
    text = _read(path)
    return text is not None and _tells({match[2] for match in _KEY.finditer(text)})


def outline_of(path: Path | str) -> Outline | None:
    """Return the outline of a file, or None if it cannot be read."""
    text = _read(path)
    if text is None:
        return None
    found = {match[2]: match.end() for match in _KEY.finditer(text)}
    # A value that stands on the line of its key and is not a list.
    task = text[found["task"] :].partition("\n")[0].strip() if "task" in found else ""
    grouped = is_group(found.keys(), bool(task) and task[0] not in "#[")
    name, tags, groups, includes = (
        _value(text, found.get(key)) for key in ("group" if grouped else "task", "tag", "group", "include")
    )
    if not grouped:
        tags = tuple(dict.fromkeys(tags + groups))
    has_tags = "tag" in found or bool(groups and not grouped)
    return Outline(name[0] if name and _tells(set(found)) else None, grouped, tags if has_tags else None, includes)


def _tells(keys: set[str]) -> bool:
    return {"task", "group"} <= keys or (bool(keys & {"task", "group"}) and bool(keys & _TELLING))


def _read(path: Path | str) -> str | None:
    """Return the text of a file, or None. Bytes that are not UTF-8 are replaced; reading the task reports them."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8-sig", errors="replace")
    except OSError:
        return None


def _value(text: str, start: int | None) -> tuple[str, ...]:
    """Return the texts that follow a key: one, or those of a list; none for anything else."""
    if start is None:
        return ()
    if plain := _PLAIN.match(text, start):
        return (plain[plain.lastindex or 0],)
    end = next((match.start() for match in _KEY.finditer(text, start)), len(text))
    try:
        node = yaml.compose("key:" + text[start:end], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return ()
    if not isinstance(node, yaml.MappingNode):
        return ()
    value = node.value[0][1]
    nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return tuple(one.value for one in nodes if isinstance(one, yaml.ScalarNode) and not one.tag.endswith(":null"))
