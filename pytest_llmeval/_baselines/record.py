"""The baseline of one task and its file text, which is deterministic and protected by a digest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_llmeval._baselines.calibration import Calibration
from pytest_llmeval._baselines.entry import DIGEST_CHARS
from pytest_llmeval._baselines.entry import Entry
from pytest_llmeval._baselines.entry import entry_line
from pytest_llmeval._baselines.entry import hashed
from pytest_llmeval._baselines.entry import read_entry
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._functions import name_of
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._prompts import num_fewshot
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


FORMAT = 1

_FIRST = "llmeval baseline, format "
_FIXED_COLUMNS = ("doc", "hash", "prompt", "pick", "gold")


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a baseline file.

    Docs are compared only if `settings` are equal, and also the entries of `filters` and `metrics` for the filter and
    metric of a gate. `models` are the models that answered (one, unless parts were updated later), `versions` the
    packages installed then; both are for the reader. `values` are the values of the task by ``metric,filter``, over
    `docs` of `docs_total` docs. `calibration`: the flips of the same build between several runs, if they were measured.
    `next_tokens` describes the file of next tokens, if there is one: ``top``, the number of ids that it keeps at a
    position, ``vocabulary`` and ``digest``.
    """

    task: str
    settings: Mapping[str, Any]
    filters: Mapping[str, Any]
    metrics: Mapping[str, Any]
    models: Sequence[Mapping[str, Any]] = ()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    docs: int = 0
    docs_total: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None
    next_tokens: Mapping[str, Any] = field(default_factory=dict)


def header_of(task: Task, settings: Settings) -> Header:
    """Return the header of a task without the parts that depend on a model's answers."""
    shots = num_fewshot(task, settings)
    # All settings that change prompts or answers, under the names that users know.
    used: dict[str, Any] = {
        "version": task.version,
        "dataset": [task.dataset_path, task.dataset_name],
        "split": task.evaluated_split,
        "output_type": task.output_type,
        "num_fewshot": shots,
    }
    if shots and task.fewshot.sampler != "first_n":
        used["fewshot_seed"] = settings.fewshot_seed
    if OUTPUT_TYPES[task.output_type].generates:
        used |= {"generation_kwargs": plain_or_text(written_kwargs(task, settings)), "repeats": task.repeats}
    used["chat_template"] = settings.chat_template
    if settings.chat_template:
        used["fewshot_multiturn"] = settings.fewshot_multiturn
    filters = {
        spec.name: [
            [step.name, plain_or_text(dict(step.options)), *([name_of(step.function)] if step.function else [])]
            for step in spec.steps
        ]
        for spec in task.filters
    }
    metrics = {
        metric.name: {
            "aggregation": metric.aggregation.name,
            "higher_is_better": metric.higher_is_better,
            "options": {name: plain_or_text(value) for name, value in metric.options.items()},
        }
        for metric in task.metrics
    }
    return Header(task.name, used | {"system": settings.system}, filters, metrics)


@dataclass(frozen=True, slots=True)
class Record:
    """The baseline of one task: `entries` in the order of their docs."""

    header: Header
    entries: Sequence[Entry]


def record_text(record: Record) -> str:
    """Return the file text of a record. Equal records have equal texts."""
    columns = list(dict.fromkeys(column for entry in record.entries for column in entry.scores))
    picks = [entry.pick for entry in record.entries if entry.pick is not None]
    margins = list(dict.fromkeys(metric for pick in picks for metric in pick.margins))
    body = "".join(f"{line}\n" for line in _body(record, columns, margins))
    return f"{_FIRST}{FORMAT}\ndigest: {json.dumps(hashed(body, DIGEST_CHARS))}\n{body}"


def read_record(text: str, path: Path) -> Record:
    """Return the record of a file's text.

    Raises BaselineError for a file of another format, and for a file that was changed after it was written.
    """
    first, _, rest = text.partition("\n")
    number = first.removeprefix(_FIRST)
    if number == first or not number.isdigit():
        raise BaselineError(
            path, f"expected {_FIRST + str(FORMAT)!r}, found {first!r:.60}: this is not a baseline", line=1
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
    """Return the message for a file whose digest does not match, with the first line that cannot be read, if any."""
    why = ""
    if not digest.startswith("digest: "):
        why = f" (found {digest!r:.60})"
    else:
        try:
            _read_body(body)
        except (ValueError, KeyError, TypeError) as error:
            why = f" ({error})"
    return (
        f"digest: the file was damaged, merged or edited by hand{why}: restore a committed version, or write it "
        "again with --llmeval-update-baseline"
    )


def _body(record: Record, columns: Sequence[str], margins: Sequence[str]) -> Iterator[str]:
    for name, value in asdict(record.header).items():
        if name == "settings":
            yield from (f"settings.{key}: {canonical_json(setting)}" for key, setting in value.items())
        elif value or name not in ("calibration", "next_tokens"):
            yield f"{name}: {canonical_json(value)}"
    yield f"columns: {canonical_json([*_FIXED_COLUMNS, '/'.join(['margin', *margins]), *columns])}"
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
    calibration = found.pop("calibration", None)
    found["calibration"] = calibration and Calibration.from_plain(calibration)
    found.setdefault("next_tokens", {})
    header = Header(**{one.name: found[one.name] for one in fields(Header)})
    entries = []
    for number, line in enumerate(lines.splitlines(), head.count("\n") + 5):
        try:
            entries.append(read_entry(line, columns, margins))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if len(entries) != header.docs:
        raise ValueError(f"expected {header.docs} docs, found {len(entries)}")
    return Record(header, entries)


def canonical_json(value: Any) -> str:
    """Return a value as JSON in one line, with sorted keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
