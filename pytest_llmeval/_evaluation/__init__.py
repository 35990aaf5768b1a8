"""The way from a task to its numbers, without pytest.

An `Evaluation` opens each task once. A `ModelRun` has a model answer the docs that are asked for and not yet known,
wave by wave, and sums up. `_session` only decides which docs are asked for, and shows the results.
"""

from __future__ import annotations

from pytest_llmeval._evaluation.confirmation import SecondAnswers
from pytest_llmeval._evaluation.evaluation import Evaluation
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._evaluation.model_calls import ask_model
from pytest_llmeval._evaluation.model_calls import usage_of
from pytest_llmeval._evaluation.model_run import FIRST_WAVE
from pytest_llmeval._evaluation.model_run import LARGEST_WAVE
from pytest_llmeval._evaluation.model_run import ModelRun
from pytest_llmeval._evaluation.model_run import SelectedGate
from pytest_llmeval._evaluation.model_run import evaluate
from pytest_llmeval._evaluation.noise import NoiseFloors
from pytest_llmeval._evaluation.noise import measure
from pytest_llmeval._evaluation.noise import probed_docs
from pytest_llmeval._evaluation.repeats import Repeats
from pytest_llmeval._evaluation.shards import TaskPlan
from pytest_llmeval._evaluation.shards import docs_of
from pytest_llmeval._evaluation.shards import plan_of


__all__ = [
    "FIRST_WAVE",
    "LARGEST_WAVE",
    "Evaluation",
    "ModelRun",
    "NoiseFloors",
    "OpenTask",
    "Repeats",
    "SecondAnswers",
    "SelectedGate",
    "TaskPlan",
    "ask_model",
    "docs_of",
    "evaluate",
    "measure",
    "plan_of",
    "probed_docs",
    "usage_of",
]
