"""--llmeval-confirm as a user meets it: which docs are asked for again, what the reports say, and every wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Yes, but no to the docs in the file ``first``, and the second time to those in the file ``second``. The file ``kind``
#: says how the model answers a second time: in other passes, as it is, without numbers, or not at all.
VARYING = """
import pathlib, pytest
from pytest_llmeval._errors import ModelError

HERE = pathlib.Path(__file__)

def words(name):
    return HERE.with_name(name).read_text().split()

class Varying:
    def __init__(self, look="first"):
        self.look, self.asked = look, set()

    def loglikelihood(self, requests):
        return [(self.score(asked, said == " yes"), False) for asked, said in requests]

    def score(self, asked, is_yes):
        look = "second" if (asked, is_yes) in self.asked else self.look
        self.asked.add((asked, is_yes))
        with HERE.with_name("asked").open("a") as log:
            log.write(f"{look} {asked}\\n")
        if look == "second" and words("kind") == ["broken"]:
            return float("nan")
        return -1.0 if is_yes is not (asked.split()[1].strip("?") in words(look)) else -2.0

class Recomputed(Varying):
    def recomputed(self, dtype):
        twin = Varying("second")
        twin.name = dtype or "other passes"
        if words("kind") == ["unloadable"]:
            def prepare():
                raise ModelError("model twin: out of memory")
            twin.prepare = prepare
        yield twin

def load(rest, args):
    return Recomputed() if words("kind") in (["passes"], ["unloadable"]) else Varying()

@pytest.hookimpl
def pytest_llmeval_register_models(register):
    register("varying", load)
"""

#: A suite that gives the model itself.
FIXTURE = """
@pytest.fixture(scope="session")
def llmeval_model(llmeval_model):
    return llmeval_model
"""

BASELINE = "--llmeval-baseline=main"
CONFIRM = "--llmeval-confirm"
GATE = "--llmeval-fail-on=*.acc >= baseline @ 0.95"
#: 9 lost and 2 gained of 100 docs show a fall (p = .020).
FIRST = "0 1 2 3 4 5 6 7 8 90 91"
#: 4 lost and 3 gained do not (p = .52).
UNDONE = "0 1 2 9 90 91 92"
#: 8 lost and 1 gained do (p = .0098).
AGAIN = "0 1 2 3 4 5 6 7 90"


class Suite:
    """One task of 100 docs: in the baseline the first 90 are right, the others wrong."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        pytester.makeconftest(VARYING)
        for name, text in {"first": "", "second": "", "kind": "passes"}.items():
            self.write(name, text)
        write_task("birds", [0] * 90 + [1] * 10)
        every = self.run("--llmeval-update-baseline", "--llmeval-fail-on=birds.acc >= 0", "-m", "llmeval_gate")
        assert every.ret == 0
        self.write("first", FIRST)
        self.write("asked", "")

    def write(self, name: str, text: str) -> None:
        (self.pytester.path / name).write_text(text)

    def run(self, *options: str) -> pytest.RunResult:
        model = [] if "--llmeval-bisect" in options else ["--llmeval-model=varying:one"]
        return self.pytester.runpytest("tasks", BASELINE, *model, *options)

    def judged(self, second: str, *options: str, gate: str = GATE) -> pytest.RunResult:
        self.write("second", second)
        return self.run(gate, "-m", "llmeval_gate", *options)

    def asked_again(self) -> int:
        """The number of requests made a second time."""
        return Path(self.pytester.path / "asked").read_text().count("second")


