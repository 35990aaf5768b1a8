"""One bad task does not stop the others, and says in one message what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


pytest_plugins = ["pytester"]


def break_task(suite: Path, old: str, new: str) -> None:
    path = suite / "even.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("doc_to_text:", "doc_to_txt:", "*even.yaml:7: doc_to_txt: *doc_to_text*"),
        ("output_type: multiple_choice", "output_type: multi_choice", "*even.yaml:5: output_type: *multi_choice*"),
        ("task: even", "task: [even", "*even.yaml:*"),
        ("test_split: test", "test_split: test\ninclude: even.yaml", "*even.yaml*include*even.yaml*"),
        ("metric: acc", "metric: accc", "*even.yaml:*accc*acc*"),
        ("acc >= 0.5", "acc >= 50", "*even.yaml:*gates*acc >= 50*"),
        ("{{q}}", "{{qq}}", "*even.yaml:7*doc_to_text*qq*"),
        ("{{q}}", "{{q", "*even.yaml:7*doc_to_text*"),
    ],
)
def test_unusable_files(pytester: pytest.Pytester, suite: Path, old: str, new: str, message: str) -> None:
    (suite / "all.yaml").unlink()
    break_task(suite, old, new)
    check_that_others_run(pytester.runpytest("tasks"), message)


def test_unusable_file_under_xdist(pytester: pytest.Pytester, suite: Path) -> None:
    pytest.importorskip("xdist")
    (suite / "all.yaml").unlink()
    break_task(suite, "doc_to_text:", "doc_to_txt:")
    check_that_others_run(pytester.runpytest("tasks", "-n2"), "*even.yaml:7: doc_to_txt: *doc_to_text*")


def check_that_others_run(result: pytest.RunResult, message: str) -> None:
    result.stdout.fnmatch_lines([message])
    # hard ran all the same: its gate fails, its docs are there
    result.stdout.fnmatch_lines(["*1 failed, 3 passed, 1 error, 3 wrong*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.no_fnmatch_line("*pytest_llmeval/*.py*")
    assert result.ret == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda suite: (suite / "even.jsonl").unlink(), "*even.jsonl*"),
        (lambda suite: (suite / "even.jsonl").write_text(""), "*even*it has no docs*"),
        (lambda suite: break_task(suite, "test_split: test", "test_split: dev"), "*even*'dev'*test*"),
        (lambda suite: break_task(suite, "dataset_path: json", "dataset_path: nobody/nothing"), "*nobody/nothing*"),
    ],
)
def test_missing_data_is_one_failing_item(
    pytester: pytest.Pytester,
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: object,
    message: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    (suite / "all.yaml").unlink()
    assert callable(spoil)
    spoil(suite)
    result = pytester.runpytest("tasks")
    result.stdout.fnmatch_lines(["*_ data _*", message])
    # the item data and the gate of even fail, and the gate of hard
    result.stdout.fnmatch_lines(["*3 failed, 3 passed, 3 wrong*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == 1


def test_missing_data_can_be_skipped(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    (suite / "all.yaml").unlink()
    (suite / "even.jsonl").unlink()
    result = pytester.runpytest("tasks", "-o", "llmeval_missing_data=skip", *workers)
    result.stdout.fnmatch_lines(["*1 failed, 3 passed, 2 skipped, 3 wrong*"])


def test_duplicate_task_names(pytester: pytest.Pytester, suite: Path) -> None:
    (suite / "sub").mkdir()
    (suite / "sub" / "again.yaml").write_text((suite / "even.yaml").read_text())
    (suite / "sub" / "even.jsonl").write_text((suite / "even.jsonl").read_text())
    result = pytester.runpytest("tasks")
    result.stdout.fnmatch_lines(["*even*again.yaml*"])
    assert result.ret == 1


def test_a_named_file_that_is_no_task_is_an_error(pytester: pytest.Pytester, suite: Path) -> None:
    path = suite / "compose.yaml"
    path.write_text("services: {a: {image: b}}\n")
    result = pytester.runpytest(str(path))
    result.stdout.fnmatch_lines(["*compose.yaml*task*"])
    assert result.ret != 0


def test_collection_errors_of_others_still_stop_the_run(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makepyfile(test_broken="import nothing_of_that_name")
    break_task(suite, "output_type: multiple_choice", "output_type: nonsense")
    result = pytester.runpytest("test_broken.py", "tasks")
    assert result.ret == 2


def test_linting_collects_nothing_to_run(pytester: pytest.Pytester, suite: Path) -> None:
    (pytester.path / "conftest.py").unlink()
    (suite / "even.jsonl").unlink()
    result = pytester.runpytest("tasks", "--llmeval-lint", "-v")
    result.stdout.fnmatch_lines(["*even.yaml::lint PASSED*", "*3 passed*"])


def test_literal_braces_warn_and_fail_when_strict(pytester: pytest.Pytester, suite: Path) -> None:
    break_task(suite, "{{q}}", "Q: {q}")
    result = pytester.runpytest("tasks/even.yaml", "--collect-only", "-q", "-W", "always")
    result.stdout.fnmatch_lines(["*even.yaml:7*LLMEvalWarning*{q}*"])
    strict = pytester.runpytest("tasks/even.yaml", "--collect-only", "-q", "--llmeval-strict")
    assert strict.ret == 1


def test_tasks_that_run_code_are_off(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    break_task(suite, "test_split: test", "test_split: test\nunsafe_code: true")
    result = pytester.runpytest("tasks/even.yaml", "-rs", *workers)
    result.stdout.fnmatch_lines(["*SKIPPED*--llmeval-allow-code*"])
    # a gate never passes for lack of data
    result.stdout.fnmatch_lines(["*1 failed, 1 skipped*"])


def test_list_and_show_run_nothing(pytester: pytest.Pytester, suite: Path) -> None:
    (pytester.path / "conftest.py").unlink()
    listing = pytester.runpytest("tasks", "--llmeval-list")
    listing.stdout.fnmatch_lines(["group  all  2 tasks", "task  even  10 docs  tags: stem"])
    assert listing.ret == 0
    shown = pytester.runpytest("tasks/even.yaml::doc[3]", "--llmeval-show")
    shown.stdout.fnmatch_lines(
        ["--- tasks/even.yaml::doc[[]3[]]", "even 3?", "    -> ' yes'", "    -> ' no'", "target: 1"]
    )


def test_a_gate_under_a_misspelt_key_is_an_error(pytester: pytest.Pytester, suite: Path) -> None:
    break_task(suite, "gates:", "gate:")
    result = pytester.runpytest("tasks/even.yaml")
    result.stdout.fnmatch_lines(["*even.yaml:*metadata.gate: unknown key; did you mean 'gates'?"])
    assert result.ret == 1


def test_docs_of_a_misspelt_cluster_are_no_independent_ones(pytester: pytest.Pytester, suite: Path) -> None:
    break_task(suite, "version: 1.0", "clusters: q")
    result = pytester.runpytest("tasks/even.yaml")
    result.stdout.fnmatch_lines(["*even.yaml:*metadata.clusters: unknown key; did you mean 'cluster'?"])
    assert result.ret == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("return None", "*NoneType, which llmeval_model gave, has no method loglikelihood*"),
        (
            "return FakeOf(lambda requests: None)",
            "*FakeOf.loglikelihood gave None: it must return an answer for each *",
        ),
        (
            "return FakeOf(lambda requests: {i: (-1.0, False) for i, _ in enumerate(requests)})",
            "*FakeOf.loglikelihood gave {0: *: it must return an answer for each *",
        ),
        ("return FakeOf(lambda requests: [(-1.0, False)])", "*FakeOf.loglikelihood gave 1 answers to 2 requests*"),
    ],
)
def test_a_model_that_is_none(pytester: pytest.Pytester, suite: Path, model: str, message: str) -> None:
    pytester.makeconftest(
        "import pytest\n"
        "class FakeOf:\n    def __init__(self, answer):\n        self.loglikelihood = answer\n"
        f"@pytest.fixture(scope='session')\ndef llmeval_model():\n    {model}\n"
    )
    result = pytester.runpytest("tasks/even.yaml")
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_llmeval/*.py*")
    assert result.ret == 1


OWN_SCORES = """\
def score(doc, results):
    return {SCORES}
