"""The entries of a task file, checked and typed: a Task, or one error that names file, line, key and mend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from typing import TypeAlias
from typing import get_args

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import OutputType
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.config import config_of
from pytest_llmeval._taskfile.fewshot import read_fewshot
from pytest_llmeval._taskfile.fields import FieldReader
from pytest_llmeval._taskfile.generation import read_generation
from pytest_llmeval._taskfile.modules import Modules
from pytest_llmeval._taskfile.scoring import read_filters
from pytest_llmeval._taskfile.scoring import read_metrics
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data


OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)

#: Gate entries as written, each with its line.
Gates: TypeAlias = tuple[tuple[str | Mapping[str, Any], int], ...]

#: Every key of a task. `group` in a task file is the old spelling of `tag`.
TASK_KEYS = frozenset(
    {
        "custom_dataset",
        "dataset_kwargs",
        "dataset_name",
        "dataset_path",
        "description",
        "doc_to_choice",
        "doc_to_decontamination_query",
        "doc_to_target",
        "doc_to_text",
        "fewshot_config",
        "fewshot_delimiter",
        "fewshot_split",
        "filter_list",
        "gen_prefix",
        "generation_kwargs",
        "group",
        "include",
        "metadata",
        "metric_list",
        "num_fewshot",
        "output_type",
        "process_docs",
        "process_results",
        "repeats",
        "should_decontaminate",
        "tag",
        "target_delimiter",
        "task",
        "task_alias",
        "test_split",
        "training_split",
        "unsafe_code",
        "validation_split",
    }
)

#: What `metadata` says to us, and not only to its reader.
_OWN_METADATA = ("gates", "cluster", "ranges")

#: Keys of the format that mean something this package does not do.
_UNSUPPORTED: Mapping[str, str] = {
    "class": "tasks written as Python classes are not supported; write the task as YAML with !function fields",
    "doc_to_audio": "only text is evaluated; tasks with audio are not supported",
    "doc_to_image": "only text is evaluated; tasks with images are not supported",
    "use_prompt": "promptsource prompts are not supported; write doc_to_text and doc_to_target",
}

#: What each output type cannot do without.
_NEEDED: Mapping[OutputType, Mapping[str, str]] = {
    "multiple_choice": {
        "doc_to_text": "the prompt of a doc",
        "doc_to_choice": "the options of a doc",
        "doc_to_target": "the index or the text of the right option",
    },
    "loglikelihood": {"doc_to_text": "the context of a doc", "doc_to_target": "the text to be scored after it"},
    "loglikelihood_rolling": {"doc_to_target": "the text to be scored"},
    "generate_until": {"doc_to_text": "the prompt of a doc", "doc_to_target": "the right answer"},
}


def check_keys(entries: Mapping[str, Value], known: frozenset[str] = TASK_KEYS) -> None:
    """Refuse keys that the format does not have, or that this package does not serve."""
    for key, reason in _UNSUPPORTED.items():
        if (value := typed.given(entries, key)) is not None:
            raise typed.wrong(value, key, reason)
    typed.check_keys({key: value for key, value in entries.items() if key not in _UNSUPPORTED}, known)


def build_task(table: Table, modules: Modules) -> Task:
    """The task that a resolved mapping describes. Raises TaskFileError."""
    check_keys(table.entries)
    reader = _Reader(table, modules)
    reader.check_complete()
    return reader.task()


class _Reader:
    """Reads the keys of one task."""

    def __init__(self, table: Table, modules: Modules) -> None:
        self.home = table.path
        self.modules = modules
        self.fields = FieldReader(table.path, modules)
        #: Without those that are null: null takes back what an include said.
        self.entries = {key: value for key, value in table.entries.items() if not typed.is_null(value)}
        self.output_type = self._output_type()

    def task(self) -> Task:
        entries, fields = self.entries, self.fields
        delimiter = self._delimiter("fewshot_delimiter", "\n\n")
        generation = read_generation(entries, self.output_type, delimiter)
        own_results = self._function("process_results")
        metadata, gates = read_metadata(entries, self.home)
        return Task(
            name=typed.name(entries["task"], "task"),
            path=self.home,
            output_type=self.output_type,
            doc_to_text=fields.text("doc_to_text", entries.get("doc_to_text")),
            doc_to_target=fields.target("doc_to_target", entries.get("doc_to_target")),
            alias=self._name("task_alias"),
            tags=self._tags(),
            dataset_path=self._text("dataset_path"),
            dataset_name=self._text("dataset_name"),
            dataset_kwargs=self._dataset_kwargs(),
            custom_dataset=self._function("custom_dataset"),
            training_split=self._name("training_split"),
            validation_split=self._name("validation_split"),
            test_split=self._name("test_split"),
            process_docs=self._function("process_docs"),
            doc_to_choice=fields.choice("doc_to_choice", entries.get("doc_to_choice")),
            process_results=own_results,
            description=fields.template("description", entries.get("description")),
            gen_prefix=fields.template("gen_prefix", entries.get("gen_prefix")),
            fewshot=read_fewshot(entries, fields),
            num_fewshot=self._whole("num_fewshot", 0),
            fewshot_delimiter=delimiter,
            target_delimiter=self._delimiter("target_delimiter", " "),
            generation_kwargs=generation,
            filters=read_filters(entries, self.modules),
            repeats=self._whole("repeats", 1) or 1,
            metrics=read_metrics(entries, self.output_type, self.modules, own_results=own_results is not None),
            unsafe_code=self._flag("unsafe_code"),
            version=metadata.get("version"),
            metadata=MappingProxyType(metadata),
            gates=gates,
            config=config_of(entries, generation, self.modules),
            lines=self._lines(),
        )

    def check_complete(self) -> None:
        """Raise TaskFileError for the first thing without which the task cannot be evaluated."""
        self._flag("should_decontaminate")
        needed = {"task": "the name of the task"} | dict(_NEEDED[self.output_type])
        if "process_results" in self.entries:
            # Such a task may read the right answer from the doc itself.
            needed.pop("doc_to_target", None)
        if "custom_dataset" not in self.entries:
            needed["dataset_path"] = "a data set of the hub, or json, csv or parquet with dataset_kwargs.data_files"
        for key, meaning in needed.items():
            if key not in self.entries or (key == "dataset_path" and self._text(key) is None):
                raise TaskFileError(self.home, f"missing: {meaning}", key=key)
        if "test_split" not in self.entries and "validation_split" not in self.entries:
            raise TaskFileError(self.home, "missing: the split to evaluate (or validation_split)", key="test_split")

    def _lines(self) -> dict[str, int]:
        """The lines of the keys of this file, and of ``generation_kwargs.until`` (1 in another file)."""
        lines = {key: value.line for key, value in self.entries.items() if value.path == self.home}
        kwargs = self.entries.get("generation_kwargs")
        if isinstance(kwargs, Table) and (until := kwargs.entries.get("until")) is not None:
            lines["generation_kwargs.until"] = until.line if until.path == self.home else 1
        return lines

    def _output_type(self) -> OutputType:
        value = self.entries.get("output_type")
        if value is None:
            return "generate_until"
        found = typed.one_of(value, "output_type", OUTPUT_TYPES)
        return next(one for one in OUTPUT_TYPES if one == found)

    def _name(self, key: str) -> str | None:
        return typed.name(self.entries[key], key) if key in self.entries else None

    def _text(self, key: str) -> str | None:
        """A text as written; an empty one is none."""
        return typed.text(self.entries[key], key) or None if key in self.entries else None

    def _whole(self, key: str, least: int) -> int | None:
        return typed.whole(self.entries[key], key, least) if key in self.entries else None

    def _flag(self, key: str) -> bool:
        return typed.flag(self.entries[key], key) if key in self.entries else False

    def _delimiter(self, key: str, default: str) -> str:
        return typed.text(self.entries[key], key) if key in self.entries else default

    def _function(self, key: str) -> DocFunction | None:
        value = self.entries.get(key)
        if value is None:
            return None
        if not isinstance(value, FunctionRef):
            raise typed.expects(value, key, "!function module.name")
        return self.modules.function(value, key)

    def _tags(self) -> tuple[str, ...]:
        found = [tag for key in ("tag", "group") if key in self.entries for tag in typed.texts(self.entries[key], key)]
        return tuple(dict.fromkeys(found))

    def _dataset_kwargs(self) -> Mapping[str, Any]:
        if "dataset_kwargs" not in self.entries:
            return NOTHING
        kwargs = typed.options(typed.table(self.entries["dataset_kwargs"], "dataset_kwargs").entries, "dataset_kwargs")
        # Loading scripts are gone from `datasets`; `_lint` says that the key is not used.
        kwargs.pop("trust_remote_code", None)
        return MappingProxyType(kwargs)


def read_metadata(entries: Mapping[str, Value], home: Path) -> tuple[dict[str, Any], Gates]:
    """`metadata` without its gates, and the gates with their lines (1 for those of another file)."""
    value = typed.given(entries, "metadata")
    if value is None:
        return {}, ()
    written = typed.table(value, "metadata").entries
    for key, entry in written.items():
        # A gate under a misspelt key would never fail, docs of a misspelt cluster would count as independent.
        meant = "" if key in _OWN_METADATA else did_you_mean(key.lower(), _OWN_METADATA, cutoff=0.8)
        if meant:
            raise typed.wrong(entry, f"metadata.{key}", f"is no key of ours{meant}")
    metadata = {key: data(entry) for key, entry in written.items() if key != "gates"}
    if not isinstance(metadata.get("cluster"), str | None):
        raise typed.wrong(written["cluster"], "metadata.cluster", "must name the column that docs of a cluster share")
    if "ranges" in written:
        _check_ranges(written["ranges"])
    version, gates = written.get("version"), typed.given(written, "gates")
    if isinstance(version, Scalar) and version.kind == "float" and str(metadata["version"]) != version.text:
        # 3.10 is not 3.1.
        metadata["version"] = version.text
    return metadata, () if gates is None else _gates(gates, home)


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
