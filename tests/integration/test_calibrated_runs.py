"""--llmeval-calibrate as a user meets it: what is asked again, what baseline and report say, and every wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Says yes, but to docs in the file ``unsteady``: the k-th answer to one of these is right if its k-th digit is 1.
WAVERER = """
import collections, pathlib, pytest

class Waverer:
    def __init__(self):
        lines = pathlib.Path(__file__).with_name("unsteady").read_text().splitlines()
        self.unsteady = dict(line.rsplit(" ", 1) for line in lines)
        self.asked = collections.Counter()

    def loglikelihood(self, requests):
        return [(self.score(*request), False) for request in requests]

    def score(self, asked, said):
        digits = self.unsteady.get(asked, "1")
        right = digits[min(self.asked[asked, said], len(digits) - 1)] == "1"
        self.asked[asked, said] += 1
        return -1.0 if (said == " yes") == right else -2.0

@pytest.fixture(scope="session")
def llmeval_model():
    return Waverer()
"""

BASELINE = "--llmeval-baseline=main"
UPDATE = "--llmeval-update-baseline"


class Suite:
    """A task of 40 docs, all of them yes, of which three waver."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        pytester.makeconftest(WAVERER)
        self.waver("birds 1? 1011", "birds 2? 0110", "birds 3? 1110")
        write_task("birds", [0] * 40)

    def waver(self, *lines: str) -> None:
        (self.pytester.path / "unsteady").write_text("\n".join(lines))

    def run(self, *options: str) -> pytest.RunResult:
        return self.pytester.runpytest("tasks", *options)

    @property
    def head(self) -> dict[str, object]:
        path = Path(self.pytester.path / ".llmeval" / "baselines" / "main" / "birds.txt")
        lines = path.read_text().partition("\n\n")[0].splitlines()
        return {name: json.loads(value) for name, _, value in (line.partition(": ") for line in lines[1:])}


@pytest.fixture
def wavering(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    return Suite(pytester, write_task)


class TestCalibrating:
    def test_flips_are_counted_written_and_told(self, wavering: Suite, workers: list[str]) -> None:
        """Of four runs the three docs are right in 3, 2 and 3: 2 (3 + 4 + 3) / (4 x 3) flips are to be expected."""
        gates = ["--llmeval-fail-on=birds.acc >= 0.96", "--llmeval-fail-on=birds.acc >= baseline - 0.2 @ 0.95"]
        run = wavering.run(BASELINE, UPDATE, "--llmeval-calibrate=4", *gates, *workers)
        assert run.ret == 0
        assert wavering.head["calibration"] == {
            "docs": 40,
            "ways": ["other order"] * 3,
            "scores": {
                "acc,none": {"down": [1, 0, 1], "up": [1, 1, 0], "flips": 1.6667, "variances": [0.66665, 0.33335]}
            },
        }
        run.stdout.fnmatch_lines(
            [
                "calibration of birds: acc: 1.67 of 40 docs differ between two of 4 runs; compared with the first, "
                "0 to 1 fell and 0 to 1 rose",
                "calibration of birds: acc >= 0.96 would fail * % of good builds (up to * %, from 4 runs); acc >= "
                "baseline - 0.01 at 95 % confidence would fail * % of good builds (*)",
                "calibration of birds: acc >= baseline - 0.2 at 95 % confidence would fail under 0.1 % of good builds "
                "(from 4 runs)",
            ]
        )

    def test_later_runs_count_flips_beyond_these(self, wavering: Suite) -> None:
        """Fewer than 1.67 net losses are usual, of docs that all flip at times; then a run that loses 12 more."""
        gate = "--llmeval-fail-on=birds.acc >= baseline @ 0.6"
        wavering.run(BASELINE, UPDATE, "--llmeval-calibrate=4")
        wavering.waver("birds 1? 0")
        usual = wavering.run(BASELINE, gate, "-v")
        usual.stdout.fnmatch_lines(
            [
                "llmeval: acc >= baseline at 60 % confidence: a true fall of * on 40 docs would fail in 80 % of runs, "
                "as 4.2 % of the docs flip anyway (measured in 4 runs)",
                "gate *: *calibration: 4 runs of the baseline's build: 1.67 of 40 docs differ between two of them, and "
                "95 % of runs have a net loss of at most 1 doc; this gate would fail * % of good builds (*)*",
            ]
        )
        wavering.waver(*(f"birds {doc}? 0" for doc in range(12)))
        worse = wavering.run(BASELINE, gate)
        assert worse.ret == pytest.ExitCode.TESTS_FAILED
        worse.stdout.fnmatch_lines(["gate failed: *birds*: 11 lost, 0 gained; *"])

    def test_new_answers_end_it(self, wavering: Suite) -> None:
        wavering.run(BASELINE, UPDATE, "--llmeval-calibrate=2")
        part = wavering.run(BASELINE, UPDATE, "--llmeval-calibrate=2", "--llmeval-limit=5")
        part.stdout.fnmatch_lines(
            ["baseline main: no longer calibrated, because its answers are not all of one *: birds; *"]
        )
        assert "calibration" not in wavering.head
        again = wavering.run(BASELINE, UPDATE)
        again.stdout.no_fnmatch_line("*calibrat*")

    def test_an_ini_key_waits_for_a_run_that_writes(self, wavering: Suite) -> None:
        wavering.pytester.makeini("[pytest]\nllmeval_calibrate = 3\n")
        assert wavering.run().ret == 0
        wavering.run(BASELINE, UPDATE)
        assert "calibration" in wavering.head


class TestWrongUse:
    @pytest.mark.parametrize("text", ["x", "0", "1", "-2", "2.5"])
    def test_a_value_of_no_use(self, pytester: pytest.Pytester, text: str) -> None:
        run = pytester.runpytest(BASELINE, UPDATE, f"--llmeval-calibrate={text}")
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines([f"*--llmeval-calibrate: expected a whole number from 2, got '{text}'"])

    @pytest.mark.parametrize("options", [(), (BASELINE,)])
    def test_no_baseline_is_written(self, pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
        run = pytester.runpytest("--llmeval-calibrate=8", *options)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines(["*--llmeval-calibrate: '8' is for the run that writes a baseline: add *"])
