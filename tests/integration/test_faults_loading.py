"""Files, names and data: what loads, and the one message that each kind of bad input ends in."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from faultsuite import CHOICE
from faultsuite import GENERATE
from faultsuite import YES
from faultsuite import FaultSuite
from faultsuite import hits


pytest_plugins = ["pytester"]

ONE = hits(1)
BASE = """\
dataset_path: json
test_split: test
output_type: multiple_choice
doc_to_choice: ["yes", "no"]
doc_to_target: label
"""


class TestNamesAndIncludes:
    """B38."""

    def test_a_diamond_is_no_cycle(self, faults: FaultSuite) -> None:
        """b: the later include wins over the earlier one, and replaces what it says as a whole."""
        faults.pytester.makeconftest(YES)
        faults.add("docs", CHOICE, test=ONE)
        base = f"{BASE}fewshot_delimiter: '|'\ndataset_kwargs: {{data_files: {{test: nowhere.jsonl}}, field: rows}}\n"
        files = {
            "base": base,
            "b1": 'include: base\ndoc_to_text: "B {{q}}"\n',
            "c1": 'include: base\ndoc_to_text: "C {{q}}"\ndataset_kwargs: {data_files: {test: docs.test.jsonl}}\n',
            "d.yaml": "task: d\ninclude: [b1, c1]\n",
        }
        for name, text in files.items():
            (faults.folder / name).write_text(text)
        run = faults.run(model=None, paths=["tasks/d.yaml"])
        assert run.asked("d") == [("C Q 0 x A", " yes"), ("C Q 0 x A", " no")]

    def test_data_in_files_needs_no_network(self, faults: FaultSuite, monkeypatch: pytest.MonkeyPatch) -> None:
        """e, f, g: with keys of the old loader, folders of the task's and format's name, from another folder."""
        monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
        faults.pytester.makeconftest(YES)
        kwargs = {"trust_remote_code": True, "data_files": {"test": "t.test.jsonl"}}
        faults.add("t", CHOICE, {"dataset_kwargs": kwargs}, "include: ../shared/base.yaml\n", test=ONE)
        shared = faults.pytester.mkdir("shared")
        (shared / "base.yaml").write_text("include: deeper\n")
        (shared / "deeper").write_text("description: 'From below. '\n")
        for name in ("t", "json", "elsewhere"):
            faults.pytester.mkdir(name)
        for folder in (faults.pytester.path, faults.pytester.path / "elsewhere"):
            monkeypatch.chdir(folder)
            run = faults.run(model=None, paths=[str(faults.folder / "t.yaml")])
            assert run.asked("t")[0] == ("From below. Q 0 x A", " yes")
            run.printed.stdout.fnmatch_lines(["*t.yaml:*: dataset_kwargs: trust_remote_code is not used: *"])
            run.printed.assert_outcomes(passed=1, warnings=1)


def without(path: Path, line: str) -> None:
    text = path.read_text()
    assert line in text
    path.write_text(text.replace(line, ""))


def add_bad_files(faults: FaultSuite) -> dict[str, str]:
    """One file of each kind in the folder `bad`: kind -> what is printed of it, with FOLDER for the folder."""
    folder = faults.folder / "bad"
    without(faults.add("bad/missing_key", CHOICE, test=ONE), "doc_to_target: label\n")
    faults.add("bad/unknown_key", CHOICE, "doc_to_txt: x\n", test=ONE)
    faults.add("bad/undefined_field", CHOICE, {"doc_to_text": "Q: {{qq}}"}, test=ONE)
    faults.add("bad/absent_file", CHOICE, test=ONE)
    (folder / "absent_file.test.jsonl").unlink()
    faults.add("bad/absent_set", CHOICE, {"dataset_path": "nobody/nothing", "dataset_kwargs": {}}, test=ONE)
    faults.add("bad/absent_split", CHOICE, {"test_split": "dev"}, test=ONE)
    faults.add("bad/absent_examples", CHOICE, {"num_fewshot": 1, "fewshot_split": "dev"}, test=hits(1, 1, 1))
    faults.add("bad/empty", CHOICE, test=[])
    faults.add("bad/broken", CHOICE, "tag: [a, b\n", test=ONE)
    latin = faults.add("bad/latin", CHOICE, test=ONE)
    latin.write_bytes(latin.read_bytes() + b"description: \xdcberblick\n")
    (folder / "cycle.yaml").write_text("task: cycle\ninclude: back\n")
    (folder / "back").write_text("include: cycle.yaml\n")
    (folder / "absent_include.yaml").write_text("task: lonely\ninclude: nowhere.yaml\n")
    (folder / "group_a.yaml").write_text("group: group_a\ntask: [group_b]\n")
    (folder / "group_b.yaml").write_text("group: group_b\ntask: [group_a]\n")
    (folder / "unknown_member.yaml").write_text("group: few\ntask:\n  - here\n  - thre\n")
    for name in ("one", "two"):
        faults.add(f"bad/{name}/same", CHOICE, test=ONE)
    return {
        "missing key": "FOLDER/missing_key.yaml: doc_to_target: missing: the index or the text of the right option",
        "unknown key": "FOLDER/unknown_key.yaml:13: doc_to_txt: unknown key; did you mean 'doc_to_text'? Known are *",
        "undefined field": "FOLDER/undefined_field.yaml:9: doc_to_text: field 'qq' is not in the data; did you mean "
        "'q'? It has: q, label.",
        "absent file": "task absent_file: data set json, split 'test': no such file; looked for "
        "FOLDER/absent_file.test.jsonl and *. Correct data_files in FOLDER/absent_file.yaml",
        "absent data set": "task absent_set: data set nobody/nothing, split 'test': cannot be loaded. Looked for "
        "FOLDER/nobody/nothing (no such folder), * and on the Hugging Face hub (*). Put it at DIR/nobody/nothing, *",
        "absent split": "task absent_split: data set json, split 'dev': data_files has no such split (it has: test); "
        "correct test_split in FOLDER/absent_split.yaml:12, or add the split's files",
        "absent examples": "task absent_examples: data set json, split 'dev': data_files has no such split (it has: "
        "test); correct fewshot_split in FOLDER/absent_examples.yaml:10, or add the split's files",
        "empty data set": "task empty: data set json, split 'test': it has no docs; add some, or name another split in "
        "FOLDER/empty.yaml",
        "unreadable YAML": "FOLDER/broken.yaml:14:1: not readable as YAML: while parsing a flow sequence, expected "
        "',' or ']', but got '<stream end>'",
        "another encoding": "FOLDER/latin.yaml:13: not UTF-8 text (byte 0xdc); save the file as UTF-8",
        "include cycle": "FOLDER/back:1: include: the files include each other: cycle.yaml -> back -> cycle.yaml",
        "absent include": "FOLDER/absent_include.yaml:2: include: there is no file FOLDER/nowhere.yaml",
        "group cycle": "FOLDER/group_a.yaml:2: task: the groups list each other: group_a -> group_b -> group_a",
        "group cycle, from b": "FOLDER/group_b.yaml:2: task: the groups list each other: group_b -> group_a -> group_b",
        "unknown member": "FOLDER/unknown_member.yaml:4: task: no task, group or tag is called 'thre'; did you mean "
        "'here'? Looked in *.",
        "duplicate task names": "FOLDER/two/same.yaml:11: task: 'same' is already defined in FOLDER/one/same.yaml; "
        "results are known by these names",
    }


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["plain", "n2"])
def test_each_kind_of_bad_input_is_one_clear_error(
    faults: FaultSuite, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    """B21 c, B24 d, B38 a, c, d and others: all at once, and the one good task runs beside them."""
    if workers:
        pytest.importorskip("xdist")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    faults.pytester.makeconftest(YES)
    faults.add("here", CHOICE, test=hits(1, 0))
    messages = add_bad_files(faults)
    run = faults.run(*workers, model=None)
    lines = [line.replace(str(faults.folder / "bad"), "FOLDER") for line in run.printed.outlines]
    # The summary of pytest repeats what failed in a line.
    lines = lines[: next(i for i, line in enumerate(lines) if "short test summary info" in line)]
    for kind, message in messages.items():
        pattern = re.compile(".*".join(map(re.escape, message.split("*"))))
        assert (kind, sum(pattern.fullmatch(line) is not None for line in lines)) == (kind, 1)
    failed = 5
    run.printed.stdout.fnmatch_lines([f"*{failed} failed, 2 passed, {len(messages) - failed} errors, 1 wrong*"])
    for trace in ("*Traceback*", "*INTERNALERROR*", "*During handling*", "*pytest_llmeval/*.py*"):
        run.printed.stdout.no_fnmatch_line(trace)
    assert run.printed.ret == 1
    assert run.value("here", "acc,none") == 0.5


def test_templates_are_checked_without_a_model(faults: FaultSuite) -> None:
    """B24 c, d: at collection, an error where a field is not there, a warning where one was hardly meant as text."""
    faults.add("braces", CHOICE, {"doc_to_text": "Q: {q}"}, test=ONE)
    faults.add("undefined", CHOICE, {"doc_to_text": "Q: {{qq}}"}, test=ONE)
    run = faults.run("--collect-only", model=None)
    run.printed.stdout.fnmatch_lines(
        [
            "*undefined.yaml:9: doc_to_text: field 'qq' is not in the data; did you mean 'q'? It has: q, label.",
            "*braces.yaml:9: LLMEvalWarning: *doc_to_text: no field is used, and {q} is plain text; *",
        ]
    )
    assert run.printed.ret == 1
    strict = faults.run("--collect-only", "--llmeval-strict", model=None)
    strict.printed.stdout.fnmatch_lines(["*braces.yaml:9: doc_to_text: no field is used, *", "*2 errors*"])
    assert strict.printed.ret == 1


def test_models_that_cannot_be_are_usage_errors(faults: FaultSuite) -> None:
    """Told before anything runs. Under xdist: `test_usage`."""
    faults.add("here", CHOICE, test=ONE)
    empty, weightless = faults.pytester.mkdir("empty"), faults.pytester.mkdir("weightless")
    (weightless / "config.json").write_text('{"model_type": "llama"}')
    for folder, why in (
        (empty, "has no config.json: expected a folder written by save_pretrained"),
        (weightless, "has no weights (looked for *.safetensors, *.bin)"),
    ):
        run = faults.run(model=folder)
        assert (run.printed.ret, run.printed.outlines) == (4, [])
        errors = [line for line in run.printed.errlines if line]
        assert errors == [f"ERROR: --llmeval-model: model '{folder}' {why}"]


def test_a_checkpoint_that_lacks_weights_says_so_once_an_item(faults: FaultSuite) -> None:
    """Not known before it is loaded: the items that need the model fail, and no gate is judged."""
    faults.add("here", CHOICE, {"metadata": {"gates": ["acc >= 0"]}}, test=ONE)
    folder = faults.pytester.path / "lacking"
    shutil.copytree(faults.checkpoint("bigram"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b'"lm_head.weight"', b'"xx_head.weight"'))
    run = faults.run(model=folder)
    message = (
        f"model '{folder}' lacks 1 of its weights, which would be random: lm_head.weight; save or download the "
        "checkpoint again"
    )
    assert [line for line in run.printed.outlines if line.startswith("model ")] == [message] * 2
    run.printed.stdout.no_fnmatch_line("*During handling*")
    run.printed.stdout.fnmatch_lines([f"gate not judged: *: {message}"])
    run.printed.stdout.fnmatch_lines(["*2 errors*"])


def test_a_checkpoint_whose_weights_have_another_shape_says_which(faults: FaultSuite) -> None:
    """As where a vocabulary was made larger and the config of the old one kept."""
    faults.add("here", CHOICE, {"metadata": {"gates": ["acc >= 0"]}}, test=ONE)
    folder = faults.pytester.path / "resized"
    shutil.copytree(faults.checkpoint("bigram"), folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 8', '"vocab_size": 9'))
    run = faults.run(model=folder)
    message = (
        f"model '{folder}': 2 of its weights do not have the shape in the config, first lm_head.weight: saved as "
        "(8, 8), expected (9, 8); use config and weights that were saved together"
    )
    assert [line for line in run.printed.outlines if line.startswith("model ")] == [message] * 2
    run.printed.stdout.fnmatch_lines([f"gate not judged: *: {message}", "*2 errors*"])
    for trace in ("*Traceback*", "*During handling*", "*LOAD REPORT*", "*pytest_llmeval/*.py*"):
        run.printed.stdout.no_fnmatch_line(trace)


def test_a_traceback_shows_the_users_model_alone(faults: FaultSuite) -> None:
    faults.pytester.makeconftest(
        """
        import pytest

        class Unfinished:
            def loglikelihood(self, requests):
                return [len(request) / 0 for request in requests]

            def generate_until(self):
                return []

        @pytest.fixture(scope="session")
        def llmeval_model():
            return Unfinished()
        """
    )
    faults.add("here", CHOICE, {"metadata": {"gates": ["acc >= 0"]}}, test=ONE)
    run = faults.run(model=None)
    run.printed.stdout.fnmatch_lines(["E * ZeroDivisionError: division by zero", "conftest.py:*: ZeroDivisionError"])
    for ours in ("*here.yaml:[0-9]*", "*_session*run.py*", "*evaluation.py*", "*model_calls.py*"):
        run.printed.stdout.no_fnmatch_line(ours)
    run.printed.stdout.fnmatch_lines(["gate not judged: *: ZeroDivisionError: division by zero"])
    run.printed.stdout.fnmatch_lines(["*2 failed*"])
    # Where the call itself is what fails, there is no other place to show.
    faults.add("here", GENERATE, test=[{"q": "q", "a": "x"}])
    called = faults.run(model=None)
    called.printed.stdout.fnmatch_lines(["*model_calls.py:*: TypeError"])
