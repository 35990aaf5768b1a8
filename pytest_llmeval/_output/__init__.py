"""``--llmeval-output``: result and sample files in lm-evaluation-harness's shape, so that its readers read ours.

    DIR/<model>/results_<iso time>.json             all numbers and settings of one model
    DIR/<model>/samples_<task>_<iso time>.jsonl     one line a filter and doc

The keys are those that its `EvaluationTracker` writes (0.4.13). What it takes from its own process (its version,
its environment report) names what wrote the file instead. Ours alone is the block `pytest_llmeval`.
"""

from __future__ import annotations

from pytest_llmeval._output.files import prepare_output
from pytest_llmeval._output.files import write_output
from pytest_llmeval._output.gathering import runs_of
from pytest_llmeval._output.results import result_dict
from pytest_llmeval._output.run import GroupRun
from pytest_llmeval._output.run import Run
from pytest_llmeval._output.run import Sample
from pytest_llmeval._output.run import TaskRun
from pytest_llmeval._output.samples import sample_rows


__all__ = [
    "GroupRun",
    "Run",
    "Sample",
    "TaskRun",
    "prepare_output",
    "result_dict",
    "runs_of",
    "sample_rows",
    "write_output",
]
