"""``--llmeval-bisect``: finds the first checkpoint that fails a gate, and says when there is none to find."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest


pytest_plugins = ["pytester"]

#: Models `fake:N` say yes until they are N >= BAD, then no; each load is noted.
SCHEME = """
import os

from pytest_llmeval._errors import ModelError


class Checkpoint:
    def __init__(self, number):
        self.number = number

    def loglikelihood(self, requests):
        mode = os.environ.get("MODE")
        if mode == "fails" and self.number == 3:
            raise ModelError("model fake:3: out of memory")
        liked = "no" if self.number >= int(os.environ["BAD"]) else "yes"
        return [(float("nan") if mode == "nan" and liked == "no" else -1.0 if text.strip() == liked else -2.0, False)
                for _, text in requests]

    def loglikelihood_rolling(self, requests):
        return [0.0 for _ in requests]

    def generate_until(self, requests):
        return ["" for _ in requests]

    def close(self):
        with open("log", "a") as log:
            log.write(f"closed {self.number}\\n")


def load(rest, args):
    with open("log", "a") as log:
        log.write(f"loaded {rest}\\n")
    return Checkpoint(int(rest))


def pytest_llmeval_register_models(register):
    register("fake", load)
"""


@pytest.fixture
def history(pytester: pytest.Pytester, suite: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tasks of `suite`: `even` asks for half, `hard` for nine tenths; here all right answers are yes."""
    pytester.makeconftest(SCHEME)
    for name, labels in {"even": [0] * 8 + [1, 1], "hard": [0] * 6}.items():
        rows = [f'{{"q": "{name} {i}?", "label": {label}}}' for i, label in enumerate(labels)]
        (suite / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.setenv("BAD", "5")
    return suite


def models(*numbers: int) -> list[str]:
    return [f"--llmeval-model={n}=fake:{n}" for n in numbers]


def bisect(good: int, bad: int) -> list[str]:
    return ["--llmeval-bisect", f"{good}=fake:{good}", f"{bad}=fake:{bad}"]


@pytest.mark.parametrize("first", range(1, 8))
def test_the_first_bad_is_found_wherever_it_lies(
    pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setenv("BAD", str(first))
    result = pytester.runpytest("tasks", *models(1, 2, 3, 4, 5, 6), *bisect(0, 7))
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "bisect: 8 checkpoints from 0 to 7, 3 gates; at most 5 are loaded",
            "0: good (gates: 3 passed)",
            "7: bad (gates: 3 failed)",
            "  gate failed: tasks/even.yaml::gate[[]acc[]]: even: acc 0.2000 *required >= 0.5",
            f"first bad: {first} (tasks/even.yaml::gate[[]acc[]], *); last good: {first - 1}",
            f"look at: 14 answers right on {first - 1} and wrong on {first}:",
            "  even: docs 0, 1, 2, 3, 4, 5, 6, 7",
            "*good*bad*",
        ]
    )
    log = (pytester.path / "log").read_text().splitlines()
    # One at a time: each is closed before the next is loaded.
    assert [line.split()[0] for line in log] == ["loaded", "closed"] * (len(log) // 2)
    assert len(log) // 2 <= math.ceil(math.log2(8)) + 2
    assert len(set(log)) == len(log)


def test_each_checkpoint_is_asked_no_more_than_it_takes(pytester: pytest.Pytester, history: Path) -> None:
    rows = [f'{{"q": "hard {i}?", "label": 0}}' for i in range(100)]
    (history / "hard.jsonl").write_text("\n".join(rows) + "\n")
    result = pytester.runpytest(
        "tasks/hard.yaml", *models(2, 3, 4, 5), *bisect(1, 6), "--llmeval-early-stop", "-ollmeval_stop_seed=0"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  gate failed: tasks/hard.yaml::gate[[]acc[]]: *on 32 of 100 docs*; proven after * of 100 docs at 95 %",
            "first bad: 5 (tasks/hard.yaml::gate[[]acc[]]); last good: 4",
            "look at: * answers right on 4 and wrong on 5:",
        ]
    )


