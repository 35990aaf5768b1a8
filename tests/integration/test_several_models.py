"""Two checkpoints in one session: ids, selection, order of loading, gates, comparison, files; with workers too."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from yessuite import WriteTask

from pytest_llmeval import _models
from pytest_llmeval._session.startup import MODELS as SERVED


pytest_plugins = ["pytester"]

#: Models `fake:ANSWER` always prefer that answer; each load and close is noted, with the process.
SCHEME = """
import os


class Stubborn:
    def __init__(self, answer):
        self.answer = answer

    def loglikelihood(self, requests):
        return [(-1.0 if text.strip() == self.answer else -2.0, False) for _, text in requests]

    def loglikelihood_rolling(self, requests):
        return [0.0 for _ in requests]

    def generate_until(self, requests):
        return ["" for _ in requests]

    def close(self):
        note("closed", self.answer)


def note(what, answer):
    with open(f"log-{os.getpid()}", "a") as log:
        log.write(f"{what} {answer}\\n")


def load(rest, args):
    note("loaded", rest)
    return Stubborn(rest)


def pytest_llmeval_register_models(register):
    register("fake", load)
"""
MODELS = ["--llmeval-model=ckpt-1=fake:yes", "--llmeval-model=ckpt-2=fake:no"]


@pytest.fixture
def two(pytester: pytest.Pytester, suite: Path) -> Path:
    """even: half of 10 right under both; hard: under ckpt-1 all 6, under ckpt-2 none; gates as in `suite`."""
    pytester.makeconftest(SCHEME)
    (suite / "hard.jsonl").write_text("".join(f'{{"q": "hard {i}?", "label": 0}}\n' for i in range(6)))
    return suite


def logs(pytester: pytest.Pytester) -> list[list[str]]:
    return [path.read_text().splitlines() for path in sorted(pytester.path.glob("log-*"))]


def test_ids_carry_the_model_and_come_model_by_model(pytester: pytest.Pytester, two: Path) -> None:
    result = pytester.runpytest("tasks", "--collect-only", "-q", "--llmeval-limit=1", *MODELS)
    ids = [line.removeprefix("tasks/") for line in result.outlines if "::" in line]
    of_one = ["even.yaml::doc[{}-0]", "even.yaml::gate[{}-acc]", "hard.yaml::doc[{}-0]", "hard.yaml::gate[{}-acc]"]
    of_one.append("all.yaml::gate[{}-acc]")
    assert ids == [line.format(model) for model in ("ckpt-1", "ckpt-2") for line in of_one]


def test_all_of_both(pytester: pytest.Pytester, two: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", "--llmeval-output=out", *MODELS, *workers)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*= llmeval: 2 models =*",
            "|all *|acc *|0.6875|0.3125|-0.3750|*",
            "not shown: 2 tasks without a significant change (-v shows all)",
            "gate failed: tasks/hard.yaml::gate[[]ckpt-2-acc[]]: hard: acc 0.0000*",
            "gate failed: tasks/all.yaml::gate[[]ckpt-2-acc[]]: all: acc 0.3125*",
            "ckpt-1: gates: 3 passed",
            "ckpt-1: wrong answers: 5 of 16",
            "ckpt-2: gates: 2 failed, 1 passed",
            "ckpt-2: wrong answers: 11 of 16",
            "*2 failed, 20 passed, 16 wrong*",
        ]
    )
    result.stdout.no_fnmatch_line("*llmeval: ckpt-1*")
    assert_one_at_a_time_and_each_once(pytester)
    written = [json.loads(path.read_text())["results"] for path in pytester.path.glob("out/*/results_*.json")]
    assert sorted(results["hard"]["acc,none"] for results in written) == [0.0, 1.0]


@pytest.mark.parametrize(("family", "outcome"), [("checkpoint", "failed"), ("session", "inconclusive")])
def test_three_models_share_the_error_of_a_session(
    pytester: pytest.Pytester, write_task: WriteTask, workers: list[str], family: str, outcome: str
) -> None:
    """5 of 10 right with a floor of .8 has p = .033: below .05, and above a third of it."""
    pytester.makeconftest(SCHEME)
    write_task("half", [0, 1] * 5, gates="acc >= 0.8 @ 0.95")
    models = [*MODELS, "--llmeval-model=ckpt-3=fake:maybe"]
    run = pytester.runpytest("tasks", "-k", "gate", "-o", f"llmeval_family={family}", *models, *workers)
    lines = [line for line in run.outlines if line.startswith("gate ")]
    of_half = [f"gate {outcome}: tasks/half.yaml::gate[{model}-acc]: " for model in ("ckpt-1", "ckpt-2")]
    assert [line[: len(start)] for line, start in zip(lines, of_half, strict=False)] == of_half
    divided = "it would fail alone (p = 0.033 for its limit) but not with Holm's correction over 1 gate, "
    assert [f"{divided}the error divided by 3 models" in line for line in lines[:2]] == [family == "session"] * 2


def test_gates_alone(pytester: pytest.Pytester, two: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", "-m", "llmeval_gate", *MODELS, *workers)
    result.stdout.fnmatch_lines(["*2 failed, 4 passed*"])
    assert_one_at_a_time_and_each_once(pytester)


def assert_one_at_a_time_and_each_once(pytester: pytest.Pytester) -> None:
    """In every process that loaded any."""
    found = logs(pytester)
    assert found
    for lines in found:
        assert [line.split()[0] for line in lines] == ["loaded", "closed"] * (len(lines) // 2)
        assert len(set(lines)) == len(lines)


def test_selected_by_the_name_of_one(pytester: pytest.Pytester, two: Path) -> None:
    result = pytester.runpytest("tasks", "-k", "ckpt-2", *MODELS)
    result.stdout.fnmatch_lines(["*= llmeval: ckpt-2 =*", "*2 failed, 6 passed*11 wrong*"])
    assert logs(pytester) == [["loaded no", "closed no"]]


def test_verbose_shows_the_tables_of_each(pytester: pytest.Pytester, two: Path) -> None:
    result = pytester.runpytest("tasks", "-v", *MODELS)
    result.stdout.fnmatch_lines(["*= llmeval: 2 models =*", "*= llmeval: ckpt-1 =*", "*= llmeval: ckpt-2 =*"])


def test_other_docs_are_not_compared(pytester: pytest.Pytester, two: Path) -> None:
    result = pytester.runpytest("tasks", "-k", "doc", "--deselect=tasks/hard.yaml::doc[ckpt-2-5]", "-v", *MODELS)
    result.stdout.fnmatch_lines(
        ["| - even|acc *|0.5000|0.5000|*", "not compared, * other docs: hard (ckpt-1 6, ckpt-2 5)"]
    )
    result.stdout.no_fnmatch_line("|hard *|1.0000|0.0000|*")


def test_models_of_a_fixture_are_compared_too(pytester: pytest.Pytester, suite: Path) -> None:
    conftest = (pytester.path / "conftest.py").read_text().split("@pytest.fixture")[0]
    fixture = """
