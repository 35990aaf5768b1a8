"""One checkpoint, evaluated by lm-evaluation-harness and by this package in one process, and what differs.

Both get the same task files (or two files of one task), the same data from this disk and the same settings.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import lm_eval
import lm_eval.utils
import numpy as np
import pyarrow.parquet
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._lm import LM
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: Largest difference of two log-likelihoods in float32.
CLOSE = 1e-4
#: Two steps of float32, in which lm_eval sums: of -2270 it misses 2.2e-4, where ours misses 3e-5 (against float64).
FLOAT32 = 2**-22
#: Picks are compared only where the peer's own margin tells them apart.
MARGIN = 2e-4


@dataclass
class Found:
    """What was compared, and each difference in words."""

    docs: int = 0
    requests: int = 0
    largest: float = 0.0
    differences: list[str] = field(default_factory=list)

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            self.differences.append(f"{what}: {ours!r} != {theirs!r}")

    def close(self, what: str, ours: Any, theirs: Any, relative: float = FLOAT32) -> None:
        if not _close(ours, theirs, relative):
            self.differences.append(f"{what}: {ours!r} != {theirs!r}")


@dataclass(frozen=True)
class Runs:
    """The same tasks run by both: lm_eval's results with samples, and our evaluation."""

    theirs: Mapping[str, Any]
    ours: ModelRun
    tasks: Sequence[Task]
    groups: Sequence[Group]
    #: Both read the very same file: then its words are compared too, such as alias and version.
    same_file: bool


class Pair:
    """One checkpoint, loaded by both in float32 on the processor; `max_length` is the window of both."""

    def __init__(self, folder: Path, **args: Any) -> None:
        self.peer = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=4, **args)
        texts = {name: str(value) for name, value in args.items()}
        self.ours: LM = load_model(parse_spec(str(folder), {"dtype": "float32", "device": "cpu", **texts}))

    def run(self, ours: Path, theirs: Path | str, settings: Settings, near: Path | None = None) -> Runs:
        """Evaluate a task or group of ours, and lm_eval's by its file, or by a name that it finds in `near`."""
        evaluation = Evaluation(settings, Registry())
        run, tasks = ModelRun(evaluation), evaluation.leaves(evaluation.registry.load(ours))
        for task in tasks:
            run.score(self.ours, task, evaluation.open(task).asked)
        results = self._run_peer(str(theirs), settings, near)
        return Runs(results, run, tasks, evaluation.registry.groups(), same_file=ours == theirs)

    def _run_peer(self, name: str, settings: Settings, near: Path | None) -> Mapping[str, Any]:
        results: Mapping[str, Any] = lm_eval.simple_evaluate(
            model=self.peer,
            tasks=[name],
            task_manager=TaskManager(include_path=near, include_defaults=False),
            limit=settings.limit,
            num_fewshot=settings.num_fewshot,
            fewshot_random_seed=settings.fewshot_seed,
            apply_chat_template=settings.chat_template,
            fewshot_as_multiturn=settings.fewshot_multiturn,
            system_instruction=settings.system,
            gen_kwargs=dict(settings.gen_kwargs) or None,
            bootstrap_iters=settings.bootstrap_iters,
        )
        return results


@contextmanager
def peer_reads(mirror: Path) -> Iterator[None]:
    """lm_eval gets its data sets from a mirror on this disk; its report on the machine is left out, it takes seconds.

    It opens every split that a task names: a missing one is stood in for, as no example is drawn from it. What it
    does to the random numbers of this process is undone.
    """

    def load_dataset(path: str, name: str | None = None, **_: Any) -> datasets.DatasetDict:
        files = sorted((mirror / path).glob(f"{name or '*'}/*.parquet"))
        splits = {file.name.split("-")[0]: datasets.Dataset(pyarrow.parquet.read_table(file)) for file in files}
        some = next(iter(splits.values()))
        stand_ins = {split: some.select(range(min(20, len(some)))) for split in ("train", "validation", "test")}
        return datasets.DatasetDict(stand_ins | splits)

    # It compiles a template anew for each doc and field.
    compiled = functools.lru_cache(maxsize=1000)(lm_eval.utils.env.from_string)
    states = random.getstate(), np.random.get_state()
    with (
        mock.patch.object(datasets, "load_dataset", load_dataset),
        mock.patch.object(lm_eval.utils.env, "from_string", compiled),
        mock.patch("lm_eval.evaluator.add_env_info"),
        # Its bootstrap draws the same in one process, without starting others.
        mock.patch.dict("os.environ", DISABLE_MULTIPROC="1"),
        torch.random.fork_rng(),
    ):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def compare(runs: Runs) -> Found:
    """Every request, answer, pick and score of every doc, and every number of every task and group."""
    found = Found()
    found.same("tasks", sorted(task.name for task in runs.tasks), sorted(runs.theirs["samples"]))
    for task in runs.tasks:
        results, rows = runs.ours.results(task.name), runs.theirs["samples"][task.name]
        found.same(f"{task.name} docs", sorted(results), sorted({row["doc_id"] for row in rows}))
        found.docs += len(results)
        for row in rows:
            _compare_doc(found, task.name, results[row["doc_id"]], row, runs.same_file)
        _compare_summary(found, runs.ours.summary(task), runs)
    summaries = {group.name: runs.ours.summary(group) for group in runs.groups}
    found.same("groups", sorted(summaries), sorted(runs.theirs["group_subtasks"]))
    for name in runs.theirs.get("groups", {}):
        _compare_summary(found, summaries[name], runs)
    return found


