"""Wrong options and unusable models end in one clear line and exit code 4, before any item runs."""

from __future__ import annotations

from pathlib import Path

import pytest


pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--llmeval-limit=0"], "--llmeval-limit: expected a number of docs (10) or a share below 1 (0.1), got '0'"),
        (
            ["--llmeval-limit=ten"],
            "--llmeval-limit: expected a number of docs (10) or a share below 1 (0.1), got 'ten'",
        ),
        (
            ["--llmeval-limit=1.5"],
            "--llmeval-limit: expected a number of docs (10) or a share below 1 (0.1), got '1.5'",
        ),
        (
            ["--llmeval-limit=nan"],
            "--llmeval-limit: expected a number of docs (10) or a share below 1 (0.1), got 'nan'",
        ),
        (["--llmeval-sample=random:7"], "--llmeval-sample: 'random:7' needs --llmeval-limit to say how many docs"),
        (
            ["--llmeval-limit=3", "--llmeval-sample=first"],
            "--llmeval-sample: expected random:SEED with a whole number, e.g. random:7, got 'first'",
        ),
        (["--llmeval-fewshot=-1"], "--llmeval-fewshot: expected a whole number from 0, got '-1'"),
        (["--llmeval-data=nowhere"], "--llmeval-data: expected a folder, got 'nowhere', which does not exist*"),
        (["--llmeval-gen-kwargs=hot"], "--llmeval-gen-kwargs: expected key=value pairs joined by commas, got 'hot'"),
        (
            ["--llmeval-model=a=x/m", "--llmeval-model=a=y/m"],
            "*2 models are called 'a'; name them apart with NAME=SPEC",
        ),
        (["--llmeval-fail-on=acc"], "--llmeval-fail-on: 'acc': is not a comparison*"),
        (
            ["--llmeval-fail-on=evn.acc >= 0.3"],
            "--llmeval-fail-on: 'evn.acc >= 0.3': selects nothing that was collected; did you mean 'even'?",
        ),
        (["-ollmeval_gate=even.acc >= 0.3"], "ini llmeval_gate: no key * is called 'gate'; did you mean 'gates'?"),
        (["-ollmeval_colour=red"], "ini llmeval_colour: no key * is called 'colour'; pytest --help lists the keys"),
        (["--llmeval-fail-on=even.acc >= nan"], "--llmeval-fail-on: *expected a finite number, got 'nan'*"),
    ],
)
def test_options(pytester: pytest.Pytester, suite: Path, option: list[str], message: str) -> None:
    result = pytester.runpytest("tasks", *option)
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {message.replace('[', '[[]')}"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "option", ["--llmeval-limit=0", "--llmeval-fail-on=acc", "--llmeval-gen-kwargs=max_gen_toks=x"]
)
def test_options_under_xdist(pytester: pytest.Pytester, suite: Path, option: str) -> None:
    pytest.importorskip("xdist")
    result = pytester.runpytest("tasks", option, "-n2")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {option.split('=')[0]}: *"])


def test_no_model(pytester: pytest.Pytester, suite: Path) -> None:
    (pytester.path / "conftest.py").unlink()
    result = pytester.runpytest("tasks/even.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: no model is named: give --llmeval-model *"])


def test_no_model_under_xdist(pytester: pytest.Pytester, suite: Path) -> None:
    pytest.importorskip("xdist")
    (pytester.path / "conftest.py").unlink()
    result = pytester.runpytest("tasks/even.yaml", "-n2")
    assert result.ret == 4
    (result.stdout if "no model" in result.stdout.str() else result.stderr).fnmatch_lines(["*no model is named*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_model_folder_without_weights(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    folder = pytester.mkdir("checkpoint")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    result = pytester.runpytest("tasks", "--llmeval-model=checkpoint", *workers)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --llmeval-model: *checkpoint*weights*"])


