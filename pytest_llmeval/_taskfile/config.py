"""A task as plain data, for reports and hashes: lm_eval's keys in lm_eval's order, with its defaults.

Functions are shown by their source, so a changed function is a changed task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmeval._output_types import DEFAULT
from pytest_llmeval._taskfile.generation import LIMIT_KEYS
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Scalar
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data


#: Keys whose scalars are kept as text, as written, so that ``3.10`` does not become 3.1.
_TEXTS = frozenset({"task", "task_alias", "dataset_path", "dataset_name", "doc_to_choice", "description", "gen_prefix"})

#: The keys of a task that are part of its config, in the order in which lm_eval writes them.
CONFIG_KEYS = (
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
    "output_type": DEFAULT,
    "repeats": 1,
    "should_decontaminate": False,
}

#: Key of `fewshot_config` -> the key of the task whose value is used where it is absent ("" if there is none).
INHERITED: Mapping[str, str] = {
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
    """Return the config of a task, without keys that have no value. `generation` comes from `read_generation`."""
    plain = {key: _plain(value, key, modules, key in _TEXTS) for key, value in entries.items()}
    found = {**_DEFAULTS, **{key: value for key, value in plain.items() if value is not None}}
    if generation:
        found["generation_kwargs"] = _spelled(generation, found.get("generation_kwargs", generation))
    own = found.get("fewshot_config") or {}
    shots = {key: own.get(key, found.get(inherited)) for key, inherited in INHERITED.items()}
    found["fewshot_config"] = {"sampler": own.get("sampler", "default"), **shots}
    return {key: found[key] for key in CONFIG_KEYS if key in found}


def _spelled(generation: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation settings under the names used in the file; a single stop string stays a text."""
    names = {name: "max_gen_toks" if name in LIMIT_KEYS else name for name in (*written, "until")}
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
