"""The entries of a task file, checked and typed: a Task, or one error that names file, line, key and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from typing import TypeAlias

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._output_types import DEFAULT
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.config import CONFIG_KEYS
from pytest_llmeval._taskfile.config import config_of
from pytest_llmeval._taskfile.fields import FieldReader
from pytest_llmeval._taskfile.fields import read_fewshot
from pytest_llmeval._taskfile.generation import read_generation
from pytest_llmeval._taskfile.scoring import read_filters
from pytest_llmeval._taskfile.scoring import read_metrics
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.typed import read
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data


#: Gate entries as written, each with its line.
Gates: TypeAlias = tuple[tuple[str | Mapping[str, Any], int], ...]

#: Every key of a task. `group` in a task file is the old spelling of `tag`.
TASK_KEYS = frozenset({*CONFIG_KEYS, "group", "include", "tag"})

#: The keys of `metadata` that this package reads; all others are notes for people.
_OWN_METADATA = ("gates", "cluster", "ranges")

#: Keys of lm_eval's format for features that this package does not have.
_UNSUPPORTED: Mapping[str, str] = {
    "class": "tasks written as Python classes are not supported; write the task as YAML with !function fields",
    "doc_to_audio": "only text is evaluated; tasks with audio are not supported",
    "doc_to_image": "only text is evaluated; tasks with images are not supported",
    "use_prompt": "promptsource prompts are not supported; write doc_to_text and doc_to_target",
}


def check_keys(entries: Mapping[str, Value], known: frozenset[str] = TASK_KEYS) -> None:
    """Raise TaskFileError for a key that lm_eval's format does not have or that this package does not support."""
    for key, reason in _UNSUPPORTED.items():
        if (value := typed.given(entries, key)) is not None:
            raise typed.wrong(value, key, reason)
    typed.check_keys({key: value for key, value in entries.items() if key not in _UNSUPPORTED}, known)


def build_task(table: Table, modules: Modules) -> Task:
    """Return the task that a mapping describes, its includes already merged. Raises TaskFileError."""
    check_keys(table.entries)
    home, fields = table.path, FieldReader(table.path, modules)
    # Null removes an entry of an include.
    entries = {key: value for key, value in table.entries.items() if not typed.is_null(value)}
    output_type = read(entries, "output_type", partial(typed.one_of, choices=OUTPUT_TYPES)) or DEFAULT
    _check_complete(entries, output_type, home)
    # An empty delimiter is valid; the default is used only for an absent one.
    delimiter, target_delimiter = (read(entries, f"{kind}_delimiter", typed.text) for kind in ("fewshot", "target"))
    fewshot_delimiter = "\n\n" if delimiter is None else delimiter
    generation = read_generation(entries, output_type, fewshot_delimiter)
    process_results = read(entries, "process_results", fields.function)
    metadata, gates, gates_path = read_metadata(entries, home)
    return Task(
        name=typed.name(entries["task"], "task"),
        path=home,
        output_type=output_type,
        doc_to_text=read(entries, "doc_to_text", fields.text),
        doc_to_target=read(entries, "doc_to_target", fields.target),
        alias=read(entries, "task_alias", typed.name),
        tags=tuple(dict.fromkeys(tag for key in ("tag", "group") for tag in read(entries, key, typed.texts) or ())),
        dataset_path=read(entries, "dataset_path", typed.text) or None,
        dataset_name=read(entries, "dataset_name", typed.text) or None,
        dataset_kwargs=read(entries, "dataset_kwargs", _dataset_kwargs) or NOTHING,
        custom_dataset=read(entries, "custom_dataset", fields.function),
        training_split=read(entries, "training_split", typed.name),
        validation_split=read(entries, "validation_split", typed.name),
        test_split=read(entries, "test_split", typed.name),
        process_docs=read(entries, "process_docs", fields.function),
        doc_to_choice=read(entries, "doc_to_choice", fields.choice),
        process_results=process_results,
        description=read(entries, "description", fields.template),
        gen_prefix=read(entries, "gen_prefix", fields.template),
        fewshot=read_fewshot(entries, fields),
        num_fewshot=read(entries, "num_fewshot", partial(typed.whole, least=0)),
        fewshot_delimiter=fewshot_delimiter,
        target_delimiter=" " if target_delimiter is None else target_delimiter,
        generation_kwargs=generation,
        filters=read_filters(entries, modules),
        repeats=read(entries, "repeats", partial(typed.whole, least=1)) or 1,
        metrics=read_metrics(
            entries,
            output_type,
            modules,
            own_results=process_results is not None,
            ranges=metadata.get("ranges", NOTHING),
        ),
        unsafe_code=read(entries, "unsafe_code", typed.flag) or False,
        version=metadata.get("version"),
        metadata=MappingProxyType(metadata),
        gates=gates,
        gates_path=gates_path,
        config=config_of(entries, generation, modules),
        lines=_lines(entries, home),
    )