def test_unmatched_fail_on_is_an_error(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", "--llmeval-fail-on=odd.acc >= 0.1", *workers)
    assert result.ret == 4
    output = result.stdout.str() + result.stderr.str()
    assert "--llmeval-fail-on" in output
    assert "odd.acc >= 0.1" in output
    assert "INTERNALERROR" not in output


#: A task with two filters.
TEXTS = """\
task: texts
dataset_path: json
dataset_kwargs: {data_files: {test: even.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "{{q}}"
doc_to_target: label
generation_kwargs: {until: ["."]}
filter_list:
  - {name: strict, filter: [{function: take_first}]}
  - {name: loose, filter: [{function: take_first}]}
"""


@pytest.mark.parametrize("setting", ["--llmeval-fail-on={}", "-ollmeval_gates={}"])
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("even.acc >= 1.9", "acc lies between 0 and 1, and the bound is 1.9"),
        ("even.f1 >= 0.3", "task 'even' has no metric 'f1' (it has: acc)"),
        (
            "ev*.acc >= 0.4",
            "2 gates of task 'even' would be called gate[acc] ('acc >= 0.5' and 'ev*.acc >= 0.4'): give one a name, *",
        ),
        (
            "*.exact_match >= 0.4",
            "task 'texts' has the filters strict, loose; name the one meant, e.g. 'exact_match,strict'",
        ),
        ("even.acc >= 0.5 as t as u", "name: expected one name, as the last thing *, got 't as u'"),
    ],
)
def test_a_rule_that_cannot_be_meant(
    pytester: pytest.Pytester, suite: Path, setting: str, rule: str, problem: str
) -> None:
    (suite / "texts.yaml").write_text(TEXTS)
    result = pytester.runpytest("tasks", setting.format(rule))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    origin = "--llmeval-fail-on" if setting.startswith("--") else "ini llmeval_gates"
    result.stderr.fnmatch_lines([f"ERROR: {origin}: '{rule}': {problem}".replace("[", "[[]")])
    assert [line for line in result.errlines if line] == [result.errlines[0]]
    result.stdout.no_fnmatch_line("*rror*")


def test_a_rule_that_cannot_be_meant_under_xdist(pytester: pytest.Pytester, suite: Path) -> None:
    pytest.importorskip("xdist")
    result = pytester.runpytest("tasks", "--llmeval-fail-on=*.acc >= 0.4", "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stdout.str() + result.stderr.str()
    assert "ERROR: --llmeval-fail-on: '*.acc >= 0.4': 2 gates of " in output
    assert "INTERNALERROR" not in output


def test_a_rule_that_cannot_be_meant_is_told_to_who_names_a_doc(pytester: pytest.Pytester, suite: Path) -> None:
    """The file is collected without the rule: that the doc is not found would be another mistake."""
    result = pytester.runpytest("tasks/even.yaml::doc[3]", "--llmeval-fail-on=even.acc >= 1.9")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llmeval-fail-on: 'even.acc >= 1.9': acc lies between 0 and 1*"])


def test_the_same_mistake_in_a_task_file_stops_that_file_alone(pytester: pytest.Pytester, suite: Path) -> None:
    (suite / "hard.yaml").write_text((suite / "hard.yaml").read_text().replace("acc >= 0.9", "acc >= 1.9"))
    result = pytester.runpytest("tasks/even.yaml", "tasks/hard.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*hard.yaml:*: metadata.gates: 'acc >= 1.9': acc lies between 0 and 1*"])
    result.stdout.fnmatch_lines(["*6 passed*1 error*"])


