"""A task's baseline and its text: written the same way every time, read back only if nothing has changed it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_llmeval._baselines.entries import Entry
from pytest_llmeval._baselines.entries import entry_line
from pytest_llmeval._baselines.entries import read_entry
from pytest_llmeval._baselines.header import Header
from pytest_llmeval._baselines.keys import DIGEST_CHARS
from pytest_llmeval._baselines.keys import hashed
from pytest_llmeval._errors import BaselineError


FORMAT = 1

_FIRST = "llmeval baseline, format "
_FIXED_COLUMNS = ("doc", "hash", "prompt", "pick", "gold")


@dataclass(frozen=True, slots=True)
class Record:
    """One task's baseline: `entries` in the order of their docs."""

    header: Header
    entries: Sequence[Entry]


def record_text(record: Record) -> str:
    """The file of a record. Equal records have equal texts."""
    columns = list(dict.fromkeys(column for entry in record.entries for column in entry.scores))
    picks = [entry.pick for entry in record.entries if entry.pick is not None]
    margins = list(dict.fromkeys(metric for pick in picks for metric in pick.margins))
    body = "".join(f"{line}\n" for line in _body(record, columns, margins))
    return f"{_FIRST}{FORMAT}\ndigest: {json.dumps(hashed(body, DIGEST_CHARS))}\n{body}"


def read_record(text: str, path: Path) -> Record:
    """Raises BaselineError for a file of another format, and for one that is not as it was written."""
    first, _, rest = text.partition("\n")
    number = first.removeprefix(_FIRST)
    if number == first or not number.isdigit():
        raise BaselineError(
            path, f"expected {_FIRST + str(FORMAT)!r}, found {first!r:.60}: this is no baseline", line=1
        )
    if int(number) != FORMAT:
        raise BaselineError(
            path, f"has format {number}, and this version reads format {FORMAT}: write it again, or update", line=1
        )
    digest, _, body = rest.partition("\n")
    if digest != f"digest: {json.dumps(hashed(body, DIGEST_CHARS))}":
        raise BaselineError(path, _first_fault(digest, body), line=2)
    try:
        return _read_body(body)
    except (ValueError, KeyError, TypeError) as error:
        raise BaselineError(path, f"cannot be read: {error}; write it again") from None


def _first_fault(digest: str, body: str) -> str:
    """What is wrong with a file whose digest does not fit: that line or the first that cannot be read, if any."""
    why = ""
    if not digest.startswith("digest: "):
        why = f" (found {digest!r:.60})"
    else:
        try:
            _read_body(body)
        except (ValueError, KeyError, TypeError) as error:
            why = f" ({error})"
    return (
        f"digest: the file was damaged, merged or edited by hand{why}: bring back a committed version, or write it "
        "again with --llmeval-update-baseline"
    )


def _body(record: Record, columns: Sequence[str], margins: Sequence[str]) -> Iterator[str]:
    for name, value in asdict(record.header).items():
        if name == "settings":
            yield from (f"settings.{key}: {_json(setting)}" for key, setting in value.items())
        else:
            yield f"{name}: {_json(value)}"
    yield f"columns: {_json([*_FIXED_COLUMNS, '/'.join(['margin', *margins]), *columns])}"
    yield ""
    yield from (entry_line(entry, columns, margins) for entry in record.entries)


def _read_body(body: str) -> Record:
    head, _, lines = body.partition("\n\n")
    found: dict[str, Any] = {"settings": {}}
    for line in head.split("\n"):
        name, _, value = line.partition(": ")
        into, key = (found["settings"], name.removeprefix("settings.")) if "." in name else (found, name)
        into[key] = json.loads(value)
    margin, *columns = found.pop("columns")[len(_FIXED_COLUMNS) :]
    margins = margin.split("/")[1:]
    header = Header(**{field.name: found[field.name] for field in fields(Header)})
    entries = []
    for number, line in enumerate(lines.splitlines(), head.count("\n") + 5):
        try:
            entries.append(read_entry(line, columns, margins))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if len(entries) != header.docs:
        raise ValueError(f"{header.docs} docs are announced and {len(entries)} found")
    return Record(header, entries)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