def _check_complete(entries: Mapping[str, Value], output_type: str, home: Path) -> None:
    """Raise TaskFileError for the first missing entry without which the task cannot be evaluated."""
    read(entries, "should_decontaminate", typed.flag)
    needed = {"task": "the name of the task"} | dict(OUTPUT_TYPES[output_type].needed)
    if "process_results" in entries:
        # Such a task may read the right answer from the doc itself.
        needed.pop("doc_to_target", None)
    if "custom_dataset" not in entries:
        needed["dataset_path"] = "a data set of the hub, or json, csv or parquet with dataset_kwargs.data_files"
    for key, meaning in needed.items():
        if key not in entries or (key == "dataset_path" and not typed.text(entries[key], key)):
            raise TaskFileError(home, f"missing: {meaning}", key=key)
    if "test_split" not in entries and "validation_split" not in entries:
        raise TaskFileError(home, "missing: the split to evaluate (or validation_split)", key="test_split")


def _dataset_kwargs(value: Value, key: str) -> Mapping[str, Any]:
    kwargs = typed.options(typed.table(value, key).entries, key)
    # `datasets` no longer runs loading scripts; `lint` reports that the key is not used.
    kwargs.pop("trust_remote_code", None)
    return MappingProxyType(kwargs)


def _lines(entries: Mapping[str, Value], home: Path) -> dict[str, int]:
    """Return the lines of the keys, and of ``generation_kwargs.until`` (1 for a key of another file)."""
    lines = {key: value.line for key, value in entries.items() if value.path == home}
    kwargs = entries.get("generation_kwargs")
    if isinstance(kwargs, Table) and (until := kwargs.entries.get("until")) is not None:
        lines["generation_kwargs.until"] = until.line if until.path == home else 1
    return lines


def read_metadata(entries: Mapping[str, Value], home: Path) -> tuple[dict[str, Any], Gates, Path | None]:
    """Return `metadata` without its gates, the gates with their lines, and the file of the gates if it is another.

    The line of a gate of another file is 1.
    """
    value = typed.given(entries, "metadata")
    if value is None:
        return {}, (), None
    written = typed.table(value, "metadata").entries
    for key, entry in written.items():
        # A gate under a misspelt key would never fail; with a misspelt `cluster`, docs would count as independent.
        meant = "" if key in _OWN_METADATA else did_you_mean(key.lower(), _OWN_METADATA, cutoff=0.8)
        if meant:
            raise typed.wrong(entry, f"metadata.{key}", f"unknown key{meant}")
    metadata = {key: data(entry) for key, entry in written.items() if key != "gates"}
    if not isinstance(metadata.get("cluster"), str | None):
        raise typed.wrong(written["cluster"], "metadata.cluster", "must name the column that docs of a cluster share")
    if "ranges" in written:
        _check_ranges(written["ranges"])
    version, gates = written.get("version"), typed.given(written, "gates")
    if isinstance(version, Scalar) and version.kind == "float" and str(metadata["version"]) != version.text:
        # Version 3.10 is not version 3.1.
        metadata["version"] = version.text
    if gates is None:
        return metadata, (), None
    return metadata, _gates(gates, home), None if gates.path == home else gates.path


def _check_ranges(value: Value) -> None:
    for metric, entry in typed.table(value, "metadata.ranges").entries.items():
        key = f"metadata.ranges.{metric}"
        ends = [typed.number(end, key) for end in entry.values] if isinstance(entry, Items) else []
        if len(ends) != 2 or ends[0] >= ends[1]:
            what = "the least and the greatest score of a doc, e.g. [0, 1]"
            mend = f"; did you mean [{ends[1]:g}, {ends[0]:g}]?" if len(ends) == 2 and ends[0] > ends[1] else ""
            raise typed.expects(entry, key, what, mend)


def _gates(value: Value, home: Path) -> Gates:
    entries = value.values if isinstance(value, Items) else (value,)
    gates: list[tuple[str | Mapping[str, Any], int]] = []
    for position, entry in enumerate(entries):
        key = f"metadata.gates[{position}]"
        written = typed.options(entry.entries, key) if isinstance(entry, Table) else typed.text(entry, key)
        gates.append((written, entry.line if entry.path == home else 1))
    return tuple(gates)