@pytest.fixture(scope="session", params=["yes", "no"])
def llmeval_model(request):
    return Yes(request.param)
"""
    pytester.makeconftest(conftest + fixture)
    result = pytester.runpytest("tasks")
    result.stdout.fnmatch_lines(["*= llmeval: 2 models =*", "|Tasks|Metric|   |   yes|    no| Change|*"])


@pytest.mark.parametrize(
    ("takes", "code"),
    [("", 4), ("tmp_path_factory", 4), ("llmeval_model", 0), ("llmeval_model_name", 0), ("request", 0)],
)
def test_a_model_that_is_named_is_not_left_aside(
    pytester: pytest.Pytester, suite: Path, starter_models: Path, takes: str, code: int
) -> None:
    """A gate must not be judged on another model than the one that the command names."""
    conftest = (pytester.path / "conftest.py").read_text().split("@pytest.fixture")[0]
    model = "llmeval_model" if takes == "llmeval_model" else 'Yes("yes")'
    fixture = f"""
@pytest.fixture(scope="session")
def llmeval_model({takes}):
    return {model}
"""
    pytester.makeconftest(conftest + fixture)
    named = f"--llmeval-model={starter_models / 'good'}"
    result = pytester.runpytest("tasks/even.yaml", named)
    if code:
        result.stderr.fnmatch_lines([f"ERROR: --llmeval-model: {starter_models / 'good'} would not be used, *"])
    assert result.ret == code


def test_items_without_fixtures_stand_beside_a_model_that_is_named(
    pytester: pytest.Pytester, suite: Path, starter_models: Path
) -> None:
    checks = """
class Checked(pytest.Item):
    def runtest(self):
        pass

class Checks(pytest.File):
    def collect(self):
        yield Checked.from_parent(self, name="check")

def pytest_collect_file(file_path, parent):
    return Checks.from_parent(parent, path=file_path) if file_path.suffix == ".check" else None

@pytest.fixture(scope="session")
def llmeval_model(llmeval_model_name):
    return Yes()
"""
    pytester.makeconftest((pytester.path / "conftest.py").read_text().split("@pytest.fixture")[0] + checks)
    pytester.makefile(".check", a="")
    named = f"--llmeval-model={starter_models / 'good'}"
    alone = pytester.runpytest("tasks/even.yaml", named).parseoutcomes()
    both = pytester.runpytest("a.check", "tasks/even.yaml", named)
    assert both.parseoutcomes() == alone | {"passed": alone["passed"] + 1}
    assert both.ret == 0


def test_a_model_of_the_ini_file_is_for_suites_without_a_fixture_of_their_own(
    pytester: pytest.Pytester, suite: Path, starter_models: Path
) -> None:
    pytester.makeini(f"[pytest]\nllmeval_model = {starter_models / 'good'}\n")
    result = pytester.runpytest("tasks/even.yaml")
    result.stdout.fnmatch_lines(["*= llmeval: yes-model =*"])
    assert result.ret == 0


def test_equal_names_get_the_shortest_path_that_differs(
    pytester: pytest.Pytester, two: Path, starter_models: Path
) -> None:
    for name in ("a/x/ckpt", "a/y/ckpt", "last"):
        (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / name).symlink_to(starter_models / "good")
    options = [f"--llmeval-model={name}" for name in ("a/x/ckpt", "a/y/ckpt", "last")]
    result = pytester.runpytest("tasks/hard.yaml", "-q", "--collect-only", "-k", "gate", *options)
    found = [line for line in result.outlines if "::" in line]
    assert found == [f"tasks/hard.yaml::gate[{name}-acc]" for name in ("x/ckpt", "y/ckpt", "last")]


def test_a_spec_is_parsed_once_and_a_closed_model_leaves_no_name(
    pytester: pytest.Pytester, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later object may get the `id` of a closed model, and would be taken for it."""
    parsed: list[str] = []
    parse = _models.parse_spec

    def counting(text: str, *args: Any, **schemes: Any) -> _models.ModelSpec:
        parsed.append(text)
        return parse(text, *args, **schemes)

    monkeypatch.setattr(_models, "parse_spec", counting)
    models = pytester.parseconfigure(*MODELS).stash[SERVED]
    for _ in range(2):
        with contextmanager(models.serve)("ckpt-2") as lm:
            assert models.name_of(lm) == "ckpt-2"
        assert models.name_of(lm) == ""
    assert parsed == ["fake:yes", "fake:no"]
