"""The parts of the suite that is worked out by hand: a model that always says yes, and how its tasks are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias


MODEL = """
import pytest

class Yes:
    name = "yes-model"

    def __init__(self, favourite="yes"):
        self.favourite = favourite

    def loglikelihood(self, requests):
        return [(-1.0 if continuation.strip() == self.favourite else -2.0, False) for _, continuation in requests]

    def loglikelihood_rolling(self, requests):
        return [-float(len(text)) for text in requests]

    def generate_until(self, requests):
        return ["The answer is yes." for _ in requests]
"""

FIXTURE = """
@pytest.fixture(scope="session")
def llmeval_model():
    return Yes()
"""

TASK = """\
task: {name}
tag: [{tags}]
dataset_path: json
dataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{q}}}}"
doc_to_choice: ["yes", "no"]
doc_to_target: label
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
  gates: [{gates}]
"""

WriteTask: TypeAlias = Callable[..., Path]
