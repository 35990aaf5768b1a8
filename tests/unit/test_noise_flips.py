"""Flips under a noise floor: which they are, what they excuse, and what the verdict says of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._scoring import resolve_metrics
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
LOST_CLOSE: Doc = ((1, 0.09), (0, 0.05))
GAINED_CLOSE: Doc = ((0, 0.01), (1, 0.099))


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


def part(tmp_path: Path, own: Task, docs: Sequence[Doc], *, picks: bool = True) -> TaskData:
    baseline = Baseline("main", tmp_path, Settings())
    before, now = (results(own, docs, side, picks=picks) for side in (0, 1))
    summary = summarize_task(own, before, n_total=len(docs), num_fewshot=None, bootstrap_iters=0)
    baseline.update(own, before, summary, "m", {})
    return TaskData(own, now, len(docs), baseline.compare(own, now))


def judged(
    parts: Sequence[TaskData],
    gate: Any,
    *noises: Noise | None,
    owner: Group | None = None,
    drawn: Any = "all",
) -> Verdict:
    """The verdict where each task has its noise, or all have the same."""
    probes = list(noises or [FLOOR] * len(parts))
    noise = {one.task.name: probe for one, probe in zip(parts, probes, strict=True) if probe is not None}
    data = GateData(owner or parts[0].task, parts, drawn, "main", noise=noise)
    return judge(parse_gate(gate, path=PATH, line=1), data.summary(), data=data)


def counts(verdict: Verdict) -> tuple[float, float, float]:
    return verdict.numbers["lost"], verdict.numbers["gained"], verdict.numbers["flips_under_noise"]


GATE = "acc >= baseline - 0.02 @ 0.95"


class TestWhichFlipsAreUnderTheFloor:
    @pytest.mark.parametrize(
        ("before", "now", "is_close"),
        [(0.09, 0.09, True), (0.09, 0.11, False), (0.11, 0.09, False), (0.1, 0.05, False), (0.0, 0.0, True)],
    )
    def test_both_margins_lie_below_the_floor(self, tmp_path: Path, before: float, now: float, is_close: bool) -> None:
        verdict = judged([part(tmp_path, task(), [STAYS] * 19 + [((1, before), (0, now))])], GATE)
        assert counts(verdict) == (1, 0, int(is_close))

    def test_what_did_not_flip_is_none(self, tmp_path: Path) -> None:
        docs: list[Doc] = [((1, 0.01), (1, 0.01)), ((0, 0.01), (0, 0.01)), *[STAYS] * 8]
        verdict = judged([part(tmp_path, task(), docs)], GATE)
        assert counts(verdict) == (0, 0, 0)
        assert "rounding: no flip lies under the noise floor 0.1000" in verdict.full_sentence

    def test_a_metric_has_its_own_margin_and_floor(self, tmp_path: Path) -> None:
        noise = Noise(64, {"acc": 5.0, "acc_norm": 0.1}, {}, ("smaller",))
        own = part(tmp_path, task(metric="acc_norm"), [STAYS] * 18 + [LOST_CLOSE, LOST])
        assert counts(judged([own], "acc_norm >= baseline - 0.02 @ 0.95", noise)) == (2, 0, 1)

    def test_a_doc_without_a_pick_is_none(self, tmp_path: Path) -> None:
        assert counts(judged([part(tmp_path, task(), [LOST_CLOSE, STAYS], picks=False)], GATE)) == (1, 0, 0)

    def test_a_metric_that_should_be_low(self, tmp_path: Path) -> None:
        docs: list[Doc] = [*[STAYS] * 8, GAINED, LOST_CLOSE]
        verdict = judged([part(tmp_path, task(higher_is_better=False), docs)], "acc <= baseline + 0.02 @ 0.95")
        assert counts(verdict) == (1, 1, 1)
        assert (
            "1 flip under the noise floor 0.1000 (0 lost, 1 gained) may be rounding; without them it rose by 0.1000"
            in verdict.full_sentence
        )


#: Of 400 docs 35 lost and 14 gained, which fails a gate at .02; without those under the floor 10 lost, which does not.
MIXED = [STAYS] * 351 + [LOST] * 10 + [LOST_CLOSE] * 25 + [GAINED_CLOSE] * 14


class TestTheyMayExcuse:
    def test_a_failure_that_they_alone_cause_is_inconclusive(self, tmp_path: Path) -> None:
        own = part(tmp_path, task(), MIXED)
        verdict, without = judged([own], GATE), judged([own], GATE, None)
        bounds = _stats.paired_bounds(35, 14, 400, 0.95)
        assert (verdict.outcome, verdict.p_value, without.outcome) == ("inconclusive", None, "failed")
        assert counts(verdict) == (35, 14, 39)
        assert verdict.numbers["difference"] == pytest.approx(-21 / 400)
        assert verdict.numbers["difference_without_ties"] == pytest.approx(-10 / 400)
        # All flips count for what is shown.
        assert (verdict.numbers["difference_low"], verdict.numbers["difference_high"]) == (bounds.low, bounds.high)
        assert verdict.numbers["p_mcnemar_two_sided"] == _stats.mcnemar_p(35, 14)
        assert verdict.numbers["p"] == without.p_value
        assert "; without the flips under the noise floor it would not fail; " in verdict.sentence
        assert (
            "rounding: 39 flips under the noise floor 0.1000 (25 lost, 14 gained) may be rounding; without them it "
            "fell by 0.0250"
        ) in verdict.full_sentence

    def test_a_failure_without_them_stays_one(self, tmp_path: Path) -> None:
        docs = [STAYS] * 150 + [LOST] * 40 + [LOST_CLOSE] * 5 + [GAINED_CLOSE] * 5
        own = part(tmp_path, task(), docs)
        verdict, without = judged([own], GATE), judged([own], GATE, None)
        assert verdict.outcome == without.outcome == "failed"
        assert verdict.p_value == without.p_value

    def test_those_that_go_one_way_excuse_nothing(self, tmp_path: Path) -> None:
        """Five lost and none gained: p = 2 * .5 ** 5 = .0625, below .1."""
        damaged = judged([part(tmp_path, task(), [STAYS] * 15 + [LOST_CLOSE] * 5)], GATE)
        assert (damaged.outcome, *counts(damaged)) == ("failed", 5, 0, 5)
        assert "5 flips under the noise floor 0.1000 (5 lost, 0 gained) mostly go one way" in damaged.full_sentence
        assert "mostly go one way (p = 0.062), so none is attributed to rounding" in damaged.full_sentence

    def test_a_loss_on_close_calls_does_not_sleep(self, tmp_path: Path) -> None:
        """30 of 100 lost, every one below the floor: the gate fails as it does without a floor."""
        own = part(tmp_path, task(), [STAYS] * 65 + [LOST_CLOSE] * 30 + [GAINED_CLOSE] * 5)
        with_floor, without = judged([own], GATE), judged([own], GATE, None)
        assert with_floor.outcome == without.outcome == "failed"
        assert with_floor.p_value == without.p_value

    @pytest.mark.parametrize("gate", ["acc >= baseline - 0.05", "acc >= baseline - 0.05 @ 0.95 dataset"])
    def test_what_was_observed_stays(self, tmp_path: Path, gate: str) -> None:
        """Two of 20 lost is a drop of .1, though one of them may be rounding."""
        verdict = judged([part(tmp_path, task(), [STAYS] * 18 + [LOST_CLOSE, LOST])], gate)
        assert (verdict.outcome, *counts(verdict)) == ("failed", 2, 0, 1)
        assert "; rounding: 1 flip under the noise floor 0.1000 (1 lost, 0 gained);" in verdict.full_sentence

    def test_a_sample_of_a_data_set_stays_what_it_is(self, tmp_path: Path) -> None:
        half = replace(part(tmp_path, task(), [STAYS] * 18 + [LOST_CLOSE, LOST]), n_total=40)
        assert counts(judged([half], "acc >= baseline - 0.05 @ 0.95 dataset", drawn="random")) == (2, 0, 1)


class TestTheyNeverAcquit:
    def test_damage_among_close_calls_does_not_pass(self, tmp_path: Path) -> None:
        """24 lost and 16 gained of 400, all under the floor: the drop lies on the margin. Left out, none is left."""
        docs = [STAYS] * 360 + [LOST_CLOSE] * 24 + [GAINED_CLOSE] * 16
        verdict = judged([part(tmp_path, task(), docs)], GATE)
        assert (verdict.outcome, verdict.numbers["difference_without_ties"]) == ("inconclusive", 0)

    @settings(max_examples=25, deadline=None)
    @given(*[st.integers(0, 12)] * 4)
    def test_a_pass_is_a_pass_without_a_floor(
        self, tmp_path_factory: pytest.TempPathFactory, lost: int, gained: int, lost_close: int, gained_close: int
    ) -> None:
        docs = [STAYS] * 60 + [LOST] * lost + [GAINED] * gained
        docs += [LOST_CLOSE] * lost_close + [GAINED_CLOSE] * gained_close
        own = part(tmp_path_factory.mktemp("n"), task(), docs)
        with_floor, without = (judged([own], "acc >= baseline - 0.05 @ 0.95", noise) for noise in (FLOOR, None))
        assert (with_floor.outcome == "passed") == (without.outcome == "passed")
        assert with_floor.outcome == without.outcome or without.outcome == "failed"


class TestGroups:
    @pytest.mark.parametrize("by_size", [True, False])
    def test_each_task_has_its_own_floor(self, tmp_path: Path, by_size: bool) -> None:
        """The same flip lies under the floor of a, which is .1, and not under that of b, which is .06."""
        docs = [STAYS] * 9 + [LOST_CLOSE]
        parts = [part(tmp_path, task("a"), docs), part(tmp_path, task("b"), docs)]
        group = Group("g", PATH, ("a", "b"), metrics=(GroupMetric("acc", weight_by_size=by_size),))
        verdict = judged(parts, GATE, FLOOR, Noise(64, {"acc": 0.06}, {}, ("smaller",)), owner=group)
        assert verdict.numbers["difference"] == pytest.approx(-0.1)
        assert verdict.numbers["difference_without_ties"] == pytest.approx(-0.05)
        assert counts(verdict) == (2, 0, 1)
        assert "1 flip under the noise floors 0.0600 to 0.1000 (1 lost, 0 gained) may be" in verdict.full_sentence


class TestWithoutAFloor:
    def test_what_keeps_the_probe_fails_gates_that_it_could_excuse(self, tmp_path: Path) -> None:
        parts, noise = [part(tmp_path, task(), [STAYS] * 20)], Noise(problem="the model cannot")
        verdict = judged(parts, GATE, noise)
        assert verdict.outcome == "failed"
        assert verdict.sentence.endswith("; there is no noise floor: the model cannot")
        observed = judged(parts, "acc >= baseline - 0.02", noise)
        assert observed.outcome == "passed"
        assert "there is no noise floor: the model cannot" in observed.full_sentence

    @pytest.mark.parametrize(
        ("noise", "said"),
        [
            (Noise(64, {}, {"acc,none": 3}, ("smaller",)), " (3 of 64 rescored docs changed)"),
            (Noise(), ""),
        ],
    )
    def test_scores_without_a_margin(self, tmp_path: Path, noise: Noise, said: str) -> None:
        verdict = judged([part(tmp_path, task(), [STAYS] * 19 + [LOST_CLOSE])], GATE, noise)
        assert (verdict.numbers["lost"], "flips_under_noise" in verdict.numbers) == (1, False)
        assert (
            f"acc has no margin, so none of its flips can be distinguished from rounding{said};"
            in verdict.full_sentence
        )


def test_noise_as_plain_data_and_in_words() -> None:
    noise = Noise(64, {"acc": 0.0123, "acc_norm": 0.00012}, {"acc,none": 1, "acc_norm,none": 0}, ["a", "b"])
    assert Noise.from_list(noise.to_list()) == noise
    assert str(noise) == (
        "acc 0.0123, acc_norm 0.00012; 64 docs scored again (a; b), which changed acc of 1 and acc_norm of 0"
    )
    assert str(Noise(problem="why")) == "why"
    assert str(Noise()) == "none: its answers have no margin, so none of its flips can be distinguished from rounding"


def test_picks_travel_with_all_their_margins() -> None:
    pick = Pick(0, (0,), 0.5, {"acc_norm": 0.25})
    again = DocResult.from_list(DocResult(0, {}, pick=pick).to_list())
    assert again.pick == pick
    assert [pick.margin_by(metric) for metric in ("acc", "acc_norm", "f1")] == [0.5, 0.25, None]
    assert math.isinf(Pick(0, (0,), math.inf).margin_by("acc") or 0)
