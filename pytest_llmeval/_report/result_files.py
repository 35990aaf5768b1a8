"""``--llmeval-output``: result and sample files in the format of lm-evaluation-harness.

    DIR/<model>/results_<iso time>.json             all numbers and settings of one model
    DIR/<model>/samples_<task>_<iso time>.jsonl     one line per filter and doc

The keys are those of lm_eval's `EvaluationTracker` (0.4.13). Its version and environment report are replaced by those
of the packages that wrote the file. The block `pytest_llmeval` is an addition.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import hash_of
from pytest_llmeval._plain import json_text
from pytest_llmeval._plain import texts
from pytest_llmeval._plain import version_of as package_version
from pytest_llmeval._plain import write_whole
from pytest_llmeval._prompts import overrides_of
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._report.model_report import RunFacts
from pytest_llmeval._report.model_report import TaskReport
from pytest_llmeval._report.table import version_of
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING


#: The version of the block `pytest_llmeval`.
FORMAT_VERSION = 1

#: The seeds that lm_eval sets for random, numpy and torch, and writes into its results.
RANDOM_SEED, OTHER_SEED = 0, 1234

PACKAGE = "pytest-llmeval-harness"

_UNSAFE_IN_NAMES = re.compile(r'["<>:/|\\?*\[\]]+')

#: The characters of a task's name that are replaced in file names. lm_eval keeps all others, and its readers expect it.
_SEPARATORS = re.compile(r"[/\\]")


def prepare_output(directory: Path) -> None:
    """Create the folder before docs are evaluated. Raises SettingError if files cannot be written there."""
    probe = directory / f".llmeval-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_write(directory, directory, error) from None


def write_output(directory: Path, reports: Sequence[ModelReport], run: RunFacts, stamp: datetime) -> tuple[Path, ...]:
    """Write the results of each model and, if samples were kept, those of its tasks; return the paths in order.

    Files of one run share `stamp`. Models of the same name are distinguished by their ids. Raises SettingError if a
    file cannot be written.
    """
    time = stamp.isoformat().replace(":", "-")
    written: list[Path] = []
    names = Counter(sanitized(report.file_name) for report in reports)
    for report in reports:
        shared = names[sanitized(report.file_name)] > 1
        folder = directory / sanitized(f"{report.file_name}__{report.id}" if shared else report.file_name)
        for name, pieces in _files(report, run, time):
            try:
                write_whole(folder / name, pieces)
            except (OSError, ValueError) as error:
                raise _cannot_write(directory, folder / name, error) from None
            written.append(folder / name)
    return tuple(written)


def _files(report: ModelReport, run: RunFacts, time: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the names of a model's files, each with the pieces of its text."""
    yield f"results_{time}.json", [json_text(result_dict(report, run), indent=2)]
    for task in report.tasks:
        if any(result.sample for result in task.data.results):
            name = _SEPARATORS.sub("_", task.summary.name)
            yield (
                f"samples_{name}_{time}.jsonl",
                (json_text(row) + "\n" for row in sample_rows(task.data.results, task.again)),
            )


def _cannot_write(directory: Path, path: Path, error: Exception) -> SettingError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return SettingError(
        f"--llmeval-output {directory}: cannot write {path}: {reason}; name a folder that can be written"
    )