def test_only_selected_gates_count(pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", "2")
    result = pytester.runpytest("tasks/hard.yaml", *models(1), *bisect(0, 2), "--junitxml=out.xml")
    result.stdout.fnmatch_lines(["first bad: 2 (tasks/hard.yaml::gate[[]acc[]]); last good: 1", "*2 good, 1 bad*"])
    result.stdout.no_fnmatch_line("*even*")
    cases = [case.get("name") for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")]
    assert cases == ["0", "2", "1"]


def test_neighbours(pytester: pytest.Pytester, history: Path) -> None:
    result = pytester.runpytest("tasks", *models(4, 5), "--llmeval-bisect", "4", "5")
    result.stdout.fnmatch_lines(["first bad: 5 (*); last good: 4"])
    assert (pytester.path / "log").read_text().count("loaded") == 2


def test_a_good_one_that_fails(pytester: pytest.Pytester, history: Path) -> None:
    result = pytester.runpytest("tasks/hard.yaml", *models(7), *bisect(6, 8))
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "  gate failed: tasks/hard.yaml::gate[[]acc[]]: hard: acc 0.0000 *required >= 0.9",
            "no first bad checkpoint found: GOOD 6 fails tasks/hard.yaml::gate[[]acc[]]",
        ]
    )
    assert (pytester.path / "log").read_text().splitlines() == ["loaded 6", "closed 6"]


def test_a_bad_one_that_passes(pytester: pytest.Pytester, history: Path) -> None:
    result = pytester.runpytest("tasks", *models(2), *bisect(1, 3))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["no first bad checkpoint found: BAD 3 fails no gate"])
    assert "loaded 2" not in (pytester.path / "log").read_text()


