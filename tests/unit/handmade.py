"""Tasks built by hand, without a task file: the values that a task file would give, docs in memory."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._task import DocData
from pytest_llmeval._task import FewshotSpec
from pytest_llmeval._task import Field
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


Docs = Sequence[DocData]


def make_field(key: str, value: Any, line: int = 7) -> Field | None:
    """A field as its YAML value would be read: a text, a list of texts, a number, a function."""
    if value is None or isinstance(value, Field):
        return value
    if callable(value):
        return Field(key, function=value, line=line)
    if isinstance(value, str):
        return Field(key, text=value, line=line)
    if isinstance(value, int):
        return Field(key, index=value, line=line)
    return Field(key, choices=tuple(map(str, value)), line=line)


def make_task(docs: Mapping[str, Docs] | None = None, **keys: Any) -> Task:
    """A task named "t" of the file ``/tasks/t.yaml``; `docs` are its splits, evaluated is ``test`` unless said."""
    fields = ("doc_to_text", "doc_to_choice", "doc_to_target", "description", "gen_prefix")
    values: dict[str, Any] = {"doc_to_text": "{{q}}", "doc_to_target": "{{a}}", **keys}
    values |= {key: make_field(key, values[key]) for key in fields if key in values}
    values.setdefault("output_type", "generate_until")
    values.setdefault("path", Path("/tasks/t.yaml"))
    if docs is not None:
        values["custom_dataset"] = lambda **_: docs
    if not {"test_split", "validation_split"} & set(values):
        values["test_split"] = "test"
    specs = tuple(MetricSpec(name) for name in values.pop("metrics", ()))
    metrics = resolve_metrics(specs, values["output_type"], processed="process_results" in values)
    return Task(name=values.pop("name", "t"), metrics=metrics, **values)


def make_fewshot(**keys: Any) -> FewshotSpec:
    fields = ("doc_to_text", "doc_to_choice", "doc_to_target", "gen_prefix")
    return FewshotSpec(**{key: make_field(key, value) if key in fields else value for key, value in keys.items()})
