"""Compares our per-doc results with rows that lm-evaluation-harness wrote for the same model and data.

A row holds task, doc_id, filter, target, arguments, responses, filtered and metrics of one doc; a results file
holds the aggregates and the settings of that run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import NamedTuple

from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._lm import LM
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import looks_like_task


#: Golden set -> the task files that serve it, below benchmarks/.
SETS = {
    "csqa0": "commonsense_qa.yaml",
    "mmlu5": "mmlu",
    "arc_c0": "arc/arc_challenge.yaml",
    "piqa0": "piqa.yaml",
    "lambada0": "lambada_openai.yaml",
    "gsm8k5": "gsm8k/gsm8k.yaml",
}

#: Picks are compared only where the peer's own margin tells them apart.
MARGIN = 2e-4
#: How far log-likelihoods may lie from those of the peer.
TOLERANCE = 1e-4
#: MKL's products as on the processor of the recordings, to be set before the first one. With those that it takes of
#: itself on an Intel Xeon, lm_eval went up to 1.5e-4 away from its own recordings on continuations of 100 tokens.
RECORDED_PRODUCTS = {"MKL_CBWR": "AVX2"}


class Scored(NamedTuple):
    """A log-likelihood of ours, the recorded one, and what both were asked for."""

    place: str
    request: tuple[str, str]
    ours: float
    recorded: float

    def __str__(self) -> str:
        return f"{self.place}: {self.ours}, recorded {self.recorded} for {self.request[1]!r}"


@dataclass
class Comparison:
    """What differs between our results and the golden rows of one set."""

    docs: int = 0
    prompts: list[str] = field(default_factory=list)
    picks: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    aggregates: list[str] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    largest: float = 0.0
    generated: int = 0

    def line(self) -> str:
        return (
            f"{self.docs} docs: prompts differ {len(self.prompts)}, largest log-likelihood difference "
            f"{self.largest:.2e}, picks differ {len(self.picks)}, doc metrics differ {len(self.metrics)}, "
            f"aggregates differ {len(self.aggregates)}"
            + (f", texts equal {self.generated - len(self.texts)} of {self.generated}" if self.generated else "")
        )


def compare_set(name: str, lm: LM, shared: Path, benchmarks: Path, *, docs: int | None = None) -> Comparison:
    """Evaluate one golden set (or its first `docs` docs of each task) and compare every row."""
    rows = _rows(shared / "golden" / f"{name}.jsonl")
    settings = json.loads((shared / "golden" / f"{name}.results.json").read_text())["settings"]
    limit = int(settings["limit"]) if docs is None else min(docs, int(settings["limit"]))
    evaluation = Evaluation(
        Settings(
            data_dir=shared / "mirror",
            limit=limit,
            num_fewshot=int(settings["fewshot"]) if "fewshot" in settings else None,
            keep_samples=True,
        ),
        Registry(),
    )
    run, comparison = ModelRun(evaluation), Comparison()
    for task in _tasks(evaluation.registry, benchmarks / SETS[name], set(rows)):
        run.score(lm, task, evaluation.open(task).asked)
        results = run.results(task.name)
        for index, result in results.items():
            _compare_doc(comparison, f"{task.name} {index}", result, rows[task.name][index])
        if docs is None:
            _compare_summary(comparison, run.summary(task), _golden_results(shared, name)[task.name])
    return comparison


def beyond(scored: Sequence[Scored], here: Sequence[float]) -> list[str]:
    """Log-likelihoods beyond the tolerance from the recording, or from `here`: what lm_eval gives on this machine.

    The recording holds where products are those that it was made with: see `RECORDED_PRODUCTS`.
    """
    return [
        f"{one}; lm_eval here: {value}"
        for one, value in zip(scored, here, strict=True)
        if not (abs(one.ours - value) <= TOLERANCE and abs(one.ours - one.recorded) <= TOLERANCE)
    ]


def ask_lm_eval(scored: Sequence[Scored], lm: Any) -> list[float]:
    """The log-likelihoods that lm_eval gives for these requests with the model of `lm`."""
    if not scored:
        return []
    from lm_eval.models.huggingface import HFLM

    peer = HFLM(pretrained=lm._model, tokenizer=lm._tokenizer, batch_size=8)
    asked = [SimpleNamespace(args=one.request, task_name="t") for one in scored]
    return [value for value, _ in peer.loglikelihood(asked, disable_tqdm=True)]


def _rows(path: Path) -> dict[str, dict[int, dict[str, dict[str, Any]]]]:
    """task -> doc -> filter -> row"""
    found: dict[str, dict[int, dict[str, dict[str, Any]]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row["task"], {}).setdefault(row["doc_id"], {})[row["filter"]] = row
    return found


def _golden_results(shared: Path, name: str) -> Mapping[str, Mapping[str, Any]]:
    results: Mapping[str, Mapping[str, Any]] = json.loads((shared / "golden" / f"{name}.results.json").read_text())[
        "results"
    ]
    return results


def _tasks(registry: Registry, path: Path, wanted: set[str]) -> Iterable[Task]:
    files = [file for file in sorted(path.glob("*.yaml")) if looks_like_task(file)] if path.is_dir() else [path]
    tasks = [task for file in files if isinstance(task := registry.load(file), Task) and task.name in wanted]
    assert {task.name for task in tasks} == wanted
    return tasks


def _compare_doc(
    comparison: Comparison, place: str, result: DocResult, by_filter: Mapping[str, Mapping[str, Any]]
) -> None:
    comparison.docs += 1
    assert result.error is None, result.error
    assert result.sample is not None
    golden = next(iter(by_filter.values()))
    if _texts_of(result.sample["arguments"]) != _texts_of(golden["arguments"]):
        comparison.prompts.append(place)
    ours = [repeats[0] for repeats in result.sample["resps"]]
    if isinstance(ours[0], str):
        _compare_texts(comparison, place, ours, golden["responses"])
    else:
        values, recorded = [pair[0] for pair in ours], [pair[0] for pair in golden["responses"]]
        _compare_numbers(comparison, place, values, recorded)
        for request, a, b in zip(result.sample["arguments"], values, recorded, strict=True):
            comparison.scored.append(Scored(place, (request[0], request[1]), a, b))
    for name, row in by_filter.items():
        mine = {metric: float(value) for metric, value in result.scores[name].items() if metric != "perplexity"}
        theirs = {metric: float(value) for metric, value in row["metrics"].items() if metric != "perplexity"}
        if mine != theirs:
            comparison.metrics.append(f"{place} {name}: {mine} != {theirs}")


def _texts_of(arguments: Iterable[Any]) -> list[list[str]]:
    return [[text for text in request if isinstance(text, str)] for request in arguments]


def _compare_texts(comparison: Comparison, place: str, ours: list[str], golden: list[Any]) -> None:
    comparison.generated += 1
    theirs = golden[0][0] if isinstance(golden[0], list) else golden[0]
    if ours[0] != theirs:
        comparison.texts.append(place)


def _compare_numbers(comparison: Comparison, place: str, ours: list[float], theirs: list[float]) -> None:
    comparison.largest = max([comparison.largest, *(abs(a - b) for a, b in zip(ours, theirs, strict=True))])
    best = sorted(theirs, reverse=True)
    told_apart = len(best) > 1 and best[0] - best[1] > MARGIN
    if told_apart and ours.index(max(ours)) != theirs.index(max(theirs)):
        comparison.picks.append(place)


def _compare_summary(comparison: Comparison, summary: Summary, golden: Mapping[str, Any]) -> None:
    for value in summary.values:
        _compare_value(comparison, f"{summary.name} {value.key}", value.value, golden[value.key])
        stderr_key = f"{value.metric}_stderr,{value.filter}"
        # The error of a perplexity comes from bootstrap draws: equal within its own noise only.
        if value.stderr is not None and value.metric != "perplexity":
            _compare_value(comparison, f"{summary.name} {stderr_key}", value.stderr, golden[stderr_key])


def _compare_value(comparison: Comparison, place: str, ours: float, theirs: float) -> None:
    tolerance = 1e-4 if "perplexity" in place else 5e-5
    if abs(ours - theirs) > tolerance * max(1.0, abs(theirs)):
        comparison.aggregates.append(f"{place}: {ours} != {theirs}")
