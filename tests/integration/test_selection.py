"""Every way of selecting items gives the verdicts that the whole data give, plain and under xdist."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest


pytest_plugins = ["pytester"]

HARD = "*hard: acc 0.5000 *over 6 docs, required >= 0.9*"


def test_everything(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", *workers)
    result.assert_outcomes(passed=10, failed=1)
    result.stdout.fnmatch_lines([HARD, "*1 failed, 10 passed, 8 wrong*"])
    assert result.ret == 1


@pytest.mark.parametrize(
    ("selection", "summary", "code"),
    [
        (["-k", "gate and hard"], "*1 failed*", 1),
        (["-k", "doc and even"], "*5 passed*5 wrong*", 0),
        (["-m", "stem and not humanities"], "*6 passed*5 wrong*", 0),
        (["-m", "llmeval_gate"], "*1 failed, 2 passed*", 1),
        (["-m", "llmeval(task='even')"], "*6 passed*5 wrong*", 0),
        (["-m", "llmeval(group='humanities')"], "*1 failed, 3 passed*3 wrong*", 1),
        (["--deselect", "tasks/hard.yaml::doc[3]"], "*1 failed, 10 passed*7 wrong*", 1),
        (["--deselect", "tasks/hard.yaml::gate[acc]"], "*10 passed*8 wrong*", 0),
    ],
)
def test_selections(
    pytester: pytest.Pytester, suite: Path, workers: list[str], selection: list[str], summary: str, code: int
) -> None:
    if workers and selection[-1] != "tasks/hard.yaml::doc[3]":
        pytest.skip("one way of selecting is enough under xdist")
    result = pytester.runpytest("tasks", "--strict-markers", *selection, *workers)
    result.stdout.fnmatch_lines([summary])
    assert result.ret == code


def test_last_failed_runs_the_gate_alone(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    pytester.runpytest("tasks", *workers)
    result = pytester.runpytest("tasks", "--lf", *workers)
    result.stdout.fnmatch_lines([HARD, "*1 failed in*"])
    assert result.ret == 1


def test_single_ids(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/even.yaml::doc[3]", "tasks/all.yaml::gate[acc]", "-v")
    result.stdout.fnmatch_lines(["tasks/even.yaml::doc[[]3[]] WRONG*", "tasks/all.yaml::gate[[]acc[]] PASSED*"])


def test_ids_do_not_depend_on_what_is_selected(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/even.yaml", "--llmeval-limit", "2", "--llmeval-sample", "random:3", "-v")
    items = [line for line in result.outlines if line.startswith("tasks/even.yaml::doc[")]
    assert len(items) == 2
    for line in items:
        right = int(line.split("doc[")[1].split("]")[0]) % 2 == 0
        assert ("CORRECT" if right else "WRONG") in line


def test_group_without_gates_has_one_score_item(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    (suite / "all.yaml").write_text("group: all\ntask: [even, hard]\naggregate_metric_list: [{metric: acc}]\n")
    result = pytester.runpytest("tasks/all.yaml", "-v", *workers)
    result.stdout.fnmatch_lines(["*all.yaml::score*PASSED*"])
    result.stdout.fnmatch_lines(["|all *|acc *|0.5000|*"])


def test_a_group_row_does_not_evaluate_what_was_deselected(
    pytester: pytest.Pytester, suite: Path, workers: list[str]
) -> None:
    (suite / "all.yaml").write_text("group: all\ntask: [even, hard]\naggregate_metric_list: [{metric: acc}]\n")
    result = pytester.runpytest("tasks", "-m", "all and not hard", "-rs", *workers)
    result.stdout.fnmatch_lines(["*SKIPPED*all: 1 of its tasks are deselected (hard)*"])
    result.stdout.no_fnmatch_line("*hard*acc*")
    result.stdout.no_fnmatch_line("|all *")


def test_two_models_are_set_up_once_each(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    conftest = (pytester.path / "conftest.py").read_text().split("@pytest.fixture")[0]
    pytester.makeconftest(
        conftest
        + """
@pytest.fixture(scope="session", params=["yes", "no"])
def llmeval_model(request):
    print("SETUP", request.param)
    return Yes(request.param)
"""
    )
    result = pytester.runpytest("tasks", "-v", *workers)
    # even is balanced; hard fails with both; all passes with both
    result.assert_outcomes(passed=8 + 8 + 4, failed=2)
    result.stdout.fnmatch_lines(["*16 wrong*"])
    if not workers:
        order = [line.split("[")[1].split("-")[0] for line in result.outlines if ".yaml::" in line and "%]" in line]
        switches = sum(a != b for a, b in itertools.pairwise(order) if {a, b} == {"yes", "no"})
        assert switches == 1


def test_stop_at_first_failure(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/hard.yaml", "tasks/even.yaml", "-x")
    result.stdout.fnmatch_lines(["*1 failed, 3 passed*3 wrong*"])
    assert result.ret == 1


def test_collect_only_needs_no_model(pytester: pytest.Pytester, suite: Path) -> None:
    (pytester.path / "conftest.py").unlink()
    result = pytester.runpytest("tasks/even.yaml", "--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        *(f"tasks/even.yaml::doc[{i}]" for i in range(10)),
        "tasks/even.yaml::gate[acc]",
    ]
    assert result.ret == 0


def test_collect_only_imports_no_torch(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makeconftest(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    print('HEAVY', sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    result = pytester.runpytest_subprocess("tasks/even.yaml", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["HEAVY []"])


def test_bare_run_takes_only_matching_files(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makeini("[pytest]\nllmeval_files = tasks/ev*\n")
    pytester.path.joinpath("docker-compose.yaml").write_text("task: not ours\noutput_type: x\n")
    result = pytester.runpytest("--collect-only", "-q")
    assert {line.split("::")[0] for line in result.outlines if "::" in line} == {"tasks/even.yaml"}


def test_a_bare_run_that_takes_nothing_says_where_it_looks(pytester: pytest.Pytester, suite: Path) -> None:
    hint = "llmeval: {} not taken for task files: without a path only those are that ini llmeval_files matches "
    hint += "({}, below */test_*); *"
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([hint.format("3 YAML files (tasks/all.yaml, ...) were", "benchmarks/[*][*]")])
    for name in ("all", "even"):
        (suite / f"{name}.yaml").unlink()
    result = pytester.runpytest("-o", "llmeval_files=evals/x.yaml evals/y.yaml")
    result.stdout.fnmatch_lines([hint.format("the YAML file tasks/hard.yaml was", "evals/x.yaml evals/y.yaml")])


def test_no_such_hint_where_something_was_collected(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makepyfile(test_plain_one="def test_one(): pass")
    for options, code in ([], 0), (["-k", "nothing"], 5), (["test_plain_one.py", "-k", "nothing"], 5):
        result = pytester.runpytest(*options)
        assert result.ret == code
        result.stdout.no_fnmatch_line("llmeval: *")


def test_strangers_yaml_is_left_alone(pytester: pytest.Pytester, suite: Path) -> None:
    (suite / "workflow.yaml").write_text("on: push\njobs: {test: {runs-on: x}}\n")
    (suite / "broken.yml").write_text("{{{ not: yaml")
    result = pytester.runpytest("tasks", "--collect-only", "-q")
    assert result.ret == 0


def test_markers_survive_strictness(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks", "--strict-markers", "--collect-only", "-q", "-m", "all and not hard")
    # doc items of even, its gate, and the group's gate
    assert sum("::" in line for line in result.outlines) == 12
