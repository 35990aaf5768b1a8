"""Recorded responses of a real model, scored again: each doc's scores and all aggregates are the recorded ones.

Needs no model, only the recorded rows that LLMEVAL_SHARED points to.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._task import TAKE_FIRST
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import Task


EXACT_MATCH = MetricSpec(
    "exact_match", options={"ignore_case": True, "regexes_to_ignore": [",", r"\$", "(?s).*#### ", r"\.$"]}
)
FLEXIBLE = {"regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}
GSM8K_FILTERS = (
    Pipeline("strict-match", (filter_step("regex"), filter_step("take_first"))),
    Pipeline("flexible-extract", (filter_step("regex", FLEXIBLE), filter_step("take_first"))),
)

#: Set -> output type, metrics, filters.
SETS: dict[str, tuple[str, tuple[MetricSpec, ...], tuple[Pipeline, ...]]] = {
    "csqa0": ("multiple_choice", (MetricSpec("acc"),), (TAKE_FIRST,)),
    "mmlu5": ("multiple_choice", (MetricSpec("acc"),), (TAKE_FIRST,)),
    "arc_c0": ("multiple_choice", (), (TAKE_FIRST,)),
    "piqa0": ("multiple_choice", (), (TAKE_FIRST,)),
    "lambada0": ("loglikelihood", (), (TAKE_FIRST,)),
    "gsm8k5": ("generate_until", (EXACT_MATCH,), GSM8K_FILTERS),
}


@pytest.fixture
def golden() -> Path:
    folder = os.environ.get("LLMEVAL_SHARED")
    if not folder:
        pytest.skip("LLMEVAL_SHARED names no folder with recorded rows")
    return Path(folder) / "golden"


def rendered(row: dict[str, Any]) -> RenderedDoc:
    """The doc of a row, as far as its scores depend on it."""
    target, index = row["target"], row["doc_id"]
    if len(row["arguments"]) == 1:
        return RenderedDoc(index, {}, "", None, (), (str(target),), target)
    choices = tuple(continuation[1:] for _, continuation in row["arguments"])
    gold = target if isinstance(target, int) else choices.index(target)
    return RenderedDoc(index, {}, "", choices, (gold,), (choices[gold],), target)


@pytest.mark.parametrize("name", SETS)
def test_scores_and_aggregates(name: str, golden: Path) -> None:
    output_type, specs, filters = SETS[name]
    metrics = resolve_metrics(specs, output_type)
    recorded = json.loads((golden / f"{name}.results.json").read_text("utf-8"))["results"]
    tasks: dict[str, dict[int, DocResult]] = defaultdict(dict)
    for line in (golden / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        task = Task(row["task"], Path("t.yaml"), output_type, None, None, metrics=metrics, filters=filters)
        result = score_doc(task, row["doc_id"], rendered(row), [[response] for response in row["responses"]])
        assert result.error is None
        assert result.sample is not None
        assert result.sample["filtered_resps"][row["filter"]] == row["filtered"]
        assert result.scores[row["filter"]] == row["metrics"]
        tasks[row["task"]][row["doc_id"]] = result
    members = []
    for task_name, docs in tasks.items():
        task = Task(task_name, Path("t.yaml"), output_type, None, None, metrics=metrics, filters=filters)
        results = [docs[index] for index in sorted(docs)]
        summary = summarize_task(task, results, n_total=len(results), num_fewshot=0, bootstrap_iters=1000)
        for value in summary.values:
            assert value.value == pytest.approx(recorded[task_name][value.key], rel=1e-12)
            # Also where it was bootstrapped: these are the same 1,000 draws.
            error = recorded[task_name][f"{value.metric}_stderr,{value.filter}"]
            assert value.stderr == pytest.approx(error, rel=1e-12)
        members.append((task, summary))
    if "mmlu" in recorded:
        group = Group("mmlu", Path("g.yaml"), (), metrics=(GroupMetric("acc"),))
        (value,) = summarize_group(group, members).values
        assert value.value == pytest.approx(recorded["mmlu"]["acc,none"], rel=1e-12)
        assert value.stderr == pytest.approx(recorded["mmlu"]["acc_stderr,none"], rel=1e-12)