"""


@pytest.fixture
def scored(suite: Path) -> Callable[[str], None]:
    """Lets a function of the task even give its docs' scores, an expression of `doc` and `results`."""
    (suite / "all.yaml").unlink()
    (suite / "hard.yaml").unlink()
    break_task(suite, "metric_list:", "process_results: !function own.score\nmetric_list:")

    def write(scores: str) -> None:
        (suite / "own.py").write_text(OWN_SCORES.replace("{SCORES}", scores))

    return write


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ("{'acc': 'right'}", "metric acc: process_results score gave 'right', and mean needs a number: *"),
        ("{'acc': None}", "metric acc: process_results score gave None, and mean needs a number: *"),
        ("{'acc': [1, 0]}", "metric acc: * gave [[]1, 0[]], and mean needs a number: return that"),
        ("{'acc': 1, 'said': 'yes'}", "metric said: * gave 'yes', and mean needs a number: *list it in metric_list *"),
        ("{'accuracy': 1}", "*gave {'accuracy': 1}, which has no score for a metric of metric_list (acc): *"),
    ],
)
def test_scores_of_no_use_fail_their_doc(
    pytester: pytest.Pytester, scored: Callable[[str], None], scores: str, message: str, workers: list[str]
) -> None:
    if workers and scores != "{'accuracy': 1}":
        pytest.skip("one kind of score is enough under xdist")
    scored(f"{scores} if doc['label'] else {{'acc': 1}}")
    result = pytester.runpytest("tasks", *workers)
    result.stdout.fnmatch_lines_random(
        [
            f"even doc 1: task even, doc 1: {message}",
            f"gate failed: *even: acc 1.0000 *; 5 docs could not be evaluated, the first: task even, doc 1: {message}",
        ]
    )
    result.stdout.fnmatch_lines(["*1 failed, 5 passed, 5 errors*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == 1


def test_gates_alone_say_why_the_first_doc_failed(
    pytester: pytest.Pytester, scored: Callable[[str], None], workers: list[str]
) -> None:
    scored("{'acc': 1 / (doc['label'] - 1)}")
    result = pytester.runpytest("tasks", "-m", "llmeval_gate", *workers)
    result.stdout.fnmatch_lines(
        [
            "gate failed: *even: acc -1.0000 *; 5 docs could not be evaluated, the first: task even, doc 1: *own.py:2: "
            "process_results: score raised ZeroDivisionError: division by zero"
        ]
    )
    assert result.ret == 1


def test_a_score_that_is_no_finite_number_is_told_by_its_name_and_doc(
    pytester: pytest.Pytester, scored: Callable[[str], None]
) -> None:
    scored("{'acc': float('-inf') if doc['label'] else 1}")
    result = pytester.runpytest("tasks")
    result.stdout.fnmatch_lines(
        ["gate failed: *; acc is -inf: doc[[]1[]] has -inf", "even: acc,none is -inf: doc[[]1[]] has -inf"]
    )
    assert result.ret == 1


def test_a_metric_that_some_docs_have_no_score_for(pytester: pytest.Pytester, scored: Callable[[str], None]) -> None:
    """As the format has it; the gate says on how many docs it rests, the report which metric it is."""
    scored("{'acc': 1, **({'hit': 1} if doc['label'] else {})}")
    path = pytester.path / "tasks" / "even.yaml"
    listed = "  - {metric: hit, aggregation: mean, higher_is_better: true}\nmetadata:"
    path.write_text(path.read_text().replace("metadata:", listed))
    result = pytester.runpytest("tasks", "--llmeval-fail-on=even.hit >= 0.5", "-v")
    result.stdout.fnmatch_lines(
        [
            "gate passed: *even: hit 1.0000 +- 0.0000 on 5 of 10 docs (5 docs without a score), required >= 0.5",
            "even: process_results gave no score for hit (5 of 10 docs)",
        ]
    )
    assert result.ret == 0


def test_a_result_of_an_unknown_name(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makepyfile(test_own="def test_it(llmeval_result):\n    llmeval_result('evn')\n")
    result = pytester.runpytest("test_own.py")
    result.stdout.fnmatch_lines(["*no task, group or tag is called 'evn'*"])
    result.stdout.no_fnmatch_line("*session/session.py*")
