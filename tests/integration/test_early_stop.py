"""`--llmeval-early-stop` from the user's side: what runs, what is skipped and why, and what the verdicts say."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from yessuite import MODEL
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: The model of this folder's suite, which also writes how many docs it was asked.
COUNTING = """
class Counting(Yes):
    def loglikelihood(self, requests):
        with open("asked.txt", "a") as file:
            file.writelines(f"{context}\\n" for context, continuation in requests if continuation.strip() == "yes")
        return super().loglikelihood(requests)

@pytest.fixture(scope="session")
def llmeval_model():
    return Counting()
"""


def labels(docs: int, right: float, seed: int = 3) -> list[int]:
    """That share of the docs is answered by yes, the others stand anywhere."""
    found = [0] * round(docs * right) + [1] * (docs - round(docs * right))
    random.Random(seed).shuffle(found)
    return found


@pytest.fixture
def counted(pytester: pytest.Pytester) -> Callable[[], dict[str, int]]:
    """How many docs of each task the model was asked since it was last looked at."""
    pytester.makeconftest(MODEL + COUNTING)
    pytester.makeini("[pytest]\nllmeval_stop_seed = 0\n")

    def count() -> dict[str, int]:
        path = pytester.path / "asked.txt"
        asked = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        assert len(set(asked)) == len(asked), "a doc was asked twice"
        tasks = [context.split()[0] for context in asked]
        return {task: tasks.count(task) for task in sorted(set(tasks))}

    return count


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest("tasks", "--llmeval-early-stop", "-v", "-rs", *args)


class TestATaskStops:
    def test_once_its_gates_are_proven(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any, workers: list[str]
    ) -> None:
        write_task("clear", labels(150, 0.8), gates="acc >= 0.5, acc >= 0.5 @ 0.95 as sure")
        write_task("bad", labels(150, 0.2), gates="acc >= 0.5")
        result = run(pytester, *workers)
        asked = counted()
        assert 10 < asked["clear"] < 100
        assert 10 < asked["bad"] < 100
        assert result.ret == 1
        assert result.parseoutcomes()["skipped"] == 300 - sum(asked.values())
        for line in (
            f"*gate failed: *bad.yaml::gate[[]acc[]]: bad: acc 0.*on {asked['bad']} of 150 docs, required >= 0.5; "
            "proven after * of 150 docs at 95 %*",
            "*gate passed: *clear.yaml::gate[[]sure[]]: *required >= 0.5 at 95 % confidence; proven after * of "
            "150 docs at 95 %",
            f"stopped early, all gates proven: *clear on {asked['clear']} of 150 docs*",
            "SKIPPED*: not needed: gate[[]acc[]] proven after * docs, gate[[]sure[]] proven after * docs",
        ):
            result.stdout.fnmatch_lines([line])

    def test_at_the_same_doc_however_it_is_run(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any
    ) -> None:
        """More docs than workers of xdist get at once where a task may be cut."""
        pytest.importorskip("xdist")
        write_task("long", labels(1100, 0.5), gates="acc >= 0.7")
        write_task("short", labels(100, 0.3), gates="acc >= 0.7")
        found = {}
        for how in ((), ("-n2",), ("-m", "llmeval_gate"), ("-m", "llmeval_gate", "-n2")):
            result = pytester.runpytest("tasks", "--llmeval-early-stop", "-q", *how)
            proofs = re.findall(r"(\w+\.yaml)::gate\[acc\]: .*(proven after \d+)", result.stdout.str())
            found[how] = (sorted(set(proofs)), counted())
        assert len(found[()][0]) == 2
        assert found[()][1]["long"] < 200
        assert all(each == found[()] for each in found.values())

    def test_doc_ids_are_those_of_any_run(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("clear", labels(40, 0.8), gates="acc >= 0.5")
        ids = []
        for args in ((), ("--llmeval-early-stop",), ("--llmeval-early-stop", "-o", "llmeval_stop_seed=1")):
            lines = pytester.runpytest("tasks", "--collect-only", "-q", *args).outlines
            ids.append([line for line in lines if "::doc[" in line])
        assert ids[0] == [f"tasks/clear.yaml::doc[{doc}]" for doc in range(40)]
        assert sorted(ids[1]) == sorted(ids[2]) == sorted(ids[0])
        assert ids[0] != ids[1] != ids[2]

    def test_in_a_new_order_each_time_which_workers_share(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any, workers: list[str]
    ) -> None:
        """Each run names the seed that it drew, and a run with that seed stops at the same doc."""
        write_task("clear", labels(150, 0.7), gates="acc >= 0.5")
        (pytester.path / "pytest.ini").write_text("[pytest]\n")
        seeds, proofs = [], []
        for args in (["--llmeval-output=out"], [], ["-o", "llmeval_stop_seed="])[: 2 if workers else 3]:
            given = args or ["-o", f"llmeval_stop_seed={seeds[0]}"]
            result = run(pytester, "-m", "llmeval_gate", *workers, *given)
            seeds += {int(seed) for seed in re.findall(r"-o llmeval_stop_seed=(\d+) repeats it", result.stdout.str())}
            proofs.append((re.findall(r"proven after \d+", result.stdout.str())[0], counted()))
        assert proofs[0] == proofs[1]
        assert seeds[0] == seeds[1]
        assert workers or seeds[2] != seeds[0]
        (path,) = (pytester.path / "out").rglob("results_*.json")
        assert json.loads(path.read_text())["pytest_llmeval"]["stop_seed"] == seeds[0]

    def test_not_without_a_gate(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("clear", labels(200, 0.8), gates="acc >= 0.5")
        write_task("shown", labels(200, 0.8))
        assert run(pytester).ret == 0
        asked = counted()
        assert (asked["shown"], asked["clear"] < 100) == (200, True)
        run(pytester, "-m", "not llmeval_gate")
        assert counted() == {"clear": 200, "shown": 200}

    def test_not_before_the_last_of_its_gates(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any
    ) -> None:
        """Exactly half of the docs are right: only the last one shows that 0.5 is reached."""
        write_task("even", labels(120, 0.5), gates="acc >= 0.1, acc >= 0.5 as edge, acc >= 0.5 @ 0.999999 as sure")
        result = run(pytester, "-o", "llmeval_stop_confidence=1")
        assert counted() == {"even": 120}
        assert result.parseoutcomes() == {"passed": 62, "wrong": 60, "inconclusive": 1}
        result.stdout.fnmatch_lines(
            [
                "*required >= 0.5 at 99.9999 % confidence; *judged at 99.9999283 %, because early looks may spend a "
                "part of the error at 99.9999 % confidence*"
            ]
        )

    def test_within_a_limit(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("clear", labels(400, 0.8), gates="acc >= 0.5 @ 0.95")
        result = run(pytester, "-m", "llmeval_gate", "--llmeval-limit", "200")
        assert counted()["clear"] < 100
        result.stdout.fnmatch_lines(
            ["*proven after * of 200 docs at 95 %; the docs asked for are the first ones, not a random sample*"]
        )

    def test_what_result_files_say(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("clear", labels(150, 0.8), gates="acc >= 0.5")
        run(pytester, "--llmeval-output", "out")
        asked = counted()["clear"]
        (path,) = (pytester.path / "out").rglob("results_*.json")
        written = json.loads(path.read_text())
        assert written["pytest_llmeval"]["stopped_early"] == {"clear": {"docs": asked, "docs_total": 150}}
        assert written["n-samples"]["clear"] == {"original": 150, "effective": asked}
        (gate,) = written["pytest_llmeval"]["gates"].values()
        assert gate["numbers"]["proven_after"] <= asked


#: Docs of each task of the group.
SIZE = 120


class TestGroups:
    @pytest.fixture(autouse=True)
    def group(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("one", labels(SIZE, 0.8), gates="acc >= 0.5")
        write_task("two", labels(SIZE, 0.8))
        self.write(pytester, 'gates: ["acc >= 0.5 @ 0.95"]')

    def write(self, pytester: pytest.Pytester, metadata: str) -> None:
        (pytester.path / "tasks" / "both.yaml").write_text(
            "group: both\ntask: [one, two]\naggregate_metric_list: [{metric: acc}]\n"
            f"metadata: {{version: 1.0, {metadata}}}\n"
        )

    def test_with_their_docs_its_tasks_run_whole_but_the_last(
        self, pytester: pytest.Pytester, counted: Any, workers: list[str]
    ) -> None:
        """The first docs of the group's order are of both tasks, and a worker does not know the other's."""
        assert run(pytester, *workers).ret == 0
        asked = counted()
        assert asked["one"] == SIZE
        assert asked["two"] == SIZE if workers else asked["two"] < 100

    def test_its_docs_in_one_random_order_where_gates_run_alone(self, pytester: pytest.Pytester, counted: Any) -> None:
        result = run(pytester, "-m", "llmeval_gate")
        asked = counted()
        assert result.ret == 0
        assert 10 < sum(asked.values()) < 150
        result.stdout.fnmatch_lines(["*both.yaml::gate[[]acc[]]: both: acc *; proven after * of 240 docs at 95 %"])
        assert "|both" not in result.stdout.str()

    def test_all_its_docs_under_xdist_where_a_task_has_gates_too(self, pytester: pytest.Pytester, counted: Any) -> None:
        pytest.importorskip("xdist")
        assert run(pytester, "-m", "llmeval_gate", "-n2").ret == 0
        assert counted()["one"] == SIZE

    def test_without_a_gate_has_no_row(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any, workers: list[str]
    ) -> None:
        self.write(pytester, "gates: []")
        result = run(pytester, *workers)
        assert result.ret == 0
        assert counted()["one"] < 100
        result.stdout.fnmatch_lines(["SKIPPED*: both: 1 of its tasks stopped early (one)"])
        assert "|both" not in result.stdout.str()


class TestFamilies:
    def test_a_failure_is_proven_at_its_share_of_the_error(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any, workers: list[str]
    ) -> None:
        """All docs are wrong: 7 of 40 show it at .025, and it takes 9 at a quarter of that (see test_proofs)."""
        for name in ("f1", "f2", "f3", "f4"):
            write_task(name, [1] * 40)
        needed = {"f1.acc >= 0.5 @ 0.95": {"7"}, "f*.acc >= 0.5 @ 0.95": {"9"}}
        for rule in list(needed)[bool(workers) :]:
            result = run(pytester, "-m", "llmeval_gate", *workers, "--llmeval-fail-on", rule)
            assert result.ret == 1
            assert set(re.findall(r"proven after (\d+)", result.stdout.str())) == needed[rule]
            counted()


class TestBaselines:
    def test_a_loss_is_proven(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("t", labels(400, 0.8))
        options = ("--llmeval-baseline", "main")
        assert pytester.runpytest("tasks", "-q", *options, "--llmeval-update-baseline").ret == 0
        counted()
        same = run(pytester, "-m", "llmeval_gate", *options, "--llmeval-fail-on", "t.acc >= baseline - 0.1 @ 0.95")
        assert (same.ret, counted()["t"] < 200) == (0, True)
        same.stdout.fnmatch_lines(["*: unchanged, *: 0 lost, 0 gained; proven after * of 400 docs at 95 %*"])
        write = (pytester.path / "conftest.py").read_text()
        (pytester.path / "conftest.py").write_text(write.replace("return Counting()", 'return Counting("no")'))
        worse = run(pytester, "-m", "llmeval_gate", *options, "--llmeval-fail-on", "t.acc >= baseline - 0.1 @ 0.95")
        assert (worse.ret, counted()["t"] < 100) == (1, True)

    def test_a_floor_needs_fewer_docs_beside_it(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any
    ) -> None:
        write_task("t", labels(400, 0.8), gates="acc >= 0.7")
        options = ("--llmeval-baseline", "main")
        assert pytester.runpytest("tasks", "-q", *options, "--llmeval-update-baseline").ret == 0
        counted()
        assert run(pytester, "-m", "llmeval_gate").ret == 0
        alone = counted()["t"]
        result = run(pytester, "-m", "llmeval_gate", *options)
        assert (result.ret, counted()["t"] < alone) == (0, True)
        result.stdout.fnmatch_lines(["*of 400 docs at 95 %, with the baseline's scores of all docs as control"])

    def test_none_is_written(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("t", labels(40, 0.8))
        result = run(pytester, "--llmeval-baseline", "main", "--llmeval-update-baseline")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            [
                "ERROR: --llmeval-update-baseline: a baseline holds all docs that were asked for, and "
                "--llmeval-early-stop omits some: they cannot be combined"
            ]
        )


class TestSettings:
    def test_ties_are_counted_over_all_docs(
        self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any
    ) -> None:
        write_task("t", labels(40, 0.8))
        result = run(pytester, "--llmeval-baseline", "main", "--llmeval-noise", "8")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            [
                "ERROR: --llmeval-noise: flips within noise are counted over all docs, and --llmeval-early-stop "
                "omits some: they cannot be combined"
            ]
        )

    def test_the_ini_twin(self, pytester: pytest.Pytester, write_task: WriteTask, counted: Any) -> None:
        write_task("clear", labels(200, 0.8), gates="acc >= 0.5")
        assert pytester.runpytest("tasks", "-o", "llmeval_early_stop=true").ret == 0
        assert counted()["clear"] < 100

    @pytest.mark.parametrize("value", ["95", "0.4", "much"])
    def test_a_confidence_that_is_none(self, pytester: pytest.Pytester, value: str) -> None:
        result = pytester.runpytest("-o", f"llmeval_stop_confidence={value}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*ini llmeval_stop_confidence: expected a number from 0.5 to 1, got '{value}'"])

    @pytest.mark.parametrize("value", ["0", "1", "half"])
    def test_a_split_that_is_none(self, pytester: pytest.Pytester, value: str) -> None:
        result = pytester.runpytest("-o", f"llmeval_stop_split={value}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        expected = "expected a number between 0 and 1, e.g. 0.2"
        result.stderr.fnmatch_lines([f"*ini llmeval_stop_split: {expected}, got '{value}'"])