def test_ini_twins_and_rules(pytester: pytest.Pytester, suite: Path, workers: list[str]) -> None:
    pytester.makeini("[pytest]\nllmeval_limit = 4\nllmeval_gates =\n    hard.acc >= 0.2 as low\n    gone.acc >= 0.5\n")
    result = pytester.runpytest("tasks/hard.yaml", "-v", *workers)
    result.stdout.fnmatch_lines(["*gate[[]low[]]*"])
    result.stdout.fnmatch_lines(["*1 failed, 3 passed, 2 wrong*"])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("llmeval_unpaired=ignroe", "fail or ignore, got 'ignroe'"),
        ("llmeval_inconclusive=fial", "pass or fail, got 'fial'"),
        ("llmeval_family=chekpoint", "rule, checkpoint or session, got 'chekpoint'"),
        ("llmeval_missing_data=no", "fail or skip, got 'no'"),
        ("llmeval_wrong=xx", "pass, xfail or fail, got 'xx'"),
    ],
)
def test_a_word_that_an_ini_key_does_not_take(
    pytester: pytest.Pytester, suite: Path, setting: str, expected: str
) -> None:
    result = pytester.runpytest("tasks", "-o", setting)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: ini {setting.split('=')[0]}: expected {expected}"])


@pytest.mark.parametrize("verbosity", ["-v", "", "-q", "-qq"])
def test_ini_gates_that_select_nothing_are_told(
    pytester: pytest.Pytester, suite: Path, verbosity: str, workers: list[str]
) -> None:
    if workers and verbosity:
        pytest.skip("one verbosity is enough under xdist")
    gate = "-ollmeval_gates=evne.acc >= 0.9"
    result = pytester.runpytest("tasks/even.yaml", gate, "-m", "llmeval_gate", *filter(None, [verbosity]), *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llmeval_gates: 1 of 1 select nothing of this run: 'evne.acc >= 0.9'"])


def test_ini_gates_that_are_deselected_are_no_idle_ones(
    pytester: pytest.Pytester, suite: Path, workers: list[str]
) -> None:
    result = pytester.runpytest("tasks/even.yaml", "-ollmeval_gates=even.acc >= 0.9 as high", "-k", "doc", *workers)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*select nothing*")


@pytest.mark.parametrize("setting", ["-ollmeval_gates=ev*.acuracy >= 0.9", "--llmeval-fail-on=tag:stem.acuracy >= 0.9"])
def test_a_misspelled_metric_of_a_glob_is_an_error(
    pytester: pytest.Pytester, suite: Path, setting: str, workers: list[str]
) -> None:
    """Nothing has it: the gate would sleep."""
    result = pytester.runpytest("tasks", setting, *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stdout.str() + result.stderr.str()
    assert "selects nothing that was collected with a metric 'acuracy'; did you mean 'acc'?" in output
    assert "INTERNALERROR" not in output


def test_a_glob_on_a_filter_that_is_not_there(pytester: pytest.Pytester, suite: Path) -> None:
    """Of the ini file it may be for other tasks; of the command line it is an error that names no metric instead."""
    ini = pytester.runpytest("tasks/even.yaml", "-ollmeval_gates=tag:stem.acc,strict >= 0.9")
    assert ini.ret == 0
    ini.stdout.fnmatch_lines(["llmeval_gates: 1 of 1 select nothing of this run: 'tag:stem.acc,strict >= 0.9'"])
    option = pytester.runpytest("tasks/even.yaml", "--llmeval-fail-on=tag:stem.acc,strict >= 0.9")
    assert option.ret == pytest.ExitCode.USAGE_ERROR
    option.stderr.fnmatch_lines(["ERROR: *: selects nothing that was collected with a metric 'acc,strict'"])


def test_a_glob_leaves_out_what_lacks_its_metric(pytester: pytest.Pytester, suite: Path) -> None:
    (suite / "hard.yaml").write_text((suite / "hard.yaml").read_text().replace("acc", "acc_norm"))
    (suite / "all.yaml").unlink()
    result = pytester.runpytest("tasks", "--llmeval-fail-on=*.acc >= 0.9 as rule", "-m", "llmeval_gate", "-v")
    result.stdout.fnmatch_lines(["*even.yaml::gate[[]rule[]] FAILED*"])
    result.stdout.no_fnmatch_line("*hard.yaml::gate[[]rule[]]*")
    assert result.ret == 1
