"""Reports at the end of a run: tables and lines for the terminal, Markdown for a CI job, and files as lm_eval's.

Reports take plain values, one `ModelReport` per model, and also compare the numbers of several models.

model_report             the values of all reports, one per model
table, lines             tables and lines for the terminal and for the summary of a CI job
baseline_lines           lines on the differences of a run from its baseline
model_comparison         the change of each value from the first to the last model
result_files             --llmeval-output
shard_files              the results of --llmeval-shard, for --llmeval-merge
"""

from __future__ import annotations

from pytest_llmeval._report.baseline_lines import ReportLine
from pytest_llmeval._report.baseline_lines import baseline_lines
from pytest_llmeval._report.lines import append_lines
from pytest_llmeval._report.lines import append_step_summary
from pytest_llmeval._report.lines import model_lines
from pytest_llmeval._report.lines import step_summary
from pytest_llmeval._report.lines import write_report
from pytest_llmeval._report.model_comparison import ModelComparison
from pytest_llmeval._report.model_comparison import Trend
from pytest_llmeval._report.model_comparison import compare_models
from pytest_llmeval._report.model_comparison import comparison_notes
from pytest_llmeval._report.model_comparison import comparison_table
from pytest_llmeval._report.model_comparison import trends_of_group
from pytest_llmeval._report.model_comparison import trends_of_task
from pytest_llmeval._report.model_report import GateLine
from pytest_llmeval._report.model_report import GroupReport
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._report.model_report import RunFacts
from pytest_llmeval._report.model_report import TaskReport
from pytest_llmeval._report.result_files import prepare_output
from pytest_llmeval._report.result_files import result_dict
from pytest_llmeval._report.result_files import sample_rows
from pytest_llmeval._report.result_files import write_output
from pytest_llmeval._report.shard_files import JoinedShards
from pytest_llmeval._report.shard_files import ShardHead
from pytest_llmeval._report.shard_files import answer_settings
from pytest_llmeval._report.shard_files import read_shards
from pytest_llmeval._report.shard_files import shard_path
from pytest_llmeval._report.shard_files import task_difference
from pytest_llmeval._report.shard_files import write_shard
from pytest_llmeval._report.table import markdown_table
from pytest_llmeval._report.table import result_table


__all__ = [
    "GateLine",
    "GroupReport",
    "JoinedShards",
    "ModelComparison",
    "ModelReport",
    "ReportLine",
    "RunFacts",
    "ShardHead",
    "TaskReport",
    "Trend",
    "answer_settings",
    "append_lines",
    "append_step_summary",
    "baseline_lines",
    "compare_models",
    "comparison_notes",
    "comparison_table",
    "markdown_table",
    "model_lines",
    "prepare_output",
    "read_shards",
    "result_dict",
    "result_table",
    "sample_rows",
    "shard_path",
    "step_summary",
    "task_difference",
    "trends_of_group",
    "trends_of_task",
    "write_output",
    "write_report",
    "write_shard",
]
