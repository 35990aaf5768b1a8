"""Baselines as a user meets them: written on request, compared doc by doc, and every wrong use with its message."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Says yes but to the questions that stand in the file ``doubts``; "nan" there breaks it.
DOUBTER = """
import math, pathlib, pytest

class Doubter:
    def loglikelihood(self, requests):
        doubts = pathlib.Path(__file__).with_name("doubts").read_text().split("\\n")
        if "nan" in doubts:
            return [(math.nan, False) for _ in requests]
        return [(-1.0 if (said == " yes") != (asked in doubts) else -2.5, False) for asked, said in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Doubter()

def pytest_llmeval_register_models(register):
    register("doubt", lambda rest, arguments: Doubter())
"""

BASELINE = "--llmeval-baseline=main"
UPDATE = "--llmeval-update-baseline"


class Suite:
    """Two tasks of ten docs, all of them yes, and a group; `doubt` makes the model wrong about some."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        self.write = write_task
        pytester.makeconftest(DOUBTER)
        self.doubt()
        for name in ("birds", "trees"):
            write_task(name, [0] * 10, tags="nature", gates="'acc >= baseline - 0.15'")
        (pytester.path / "tasks" / "all.yaml").write_text(
            "group: all\ntask: [birds, trees]\naggregate_metric_list: [{metric: acc}]\n"
            "metadata: {gates: ['acc >= baseline - 0.05']}\n"
        )

    def doubt(self, **docs: Iterable[int]) -> None:
        questions = [f"{task} {doc}?" for task, numbers in docs.items() for doc in numbers]
        (self.pytester.path / "doubts").write_text("\n".join(questions))

    def run(self, *options: str) -> pytest.RunResult:
        return self.pytester.runpytest("tasks", *options)

    def write_baseline(self, *options: str) -> None:
        assert self.run(BASELINE, UPDATE, *options).ret == 0

    def file(self, task: str) -> Path:
        return self.pytester.path / ".llmeval" / "baselines" / "main" / f"{task}.txt"

    def scores(self, task: str) -> dict[int, int]:
        lines = self.file(task).read_text().partition("\n\n")[2].splitlines()
        return {int(line.split()[0]): int(line.split()[-1]) for line in lines}


@pytest.fixture
def suite2(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    return Suite(pytester, write_task)


class TestWriting:
    @pytest.mark.parametrize(
        ("before", "warns"),
        [((0, 1), True), ((0, 1, 2, 3), False), ((), False)],
        ids=["2 gained", "4 gained", "nothing gained"],
    )
    def test_a_gain_that_may_be_luck_is_reported(self, suite2: Suite, before: tuple[int, ...], warns: bool) -> None:
        """Of 10 docs; p values are exact over all discordances."""
        suite2.doubt(birds=before)
        suite2.write_baseline()
        suite2.doubt()
        run = suite2.run(BASELINE, UPDATE)
        assert run.ret == 0
        shown = "renewed with gains that may be luck: birds (2 gained, 0 lost); a baseline that is renewed"
        assert (shown in run.stdout.str()) is warns
        assert ("may be luck" in run.stdout.str()) is warns

    def test_only_on_request(self, suite2: Suite) -> None:
        suite2.run("-k", "doc")
        suite2.run(BASELINE)
        assert not (suite2.pytester.path / ".llmeval").exists()

    def test_a_whole_run(self, suite2: Suite, workers: list[str]) -> None:
        suite2.doubt(birds=[3])
        run = suite2.run(BASELINE, UPDATE, "-rs", *workers)
        assert run.ret == 0
        # Nothing is compared with a baseline that is being written.
        run.assert_outcomes(passed=19, skipped=3)
        run.stdout.fnmatch_lines(["baseline main: 20 docs of 2 tasks written to *.llmeval/baselines/main"])
        run.stdout.fnmatch_lines(["*SKIPPED*baseline 'main' is being written, there is nothing to compare with"])
        run.stdout.fnmatch_lines_random(
            [
                f"gate not judged: tasks/{name}.yaml::gate[[]acc.drop[]]: baseline 'main' is being written, there is "
                "nothing to compare with"
                for name in ("birds", "trees", "all")
            ]
        )
        assert suite2.scores("birds") == {doc: int(doc != 3) for doc in range(10)}
        assert "\n3 " in suite2.file("birds").read_text()
        assert " B A 1.5 0\n" in suite2.file("birds").read_text()
        written = suite2.file("birds").read_bytes()
        suite2.write_baseline()
        assert suite2.file("birds").read_bytes() == written

    def test_a_run_that_was_stopped_writes_nothing(self, suite2: Suite) -> None:
        suite2.doubt(birds=[3])
        run = suite2.run(BASELINE, UPDATE, "-x", "--llmeval-wrong=fail")
        assert run.ret == 1
        run.stdout.fnmatch_lines(["ERROR: --llmeval-update-baseline: the run was stopped before its end*"])
        assert not (suite2.pytester.path / ".llmeval").exists()

    @pytest.mark.parametrize(
        ("name", "problem"),
        [
            ("", "--llmeval-baseline: expected a NAME or a path, got ''"),
            ("./doubts", "--llmeval-baseline: './doubts' cannot be written: */doubts is not a folder"),
            (
                "./doubts/deep/main",
                "--llmeval-baseline: './doubts/deep/main' cannot be written: */doubts is not a folder",
            ),
        ],
    )
    def test_where_it_cannot_lie_is_said_at_once(self, suite2: Suite, name: str, problem: str) -> None:
        suite2.doubt()
        run = suite2.run("--llmeval-baseline", name, UPDATE)
        assert run.ret == pytest.ExitCode.USAGE_ERROR
        run.stderr.fnmatch_lines([f"ERROR: {problem}"])

    def test_a_selection_replaces_what_was_run(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.doubt(birds=[3, 4], trees=[5])
        run = suite2.pytester.runpytest("tasks/birds.yaml::doc[3]", BASELINE, UPDATE)
        run.stdout.fnmatch_lines(["baseline main: birds: 1 docs written, 9 kept, 1 with other scores"])
        assert [doc for doc, score in suite2.scores("birds").items() if not score] == [3]
        assert all(suite2.scores("trees").values())

    def test_a_limit_too(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.doubt(birds=[0, 9])
        suite2.write_baseline("--llmeval-limit=2")
        assert [doc for doc, score in suite2.scores("birds").items() if not score] == [0]

    def test_a_whole_run_forgets_docs_that_are_gone(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.write("birds", [0] * 4)
        suite2.write_baseline()
        assert len(suite2.scores("birds")) == 4

    def test_unsound_answers_are_told_and_not_written(self, suite2: Suite, workers: list[str]) -> None:
        suite2.write_baseline()
        before = suite2.file("birds").read_bytes()
        (suite2.pytester.path / "doubts").write_text("nan")
        run = suite2.run(BASELINE, UPDATE, *workers)
        run.stdout.fnmatch_lines(
            ["ERROR: *birds.txt: not written: 10 docs (doc[[]0[]], *) got no usable number (NaN); *"]
        )
        assert run.ret == 1
        assert suite2.file("birds").read_bytes() == before

    def test_docs_in_error_are_told_with_the_first_reason(self, suite2: Suite, workers: list[str]) -> None:
        rows = ['{"q": "a?", "label": 0}', '{"q": "b?", "label": 7}']
        (suite2.pytester.path / "tasks" / "birds.jsonl").write_text("\n".join(rows))
        run = suite2.run(BASELINE, UPDATE, "-m", "llmeval_gate", *workers)
        run.stdout.fnmatch_lines(
            ["ERROR: *birds.txt: not written: 1 doc (doc[[]1[]]) could not be evaluated; * (task birds, doc 1, *7*)"]
        )
        assert run.ret == 1

    def test_a_part_does_not_mix_with_other_settings(self, suite2: Suite) -> None:
        suite2.write_baseline()
        run = suite2.run(BASELINE, UPDATE, "--llmeval-limit=2", "--llmeval-system=Be brief.")
        run.stdout.fnmatch_lines(
            ['ERROR: *birds.txt: not updated: system was null and is "Be brief."; *run of all docs']
        )
        assert run.ret == 1

    def test_a_damaged_file_is_replaced_by_a_whole_run_only(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.file("birds").write_text("rubbish\n")
        assert suite2.run(BASELINE, UPDATE, "--llmeval-limit=2").ret == 1
        suite2.write_baseline()
        assert len(suite2.scores("birds")) == 10

    def test_a_path_and_the_ini_file(self, suite2: Suite) -> None:
        suite2.pytester.makeini("[pytest]\nllmeval_baseline = kept/here\nllmeval_update_baseline = true\n")
        assert suite2.run().ret == 0
        assert (suite2.pytester.path / "kept" / "here" / "trees.txt").is_file()
        suite2.pytester.makeini("[pytest]\nllmeval_baseline = kept/here\n")
        run = suite2.run()
        run.assert_outcomes(passed=23)
        run.stdout.fnmatch_lines(["baseline kept/here: 0 lost, 0 gained of 20 docs"])


class TestComparing:
    def test_verdicts(self, suite2: Suite, workers: list[str]) -> None:
        """birds loses 2 of 10 docs, which is beyond .15 and makes .1 of the group."""
        suite2.write_baseline()
        suite2.doubt(birds=[3, 4])
        run = suite2.run(BASELINE, "-v", "--junitxml=out.xml", "--llmeval-output=out", *workers)
        run.stdout.fnmatch_lines_random(
            [
                "gate failed: tasks/birds.yaml::gate[[]acc.drop[]]: birds: acc 0.8000, was 1.0000: fell by 0.2000, "
                "allowed 0.15; change: between * and * (each bound holds at 95 %); 10 docs compared: 2 lost, 0 gained; "
                "p = 0.* for a fall beyond 0.15: it may be noise; *; most informative docs: doc[[]3[]] *; "
                "doc[[]4[]] *; next: *tasks/birds.yaml::doc[[]3[]]' *",
                "gate failed: tasks/all.yaml::gate[[]acc.drop[]]: all: acc 0.9000, was 1.0000: fell by 0.1000, allowed "
                "0.05; *20 docs in 2 tasks compared: 2 lost, 0 gained; *; most informative docs: birds doc[[]3[]] *",
                "gate passed: tasks/trees.yaml::gate[[]acc.drop[]]: *",
                "baseline main: 2 lost, 0 gained of 20 docs (birds -2 +0)",
                # The screen of the failed test.
                "birds: acc 0.8000, was 1.0000: fell by 0.2000, allowed 0.15",
                "  docs      10 docs compared: 2 lost, 0 gained",
                "  most informative docs",
                "    doc[[]3[]] *",
                "  next      pytest 'tasks/birds.yaml::doc[[]3[]]' --llmeval-show prints the prompt; *",
            ]
        )
        assert run.ret == 1
        found = {
            case.get("classname"): case
            for case in ElementTree.parse("out.xml").iter("testcase")
            if "gate" in case.get("name", "")
        }
        values = {p.get("name"): p.get("value") for p in found["tasks.birds.yaml"].iter("property")}
        assert (values["acc_baseline"], values["lost"], values["docs"]) == ("1.0", "2", "10")
        (results,) = Path("out").rglob("results_*.json")
        assert '"outcome": "failed"' in results.read_text()

    def test_docs_that_are_not_right_or_wrong_are_counted_too(self, suite2: Suite, workers: list[str]) -> None:
        """marks are the log-probabilities of yes; of notes nobody knows which way is better."""
        folder = suite2.pytester.path / "tasks"
        (folder / "own.py").write_text("def score(doc, results):\n    return {doc['q'].split()[0]: results[0][0]}\n")
        for name, better in (("marks", "true"), ("notes", "null")):
            path = suite2.write(name, [0] * 10, extra="process_results: !function own.score\n")
            text = path.read_text().replace("metric: acc", f"metric: {name}")
            path.write_text(text.replace("higher_is_better: true", f"higher_is_better: {better}"))
        suite2.write_baseline("-Wignore")
        suite2.doubt(birds=[3], marks=[1, 2])
        run = suite2.run(BASELINE, "-Wignore", *workers)
        run.stdout.fnmatch_lines_random(
            [
                "baseline main: 1 lost, 0 gained of 20 docs (birds -1 +0)",
                "baseline main: 2 worse, 0 better, 8 equal of 10 docs with other scores than 0 and 1 (marks -2 +0)",
                "baseline main: 10 docs have no score with a known direction and are not counted (notes)",
            ]
        )

    def test_gates_alone(self, suite2: Suite) -> None:
        suite2.write_baseline("-m", "llmeval_gate")
        suite2.run(BASELINE, "-m", "llmeval_gate").assert_outcomes(passed=3, deselected=20)

    def test_the_same_docs_under_a_limit(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.doubt(birds=[0], trees=[9])
        run = suite2.run(BASELINE, "--llmeval-limit=4", "-v")
        run.stdout.fnmatch_lines(
            [
                "gate failed: *birds: acc 0.7500, was 1.0000: *; 4 of 10 docs compared: *; the first 4 docs are not *",
                "gate passed: *trees: acc 1.0000, was 1.0000: unchanged, *; 4 of 10 docs compared: *",
            ]
        )

    def test_docs_without_partners(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.write("birds", [0] * 11, gates="'acc >= baseline - 0.15'")
        suite2.write("trees", [0] * 9)
        run = suite2.run(BASELINE)
        run.stdout.fnmatch_lines_random(
            [
                "gate failed: *birds: acc 1.0000 *; it cannot be compared with baseline 'main': it lacks 1 doc *",
                "ERROR: baseline main: birds: it lacks 1 doc (doc[[]10[]]) of the run",
                "ERROR: baseline main: trees: the data no longer has 1 doc (doc[[]9[]]) of it",
            ]
        )
        assert run.ret == 1
        suite2.pytester.makeini("[pytest]\nllmeval_unpaired = ignore\n")
        lenient = suite2.run(BASELINE, "-v")
        assert lenient.ret == 0
        lenient.stdout.fnmatch_lines(
            ["gate passed: *birds: *; 10 of 11 docs compared: *; 1 doc of the run is not in the baseline"]
        )

    def test_a_run_without_gates_fails_too(self, suite2: Suite) -> None:
        suite2.write_baseline()
        suite2.file("trees").unlink()
        run = suite2.run(BASELINE, "-k", "doc")
        run.stdout.fnmatch_lines(["ERROR: baseline main: trees: it has no task trees"])
        assert (run.ret, run.parseoutcomes()["passed"]) == (1, 20)
        assert suite2.run(BASELINE, "-k", "doc and birds").ret == 0

    def test_families(self, suite2: Suite, workers: list[str]) -> None:
        """One rule for both tasks: trees would fail alone (p = .048), not in the family; where both fall both fail."""
        suite2.write_baseline()
        suite2.doubt(trees=range(7))
        rule = "--llmeval-fail-on=tag:nature.acc >= baseline - 0.3 @ 0.95 as rule"
        run = suite2.run(BASELINE, rule, "-k", "rule", *workers)
        run.stdout.fnmatch_lines(
            [
                "gate inconclusive: *trees*gate[[]rule[]]: *7 lost*; it would fail alone (p = 0.048 *) but "
                "not with Holm's correction over 2*"
            ]
        )
        assert run.ret == 0
        before = suite2.run(BASELINE, rule, "-k", "rule", "--collect-only")
        before.stdout.fnmatch_lines(
            [
                "llmeval: acc >= baseline - 0.3 at 95 % confidence: no fall on 10 docs would fail in 80 % of runs, if "
                "5 % of the docs flip anyway (a guess), and no other of its 2 gates fails"
            ]
        )
        alone = suite2.run(BASELINE, rule, "-k", "rule and trees")
        alone.stdout.fnmatch_lines(["gate failed: *trees.yaml::gate[[]rule[]]: *7 lost*"])
        suite2.doubt(birds=range(10), trees=range(7))
        both = suite2.run(BASELINE, rule, "-k", "rule")
        both.stdout.fnmatch_lines_random(
            [f"gate failed: *{name}*; Holm's correction over 2 gates" for name in ("birds", "trees")]
        )


def test_one_gate_in_two_files_is_a_family(pytester: pytest.Pytester, suite: Path, write_task: WriteTask) -> None:
    """5 of 10 right with a floor of .8: p = .0328 alone, above the half of .05 that a family of two leaves it."""
    write_task("half", [0, 1] * 5, gates="acc >= 0.8 @ 0.95")
    write_task("whole", [0] * 40, gates="acc >= 0.80 @ 0.95")
    together = pytester.runpytest("tasks", "-k", "gate and (half or whole)")
    why = "it would fail alone (p = 0.033 for its limit) but not with Holm's correction over 2 gates"
    together.stdout.fnmatch_lines([f"gate inconclusive: tasks/half.yaml::gate[[]acc[]]: *{why}*"])
    assert together.ret == 0
    for options in (["-k", "gate and half"], ["-k", "gate and (half or whole)", "-o", "llmeval_family=rule"]):
        alone = pytester.runpytest("tasks", *options)
        alone.stdout.fnmatch_lines(["gate failed: tasks/half.yaml::gate[[]acc[]]: half: acc 0.5000*"])
        assert alone.ret == 1


class TestWrongUse:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ([UPDATE], "--llmeval-update-baseline: needs --llmeval-baseline NAME"),
            (
                ["--llmeval-baseline=mian"],
                "--llmeval-baseline: there is no baseline 'mian' *; there are: main; did you mean 'main'*",
            ),
            (["--llmeval-baseline=./tasks"], "--llmeval-baseline: './tasks' holds no baseline *"),
            (["--llmeval-baseline=tasks/all.yaml"], "--llmeval-baseline: 'tasks/all.yaml' is not a folder; *"),
            (
                [BASELINE, UPDATE, "--llmeval-model=a=doubt:1", "--llmeval-model=b=doubt:2"],
                "*a baseline holds the answers of one model, and 2 are named (a, b): name one",
            ),
            (
                ["--llmeval-fail-on=birds.acc >= baseline - 0.1"],
                "--llmeval-fail-on: *there is no baseline to compare with: name one with --llmeval-baseline",
            ),
            (
                [BASELINE, "--llmeval-fail-on=birds.acc >= baseline - -0.1"],
                "--llmeval-fail-on: *expected a number of 0 or more*",
            ),
            (
                [BASELINE, "--llmeval-fail-on=birds.acc >= baseline - nan"],
                "--llmeval-fail-on: *expected a finite number*",
            ),
        ],
    )
    def test_options(self, suite2: Suite, options: list[str], message: str) -> None:
        suite2.write_baseline()
        run = suite2.run(*options)
        assert run.ret == 4
        run.stderr.fnmatch_lines([f"ERROR: {message}"])

    def test_an_ini_file_names_what_is_not_there(self, suite2: Suite) -> None:
        suite2.pytester.makeini("[pytest]\nllmeval_baseline = main\n")
        suite2.pytester.makepyfile(test_alone="def test_it(): pass")
        assert suite2.pytester.runpytest("test_alone.py").ret == 0
        run = suite2.run()
        assert run.ret == 4
        run.stderr.fnmatch_lines(["ERROR: ini llmeval_baseline: there is no baseline 'main' *"])

    @pytest.mark.parametrize(
        ("change", "options", "message"),
        [
            (("version: 1.0", "version: 2.0"), [], "version was 1.0 and is 2.0"),
            (None, ["--llmeval-system=Hm."], 'system was null and is "Hm."'),
            (("{{q}}", "{{q}} So?"), [], "the prompt of 10 docs (doc[[]0[]], doc[[]1[]] and 8 more) changed"),
            (("aggregation: mean", "aggregation: median"), [], 'metric acc was {"aggregation": "mean"*'),
            (
                ("task: birds\n", "task: birds\nfilter_list: [{name: one, filter: [{function: take_first}]}]\n"),
                [],
                "it has no filter one*",
            ),
        ],
    )
    def test_what_is_not_comparable(
        self, suite2: Suite, change: tuple[str, str] | None, options: list[str], message: str
    ) -> None:
        suite2.write_baseline()
        path = suite2.pytester.path / "tasks" / "birds.yaml"
        if change is not None:
            path.write_text(path.read_text().replace(*change))
        run = suite2.pytester.runpytest("tasks/birds.yaml", BASELINE, *options)
        run.stdout.fnmatch_lines([f"gate failed: *it cannot be compared with baseline 'main': {message}"])
        assert run.ret == 1

    def test_docs_of_another_version_are_not_even_counted(self, suite2: Suite) -> None:
        suite2.write_baseline()
        path = suite2.pytester.path / "tasks" / "birds.yaml"
        path.write_text(path.read_text().replace("version: 1.0", "version: 2.0"))
        run = suite2.pytester.runpytest("tasks/birds.yaml", BASELINE)
        assert [line for line in run.outlines if line.startswith(("baseline", "ERROR"))] == [
            "ERROR: baseline main: birds: version was 1.0 and is 2.0"
        ]
        assert run.ret == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "rubbish\n",
                "*birds.txt:1: expected 'llmeval baseline, format 1', found 'rubbish': this is not a baseline",
            ),
            ("llmeval baseline, format 9\n", "*birds.txt:1: has format 9, and this version reads format 1*"),
            ("llmeval baseline, format 1\n", "*birds.txt:2: digest: the file was damaged, merged or edited by hand*"),
        ],
    )
    def test_damaged_files(self, suite2: Suite, text: str, message: str) -> None:
        suite2.write_baseline()
        suite2.file("birds").write_text(text)
        run = suite2.pytester.runpytest("tasks/birds.yaml", BASELINE)
        run.stdout.fnmatch_lines([f"gate failed: *it cannot be compared with baseline 'main': {message}"])
        run.stdout.no_fnmatch_line("*Traceback*")
        assert run.ret == 1

    def test_a_hand_edited_score(self, suite2: Suite) -> None:
        suite2.doubt(birds=[1])
        suite2.write_baseline()
        suite2.file("birds").write_text(suite2.file("birds").read_text().replace(" B A 1.5 0\n", " A A 1.5 1\n"))
        suite2.pytester.runpytest("tasks/birds.yaml", BASELINE).stdout.fnmatch_lines(["gate failed: *edited by hand*"])

    def test_nan_on_the_side_of_the_run(self, suite2: Suite) -> None:
        suite2.write_baseline()
        (suite2.pytester.path / "doubts").write_text("nan")
        run = suite2.run(BASELINE, "-k", "gate")
        run.stdout.fnmatch_lines(["gate failed: *birds: *; 10 docs got no usable number from the model (NaN)"])
        assert run.ret == 1

    def test_no_baseline_is_named(self, suite2: Suite) -> None:
        run = suite2.run()
        run.stdout.fnmatch_lines(
            ["gate failed: *there is no baseline to compare with: name one with --llmeval-baseline*"]
        )
        assert run.ret == 1

    def test_gates_that_cannot_be_meant(self, suite2: Suite) -> None:
        for number, gate in enumerate(
            ("{metric: acc, max_drop: -0.1}", "f1 >= baseline", "{metric: acc, max_rise: 0.1}")
        ):
            suite2.write(f"odd{number}", [0], gates=gate if gate.startswith("{") else f"'{gate}'")
        suite2.write_baseline("-k", "birds", "--ignore-glob=*odd*")
        run = suite2.run(BASELINE, "-k", "odd")
        run.stdout.fnmatch_lines(
            [
                "*odd0.yaml:*: metadata.gates: *max_drop: expected a number of 0 or more, got -0.1: *",
                "*odd1.yaml:*: metadata.gates: 'f1 >= baseline': task 'odd1' has no metric 'f1' (it has: acc)*",
                "*odd2.yaml:*: metadata.gates: *acc is better when higher, so max_rise limits no loss: write max_drop*",
            ]
        )
        assert run.ret == 1

    def test_several_models_of_a_fixture(self, suite2: Suite) -> None:
        suite2.pytester.makeconftest(
            DOUBTER.replace('scope="session")', 'scope="session", params=["a", "b"])').replace(
                "llmeval_model()", "llmeval_model(request)"
            )
        )
        run = suite2.run(BASELINE, UPDATE)
        run.stdout.fnmatch_lines(
            ["ERROR: *a baseline holds the answers of one model, and 2 answered (a, b): nothing is*"]
        )
        assert run.ret == 1

    def test_clusters(self, suite2: Suite) -> None:
        path = suite2.write("odd", [0])
        path.write_text(path.read_text().replace("version: 1.0", "version: 1.0\n  cluster: passage"))
        suite2.pytester.runpytest("tasks/odd.yaml").stdout.fnmatch_lines(
            ["*odd.yaml:*: metadata.cluster: the data has no column 'passage' (it has: q, label)"]
        )
        path.write_text(path.read_text().replace("cluster: passage", "cluster: 3"))
        suite2.pytester.runpytest("tasks/odd.yaml").stdout.fnmatch_lines(
            ["*odd.yaml:*: metadata.cluster: must name the column that docs of a cluster share"]
        )


def test_what_else_differs_is_told(suite2: Suite) -> None:
    conftest = suite2.pytester.path / "conftest.py"
    source = conftest.read_text()

    def compute_in(dtype: str) -> None:
        facts = f"    def describe(self):\n        return {{'model': {{'model_dtype': '{dtype}'}}}}\n\n"
        conftest.write_text(source.replace("class Doubter:\n", "class Doubter:\n" + facts))

    compute_in("float32")
    suite2.doubt()
    suite2.write_baseline()
    assert "computed in" not in suite2.run(BASELINE).stdout.str()
    compute_in("bfloat16")
    suite2.run(BASELINE).stdout.fnmatch_lines(["baseline main: answers were computed in float32, now in bfloat16: *"])
    suite2.pytester.runpytest("tasks/birds.yaml::doc[3]", BASELINE, UPDATE)
    compared = suite2.run(BASELINE)
    compared.stdout.fnmatch_lines(["baseline main: contains answers of several models, updated part by part: birds"])


#: Always says yes, by a margin that stands in the file ``lead``.
SURE = """
import pathlib, pytest

class Sure:
    def loglikelihood(self, requests):
        lead = float(pathlib.Path(__file__).with_name("lead").read_text())
        return [(-1.0 if said == " yes" else -1.0 - lead, False) for _, said in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Sure()
"""


def test_a_rule_sees_a_model_that_is_less_sure(suite2: Suite) -> None:
    """The shares are 3/4 and 3/5: all docs stay right. The files list acc only; the rules add the metric."""
    suite2.pytester.makeconftest(SURE)
    lead = suite2.pytester.path / "lead"
    lead.write_text("1.0986122886681098")
    rules = [f"--llmeval-fail-on={name}.norm_correct_prob >= baseline - 0.1" for name in ("all", "t*")]
    suite2.write_baseline(*rules)
    suite2.run(BASELINE, *rules).assert_outcomes(passed=25)
    lead.write_text("0.4054651081081644")
    result = suite2.run(BASELINE, *rules)
    result.assert_outcomes(passed=23, failed=2)
    result.stdout.fnmatch_lines(
        ["*trees: norm_correct_prob 0.6000, was 0.7500: fell by 0.1500, allowed 0.1*"], consecutive=False
    )
    result.stdout.fnmatch_lines(["*all: norm_correct_prob 0.6000, was 0.7500: fell by 0.1500, allowed 0.1*"])
    # Without a rule that names it, there is no such metric.
    assert "norm_correct_prob" not in suite2.run(BASELINE).stdout.str()
