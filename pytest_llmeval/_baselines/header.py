"""What the answers of a baseline depend on besides the docs: settings, metrics, and the model that gave them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from pytest_llmeval._functions import name_of
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._prompts.fewshot import num_fewshot
from pytest_llmeval._scoring import metrics_of
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import FilterStep
from pytest_llmeval._task import Metric
from pytest_llmeval._task import Task


PACKAGES = ("pytest-llmeval-harness", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a baseline file.

    `settings` must be equal for docs to be compared, likewise what `filters` and `metrics` say of the filter and the
    metric in question. `models` says who answered (one, unless parts were updated since), `versions` with what; both
    are for the reader. `values` are the task's numbers by ``metric,filter``, over `docs` of `docs_total` docs.
    """

    task: str
    settings: Mapping[str, Any]
    filters: Mapping[str, Any]
    metrics: Mapping[str, Any]
    models: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str | None]
    docs: int
    docs_total: int
    values: Mapping[str, float]


def header_of(task: Task, settings: Settings) -> Header:
    """What is known of a task's header before any model answers."""
    return Header(
        task=task.name,
        settings=_settings(task, settings),
        filters={spec.name: [_step(step) for step in spec.steps] for spec in task.filters},
        metrics={metric.name: _metric(metric) for metric in metrics_of(task)},
        models=(),
        versions={},
        docs=0,
        docs_total=0,
        values={},
    )


def model_of(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a header says of a model: what reports call it, its fingerprint and dtype as far as it tells them."""
    described = facts.get("model", {})
    return {"name": name, "fingerprint": facts.get("fingerprint"), "dtype": described.get("model_dtype")}


def versions() -> dict[str, str | None]:
    return {package: _version(package) for package in PACKAGES}


def _settings(task: Task, settings: Settings) -> dict[str, Any]:
    """Everything that changes prompts or answers, by the name that a user knows it by."""
    shots = num_fewshot(task, settings)
    found: dict[str, Any] = {
        "version": task.version,
        "dataset": [task.dataset_path, task.dataset_name],
        "split": task.evaluated_split,
        "output_type": task.output_type,
        "num_fewshot": shots,
    }
    if shots and task.fewshot.sampler != "first_n":
        found["fewshot_seed"] = settings.fewshot_seed
    if task.output_type == "generate_until":
        found |= {"generation_kwargs": plain_or_text(written_kwargs(task, settings)), "repeats": task.repeats}
    found["chat_template"] = settings.chat_template
    if settings.chat_template:
        found["fewshot_multiturn"] = settings.fewshot_multiturn
    return found | {"system": settings.system}


def _step(step: FilterStep) -> list[Any]:
    own = [] if step.function is None else [name_of(step.function)]
    return [step.name, plain_or_text(dict(step.options)), *own]


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "aggregation": metric.aggregation.name,
        "higher_is_better": metric.higher_is_better,
        "options": {name: plain_or_text(value) for name, value in metric.options.items()},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
