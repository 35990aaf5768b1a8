"""Include chains: one mapping out of a file and the files that it builds on.

``include`` names a file or a list of files, relative to the file that says so, with any suffix or none. A later
include wins over an earlier one, and the file's own keys win over all. Values are replaced, never merged. A file
may be reached twice (a diamond); one that includes itself is an error that prints the chain.

A task as plain data, for reports and hashes: the peer's keys in the peer's order, with its defaults.

Functions are shown by their source, so a changed function is a changed task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.generation import LIMITS
from pytest_llmeval._taskfile.modules import Modules
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data
from pytest_llmeval._taskfile.yaml import read_yaml


class Sources:
    """Reads YAML files, each once."""

    def __init__(self) -> None:
        self._tables: dict[Path, Table] = {}

    def resolve(self, path: Path) -> Table:
        """The mapping of a file with everything it includes. Raises TaskFileError."""
        table = self._read(path)
        return Table(path, 1, self.merge(table.entries, path, (path,)))

    def merge(self, entries: Mapping[str, Value], origin: Path, chain: tuple[Path, ...]) -> dict[str, Value]:
        """`entries` over what their ``include`` names. `chain`: the files that led here, `origin` last."""
        merged: dict[str, Value] = {}
        include = typed.given(entries, "include")
        if include is not None:
            for name in typed.texts(include, "include"):
                path = Path(os.path.normpath(origin.parent / name))
                merged |= self._included(path, include, chain)
        merged |= {key: value for key, value in entries.items() if key != "include"}
        return merged

    def _included(self, path: Path, include: Value, chain: tuple[Path, ...]) -> dict[str, Value]:
        if path in chain:
            # The chain is shown from the file that closes it.
            names = [_shown(one, chain[0]) for one in (*chain[chain.index(path) :], path)]
            raise typed.wrong(include, "include", f"the files include each other: {' -> '.join(names)}")
        if not path.is_file():
            raise typed.wrong(include, "include", f"there is no file {path}")
        return self.merge(self._read(path).entries, path, (*chain, path))

    def _read(self, path: Path) -> Table:
        if path not in self._tables:
            self._tables[path] = read_yaml(path)
        return self._tables[path]


def _shown(path: Path, first: Path) -> str:
    """A file of a chain as seen from the folder of the first one."""
    return Path(os.path.relpath(path, first.parent)).as_posix()


#: Keys whose scalars are texts as written.
_TEXTS = frozenset({"task", "task_alias", "dataset_path", "dataset_name", "doc_to_choice", "description", "gen_prefix"})

_ORDER = (
    "task",
    "task_alias",
    "custom_dataset",
    "dataset_path",
    "dataset_name",
    "dataset_kwargs",
    "training_split",
    "validation_split",
    "test_split",
    "fewshot_split",
    "process_docs",
    "doc_to_text",
    "doc_to_target",
    "unsafe_code",
    "doc_to_choice",
    "process_results",
    "description",
    "target_delimiter",
    "fewshot_delimiter",
    "fewshot_config",
    "num_fewshot",
    "metric_list",
    "output_type",
    "generation_kwargs",
    "repeats",
    "filter_list",
    "should_decontaminate",
    "doc_to_decontamination_query",
    "gen_prefix",
    "metadata",
)

_DEFAULTS: Mapping[str, Any] = {
    "unsafe_code": False,
    "description": "",
    "target_delimiter": " ",
    "fewshot_delimiter": "\n\n",
    "output_type": "generate_until",
    "repeats": 1,
    "should_decontaminate": False,
}

#: What an example takes from the task where `fewshot_config` does not say otherwise: its key, and the task's.
_INHERITED: Mapping[str, str] = {
    "split": "fewshot_split",
    "process_docs": "process_docs",
    "fewshot_indices": "",
    "samples": "",
    "doc_to_text": "doc_to_text",
    "doc_to_choice": "doc_to_choice",
    "doc_to_target": "doc_to_target",
    "gen_prefix": "gen_prefix",
    "fewshot_delimiter": "fewshot_delimiter",
    "target_delimiter": "target_delimiter",
}


def config_of(entries: Mapping[str, Value], generation: Mapping[str, Any], modules: Modules) -> dict[str, Any]:
    """The resolved mapping of a task. Keys without a value are left out; `generation` is already read."""
    plain = {key: _plain(value, key, modules, key in _TEXTS) for key, value in entries.items()}
    found = {**_DEFAULTS, **{key: value for key, value in plain.items() if value is not None}}
    if generation:
        found["generation_kwargs"] = _spelled(generation, found.get("generation_kwargs", generation))
    own = found.get("fewshot_config") or {}
    shots = {key: own.get(key, found.get(inherited)) for key, inherited in _INHERITED.items()}
    found["fewshot_config"] = {"sampler": own.get("sampler", "default"), **shots}
    return {key: found[key] for key in _ORDER if key in found}


def _spelled(generation: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a generation under the file's names for them, a single stop string as a text."""
    names = {name: "max_gen_toks" if name in LIMITS else name for name in (*written, "until")}
    found = {name: generation[meant] for name, meant in names.items() if meant in generation}
    stops = written.get("until")
    return found if stops is None or isinstance(stops, list) else {**found, "until": generation["until"][0]}


def _plain(value: Value, key: str, modules: Modules, as_text: bool) -> Any:
    if isinstance(value, FunctionRef):
        return modules.source(modules.function(value, key), value.text)
    if isinstance(value, Table):
        return {name: _plain(entry, f"{key}.{name}", modules, as_text) for name, entry in value.entries.items()}
    if isinstance(value, Items):
        return [_plain(entry, key, modules, as_text) for entry in value]
    if as_text and isinstance(value, Scalar) and value.kind != "null":
        return value.text
    return data(value)
