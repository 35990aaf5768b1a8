"""HumanEval's own solutions pass its tests in the sandbox, and solutions that do nothing fail them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval import _sandbox


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    """The 164 problems: prompt, canonical_solution, test (defines check), entry_point."""
    if reason := _sandbox.available():
        pytest.skip(reason)
    if "LLMEVAL_SHARED" not in os.environ:
        pytest.skip("needs HumanEval: set LLMEVAL_SHARED to a folder with mirror/openai/openai_humaneval")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = Path(os.environ["LLMEVAL_SHARED"]) / "mirror/openai/openai_humaneval/openai_humaneval"
    rows: list[dict[str, Any]] = parquet.read_table(next(folder.glob("test*.parquet"))).to_pylist()
    return rows


def program(problem: dict[str, Any], completion: str) -> str:
    return f"{problem['prompt']}{completion}\n{problem['test']}\ncheck({problem['entry_point']})"


def test_canonical_solutions_pass(problems: list[dict[str, Any]]) -> None:
    outcomes = _sandbox.run_many([program(problem, problem["canonical_solution"]) for problem in problems])
    failed = {p["task_id"]: o.reason for p, o in zip(problems, outcomes, strict=True) if not o.passed}
    assert (len(outcomes), failed) == (164, {})


@pytest.mark.parametrize("completion", ["", "    pass\n", "    import os; os._exit(0)\n", "    raise SystemExit(0)\n"])
def test_empty_completions_fail(problems: list[dict[str, Any]], completion: str) -> None:
    outcomes = _sandbox.run_many([program(problem, completion) for problem in problems])
    passed = [p["task_id"] for p, o in zip(problems, outcomes, strict=True) if o.passed]
    assert (len(outcomes), passed) == (164, [])