def test_a_checkpoint_that_cannot_be_judged(
    pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out: its neighbours tell as much. Only beside the first bad one it leaves a doubt."""
    monkeypatch.setenv("MODE", "fails")
    result = pytester.runpytest("tasks/hard.yaml", *models(2, 3, 4), *bisect(1, 5))
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["3 cannot be judged: *out of memory*; left out", "first bad: 5 (tasks/hard.yaml::gate[[]acc[]]); last good: 4"]
    )
    monkeypatch.setenv("BAD", "4")
    result = pytester.runpytest("tasks/hard.yaml", *models(2, 3, 4), *bisect(1, 5))
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["first bad: 4 (tasks/hard.yaml::gate[[]acc[]]), or one before it that cannot be judged: 3; last good: 2"]
    )


def test_one_of_the_ends_cannot_be_judged(
    pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "fails")
    result = pytester.runpytest("tasks/hard.yaml", *models(2), *bisect(1, 3))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["no first bad checkpoint found: 3 cannot be judged: *out of memory*"])
    assert (pytester.path / "log").read_text().splitlines()[-1] == "closed 3"


def test_nan_makes_a_checkpoint_bad(pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "nan")
    result = pytester.runpytest("tasks/hard.yaml", *models(4, 5), *bisect(3, 6))
    result.stdout.fnmatch_lines(["  gate failed: * (NaN)", "first bad: 5 (*); last good: 4"])


@pytest.mark.parametrize(("ini", "first"), [("pass", 5), ("fail", 3)])
def test_inconclusive_is_no_failure_but_is_said(pytester: pytest.Pytester, history: Path, ini: str, first: int) -> None:
    """From 3 on the verdict is inconclusive, from 5 on failed."""
    conftest = (pytester.path / "conftest.py").read_text()
    pytester.makeconftest(
        conftest
        + """
from pytest_llmeval._verdicts import Verdict

def pytest_collection_finish(session):
    ours = session.config.pluginmanager.get_plugin("llmeval-running").session
    judged = ours.judge.verdict
    def verdict(run, owner, gate):
        if run.model in "34":
            return Verdict("inconclusive", "too few docs to tell")
        return judged(run, owner, gate)
    ours.judge.verdict = verdict
"""
    )
    pytester.makeini(f"[pytest]\nllmeval_inconclusive = {ini}\n")
    result = pytester.runpytest("tasks/hard.yaml", *models(2, 3, 4, 5), *bisect(1, 6))
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"first bad: {first} (*); last good: {first - 1}"])
    if ini == "pass":
        result.stdout.fnmatch_lines(["  gate inconclusive, taken as not failing: *too few docs to tell"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "-k", "doc", *models(2), *bisect(1, 3)], "--llmeval-bisect: no gate is selected*"),
        (["--llmeval-bisect", "1=fake:1", "3=fake:3", "tasks"], "--llmeval-bisect: 'fake:1': there is no such folder*"),
        (
            ["tasks", *models(1, 2), "--llmeval-bisect", "2", "1"],
            "--llmeval-bisect: GOOD '2' is listed after BAD '1'*",
        ),
        (
            ["tasks", *models(1, 2, 3), "--llmeval-bisect", "1", "2"],
            "--llmeval-bisect: the model 'fake:3' is not between GOOD '1' and BAD '2'",
        ),
        (["tasks", *models(2), *bisect(1, 1)], "--llmeval-bisect: GOOD and BAD are both 'fake:1'*"),
        (["tasks", *models(2), *bisect(1, 3), "-n2"], "--llmeval-bisect: *run it without -n"),
        (["tasks", *models(2), "--llmeval-bisect", "fake:1", "fak:3"], "--llmeval-bisect: model 'fak:3': no scheme*"),
    ],
)
def test_wrong_use(pytester: pytest.Pytester, history: Path, arguments: list[str], message: str) -> None:
    result = pytester.runpytest(*arguments)
    assert result.ret == 4
    (result.stderr if "ERROR" in result.stderr.str() else result.stdout).fnmatch_lines([f"ERROR: {message}"])
    assert not (pytester.path / "log").exists()


def test_no_task_file_at_all(pytester: pytest.Pytester, history: Path) -> None:
    pytester.makepyfile(test_plain_one="def test_one(): pass")
    result = pytester.runpytest("test_plain_one.py", *models(2), *bisect(1, 3))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --llmeval-bisect: no gate is selected*"])


def test_a_fixture_in_the_way(pytester: pytest.Pytester, history: Path) -> None:
    conftest = (pytester.path / "conftest.py").read_text()
    fixture = "\nimport pytest\n\n@pytest.fixture(scope='session')\ndef llmeval_model(llmeval_model):\n    yield\n"
    pytester.makeconftest(conftest + fixture)
    result = pytester.runpytest("tasks", *models(2), *bisect(1, 3))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --llmeval-bisect: *overrides the fixture llmeval_model*"])


def test_a_broken_task_file_stops_it(pytester: pytest.Pytester, history: Path) -> None:
    (history / "broken.yaml").write_text("task: broken\noutput_type: nonsense\n")
    result = pytester.runpytest("tasks", *models(2), *bisect(1, 6))
    assert result.ret == 2
    assert not (pytester.path / "log").exists()


def test_collect_only_lists(pytester: pytest.Pytester, history: Path) -> None:
    result = pytester.runpytest("tasks/hard.yaml", "--collect-only", "-q", *models(2), *bisect(1, 6))
    result.stdout.fnmatch_lines(["tasks/hard.yaml::doc[[]0[]]", "tasks/hard.yaml::gate[[]acc[]]"])
    assert result.ret == 0


def test_the_job_summary_tells(pytester: pytest.Pytester, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    pytester.runpytest("tasks/hard.yaml", *models(4, 5), *bisect(3, 6))
    text = (pytester.path / "summary.md").read_text()
    assert "## llmeval: bisect\n\nfirst bad: 5 (tasks/hard.yaml::gate[acc]); last good: 4  \n" in text


def test_saved_checkpoints_beside_each_other(pytester: pytest.Pytester, starter_models: Path) -> None:
    """good, good, damaged, damaged: found with one load besides the two ends."""
    for number, name in enumerate(["good", "good", "damaged", "damaged"], 1):
        (pytester.path / f"checkpoint-{number * 500}").symlink_to(starter_models / name)
    starter = starter_models.parent
    ends = [str(pytester.path / f"checkpoint-{number}") for number in (500, 2000)]
    result = pytester.runpytest_subprocess(
        str(starter / "capitals.yaml"), str(starter / "animals.yaml"), "--llmeval-bisect", *ends
    )
    result.stdout.fnmatch_lines(
        [
            "bisect: 4 checkpoints from checkpoint-500 to checkpoint-2000, 2 gates; at most 4 are loaded",
            "checkpoint-1000: good (gates: 2 passed)",
            "checkpoint-1500: bad (gates: 1 failed, 1 passed)",
            "first bad: checkpoint-1500 (*capitals.yaml::gate[[]acc[]]); last good: checkpoint-1000",
            "look at: * answers right on checkpoint-1000 and wrong on checkpoint-1500:",
        ]
    )
    assert result.ret == 0


def test_a_broken_one_among_the_saved(pytester: pytest.Pytester, starter_models: Path) -> None:
    """Nobody named it: a save that was cut off must not keep the search from starting."""
    for number, name in {1: "good", 3: "good", 4: "damaged"}.items():
        (pytester.path / f"step-{number}").symlink_to(starter_models / name)
    (pytester.path / "step-2").mkdir()
    result = pytester.runpytest_subprocess(
        str(starter_models.parent / "capitals.yaml"), "--llmeval-bisect", "step-1", "step-4"
    )
    result.stdout.fnmatch_lines(
        [
            "step-2 cannot be judged: model *step-2*; left out",
            "step-3: good (gates: 1 passed)",
            "first bad: step-4 (*capitals.yaml::gate[[]acc[]]); last good: step-3",
        ]
    )
    assert result.ret == 0
