"""Nights as a user meets them: the ini key, the file beside the baseline, and the line of a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Says yes but to the docs whose numbers stand in the file ``doubts``.
MODEL = """
import pathlib, pytest

class Doubter:
    def loglikelihood(self, requests):
        doubts = pathlib.Path(__file__).with_name("doubts").read_text().split()
        wrong = [asked for asked, _ in requests if asked.rstrip("?").split()[-1] in doubts]
        return [(-1.0 if (said == " yes") != (asked in wrong) else -2.5, False) for asked, said in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Doubter()

def pytest_llmeval_register_models(register):
    register("doubt", lambda rest, arguments: Doubter())
"""


class Suite:
    """One task of 40 docs, all of them yes, that may lose a fifth of them."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        pytester.makeconftest(MODEL)
        write_task("birds", [0] * 40, gates="'acc >= baseline - 0.2'")
        self.night()
        assert self.run("--llmeval-update-baseline").ret == 0
        pytester.makeini("[pytest]\nllmeval_nights = true\n")

    @property
    def file(self) -> Path:
        return self.pytester.path / ".llmeval" / "baselines" / "main" / "birds.acc.drop.nights.jsonl"

    def run(self, *options: str) -> pytest.RunResult:
        return self.pytester.runpytest("tasks", "-v", "-m", "llmeval_gate", "--llmeval-baseline=main", *options)

    def night(self, *wrong: int) -> None:
        (self.pytester.path / "doubts").write_text(" ".join(map(str, wrong)))


@pytest.fixture
def nightly(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    return Suite(pytester, write_task)


def test_runs_are_counted_in_a_file_beside_the_baseline(nightly: Suite, workers: list[str]) -> None:
    nightly.night(3, 4)
    nightly.run().stdout.fnmatch_lines(["gate passed: *; nights: 1 night: worse by 0.0500 on average; *"])
    nightly.night(5, 6)
    run = nightly.run("--llmeval-output=out", *workers)
    run.stdout.fnmatch_lines(
        [
            "gate passed: *birds: acc 0.9500, was 1.0000: *; nights: 2 nights: worse by 0.0500 on average; e-value "
            "0.0* for a loss beyond 0.2, 25 fails*"
        ]
    )
    assert run.ret == 0
    (results,) = Path("out").rglob("results_*.json")
    assert '"nights": 2' in results.read_text()
    head, *nights = map(json.loads, nightly.file.read_text().splitlines())
    assert (head["gate"], head["docs"]) == ("birds acc.drop", 40)
    assert [(night["lost"], night["gained"], len(night["flips"])) for night in nights] == [(2, 0, 2)] * 2


def test_nights_together_fail_a_gate_that_passes_alone(nightly: Suite) -> None:
    """Half of the docs were lost in each of 20 nights, and tonight none."""
    nightly.night(0)
    nightly.run()
    head = nightly.file.read_text().splitlines()[0]
    lines = [
        json.dumps({"date": "d", "lost": 20, "gained": 0, "value": 0.5, "e_value": 0, "flips": [start, *[2] * 19]})
        for start in [0, 1] * 10
    ]
    nightly.file.write_text("\n".join([head, *lines]) + "\n")
    nightly.night(1, 2)
    run = nightly.run()
    run.stdout.fnmatch_lines(["gate failed: *; over 21 nights it became worse on these docs than allowed, at 95 % *"])
    assert run.ret == 1


def test_runs_that_are_not_counted(nightly: Suite) -> None:
    nightly.night(1)
    for options, reason in (
        (["--llmeval-limit=10"], "this run and the baseline do not have the same docs"),
        (["--llmeval-early-stop"], "--llmeval-early-stop omits docs"),
        (["--llmeval-model=doubt:a", "--llmeval-model=doubt:b"], "nights follow one model, and this run has 2"),
    ):
        if "--llmeval-model=doubt:a" in options:
            nightly.pytester.makeconftest(MODEL.replace("def llmeval_model", "def unused"))
        nightly.run(*options).stdout.fnmatch_lines([f"gate passed: *; nights: not counted: {reason}*"])
    assert not nightly.file.exists()


def test_a_damaged_file_fails_the_gate(nightly: Suite) -> None:
    nightly.file.write_text("<<<<<<< HEAD\n")
    run = nightly.run()
    run.stdout.fnmatch_lines(
        [
            "gate failed: *its nights are not known: *birds.acc.drop.nights.jsonl:1: expected the nights of gate "
            "'birds acc.drop', found '<<<<<<< HEAD': restore a committed version, or delete it to begin anew*"
        ]
    )
    assert run.ret == 1
    assert nightly.file.read_text() == "<<<<<<< HEAD\n"


def test_without_the_key_nothing_is_written(nightly: Suite) -> None:
    nightly.pytester.makeini("[pytest]\n")
    nightly.night(1)
    run = nightly.run()
    run.stdout.no_fnmatch_line("*nights*")
    assert not nightly.file.exists()
    assert nightly.run("-o", "llmeval_nights=true").ret == 0
    assert len(nightly.file.read_text().splitlines()) == 2