@pytest.fixture
def varying(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    return Suite(pytester, write_task)


class TestRuns:
    def test_a_loss_that_is_undone_is_no_failure(self, varying: Suite, workers: list[str]) -> None:
        """Workers of xdist have ended by then, and the model is loaded once more."""
        run = varying.judged(UNDONE, CONFIRM, "--llmeval-output=out", *workers)
        assert (run.ret, run.parseoutcomes()["inconclusive"]) == (0, 1)
        run.stdout.fnmatch_lines(
            ["gate inconclusive: *: 9 lost, 2 gained; p = 0.02 for a fall; 3 of 9 losses and 2 of 2 gains recur *"]
        )
        # Two choices of each doc.
        assert varying.asked_again() == 200
        [file] = (varying.pytester.path / "out").rglob("results_*.json")
        [gate] = json.loads(file.read_text())["pytest_llmeval"]["gates"].values()
        assert "the second answers do not show a fall (p = 0.52)" in gate["sentence"]
        assert (gate["numbers"]["acc"], gate["numbers"]["lost_twice"]) == (0.83, 3)
        [file] = (varying.pytester.path / "out").rglob("samples_birds_*.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        both = {doc: (rows[doc]["acc"], rows[doc]["again"]["acc"]) for doc in (0, 3, 9, 10, 90, 92)}
        assert both == {0: (0, 0), 3: (0, 1), 9: (1, 0), 10: (1, 1), 90: (1, 1), 92: (0, 1)}
        assert rows[3]["filtered_resps"] == [["-2.0", "False"], ["-1.0", "False"]]
        assert rows[3]["again"]["filtered_resps"] == [["-1.0", "False"], ["-2.0", "False"]]

    def test_a_loss_that_recurs_fails_whatever_the_noise(self, varying: Suite) -> None:
        """The margins of 1 are far above the floor of noise: both looks count all flips."""
        run = varying.judged(AGAIN, CONFIRM, "--llmeval-noise=5")
        assert run.ret == pytest.ExitCode.TESTS_FAILED
        run.stdout.fnmatch_lines(
            ["gate failed: *8 of 9 losses and 1 of 2 gains recur*(other passes); the second answers show a fall *"]
        )

    def test_gates_that_are_not_asked_again(self, varying: Suite) -> None:
        """One on the observed value, a floor, and one that does not fail alone."""
        varying.pytester.makeini("[pytest]\nllmeval_confirm = true\n")
        others = [
            "--llmeval-fail-on=*.acc >= 0.99 @ 0.95 as floor",
            "--llmeval-fail-on=*.acc >= baseline @ 0.99 as strict",
        ]
        run = varying.judged(UNDONE, *others, gate="--llmeval-fail-on=*.acc >= baseline")
        run.assert_outcomes(failed=2)
        assert run.parseoutcomes()["inconclusive"] == 1
        assert varying.asked_again() == 0

    def test_gates_share_the_second_answers(self, varying: Suite) -> None:
        varying.write("kind", "plain")
        run = varying.judged(UNDONE, CONFIRM, "--llmeval-fail-on=*.acc >= baseline @ 0.9 as other")
        assert run.parseoutcomes()["inconclusive"] == 2
        run.stdout.fnmatch_lines(
            ["gate inconclusive: *2 of 2 gains recur when 100 docs are answered again, beside *"] * 2
        )
        assert varying.asked_again() == 200

    @pytest.mark.parametrize(
        ("kind", "reason"),
        [("unloadable", "model twin: out of memory"), ("broken", "100 docs got no usable number from the model (NaN)")],
    )
    def test_a_failure_stands_if_nothing_answers_again(self, varying: Suite, kind: str, reason: str) -> None:
        varying.write("kind", kind)
        run = varying.judged(UNDONE, CONFIRM)
        assert run.ret == pytest.ExitCode.TESTS_FAILED
        run.stdout.fnmatch_lines(
            [f"gate failed: *; not confirmed, because the docs could not be answered again: {reason}*"]
        )

    def test_early_stopping(self, varying: Suite) -> None:
        """With every doc lost a part of the docs proves the loss, in both looks; or the second one takes it back."""
        lost = " ".join(map(str, range(90)))
        varying.write("first", lost)
        options = [CONFIRM, "--llmeval-early-stop", "-o", "llmeval_stop_seed=1"]
        gate = "--llmeval-fail-on=*.acc >= baseline - 0.1 @ 0.95"
        failed = varying.judged(lost, *options, gate=gate)
        failed.stdout.fnmatch_lines(["gate failed: *the second answers show a fall too; proven after 13 of 100 docs*"])
        assert varying.asked_again() == 64
        taken_back = varying.judged("", *options, gate=gate)
        taken_back.stdout.fnmatch_lines(
            ["gate inconclusive: *; 0 of * losses and 0 of 0 gains recur when 32 docs are *"]
        )

    def test_bisect(self, varying: Suite) -> None:
        """Every checkpoint answers as this one does: without a confirmed loss BAD fails no gate."""
        search = ["--llmeval-bisect", "varying:one", "varying:three", "--llmeval-model=varying:one"]
        search += ["--llmeval-model=varying:two", "--llmeval-model=varying:three"]
        run = varying.judged(UNDONE, CONFIRM, *search)
        run.stdout.fnmatch_lines(
            [
                "varying:one: good (gates: 1 inconclusive)",
                "no first bad checkpoint found: BAD varying:three fails no gate",
            ]
        )

    def test_workers_that_alone_had_the_model(self, varying: Suite) -> None:
        pytest.importorskip("xdist")
        varying.pytester.makeconftest(VARYING + FIXTURE)
        run = varying.judged(UNDONE, CONFIRM, "-n2")
        assert run.ret == pytest.ExitCode.TESTS_FAILED
        run.stdout.fnmatch_lines(
            [
                "gate failed: *; not confirmed, because the docs could not be answered again: a conftest.py gives the "
                "model, and the workers that had it have ended; run it without -n*"
            ]
        )


class TestWrongUse:
    @pytest.mark.parametrize("options", [(), (BASELINE, "--llmeval-update-baseline")])
    def test_nothing_to_compare_with(self, pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
        run = pytester.runpytest(CONFIRM, *options)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines(
            ["*--llmeval-confirm: needs --llmeval-baseline NAME, without --llmeval-update-baseline"]
        )

    def test_no_gate_that_it_is_for(self, varying: Suite) -> None:
        run = varying.judged(UNDONE, CONFIRM, gate="--llmeval-fail-on=*.acc >= baseline")
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines(
            ["*--llmeval-confirm: no selected gate with a confidence compares with the baseline: add one, e.g. *"]
        )
