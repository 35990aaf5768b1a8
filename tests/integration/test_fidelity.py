"""Gates on the distance of a run from its baseline, from the command that keeps next tokens to every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: Four tokens: yes .5, no .25, and two others of .125 each; for drifting docs yes .25, no .5, others .2 and .05.
MODEL = """
import math, pathlib, pytest
from pytest_llmeval import Loglikelihood, NextToken, RollingLoglikelihood

USUAL, DRIFTED = [.5, .25, .125, .125], [.25, .5, .2, .05]

class Drifting:
    name = "drifting"
    vocabulary = "four words"

    def tokens(self, text):
        drifted = pathlib.Path(__file__).with_name("drifted").read_text().split("\\n")
        return DRIFTED if text in drifted else USUAL

    def loglikelihood(self, requests):
        return self.tracked(requests, [()] * len(requests))

    def loglikelihood_rolling(self, requests):
        return self.tracked([(text,) for text in requests], [()] * len(requests))

    def generate_until(self, requests):
        return ["yes"] * len(requests)

    def tracked(self, requests, tracked):
        return [self.answer(request, wanted) for request, wanted in zip(requests, tracked, strict=True)]

    def answer(self, request, wanted):
        p = self.tokens(request[0])
        positions = [tuple(range(wanted)) + (3,)] if isinstance(wanted, int) else wanted
        seen = tuple(self.position(p, ids) for ids in positions)
        if len(request) == 1:
            return RollingLoglikelihood(-1.0, seen)
        return Loglikelihood(math.log(p[[" yes", " no"].index(request[1])]), False, next_tokens=seen)

    def position(self, p, ids):
        rest = 1 - sum(p[i] for i in ids[:-1])
        return NextToken(ids, tuple(math.log(p[i]) for i in ids), math.log(rest), p.index(max(p)))

class Plain:
    def loglikelihood(self, requests):
        return [(-1.0 if said == " yes" else -2.0, False) for _, said in requests]

class Silent(Drifting):
    def tracked(self, requests, tracked):
        return super().tracked(requests, [()] * len(requests))

class Foreign(Drifting):
    vocabulary = "other words"

@pytest.fixture(scope="session")
def llmeval_model(request):
    kinds = {"plain": Plain, "foreign": Foreign, "silent": Silent, "drifting": Drifting}
    return kinds[pathlib.Path(__file__).with_name("kind").read_text()]()
