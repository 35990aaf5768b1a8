"""The lines of a sample file: every doc once for each filter."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from pytest_llmeval._output.plain import hash_of
from pytest_llmeval._output.plain import json_text
from pytest_llmeval._output.plain import texts
from pytest_llmeval._output.run import TaskRun
from pytest_llmeval._results import DocResult


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
