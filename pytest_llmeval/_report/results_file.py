"""The lines of a sample file: every doc once for each filter.

The content of a results file.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import hash_of
from pytest_llmeval._plain import json_text
from pytest_llmeval._plain import texts
from pytest_llmeval._prompts import overrides_of
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._report.run import GroupRun
from pytest_llmeval._report.run import Run
from pytest_llmeval._report.run import TaskRun
from pytest_llmeval._report.table import version_of
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._verdicts import Verdict


def sample_rows(run: TaskRun) -> Iterator[dict[str, Any]]:
    """All docs of the first filter in their order, then those of the next.

    Docs that could not be evaluated have no line; the results file says why, under `pytest_llmeval`.
    """
    kept = [
        result for result in sorted(run.results, key=lambda result: result.doc) if result.sample and not result.error
    ]
    for filter_name in dict.fromkeys(name for result in kept for name in result.scores):
        for result in kept:
            if filter_name in result.scores:
                yield _row(result, filter_name, result.sample or {})


def task_hash(run: TaskRun) -> str | None:
    """One hash over the docs, prompts and targets of a task; None without samples."""
    hashes = [row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in sample_rows(run)]
    return hash_of("".join(hashes)) if hashes else None


def _row(result: DocResult, filter_name: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    scores, target = result.scores[filter_name], str(sample["target"])
    return {
        "doc_id": result.doc,
        "doc": sample["doc"],
        "target": target,
        "arguments": {
            f"gen_args_{i}": {f"arg_{j}": argument for j, argument in enumerate(arguments)}
            for i, arguments in enumerate(sample["arguments"])
        },
        "resps": texts(sample["resps"]),
        "filtered_resps": texts(sample["filtered_resps"][filter_name]),
        "filter": filter_name,
        "metrics": list(scores),
        "doc_hash": hash_of(json_text(sample["doc"], indent=2)),
        "prompt_hash": hash_of(sample["arguments"][0][0]),
        "target_hash": hash_of(target),
        **scores,
    }


#: Version of the block `pytest_llmeval`.
FORMAT_VERSION = 1

#: The seeds that the peer sets for random, numpy and torch, and that its results state.
RANDOM_SEED, OTHER_SEED = 0, 1234

PACKAGE = "pytest-llmeval-harness"

_UNSAFE_IN_NAMES = re.compile(r'["<>:/|\\?*\[\]]+')


def result_dict(run: Run) -> dict[str, Any]:
    """All numbers and settings of one model, in the peer's keys and order."""
    summaries = [task.summary for task in run.tasks] + [group.summary for group in run.groups]
    hashes = {task.task.name: task_hash(task) for task in run.tasks}
    return {
        **_numbers(run),
        "group_subtasks": {group.summary.name: list(group.members) for group in run.groups},
        "configs": _sorted({task.task.name: _config_of(task, run.settings) for task in run.tasks}),
        "versions": _sorted({summary.name: version_of(summary) for summary in summaries}),
        "n-shot": _sorted({s.name: s.num_fewshot for s in summaries if s.num_fewshot is not None}),
        "higher_is_better": _sorted(_directions(run)),
        "n-samples": {
            task.task.name: {"original": task.summary.n_total, "effective": _scored(task.summary)} for task in run.tasks
        },
        "config": _settings(run),
        "git_hash": run.git_hash,
        "date": run.started,
        **_environment(),
        **run.tokenizer_info,
        "task_hashes": {name: value for name, value in hashes.items() if value is not None},
        **_model(run),
        "total_evaluation_time_seconds": str(run.seconds),
        "pytest_llmeval": {
            "format": FORMAT_VERSION,
            "variant": run.variant,
            "errors": _errors(run.tasks),
            "usage": dict(run.usage),
            "stopped_early": {
                task.task.name: {"docs": task.summary.n, "docs_total": task.summary.n_total}
                for task in run.tasks
                if task.summary.stopped_early
            },
            "gates": {nodeid: _verdict(verdict) for nodeid, verdict in run.verdicts.items()},
        },
    }


def sanitized(name: str) -> str:
    """A model's name as the name of a folder, by the peer's rule; never one that leads elsewhere."""
    safe = _UNSAFE_IN_NAMES.sub("__", name)
    return safe if safe.strip(". ") else "__"


def _numbers(run: Run) -> dict[str, Any]:
    groups = {group.summary.name: _group_numbers(group) for group in run.groups}
    tasks = {task.task.name: _task_numbers(task) for task in run.tasks}
    aggregated = {group.summary.name: groups[group.summary.name] for group in run.groups if group.summary.values}
    return {"results": {**tasks, **groups}, **({"groups": aggregated} if aggregated else {})}


