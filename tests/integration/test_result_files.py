"""`--llmeval-output`: written once, by the process that knows all, with what the model says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


pytest_plugins = ["pytester"]

DESCRIBED = """
import pytest
from conftest_model import Yes

class Described(Yes):
    def describe(self):
        return {
            "model": {"model_dtype": "float32", "model_num_parameters": 7},
            "tokenizer": {"tokenizer_eos_token": ["</s>", "2"], "max_length": 9},
            "chat_template": "{{ messages }}",
        }

    def apply_chat_template(self, messages, add_generation_prompt):
        return messages[-1]["content"]

@pytest.fixture(scope="session")
def llmeval_model():
    return Described()
"""


@pytest.fixture
def described(pytester: pytest.Pytester, suite: Path) -> None:
    """The suite's model, which now tells of itself."""
    conftest = pytester.path / "conftest.py"
    (pytester.path / "conftest_model.py").write_text(conftest.read_text())
    conftest.write_text(DESCRIBED)


def results(pytester: pytest.Pytester) -> Any:
    (path,) = pytester.path.glob("out/*/results_*.json")
    return json.loads(path.read_text("utf-8"))


@pytest.mark.usefixtures("described")
def test_one_process_writes_what_all_found(
    pytester: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = pytester.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    pytester.runpytest("tasks", "--llmeval-output=out", "--llmeval-chat-template", *workers)
    found = results(pytester)
    assert found["n-samples"].keys() == {"even", "hard"}
    assert len(list(pytester.path.glob("out/*/samples_*.jsonl"))) == 2
    assert summary.read_text("utf-8").count("## llmeval") == 1
    assert (found["config"]["model_dtype"], found["config"]["model_num_parameters"]) == ("float32", 7)
    assert (found["tokenizer_eos_token"], found["max_length"]) == (["</s>", "2"], 9)
    assert found["chat_template"] == "{{ messages }}"


def test_a_model_need_not_tell_of_itself(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.runpytest("tasks/even.yaml", "--llmeval-output=out")
    found = results(pytester)
    assert "model_dtype" not in found["config"]
    assert "max_length" not in found
    assert found["chat_template"] is None
