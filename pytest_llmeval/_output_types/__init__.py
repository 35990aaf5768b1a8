"""The output types of lm-evaluation-harness's format: the requests of a task, and the meaning of the answers.

table      one record per output type, all in one table
targets    `doc_to_target`: the right choices and the right answers of a doc
responses  a model's responses as plain values, and a pick among choices
"""

from __future__ import annotations

from pytest_llmeval._output_types.responses import NO_CHOICE
from pytest_llmeval._output_types.responses import Answered
from pytest_llmeval._output_types.responses import margin
from pytest_llmeval._output_types.responses import pick
from pytest_llmeval._output_types.table import DEFAULT
from pytest_llmeval._output_types.table import OUTPUT_TYPES
from pytest_llmeval._output_types.table import OutputType
from pytest_llmeval._output_types.targets import Answers
from pytest_llmeval._output_types.targets import Choices
from pytest_llmeval._output_types.targets import as_index
from pytest_llmeval._output_types.targets import read_answers
from pytest_llmeval._output_types.targets import written_index


__all__ = [
    "DEFAULT",
    "NO_CHOICE",
    "OUTPUT_TYPES",
    "Answered",
    "Answers",
    "Choices",
    "OutputType",
    "as_index",
    "margin",
    "pick",
    "read_answers",
    "written_index",
]
