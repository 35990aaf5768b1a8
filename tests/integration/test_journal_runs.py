"""The journal in whole runs, and runs that end before their time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._journal.journal import NAME


pytest_plugins = ["pytester"]

#: A model that counts its calls in a file, and ends its process at the doc that a variable names.
COUNTING = """
import os, signal, sys
import pytest

class Counting:
    fingerprint = os.environ.get("FINGERPRINT", "a")

    def loglikelihood(self, requests):
        answers = []
        for context, continuation in requests:
            if os.environ.get("FATAL") == context:
                os.kill(os.getpid(), signal.SIGTERM)
            answers.append((-len(context) / 3 - (continuation != " yes"), False))
        with open("calls", "a") as file:
            file.write("x" * len(requests))
        return answers

    loglikelihood_rolling = generate_until = None

@pytest.fixture(scope="session")
def llmeval_model():
    return Counting()
"""


@pytest.fixture
def counted(pytester: pytest.Pytester, suite: Path) -> pytest.Pytester:
    """The suite, with a model that has a fingerprint."""
    pytester.makeconftest(COUNTING)
    return pytester


def calls(pytester: pytest.Pytester) -> int:
    """Requests since the last call of this function."""
    path = pytester.path / "calls"
    count = len(path.read_text()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return count


def written(folder: Path) -> tuple[Any, list[str]]:
    """The results of a run without dates and usage, and its samples."""
    (path,) = folder.glob("*/results_*.json")
    results = json.loads(path.read_text("utf-8"))
    for name in ("date", "total_evaluation_time_seconds"):
        del results[name]
    del results["pytest_llmeval"]["usage"]
    return results, [path.read_text("utf-8") for path in sorted(folder.glob("*/samples_*"))]


def test_a_run_asks_for_the_rest(counted: pytest.Pytester, workers: list[str]) -> None:
    counted.runpytest("tasks/even.yaml", "--llmeval-limit=3", "-k", "doc[1]", "--llmeval-output=part")
    assert calls(counted) == 2
    counted.runpytest("tasks", "--llmeval-output=out/a", *workers)
    assert calls(counted) == 30
    result = counted.runpytest("tasks", "--llmeval-output=out/b")
    assert calls(counted) == 0
    result.stdout.fnmatch_lines(["answers from the journal: 32 of 32"])
    counted.runpytest("tasks", "--llmeval-no-cache", "--llmeval-output=out/c")
    assert calls(counted) == 32
    assert written(counted.path / "out/a") == written(counted.path / "out/b") == written(counted.path / "out/c")


def test_what_decides_an_answer_is_in_the_key(counted: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, asked in (
        ([], 32),
        (["-k", "hard", "-p", "no:randomly"], 0),
        (["--llmeval-cache=elsewhere"], 32),
        (["--llmeval-system=Think."], 32),
        (["-o", "llmeval_cache=elsewhere"], 0),
        (["-p", "no:cacheprovider"], 32),
        (["--llmeval-early-stop", "-o", "llmeval_stop_seed=1"], 0),
    ):
        counted.runpytest("tasks", *arguments)
        assert (arguments, calls(counted)) == (arguments, asked)
    monkeypatch.setenv("FINGERPRINT", "b")
    counted.runpytest("tasks")
    assert calls(counted) == 32


def test_a_damaged_journal_is_one_line_of_a_correct_run(counted: pytest.Pytester, workers: list[str]) -> None:
    counted.runpytest("tasks", "--llmeval-cache=kept", "--llmeval-output=out/a")
    (counted.path / "kept" / NAME).write_bytes(b"damaged" * 1000)
    calls(counted)
    result = counted.runpytest("tasks", "--llmeval-cache=kept", "--llmeval-output=out/b", *workers)
    assert calls(counted) == 32
    assert [line for line in result.outlines if line.startswith("llmeval: journal")] == [
        f"llmeval: journal {counted.path / 'kept' / NAME}: file is not a database; set aside as "
        "answers-1.set-aside.sqlite, and its 0 intact entries are kept"
    ]
    assert written(counted.path / "out/a") == written(counted.path / "out/b")


def test_a_folder_and_none_are_no_choice(counted: pytest.Pytester) -> None:
    result = counted.runpytest("tasks", "--llmeval-cache=x", "--llmeval-no-cache")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llmeval-cache names a folder*give one"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_run_that_is_ended_writes_what_it_knows(counted: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FATAL", "hard 4?")
    result = counted.runpytest_subprocess("tasks", "--llmeval-output=out/a")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "|even*|acc *0.5000*",
            "gate not judged: tasks/hard.yaml::gate[[]acc]: the run ended before it was judged",
            "*SIGTERM received*",
        ]
    )
    results, samples = written(counted.path / "out/a")
    assert results["n-samples"].keys() == {"even"}
    assert len(samples) == 1
    assert not list(counted.path.glob("out/a/*/.writing-*"))
    monkeypatch.delenv("FATAL")
    calls(counted)
    counted.runpytest("tasks", "--llmeval-output=out/b")
    # The docs of the task that was finished are known.
    assert calls(counted) == 12
    counted.runpytest("tasks", "--llmeval-output=out/c", "--llmeval-no-cache")
    assert written(counted.path / "out/b") == written(counted.path / "out/c")


@pytest.mark.usefixtures("suite")
def test_a_checkpoint_is_not_opened_for_known_answers(
    pytester: pytest.Pytester, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest("")
    model = f"--llmeval-model={checkpoints / 'bigram'}"
    pytester.runpytest("tasks", model, "--llmeval-output=out/a")
    from pytest_llmeval._models import huggingface

    monkeypatch.delattr(huggingface, "open_model")
    result = pytester.runpytest("tasks", model, "--llmeval-output=out/b")
    result.stdout.fnmatch_lines(["answers from the journal: 32 of 32"])
    assert written(pytester.path / "out/a") == written(pytester.path / "out/b")
