"""Flips under a noise floor: which they are, when they count as ties, and what the verdict's line says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Field
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Noise
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import judge


PATH = Path("t.yaml")
FLOOR = Noise(64, {"acc": 0.1}, {"acc,none": 2}, ("smaller",))

#: A doc: right or wrong (1 or 0) and the margin of the pick, before and now.
Doc = tuple[tuple[int, float], tuple[int, float]]
STAYS: Doc = ((1, 2.0), (1, 2.0))
LOST: Doc = ((1, 2.0), (0, 1.5))
GAINED: Doc = ((0, 2.0), (1, 1.5))
LOST_TIE: Doc = ((1, 0.09), (0, 0.05))
GAINED_TIE: Doc = ((0, 0.01), (1, 0.099))


def task(name: str = "t", metric: str = "acc", *, higher_is_better: bool = True) -> Task:
    text = Field("doc_to_text", text="{{q}}")
    metrics = resolve_metrics((MetricSpec(metric, higher_is_better=higher_is_better),), "multiple_choice")
    return Task(name, PATH, "multiple_choice", text, text, metrics=metrics, test_split="test")


def results(own: Task, docs: Sequence[Doc], side: int, *, picks: bool = True) -> list[DocResult]:
    metric = own.metrics[0].name
    found = []
    for i, doc in enumerate(docs):
        right, margin = doc[side]
        pick = Pick(0, (0,), margin) if metric == "acc" else Pick(0, (0,), 9.0, {metric: margin})
        key = DocKey(f"{own.name}{i}", "p")
        found.append(DocResult(i, {"none": {metric: float(right)}}, key=key, pick=pick if picks else None))
    return found


def part(
    tmp_path: Path, own: Task, docs: Sequence[Doc], noise: Noise | None = FLOOR, *, picks: bool = True
) -> TaskData:
    baseline = Baseline("main", tmp_path, Settings())
    before, now = (results(own, docs, side, picks=picks) for side in (0, 1))
    summary = summarize_task(own, before, n_total=len(docs), num_fewshot=None, bootstrap_iters=0)
    baseline.update(own, before, summary, "m", {})
    return TaskData(own, now, len(docs), baseline.compare(own, now), noise)


def judged(parts: Sequence[TaskData], gate: Any, owner: Group | None = None, drawn: Any = "all") -> Verdict:
    summaries = [
        (one.task, summarize_task(one.task, one.results, n_total=one.n_total, num_fewshot=None, bootstrap_iters=0))
        for one in parts
    ]
    summary = summarize_group(owner, summaries) if owner else summaries[0][1]
    evidence = GateData(owner or parts[0].task, parts, drawn, "main")
    return judge(parse_gate(gate, path=PATH, line=1), summary, evidence=evidence)


def counts(verdict: Verdict) -> tuple[float, float, float]:
    return verdict.numbers["lost"], verdict.numbers["gained"], verdict.numbers["flips_under_noise"]


class TestWhichFlipsAreTies:
    @pytest.mark.parametrize(
        ("before", "now", "is_tie"),
        [(0.09, 0.09, True), (0.09, 0.11, False), (0.11, 0.09, False), (0.1, 0.05, False), (0.0, 0.0, True)],
    )
    def test_both_margins_lie_below_the_floor(self, tmp_path: Path, before: float, now: float, is_tie: bool) -> None:
        docs = [STAYS] * 19 + [((1, before), (0, now))]
        verdict = judged([part(tmp_path, task(), docs)], "acc >= baseline - 0.02 @ 0.95")
        assert counts(verdict) == ((0, 0, 1) if is_tie else (1, 0, 0))

    def test_what_did_not_flip_is_no_tie(self, tmp_path: Path) -> None:
        docs: list[Doc] = [((1, 0.01), (1, 0.01)), ((0, 0.01), (0, 0.01)), *[STAYS] * 8]
        verdict = judged([part(tmp_path, task(), docs)], "acc >= baseline - 0.02 @ 0.95")
        assert counts(verdict) == (0, 0, 0)
        assert "no flip lies under the noise floor 0.1000" in verdict.sentence

    def test_a_metric_has_its_own_margin_and_floor(self, tmp_path: Path) -> None:
        docs = [STAYS] * 18 + [LOST_TIE, LOST]
        noise = Noise(64, {"acc": 5.0, "acc_norm": 0.1}, {}, ("smaller",))
        verdict = judged([part(tmp_path, task(metric="acc_norm"), docs, noise)], "acc_norm >= baseline - 0.02 @ 0.95")
        assert counts(verdict) == (1, 0, 1)

    def test_a_doc_without_a_pick_is_no_tie(self, tmp_path: Path) -> None:
        verdict = judged([part(tmp_path, task(), [LOST_TIE, STAYS], picks=False)], "acc >= baseline - 0.02 @ 0.95")
        assert counts(verdict) == (1, 0, 0)

    def test_a_metric_that_should_be_low(self, tmp_path: Path) -> None:
        docs: list[Doc] = [*[STAYS] * 8, GAINED, LOST_TIE]
        verdict = judged([part(tmp_path, task(higher_is_better=False), docs)], "acc <= baseline + 0.02 @ 0.95")
        assert counts(verdict) == (1, 0, 1)
        assert "1 flip under the noise floor 0.1000 (0 lost, 1 gained) counts as a tie" in verdict.sentence


class TestWhatTiesDo:
    def test_they_are_neither_lost_nor_gained(self, tmp_path: Path) -> None:
        docs = [STAYS] * 180 + [LOST] * 2 + [GAINED] * 5 + [LOST_TIE] * 8 + [GAINED_TIE] * 5
        verdict = judged([part(tmp_path, task(), docs)], "acc >= baseline - 0.02 @ 0.95")
        bounds = _stats.paired_bounds(2, 5, 200, 0.95)
        assert verdict.outcome == "passed"
        assert counts(verdict) == (2, 5, 13)
        assert verdict.numbers["difference"] == 0.0
        assert verdict.numbers["difference_without_ties"] == pytest.approx(0.015)
        assert (verdict.numbers["difference_low"], verdict.numbers["difference_high"]) == (bounds.low, bounds.high)
        assert verdict.numbers["p"] == _stats.mcnemar_p(2, 5)
        assert (
            f"drop 0.0000, without ties -0.0150 [{-bounds.high:.4f}, {-bounds.low:.4f}], 2 lost, 5 gained, p = 0.45"
            in verdict.sentence
        )
        assert "13 flips under the noise floor 0.1000 (8 lost, 5 gained) count as ties" in verdict.sentence

    def test_without_a_probe_all_flips_count(self, tmp_path: Path) -> None:
        docs = [STAYS] * 180 + [LOST] * 2 + [GAINED] * 5 + [LOST_TIE] * 8 + [GAINED_TIE] * 5
        verdict = judged([part(tmp_path, task(), docs, None)], "acc >= baseline - 0.02 @ 0.95")
        assert (verdict.outcome, verdict.numbers["lost"], verdict.numbers["gained"]) == ("inconclusive", 10, 10)
        assert "noise" not in verdict.sentence

    def test_ties_that_go_one_way_are_none(self, tmp_path: Path) -> None:
        """Five lost and none gained: p = 2 * .5 ** 5 = .0625, below .1. With one gained it is .22."""
        damaged = judged([part(tmp_path, task(), [STAYS] * 15 + [LOST_TIE] * 5)], "acc >= baseline - 0.02 @ 0.95")
        assert counts(damaged) == (5, 0, 5)
        assert "5 flips under the noise floor 0.1000 (5 lost, 0 gained) go one way" in damaged.sentence
        assert "p = 0.062): they are no ties" in damaged.sentence
        docs = [STAYS] * 14 + [LOST_TIE] * 5 + [GAINED_TIE]
        assert counts(judged([part(tmp_path, task(), docs)], "acc >= baseline - 0.02 @ 0.95")) == (0, 0, 6)

    def test_a_loss_on_close_calls_does_not_sleep(self, tmp_path: Path) -> None:
        """30 of 100 lost, every one below the floor: the gate fails as it does without a floor."""
        docs = [STAYS] * 65 + [LOST_TIE] * 30 + [GAINED_TIE] * 5
        with_floor, without = (
            judged([part(tmp_path, task(), docs, noise)], "acc >= baseline - 0.02 @ 0.95") for noise in (FLOOR, None)
        )
        assert with_floor.outcome == without.outcome == "failed"
        assert with_floor.p_value == without.p_value

    @pytest.mark.parametrize("gate", ["acc >= baseline - 0.05", "acc >= baseline - 0.05 @ 0.95 dataset"])
    def test_what_was_observed_stays(self, tmp_path: Path, gate: str) -> None:
        """Two of 20 lost is a drop of .1, though one of them is rounding."""
        verdict = judged([part(tmp_path, task(), [STAYS] * 18 + [LOST_TIE, LOST])], gate)
        assert (verdict.outcome, *counts(verdict)) == ("failed", 2, 0, 1)
        assert verdict.sentence.endswith("1 flip under the noise floor 0.1000 (1 lost, 0 gained)")

    def test_a_sample_of_a_data_set_stays_what_it_is(self, tmp_path: Path) -> None:
        one = part(tmp_path, task(), [STAYS] * 18 + [LOST_TIE, LOST])
        half = TaskData(one.task, one.results, 40, one.comparison, one.noise)
        verdict = judged([half], "acc >= baseline - 0.05 @ 0.95 dataset", drawn="random")
        assert counts(verdict) == (2, 0, 1)


class TestGroups:
    @pytest.mark.parametrize("by_size", [True, False])
    def test_each_task_has_its_own_floor(self, tmp_path: Path, by_size: bool) -> None:
        """The same flip is a tie of a, whose floor is .1, and none of b, whose floor is .06."""
        docs = [STAYS] * 9 + [LOST_TIE]
        parts = [
            part(tmp_path, task("a"), docs),
            part(tmp_path, task("b"), docs, Noise(64, {"acc": 0.06}, {}, ("smaller",))),
        ]
        group = Group("g", PATH, ("a", "b"), metrics=(GroupMetric("acc", weight_by_size=by_size),))
        verdict = judged(parts, "acc >= baseline - 0.02 @ 0.95", group)
        assert verdict.numbers["difference"] == pytest.approx(-0.1)
        assert verdict.numbers["difference_without_ties"] == pytest.approx(-0.05)
        assert counts(verdict) == (1, 0, 1)
        assert "1 flip under the noise floors 0.0600 to 0.1000 (1 lost, 0 gained) counts as a tie" in verdict.sentence


class TestWithoutAFloor:
    def test_what_keeps_the_probe_fails_gates_that_count_ties(self, tmp_path: Path) -> None:
        parts = [part(tmp_path, task(), [STAYS] * 20, Noise(problem="the model cannot"))]
        verdict = judged(parts, "acc >= baseline - 0.02 @ 0.95")
        assert verdict.outcome == "failed"
        assert verdict.sentence.endswith("; there is no noise floor: the model cannot")
        observed = judged(parts, "acc >= baseline - 0.02")
        assert observed.outcome == "passed"
        assert "there is no noise floor: the model cannot" in observed.sentence

    @pytest.mark.parametrize(
        ("noise", "said"),
        [
            (Noise(64, {}, {"acc,none": 3}, ("smaller",)), " (scored again otherwise 3 of 64 docs changed)"),
            (Noise(), ""),
        ],
    )
    def test_scores_without_a_margin_have_no_ties(self, tmp_path: Path, noise: Noise, said: str) -> None:
        verdict = judged([part(tmp_path, task(), [STAYS] * 19 + [LOST_TIE], noise)], "acc >= baseline - 0.02 @ 0.95")
        assert (verdict.numbers["lost"], "flips_under_noise" in verdict.numbers) == (1, False)
        assert verdict.sentence.endswith(f"acc has no margin, none of its flips counts as a tie{said}")


def test_noise_as_plain_data_and_in_words() -> None:
    noise = Noise(64, {"acc": 0.0123, "acc_norm": 0.00012}, {"acc,none": 1, "acc_norm,none": 0}, ["a", "b"])
    assert Noise.from_list(noise.to_list()) == noise
    assert str(noise) == (
        "acc 0.0123, acc_norm 0.00012; 64 docs scored again (a; b), which changed acc of 1 and acc_norm of 0"
    )
    assert str(Noise(problem="why")) == "why"
    assert str(Noise()) == "none: its answers have no margin, so none of its flips counts as a tie"


def test_picks_travel_with_all_their_margins() -> None:
    pick = Pick(0, (0,), 0.5, {"acc_norm": 0.25})
    again = DocResult.from_list(DocResult(0, {}, pick=pick).to_list())
    assert again.pick == pick
    assert [pick.margin_by(metric) for metric in ("acc", "acc_norm", "f1")] == [0.5, 0.25, None]
    assert math.isinf(Pick(0, (0,), math.inf).margin_by("acc") or 0)