def differences(place: str, ours: Any, theirs: Any) -> list[str]:
    """Where two nested values differ, numbers by more than `CLOSE`."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = {**ours, **theirs}
        return [each for key in keys for each in differences(f"{place}.{key}", ours.get(key), theirs.get(key))]
    return [] if _close(ours, theirs, CLOSE) else [f"{place}: {ours!r} != {theirs!r}"]


def _compare_doc(found: Found, task: str, result: DocResult, row: Mapping[str, Any], same_file: bool) -> None:
    place = f"{task} {row['doc_id']} {row['filter']}"
    assert result.sample is not None, f"{place}: {result.error}"
    ours, theirs = _plain(result.sample), _plain(row)
    # Where lm_eval's file adds columns to a doc (`process_docs`), ours works with those of the data set.
    doc = theirs["doc"] if same_file else {key: theirs["doc"].get(key) for key in ours["doc"]}
    found.same(f"{place} doc", ours["doc"], doc)
    found.same(f"{place} target", str(ours["target"]), str(theirs["target"]))
    found.same(f"{place} requests", ours["arguments"], theirs["arguments"])
    found.close(f"{place} answers", ours["resps"], theirs["resps"])
    found.close(f"{place} filtered", ours["filtered_resps"][row["filter"]], theirs["filtered_resps"])
    found.requests += len(theirs["arguments"])
    _compare_picks(found, place, _floats(ours["resps"]), _floats(theirs["resps"]))
    scores = _plain(result.scores[row["filter"]])
    found.same(f"{place} metrics", sorted(scores), sorted(row["metrics"]))
    for name in row["metrics"]:
        found.close(f"{place} {name}", scores.get(name), theirs[name])


def _compare_picks(found: Found, place: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    found.largest = max([found.largest, *(abs(a - b) for a, b in zip(ours, theirs, strict=True))])
    best = sorted(theirs, reverse=True)
    if len(best) > 1 and best[0] - best[1] > MARGIN:
        found.same(f"{place} pick", ours.index(max(ours)), theirs.index(max(theirs)))


def _compare_summary(found: Found, summary: Summary, runs: Runs) -> None:
    name, theirs = summary.name, runs.theirs
    numbers = theirs["results"][name]
    ours: dict[str, Any] = {}
    for value in summary.values:
        # lm_eval forgets the directions of a group of groups.
        known = theirs["higher_is_better"].get(name, {value.metric: value.higher_is_better})
        found.same(f"{name} {value.key} direction", value.higher_is_better, known[value.metric])
        ours[value.key] = value.value
        ours[f"{value.metric}_stderr,{value.filter}"] = "N/A" if value.stderr is None else value.stderr
    found.same(f"{name} numbers", sorted(ours), sorted(key for key in numbers if "," in key))
    for key, number in ours.items():
        found.close(f"{name} {key}", number, _plain(numbers.get(key)), relative=CLOSE)
    found.same(f"{name} docs", summary.n, numbers["sample_len"])
    # It forgets the shots of a group of groups, too.
    found.same(f"{name} shots", summary.num_fewshot, theirs["n-shot"].get(name, summary.num_fewshot))
    if name in theirs["n-samples"]:
        found.same(f"{name} size", summary.n_total, theirs["n-samples"][name]["original"])
    if runs.same_file:
        version = theirs["versions"][name]
        found.same(f"{name} version", summary.version, None if version in ("Yaml", "N/A") else version)
        found.same(f"{name} alias", summary.display_name, numbers["alias"])


def _plain(value: Any) -> Any:
    """Tuples as lists, numpy's numbers as Python's."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _floats(value: Any) -> list[float]:
    """The log-likelihoods among nested answers."""
    if isinstance(value, list):
        return [number for item in value for number in _floats(item)]
    return [value] if isinstance(value, float) else []


def _close(ours: Any, theirs: Any, relative: float) -> bool:
    """Numbers within `CLOSE` or that part of them, everything else equal."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return all(_close(a, b, relative) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=relative, abs_tol=CLOSE) or (math.isnan(ours) and math.isnan(theirs))
    return bool(ours == theirs)
