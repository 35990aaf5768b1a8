"""Failures that are confirmed by second answers: outcome, line and numbers, and how a model answers again."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from handmade import make_task

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import SecondAnswers
from pytest_llmeval._fake import FakeLM
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._lm import LM
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import confirmed
from pytest_llmeval._verdicts import fails_by_numbers
from pytest_llmeval._verdicts import judge
from pytest_llmeval._verdicts import may_be_confirmed
from pytest_llmeval._verdicts import second_gate


N = 100


def answered(task: Task, items: Sequence[Any]) -> list[DocResult]:
    metric = task.metrics[0].name
    return [DocResult(i, {"none": {metric: item}}, key=DocKey(f"d{i}", "p")) for i, item in enumerate(items)]


def right_but(*wrong: int) -> list[float]:
    return [float(doc not in wrong) for doc in range(N)]


class Looks:
    """A task whose docs were answered for the baseline and then twice."""

    def __init__(self, folder: Path, before: Sequence[float], first: Sequence[float], again: Sequence[float]) -> None:
        self.task = make_task(metrics=["exact_match"], output_type="generate_until")
        baseline = Baseline("main", folder / "main", Settings())
        old = answered(self.task, before)
        baseline.update(self.task, old, TaskData(self.task, old, N).summary(old), "m", {})
        self.looks = []
        for items in (first, again):
            now = answered(self.task, items)
            part = TaskData(self.task, now, N, baseline.compare(self.task, now))
            self.looks.append(GateData(self.task, [part], baseline="main"))

    def judge(self, entry: str, way: str = "") -> Verdict:
        gate = parse_gate(entry, path=Path("t.yaml"), line=1)
        first, again = self.looks
        verdict = judge(gate, first.summary(), data=first)
        assert may_be_confirmed(gate)
        assert fails_by_numbers(verdict)
        second = judge(second_gate(gate), again.summary(), data=again)
        return confirmed(second_gate(gate), verdict, second, first, again, way)


#: Before, the last ten are wrong. The first time 9 are lost and 2 gained, which shows a fall (p = .020).
BEFORE = right_but(*range(90, N))
FIRST = right_but(*range(9), *range(92, N))


def line(verdict: Verdict) -> str:
    [text] = [fact.text for fact in verdict.facts if fact.label == "confirm"]
    return text


class TestConfirmed:
    def test_undone(self, tmp_path: Path) -> None:
        """4 lost and 3 gained: p = .52."""
        again = right_but(0, 1, 2, 9, 93, 94, 95, 96, 97, 98, 99)
        verdict = Looks(tmp_path, BEFORE, FIRST, again).judge("exact_match >= baseline @ 0.95", "float32")
        assert (verdict.outcome, verdict.p_value) == ("inconclusive", None)
        assert line(verdict) == (
            "3 of 9 losses and 2 of 2 gains recur when 100 docs are answered again (float32), beside 1 loss and 1 gain "
            "that are new; the second answers do not show a fall (p = 0.52), so the gate is inconclusive"
        )
        counts = {"docs_again": 100, "lost_twice": 3, "gained_twice": 2, "lost_then": 1, "gained_then": 1}
        assert {name: verdict.numbers[name] for name in counts} == counts
        assert verdict.numbers["p_again"] == pytest.approx(0.5221, abs=1e-4)
        assert (verdict.numbers["lost"], verdict.numbers["gained"]) == (9, 2)
        assert line(verdict) in verdict.sentence
        assert verdict.text.splitlines()[4].startswith("  confirm   3 of 9 losses")

    def test_recurring(self, tmp_path: Path) -> None:
        """8 lost and 1 gained: p = .0098."""
        looks = Looks(tmp_path, BEFORE, FIRST, right_but(*range(8), *range(91, N)))
        verdict = looks.judge("exact_match >= baseline @ 0.95")
        assert (verdict.outcome, verdict.p_value) == ("failed", pytest.approx(0.0202, abs=1e-4))
        assert line(verdict) == (
            "8 of 9 losses and 1 of 2 gains recur when 100 docs are answered again; the second answers show a fall too "
            "(p = 0.0098)"
        )

    def test_the_second_look_allows_no_loss(self, tmp_path: Path) -> None:
        """9 and 1 show a fall beyond .02 (p = .024); 7 and 1 one beyond 0 (p = .017), but not .02 (p = .087)."""
        looks = Looks(tmp_path, BEFORE, right_but(*range(9), *range(91, N)), right_but(*range(7), *range(91, N)))
        assert looks.judge("exact_match >= baseline - 0.02 @ 0.95").outcome == "failed"

    def test_a_required_gain_is_required_twice(self, tmp_path: Path) -> None:
        """A rise of less than .01 is shown by 9 lost and 2 gained, and not by 1 lost and 3 gained."""
        verdict = Looks(tmp_path, BEFORE, FIRST, right_but(0, *range(93, N))).judge(
            "exact_match >= baseline + 0.01 @ 0.95"
        )
        assert verdict.outcome == "inconclusive"
        assert "do not show a rise of less than 0.01 (p = " in line(verdict)

    def test_a_pass_the_second_time_is_no_pass(self, tmp_path: Path) -> None:
        verdict = Looks(tmp_path, BEFORE, FIRST, right_but()).judge("exact_match >= baseline - 0.01 @ 0.95")
        assert verdict.outcome == "inconclusive"
        assert "0 of 9 losses and 2 of 2 gains recur" in line(verdict)
        assert "do not show a fall, so" in line(verdict)

    def test_scores_between_0_and_1_have_no_counts(self, tmp_path: Path) -> None:
        low = [0.2] * 40 + [1.0] * 60
        verdict = Looks(tmp_path, right_but(), low, low).judge("exact_match >= baseline @ 0.95")
        assert line(verdict).startswith("100 docs are answered again; the second answers show a fall too (p ")
        assert "lost_twice" not in verdict.numbers

    def test_without_second_numbers_the_failure_stands(self, tmp_path: Path) -> None:
        looks = Looks(tmp_path, BEFORE, FIRST, right_but())
        gate = parse_gate("exact_match >= baseline @ 0.95", path=Path("t.yaml"), line=1)
        first, again = looks.looks
        verdict = judge(gate, first.summary(), data=first)
        failed = judge(gate, again.summary(), missing="incomplete: t: 3 of 100 docs have a result", data=again)
        stands = confirmed(gate, verdict, failed, first, again, "")
        assert (stands.outcome, stands.p_value) == ("failed", verdict.p_value)
        assert line(stands) == (
            "not confirmed, because the docs could not be answered again: incomplete: t: 3 of 100 docs have a result"
        )
        assert not fails_by_numbers(failed)

    @pytest.mark.parametrize(
        ("entry", "second"),
        [
            ("acc >= baseline - 0.02 @ 0.95", ">= baseline"),
            ("acc >= baseline - 5% @ 0.95", ">= baseline"),
            ("acc > baseline + 0.01 @ 0.95", "> baseline + 0.01"),
            ("perplexity <= baseline + 5% @ 0.95", "<= baseline"),
            ("perplexity <= baseline - 1 @ 0.95", "<= baseline - 1"),
        ],
    )
    def test_the_gate_of_the_second_look(self, entry: str, second: str) -> None:
        gate = parse_gate(entry, path=Path("t.yaml"), line=1)
        assert str(second_gate(gate).change) == second
        assert replace(second_gate(gate), change=gate.change) == gate

    @pytest.mark.parametrize("entry", ["acc >= 0.3 @ 0.95", "acc >= baseline - 0.02", "acc stays right"])
    def test_other_gates_are_not_confirmed(self, entry: str) -> None:
        assert not may_be_confirmed(parse_gate(entry, path=Path("t.yaml"), line=1))


class Recomputed(FakeLM):
    """A model with two groupings; another dtype comes last."""

    def recomputed(self, dtype: str | None) -> Iterator[LM]:
        for name in ("small passes", "one by one", *filter(None, [dtype])):
            yield FakeLM(name=name)


class Grouped(FakeLM):
    """A model that knows of no other dtype."""

    def recomputed(self, dtype: str | None) -> Iterator[LM]:
        yield FakeLM(name="small passes")


class TestSecondAnswers:
    @pytest.mark.parametrize(
        ("lm", "own", "baseline", "way"),
        [
            (Recomputed(), "torch.bfloat16", {"torch.float32"}, "float32"),
            (Recomputed(), "torch.float32", {"torch.float16"}, "float16"),
            (Recomputed(), "torch.bfloat16", {"torch.bfloat16"}, "small passes"),
            (Recomputed(), "torch.bfloat16", {"torch.bfloat16", "torch.float32"}, "small passes"),
            (Recomputed(), "torch.bfloat16", set(), "small passes"),
            (Recomputed(), None, {"torch.float32"}, "small passes"),
            (Grouped(), "torch.bfloat16", {"torch.float32"}, "small passes"),
            (FakeLM(), "torch.bfloat16", {"torch.float32"}, ""),
        ],
    )
    def test_the_way(self, lm: LM, own: str | None, baseline: set[str], way: str) -> None:
        run = ModelRun(Evaluation(Settings(), Registry()))
        run.facts = own and {"model": {"model_dtype": own}}
        answers = SecondAnswers(run)
        other = answers.model(lm, baseline)
        assert answers.way == way
        assert (other is lm) == (way == "")
        assert answers.model(lm, baseline) is other
        assert answers.run.noise is run.noise

    def test_texts_are_sampled_with_another_seed(self) -> None:
        lm = FakeLM(text_of=lambda context, kwargs: f"{context} {kwargs.seed}")
        docs = {"test": [{"q": "a", "a": "a 7"}]}
        task = make_task(docs, metrics=["exact_match"], generation_kwargs={"seed": 7, "do_sample": True})
        run = ModelRun(Evaluation(Settings(), Registry()))
        answers = SecondAnswers(run)
        for one in (run, answers.run):
            one.score(lm, task, [0])
        assert [one.results("t")[0].correct for one in (run, answers.run)] == [True, False]
        assert [kwargs.seed for _, (_, kwargs) in lm.calls] == [7, 8]
