"""What a right, a wrong and an impossible doc are in pytest's words, in JUnit's, and for the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest


pytest_plugins = ["pytester"]


def test_wrong_answers_do_not_fail_the_run(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/even.yaml", "-k", "doc")
    result.stdout.fnmatch_lines(["*5 passed*5 wrong*"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("how", "summary", "code"), [("xfail", "*5 passed*5 xfailed*", 0), ("fail", "*5 failed*5 passed*", 1)]
)
def test_wrong_answers_can_be_recorded_otherwise(
    pytester: pytest.Pytester, suite: Path, how: str, summary: str, code: int
) -> None:
    result = pytester.runpytest("tasks/even.yaml", "-k", "doc", "--llmeval-wrong", how)
    result.stdout.fnmatch_lines([summary])
    assert result.ret == code


def test_a_failed_doc_shows_prompt_and_answers(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/even.yaml::doc[1]", "--llmeval-wrong=fail")
    result.stdout.fnmatch_lines(["even doc 1: wrong answer", "*even 1?", "' yes' -> *-1.0*", "' no' -> *-2.0*"])


def test_gates_look_at_all_docs_even_if_wrong_ones_fail(
    pytester: pytest.Pytester, suite: Path, workers: list[str]
) -> None:
    result = pytester.runpytest("tasks/even.yaml", "--llmeval-wrong=fail", *workers)
    result.stdout.fnmatch_lines(["*5 failed, 6 passed*"])


def test_a_doc_that_cannot_be_scored_is_an_error(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    docs = (suite / "even.jsonl").read_text().splitlines()
    docs[4] = json.dumps({"q": "even 4?", "label": 7})
    (suite / "even.jsonl").write_text("\n".join(docs))
    result = pytester.runpytest("tasks/even.yaml", *workers)
    result.stdout.fnmatch_lines(["*even doc 4: *7*", "*1 failed*4 passed*1 error*5 wrong*"])
    assert result.ret == 1


def test_junit(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    pytester.runpytest("tasks/hard.yaml", "--junitxml=out.xml", *workers)
    cases = {c.get("name"): c for c in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    assert set(cases) == {*(f"doc[{i}]" for i in range(6)), "gate[acc]"}
    properties = {p.get("name"): p.get("value") for p in cases["doc[1]"].iter("property")}
    assert properties["acc"] == "0.0"
    failure = cases["gate[acc]"].find("failure")
    assert failure is not None
    assert "hard: acc 0.5000" in str(failure.get("message"))
    assert [case.find("failure") for name, case in cases.items() if name != "gate[acc]"] == [None] * 6


def test_verbose_words(pytester: pytest.Pytester, suite: Path) -> None:
    result = pytester.runpytest("tasks/hard.yaml", "-v")
    result.stdout.fnmatch_lines(["*doc[[]0[]] CORRECT*", "*doc[[]1[]] WRONG*", "*gate[[]acc[]] FAILED*"])


def test_partial_data_is_said(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks/hard.yaml", "--llmeval-limit=4", *workers)
    result.stdout.fnmatch_lines(["*hard: acc 0.5000 *on 4 of 6 docs*required >= 0.9*", "*1 failed, 2 passed, 2 wrong*"])


def test_nan_fails_the_gate(pytester: pytest.Pytester, suite: Path) -> None:
    conftest = (pytester.path / "conftest.py").read_text()
    pytester.makeconftest(conftest.replace("else -2.0", "else float('nan')"))
    result = pytester.runpytest("tasks/even.yaml")
    result.stdout.fnmatch_lines(["*gate*", "*1 failed, 10 wrong*"])
    assert result.ret == 1


def test_unrelated_tests_are_untouched(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makepyfile(test_of_theirs="def test_one(): pass\ndef test_two(): assert 0\n")
    result = pytester.runpytest("test_of_theirs.py", "tasks/even.yaml")
    result.stdout.fnmatch_lines(["*1 failed, 7 passed, 5 wrong*"])


def test_hand_written_tests_use_model_and_results(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makepyfile(
        test_by_hand="""
        def test_capital(llmeval_model):
            assert llmeval_model.generate_until([("q", None)]) == ["The answer is yes."]

        def test_numbers(llmeval_result):
            assert llmeval_result("even").metrics["acc"] == 0.5
            assert llmeval_result("all").metrics["acc,none"] == 0.5
        """
    )
    result = pytester.runpytest("test_by_hand.py", "tasks/all.yaml")
    result.stdout.fnmatch_lines(["*3 passed*"])


def test_a_slower_engine_is_named_once_before_the_first_doc(pytester: pytest.Pytester, suite: Path) -> None:
    conftest = pytester.path / "conftest.py"
    slower = "engine_choice = __import__('types').SimpleNamespace(slower='scored slowly: tree refused: a reason')"
    conftest.write_text(conftest.read_text().replace("class Yes:", f"class Yes:\n    {slower}\n"))
    result = pytester.runpytest("tasks")
    lines = [number for number, line in enumerate(result.outlines) if "refused" in line]
    assert [result.outlines[number] for number in lines] == [
        "llmeval: yes-model: scored slowly: tree refused: a reason"
    ]
    assert result.outlines[lines[0] - 1].strip() == "tasks/even.yaml"
    assert result.outlines[lines[0] + 1] == "."