def _task_numbers(run: TaskRun) -> dict[str, Any]:
    name = run.task.name
    return {"name": name, "alias": run.summary.display_name, "sample_len": _scored(run.summary), **_values(run.summary)}


def _group_numbers(run: GroupRun) -> dict[str, Any]:
    summary = run.summary
    numbers: dict[str, Any] = {"alias": summary.display_name, "name": summary.name}
    if summary.values:
        counts = {value.key: value.n for value in summary.values}
        numbers |= {"sample_len": summary.n, **_values(summary), "sample_count": counts}
    return numbers


def _values(summary: Summary) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for value in summary.values:
        numbers[value.key] = value.value
        numbers[f"{value.metric}_stderr,{value.filter}"] = "N/A" if value.stderr is None else value.stderr
    return numbers


def _scored(summary: Summary) -> int:
    """Docs that gave a value to some metric."""
    return max((value.n for value in summary.values), default=summary.n)


def _config_of(run: TaskRun, settings: Settings) -> dict[str, Any]:
    """The task's YAML as it was used, and where it is written."""
    task = run.task
    used: dict[str, Any] = {"num_fewshot": run.summary.num_fewshot or 0}
    if OUTPUT_TYPES[task.output_type].generates:
        used["generation_kwargs"] = written_kwargs(task, settings)
    return {**task.config, **used, "metadata": {**task.config.get("metadata", {}), "config_source": str(task.path)}}


def _directions(run: Run) -> dict[str, dict[str, bool | None]]:
    """Task or group -> metric -> whether higher is better; None where the tasks of a group do not agree."""
    found = {task.task.name: {v.metric: v.higher_is_better for v in task.summary.values} for task in run.tasks}
    for group in run.groups:
        merged: dict[str, bool | None] = {}
        for leaf in group.summary.tasks:
            for metric, higher in found.get(leaf, {}).items():
                merged[metric] = higher if merged.get(metric, higher) == higher else None
        if merged:
            found[group.summary.name] = merged
    return found


def _settings(run: Run) -> dict[str, Any]:
    settings = run.settings
    pairs = [f"pretrained={run.spec or run.model}", *([run.model_args] if run.model_args else [])]
    return {
        "model": _source(run),
        "model_args": ",".join(pairs),
        **run.model_info,
        "batch_size": None,
        "batch_sizes": [],
        "device": None,
        "use_cache": None,
        "limit": settings.limit,
        "bootstrap_iters": settings.bootstrap_iters,
        "gen_kwargs": overrides_of(settings) or None,
        "random_seed": RANDOM_SEED,
        "numpy_seed": OTHER_SEED,
        "torch_seed": OTHER_SEED,
        "fewshot_seed": settings.fewshot_seed,
    }


def _source(run: Run) -> str:
    """The peer's name for the kind of model: a scheme, ``hf`` for folders and hub ids, else a custom object."""
    if not run.spec:
        return "CUSTOM"
    scheme = re.match(r"([a-z][a-z0-9_+.-]+):", run.spec)
    return scheme[1] if scheme else "hf"


def _environment() -> dict[str, Any]:
    versions = {name: _version(name) for name in (PACKAGE, "torch", "transformers", "datasets")}
    listed = "\n".join(f"{name}: {version}" for name, version in versions.items())
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return {
        "pretty_env_info": f"{python}\n{listed}",
        "transformers_version": versions["transformers"],
        "lm_eval_version": f"{PACKAGE} {versions[PACKAGE]}",
        "upper_git_hash": None,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "N/A"


def _model(run: Run) -> dict[str, Any]:
    settings = run.settings
    return {
        "model_source": _source(run),
        "model_name": run.model,
        "model_name_sanitized": sanitized(run.model),
        "system_instruction": settings.system,
        "system_instruction_sha": hash_of(settings.system) if settings.system else None,
        "fewshot_as_multiturn": settings.fewshot_multiturn,
        "chat_template": run.chat_template,
        "chat_template_sha": hash_of(run.chat_template) if run.chat_template else None,
    }


def _errors(tasks: Iterable[TaskRun]) -> dict[str, dict[int, str]]:
    """Task -> doc -> why it could not be evaluated."""
    found = {task.task.name: {r.doc: r.error for r in task.results if r.error is not None} for task in tasks}
    return {name: errors for name, errors in found.items() if errors}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"outcome": verdict.outcome, "sentence": verdict.sentence, "numbers": dict(verdict.numbers)}


def _sorted(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(values.items()))
