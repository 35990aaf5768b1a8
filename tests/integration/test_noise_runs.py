"""--llmeval-noise as a user meets it: what is scored again, what the verdict says, and every wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Yes by 1 nat, but of the docs in the file ``close`` by .01; those in ``flipped`` are answered no, by .01 too.
#: Computing otherwise moves margins by what the file ``rounding`` says.
WOBBLER = """
import pathlib, pytest

HERE = pathlib.Path(__file__)

def numbers(name):
    return HERE.with_name(name).read_text().split()

class Wobbler:
    def __init__(self, off=0.0):
        self.off = off

    def loglikelihood(self, requests):
        with HERE.with_name("asked").open("a") as log:
            log.write("".join(f"{asked} {self.off}\\n" for asked, _ in requests))
        return [(self.score(asked.split()[1].strip("?"), said == " yes"), False) for asked, said in requests]

    def score(self, doc, is_yes):
        if not is_yes:
            return -2.0
        if doc in numbers("flipped"):
            return -2.01 + self.off
        return (-1.99 if doc in numbers("close") else -1.0) + self.off

class Rounded(Wobbler):
    def recomputed(self, dtype):
        twin = Wobbler(float(numbers("rounding")[0]))
        twin.name = dtype or "other passes"
        yield twin

@pytest.fixture(scope="session")
def llmeval_model():
    return Rounded() if numbers("rounding") else Wobbler()
"""

BASELINE = "--llmeval-baseline=main"
GATE = "--llmeval-fail-on=*.acc >= baseline - 0.02 @ 0.95"


class Suite:
    """Two tasks of 200 docs, all of them yes; 3 of each are close calls."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        pytester.makeconftest(WOBBLER)
        self.write("close", "1 2 3")
        self.write("flipped", "")
        self.write("rounding", "0.02")
        for name in ("birds", "trees"):
            write_task(name, [0] * 200)
        assert self.run(BASELINE, "--llmeval-update-baseline").ret == 0
        self.write("flipped", "1 2 3")
        self.write("asked", "")

    def write(self, name: str, text: str) -> None:
        (self.pytester.path / name).write_text(text)

    def run(self, *options: str) -> pytest.RunResult:
        return self.pytester.runpytest("tasks", *options)

    def scored_again(self) -> list[str]:
        """Docs that were asked of the model computing otherwise."""
        lines = Path(self.pytester.path / "asked").read_text().splitlines()
        return [line.rpartition(" ")[0] for line in lines if not line.endswith(" 0.0")]


@pytest.fixture
def wobbling(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    return Suite(pytester, write_task)


class TestRuns:
    def test_flips_below_the_floor_excuse(self, wobbling: Suite, workers: list[str]) -> None:
        """3 lost of 200 show a drop at .7 (p = .049); without them there is none."""
        gate = "--llmeval-fail-on=*.acc >= baseline @ 0.7"
        plain = wobbling.run(BASELINE, gate, "-m", "llmeval_gate")
        plain.stdout.fnmatch_lines(["gate failed: *birds*: *: 3 lost, 0 gained; *"])
        assert wobbling.scored_again() == []
        more = ["--llmeval-noise=50", "--llmeval-output=out", "-m", "llmeval_gate"]
        run = wobbling.run(BASELINE, gate, *more, *workers)
        assert (run.ret, run.parseoutcomes()["inconclusive"]) == (0, 2)
        run.stdout.fnmatch_lines(["gate inconclusive: *birds*; without the flips under the noise floor it would not *"])
        run.stdout.fnmatch_lines(
            [
                "noise floor of *: acc 0.0200; 50 docs scored again (other passes), which changed acc of ?",
                "noise floor of *: acc 0.0200; 50 docs scored again (other passes), which changed acc of ?",
            ]
        )
        # 50 docs of two tasks with two choices, once, whichever worker and gate asked.
        assert len(wobbling.scored_again()) == 200
        [results] = (wobbling.pytester.path / "out").rglob("results_*.json")
        assert results.read_text().count("3 flips under the noise floor 0.0200 (3 lost, 0 gained) may be rounding") == 2

    def test_the_same_docs_however_they_are_spread(self, wobbling: Suite) -> None:
        wobbling.run(BASELINE, GATE, "--llmeval-noise=20", "-m", "llmeval_gate")
        plain = sorted(wobbling.scored_again())
        wobbling.write("asked", "")
        wobbling.run(BASELINE, GATE, "--llmeval-noise=20", "-n2")
        assert sorted(wobbling.scored_again()) == plain

    def test_another_dtype_reaches_the_model(self, wobbling: Suite) -> None:
        run = wobbling.run(BASELINE, GATE, "--llmeval-noise=50:bfloat16", "-m", "llmeval_gate", "-k", "birds")
        run.stdout.fnmatch_lines(["noise floor of birds: acc 0.0200; 50 docs scored again (bfloat16), *"])
        run.stdout.no_fnmatch_line("noise floor of trees*")

    def test_a_small_floor_changes_nothing(self, wobbling: Suite) -> None:
        wobbling.write("rounding", "0.005")
        run = wobbling.run(BASELINE, GATE, "--llmeval-noise=50", "-v")
        run.stdout.fnmatch_lines(
            ["gate inconclusive: *birds*: *: 3 lost, 0 gained; *no flip lies under the noise floor 0.0050*"]
        )


class TestWrongUse:
    def test_a_model_that_cannot(self, wobbling: Suite, workers: list[str]) -> None:
        wobbling.write("rounding", "")
        run = wobbling.run(BASELINE, GATE, "--llmeval-noise=50", "-m", "llmeval_gate", *workers)
        assert run.ret == pytest.ExitCode.TESTS_FAILED
        run.stdout.fnmatch_lines(
            [
                "gate failed: *there is no noise floor: --llmeval-noise: Wobbler, which llmeval_model gave, has no "
                "method recomputed(dtype): give it one, or omit the option"
            ]
        )
        run.stdout.no_fnmatch_line("*INTERNALERROR*")

    @pytest.mark.parametrize("text", ["x", "0", "-1", "64:", "64:bf16", "64:auto", ":bfloat16", "6.5"])
    def test_a_value_of_no_use(self, pytester: pytest.Pytester, text: str) -> None:
        run = pytester.runpytest(BASELINE, f"--llmeval-noise={text}")
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines([f"*--llmeval-noise: expected N or N:DTYPE, e.g. 64 or 64:bfloat16 *got '{text}'"])

    @pytest.mark.parametrize("options", [(), (BASELINE, "--llmeval-update-baseline")])
    def test_nothing_to_compare_with(self, pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
        run = pytester.runpytest("--llmeval-noise=64", *options)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines(["*--llmeval-noise: '64' is for comparisons with a baseline: name one with *"])

    def test_no_gate_that_compares(self, wobbling: Suite, workers: list[str]) -> None:
        run = wobbling.run(BASELINE, "--llmeval-noise=50", *workers)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines(
            ["*--llmeval-noise: no selected gate compares with the baseline: add one, e.g. --llmeval-fail-on *"]
        )

    def test_an_ini_key_waits_for_a_comparison(self, wobbling: Suite) -> None:
        wobbling.pytester.makeini("[pytest]\nllmeval_noise = 50\n")
        assert wobbling.run("--llmeval-limit=5").ret == 0
        assert wobbling.run(BASELINE, "-k", "doc").ret == 0
        assert wobbling.scored_again() == []
        wobbling.run(BASELINE, GATE)
        assert len(wobbling.scored_again()) == 200