def sample_rows(results: Iterable[DocResult], again: Mapping[int, DocResult] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a sample file: all docs of the first filter in their order, then those of the next.

    Docs that could not be evaluated have no line; the block `pytest_llmeval` of the results file has their errors. The
    line of a doc that was asked for again has its second answers and scores under ``again``.
    """
    kept = [one for one in sorted(results, key=lambda one: one.doc) if one.sample and not one.error]
    for filter_name in dict.fromkeys(name for result in kept for name in result.scores):
        for result in kept:
            if filter_name in result.scores:
                row = _row(result, filter_name, result.sample or {})
                second = again.get(result.doc) if again else None
                yield row if second is None else {**row, "again": _second(second, filter_name)}


def _row(result: DocResult, filter_name: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line. The lists of `sample` have one entry per distinct request; `resps` also has one per repeat."""
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


def _second(result: DocResult, filter_name: str) -> dict[str, Any]:
    """Return the second answers to a doc, and their scores; the reason if it could not be scored again."""
    if result.error is not None:
        return {"error": result.error}
    sample = result.sample or {}
    filtered = sample.get("filtered_resps", {}).get(filter_name)
    return {"resps": texts(sample.get("resps")), "filtered_resps": texts(filtered), **result.scores[filter_name]}


def result_dict(report: ModelReport, run: RunFacts) -> dict[str, Any]:
    """Return all numbers and settings of one model, with lm_eval's keys in lm_eval's order."""
    numbers = {summary.name: _numbers(summary) for summary in report.summaries}
    groups = {group.summary.name: numbers[group.summary.name] for group in report.groups if group.summary.values}
    shots = {one.name: one.num_fewshot for one in report.summaries if one.num_fewshot is not None}
    hashes = {task.summary.name: _task_hash(task.data.results) for task in report.tasks}
    errors = {
        task.summary.name: {one.doc: one.error for one in task.data.results if one.error is not None}
        for task in report.tasks
    }
    return {
        "results": numbers,
        **({"groups": groups} if groups else {}),
        "group_subtasks": {name: list(members) for name, members in report.children.items()},
        "configs": _sorted({task.summary.name: _config_of(task, run.settings) for task in report.tasks}),
        "versions": _sorted({one.name: version_of(one) for one in report.summaries}),
        "n-shot": _sorted(shots),
        "higher_is_better": _sorted(_directions(report)),
        "n-samples": {
            task.summary.name: {"original": task.summary.n_total, "effective": _scored(task.summary)}
            for task in report.tasks
        },
        "config": _settings(report, run),
        "git_hash": run.git_hash,
        "date": run.started,
        **_environment(),
        **report.facts.get("tokenizer", NOTHING),
        "task_hashes": {name: value for name, value in hashes.items() if value is not None},
        **_model(report, run.settings),
        "total_evaluation_time_seconds": str(run.seconds),
        "pytest_llmeval": {
            "format": FORMAT_VERSION,
            "variant": report.id,
            "errors": {name: found for name, found in errors.items() if found},
            "usage": dict(report.usage),
            "engine": dict(report.engine),
            "stopped_early": {
                task.summary.name: {"docs": task.summary.n, "docs_total": task.summary.n_total}
                for task in report.tasks
                if task.summary.stopped_early
            },
            "stop_seed": run.settings.stop_seed if run.settings.early_stop else None,
            "gates": {
                gate.nodeid: {
                    "outcome": gate.verdict.outcome,
                    "sentence": gate.verdict.full_sentence,
                    "numbers": dict(gate.verdict.numbers),
                }
                for gate in report.gates
                if gate.verdict is not None
            },
        },
    }


def sanitized(name: str) -> str:
    """Return a model's name as a folder name by lm_eval's rule; names of dots and blanks become ``__``."""
    safe = _UNSAFE_IN_NAMES.sub("__", name)
    return safe if safe.strip(". ") else "__"


def _task_hash(results: Sequence[DocResult]) -> str | None:
    """Return one hash over the docs, prompts and targets of a task; None without samples."""
    hashes = [row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in sample_rows(results)]
    return hash_of("".join(hashes)) if hashes else None


def _numbers(summary: Summary) -> dict[str, Any]:
    """Return the entry of a task or group in ``results``; only names for a group that aggregates nothing."""
    values: dict[str, Any] = {}
    for value in summary.values:
        values[value.key] = value.value
        values[f"{value.metric}_stderr,{value.filter}"] = "N/A" if value.stderr is None else value.stderr
    if not summary.tasks:
        return {"name": summary.name, "alias": summary.display_name, "sample_len": _scored(summary), **values}
    names = {"alias": summary.display_name, "name": summary.name}
    counts = {value.key: value.n for value in summary.values}
    return {**names, "sample_len": summary.n, **values, "sample_count": counts} if values else names


def _scored(summary: Summary) -> int:
    """Return the largest number of docs that any metric has a score for."""
    return max((value.n for value in summary.values), default=summary.n)


def _config_of(report: TaskReport, settings: Settings) -> dict[str, Any]:
    """Return the task's YAML as it was used, with the path of its file."""
    task = report.data.task
    used: dict[str, Any] = {"num_fewshot": report.summary.num_fewshot or 0}
    if task.output_type == "generate_until":
        used["generation_kwargs"] = written_kwargs(task, settings)
    return {**task.config, **used, "metadata": {**task.config.get("metadata", {}), "config_source": str(task.path)}}


def _directions(report: ModelReport) -> dict[str, dict[str, bool | None]]:
    """Return `higher_is_better` by task or group and metric; None if the tasks of a group disagree."""
    found = {task.summary.name: {v.metric: v.higher_is_better for v in task.summary.values} for task in report.tasks}
    for group in report.groups:
        merged: dict[str, bool | None] = {}
        for leaf in group.summary.tasks:
            for metric, higher in found.get(leaf, {}).items():
                merged[metric] = higher if merged.get(metric, higher) == higher else None
        if merged:
            found[group.summary.name] = merged
    return found


def _settings(report: ModelReport, run: RunFacts) -> dict[str, Any]:
    settings = run.settings
    pairs = [f"pretrained={report.spec or report.file_name}", *([run.model_args] if run.model_args else [])]
    return {
        "model": _source(report),
        "model_args": ",".join(pairs),
        **{name: value for name, value in report.facts.get("model", NOTHING).items() if name != "engine"},
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


def _source(report: ModelReport) -> str:
    """Return lm_eval's name for the kind of model: a scheme, ``hf`` for folders and hub ids, else ``CUSTOM``."""
    if not report.spec:
        return "CUSTOM"
    scheme = re.match(r"([a-z][a-z0-9_+.-]+):", report.spec)
    return scheme[1] if scheme else "hf"


def _environment() -> dict[str, Any]:
    versions = {name: package_version(name) or "N/A" for name in (PACKAGE, "torch", "transformers", "datasets")}
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    lines += [f"{name}: {version}" for name, version in versions.items()]
    return {
        "pretty_env_info": "\n".join(lines),
        "transformers_version": versions["transformers"],
        "lm_eval_version": f"{PACKAGE} {versions[PACKAGE]}",
        "upper_git_hash": None,
    }


def _model(report: ModelReport, settings: Settings) -> dict[str, Any]:
    template = report.facts.get("chat_template") if settings.chat_template else None
    return {
        "model_source": _source(report),
        "model_name": report.file_name,
        "model_name_sanitized": sanitized(report.file_name),
        "system_instruction": settings.system,
        "system_instruction_sha": hash_of(settings.system) if settings.system else None,
        "fewshot_as_multiturn": settings.fewshot_multiturn,
        "chat_template": template,
        "chat_template_sha": hash_of(template) if template else None,
    }


def _sorted(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(values.items()))