"""

BASELINE = "--llmeval-baseline=main"
KEEP = (BASELINE, "--llmeval-update-baseline", "--llmeval-baseline-topk=2")


def make_generating(path: Path) -> None:
    """Let a task have its answers written, all of which should be yes."""
    text = path.read_text().replace("output_type: multiple_choice", "output_type: generate_until")
    text = text.replace('doc_to_choice: ["yes", "no"]\n', "generation_kwargs: {until: ['.']}\n")
    path.write_text(text.replace("doc_to_target: label", 'doc_to_target: "yes"').replace(": acc", ": exact_match"))


class Suite:
    """One task of twelve docs; a drifting doc moves by KL .25 ln 2 by its kept tokens, and flips."""

    def __init__(self, pytester: pytest.Pytester, write_task: WriteTask) -> None:
        self.pytester = pytester
        self.folder = pytester.path / ".llmeval" / "baselines" / "main"
        self.kept = self.folder / "birds.next-tokens"
        pytester.makeconftest(MODEL)
        write_task("birds", [0] * 12)
        self.drift()
        self.use("drifting")

    def drift(self, *docs: int) -> None:
        (self.pytester.path / "drifted").write_text("\n".join(f"birds {doc}?" for doc in docs))

    def use(self, kind: str) -> None:
        (self.pytester.path / "kind").write_text(kind)

    def run(self, *options: str) -> pytest.RunResult:
        return self.pytester.runpytest("tasks", *options)

    def gate(self, gate: str, *options: str) -> pytest.RunResult:
        return self.run(BASELINE, f"--llmeval-fail-on=birds.{gate}", "-k", "gate", *options)


@pytest.fixture
def suite2(pytester: pytest.Pytester, write_task: WriteTask) -> Suite:
    suite = Suite(pytester, write_task)
    assert suite.run(*KEEP).ret == 0
    return suite


class TestKeeping:
    def test_the_file_beside_the_baseline(self, suite2: Suite) -> None:
        lines = suite2.kept.read_text().splitlines()
        assert lines[:2] == ["llmeval next tokens, format 1", ""]
        assert len(lines) == 14
        # Both choices are scored at one position; minus the logs of .5, .25, .125 and .25.
        assert lines[2].startswith("0 ")
        assert lines[2].split(" ")[3] == "0:0.693,1:1.386~3:2.079/1.386|=0"
        header = (suite2.folder / "birds.txt").read_text()
        stated = next(line for line in header.splitlines() if line.startswith("next_tokens: "))
        assert json.loads(stated.partition(": ")[2]) | {"digest": ""} == {
            "digest": "",
            "top": 2,
            "vocabulary": "four words",
        }

    def test_a_run_of_some_docs_keeps_the_others(self, suite2: Suite) -> None:
        before = suite2.kept.read_text().splitlines()
        suite2.drift(3)
        assert suite2.run(*KEEP, "-k", "doc[3]").ret == 0
        after = suite2.kept.read_text().splitlines()
        assert [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new] == [5]
        suite2.gate("kl <= 0.01").stdout.fnmatch_lines(["*1 passed*"])

    def test_some_docs_with_another_number_are_refused(self, suite2: Suite) -> None:
        run = suite2.run(*KEEP[:2], "--llmeval-baseline-topk=1", "-k", "doc[3]")
        run.stdout.fnmatch_lines(["*not updated: it keeps 2 next tokens a position, and this run 1 next tokens*"])
        assert run.ret == 1

    def test_a_run_without_the_option_removes_it(self, suite2: Suite, write_task: WriteTask) -> None:
        assert suite2.run(*KEEP[:2]).ret == 0
        assert not suite2.kept.exists()
        assert "next_tokens" not in (suite2.folder / "birds.txt").read_text()
        run = suite2.gate("kl <= 0.01")
        run.stderr.fnmatch_lines(["*'main' keeps no next tokens of birds: write it again with*topk 4"])
        assert run.ret == 4
        write_task("birds", [0] * 12, gates="'kl <= 0.01'")
        run = suite2.run(BASELINE, "-k", "gate")
        run.stdout.fnmatch_lines(["*birds: kl is not known*'main' keeps no next tokens of birds: write it again*"])

    def test_a_model_that_leaves_some_out(self, suite2: Suite) -> None:
        suite2.use("silent")
        run = suite2.run(*KEEP)
        run.stdout.fnmatch_lines(["*doc 0: the model reported no next tokens: its tracked() must report one for each*"])
        run.stdout.fnmatch_lines(["ERROR: *birds.txt: not written: 12 docs*"])

    def test_a_model_that_gives_none(self, suite2: Suite) -> None:
        suite2.use("plain")
        run = suite2.run(*KEEP)
        assert run.ret == 1
        run.stdout.fnmatch_lines(
            ["*--llmeval-baseline-topk: model 'Plain' gives no probabilities of next tokens: Plain needs the method*"]
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--llmeval-baseline-topk=4", BASELINE), "*--llmeval-baseline-topk: it is for writing a baseline*"),
            ((*KEEP[:2], "--llmeval-baseline-topk=0"), "*--llmeval-baseline-topk: expected a whole number from 1*'0'"),
        ],
    )
    def test_wrong_options(self, suite2: Suite, options: tuple[str, ...], message: str) -> None:
        run = suite2.run(*options)
        run.stderr.fnmatch_lines([message])
        assert run.ret == 4


class TestJudging:
    def test_a_run_of_the_same_model_passes(self, suite2: Suite) -> None:
        run = suite2.gate("kl <= 0.01 @ 0.95", "--llmeval-fail-on=birds.top1_agreement >= 0.99", "-v")
        assert run.ret == 0
        run.assert_outcomes(passed=2)

    def test_the_doc_that_moved_most_is_named(self, suite2: Suite, workers: list[str]) -> None:
        suite2.drift(7)
        run = suite2.gate("kl <= 0.01", *workers)
        assert run.ret == 1
        # By hand: .25 ln 2 + .25 * .31629073 = .25236, which is .02103 over 12 docs.
        run.stdout.fnmatch_lines(
            [
                "*birds: kl 0.0210 +- 0.0210 over 12 docs, required <= 0.01*",
                "*at least 0.0144 by the kept tokens, with all others as one; these hold 25 % of the probability, *",
                "*doc[[]7[]] moved most: kl 0.2524",
            ]
        )

    def test_agreement_and_flips(self, suite2: Suite) -> None:
        suite2.drift(2, 7)
        for gate in ("top1_agreement >= 0.9", "flips <= 0.1"):
            run = suite2.gate(gate)
            assert run.ret == 1
            value = {"t": "top1_agreement 0.8333", "f": "flips 0.1667"}[gate[0]]
            run.stdout.fnmatch_lines([f"*birds: {value} +- 0.1124 over 12 docs, required {gate.partition(' ')[2]}*"])
        run.stdout.fnmatch_lines(["*doc[[]2[]] moved most: acc was 1 and is 0 (margin 0.693 before, 0.693 now)*"])

    def test_a_group_counts_all_docs(self, suite2: Suite, write_task: WriteTask) -> None:
        write_task("trees", [0] * 4)
        (suite2.pytester.path / "tasks" / "all.yaml").write_text("group: all\ntask: [birds, trees]\n")
        assert suite2.run(*KEEP).ret == 0
        suite2.drift(7)
        run = suite2.run(BASELINE, "--llmeval-fail-on=all.kl <= 0.01", "-k", "gate")
        assert run.ret == 1
        run.stdout.fnmatch_lines(["*all: kl 0.0158 +- 0.0158 over 16 docs in 2 tasks, *birds doc[[]7[]] moved most*"])

    def test_flips_of_a_group_are_those_of_each_task_by_its_own_score(
        self, suite2: Suite, write_task: WriteTask
    ) -> None:
        make_generating(write_task("songs", [0] * 4))
        (suite2.pytester.path / "tasks" / "all.yaml").write_text("group: all\ntask: [birds, songs]\n")
        assert suite2.run(*KEEP).ret == 0
        suite2.drift(7)
        run = suite2.run(BASELINE, "--llmeval-fail-on=all.flips <= 0.01", "-k", "gate")
        run.stdout.fnmatch_lines(
            ["*all: flips 0.0625 +- 0.0625 over 16 docs in 2 tasks, *birds doc[[]7[]] moved most*"]
        )

    def test_a_glob_means_the_tasks_that_have_scores_of_that_kind(self, suite2: Suite, write_task: WriteTask) -> None:
        make_generating(write_task("songs", [0] * 4))
        run = suite2.run(BASELINE, "--llmeval-fail-on=*.kl <= 0.01", "--collect-only", "-q")
        run.stdout.fnmatch_lines(["tasks/birds.yaml::gate[[]kl[]]"])
        assert "songs.yaml::gate" not in run.stdout.str()

    def test_flips_need_no_next_tokens(self, suite2: Suite) -> None:
        suite2.use("plain")
        assert suite2.run(BASELINE, "--llmeval-update-baseline").ret == 0
        assert suite2.gate("flips <= 0.01").ret == 0

    @pytest.mark.parametrize(
        ("kind", "reason"),
        [
            ("plain", "*birds doc[[]0[]]: model 'Plain' gives no probabilities of next tokens: Plain needs*tracked()*"),
            ("foreign", "*birds doc[[]0[]]: model 'drifting' has another vocabulary than the model of the baseline*"),
        ],
    )
    def test_models_that_cannot_be_compared(self, suite2: Suite, kind: str, reason: str) -> None:
        suite2.use(kind)
        run = suite2.gate("kl <= 0.01")
        assert run.ret == 1
        run.stdout.fnmatch_lines(["*birds: kl is not known, required <= 0.01*", reason])

    def test_a_file_of_another_baseline(self, suite2: Suite) -> None:
        suite2.kept.write_text(suite2.kept.read_text().replace("0.693", "0.694"))
        run = suite2.gate("kl <= 0.01")
        assert run.ret == 1
        run.stdout.fnmatch_lines(["*its next tokens in the baseline cannot be read*"])

    def test_early_stop_runs_every_doc(self, suite2: Suite) -> None:
        suite2.drift(7)
        run = suite2.gate("kl <= 0.01", "--llmeval-early-stop")
        run.stdout.fnmatch_lines(["*birds: kl 0.0210 +- 0.0210 over 12 docs*"])

    @pytest.mark.parametrize(
        ("gate", "message"),
        [
            ("kl >= 0.01", "*kl >= demands that the run differs from its baseline: write <="),
            ("kl <= baseline + 0.1", "*kl already compares with the baseline: write 'kl <= NUMBER'"),
            ("kl <= 0.01 @ 0.95 dataset", "*kl is estimated from tokens drawn at random*omit the word dataset"),
            ("kl <= -1", "*kl is 0 or more, and the bound is -1"),
            ("flips <= 2", "*flips lies between 0 and 1, and the bound is 2; did you mean 0.02?"),
            ("top1_agrement >= 0.9", "*did you mean 'top1_agreement'?"),
        ],
    )
    def test_gates_that_cannot_be_meant(self, suite2: Suite, gate: str, message: str) -> None:
        run = suite2.gate(gate)
        run.stderr.fnmatch_lines([message])
        assert run.ret == 4

    def test_without_a_baseline(self, suite2: Suite) -> None:
        run = suite2.run("--llmeval-fail-on=birds.kl <= 0.01")
        run.stderr.fnmatch_lines(["*'birds.kl <= 0.01': there is no baseline to compare with: name one with*"])
        assert run.ret == 4


def test_generated_text_has_no_next_tokens(pytester: pytest.Pytester, write_task: WriteTask) -> None:
    make_generating(write_task("birds", [0] * 3))
    pytester.makeconftest(MODEL)
    Path("kind").write_text("drifting")
    Path("drifted").write_text("")
    Path(".llmeval", "baselines", "main").mkdir(parents=True)
    Path(".llmeval", "baselines", "main", "other.txt").touch()
    run = pytester.runpytest("tasks", "--llmeval-fail-on=birds.kl <= 0.01", BASELINE)
    run.stderr.fnmatch_lines(["*kl: it needs log-likelihoods, and generated text has none*task 'birds'"])
