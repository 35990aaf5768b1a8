"""Code benchmarks: run only if asked for, in the sandbox; HumanEval's own solutions pass, and empty ones do not."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval import _sandbox
from pytest_llmeval._sandbox import worker as worker_module


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


def run_all(programs: Iterable[str]) -> list[_sandbox.CodeOutcome]:
    with _sandbox.Worker() as worker:
        return [worker.run(text) for text in programs]


def test_canonical_solutions_pass(problems: list[dict[str, Any]]) -> None:
    outcomes = run_all(program(problem, problem["canonical_solution"]) for problem in problems)
    failed = {p["task_id"]: o.reason for p, o in zip(problems, outcomes, strict=True) if not o.passed}
    assert (len(outcomes), failed) == (164, {})


@pytest.mark.parametrize("completion", ["", "    pass\n", "    import os; os._exit(0)\n", "    raise SystemExit(0)\n"])
def test_empty_completions_fail(problems: list[dict[str, Any]], completion: str) -> None:
    outcomes = run_all(program(problem, completion) for problem in problems)
    passed = [p["task_id"] for p, o in zip(problems, outcomes, strict=True) if o.passed]
    assert (len(outcomes), passed) == (164, [])


TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: generate_until
unsafe_code: true
generation_kwargs: {until: ["\\n\\n"]}
doc_to_text: prompt
doc_to_target: "{{test}}"
metric_list:
  - metric: pass_at_k
    k: [1]
metadata:
  version: 1.0
  gates: ["pass@1 >= 0.1"]
"""

#: What the model writes for each doc, to add two numbers; {victim} is a file that it should not reach.
ANSWERS = [
    "return a + b",
    "return a - b",
    "import os; os._exit(0)",
    "print('passed'); raise SystemExit(0)",
    "open({victim!r}, 'w'); return a + b",
    "while True: pass",
]

MODEL = """
import pytest

class Coder:
    name = "coder"

    def generate_until(self, requests):
        return [{answers!r}[int(context[2])] for context, _ in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Coder()
"""


@pytest.fixture
def victim(pytester: pytest.Pytester) -> Path:
    path = pytester.path / "victim"
    path.write_text("unharmed")
    return path


@pytest.fixture
def sums(pytester: pytest.Pytester, victim: Path) -> Path:
    """A task of one doc per answer: the first answer alone is right."""
    answers = [answer.format(victim=str(victim)) for answer in ANSWERS]
    pytester.makeconftest(MODEL.format(answers=answers))
    rows = [
        {"prompt": f"# {number}\ndef add(a, b):\n    ", "test": "assert add(2, 3) == 5"}
        for number in range(len(answers))
    ]
    (pytester.path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = pytester.path / "sums.yaml"
    path.write_text(TASK)
    return path


def test_right_code_passes_and_harmful_code_is_wrong(
    pytester: pytest.Pytester, sums: Path, victim: Path, workers: list[str]
) -> None:
    if reason := _sandbox.available():
        pytest.skip(reason)
    result = pytester.runpytest(str(sums), "--llmeval-allow-code", "-v", *workers)
    # 1 of 6 is right, so the gate at 0.1 passes.
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*5 wrong*"])
    assert result.ret == 0
    assert victim.read_text() == "unharmed"


def test_nothing_runs_unless_asked_for(
    pytester: pytest.Pytester, sums: Path, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_command", lambda: pytest.fail("a launcher was started"))
    result = pytester.runpytest(str(sums), "-rs", *workers)
    result.stdout.fnmatch_lines(["*SKIPPED*--llmeval-allow-code*"])
    assert result.ret == 1


def test_nothing_runs_where_there_is_no_sandbox(
    pytester: pytest.Pytester, sums: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    result = pytester.runpytest(str(sums), "-rs", "--llmeval-allow-code")
    result.stdout.fnmatch_lines(["*SKIPPED*sums*there is no system call filter for riscv64*"])
    assert result.ret == 1
