"""The sentences of verdicts: they agree with the outcome, count passages, and name no impossible value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_llmeval import _stats
from pytest_llmeval import judge
from pytest_llmeval._gates import parse_gate_text
from pytest_llmeval._report import GateLine
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import step_summary
from pytest_llmeval._report import trends_of_task
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._stats import Interval
from pytest_llmeval._task import Metric
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts.floor import judge_floor
from pytest_llmeval._verdicts.noise import NoiseFlips
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import sample_of
from pytest_llmeval._verdicts.sentence import bounds_text


def hits(*counts: int) -> list[int]:
    """``hits(3, 2)``: three docs right, two wrong, and so on in turn."""
    return [1 - turn % 2 for turn, count in enumerate(counts) for _ in range(count)]


class TestThePValue:
    def test_of_a_gain_agrees_with_the_pass(self) -> None:
        """Three gained of 200: McNemar's two-sided p is .25, the gate's own is at most .05."""
        judgement = judge("acc > baseline @ 0.95", hits(103, 97), hits(100, 100))
        assert judgement.outcome == "passed"
        assert judgement.p == pytest.approx(_stats.drop_p(3, 0, 200, 0.0))
        assert judgement.p <= 0.05
        assert "; 0 lost, 3 gained" not in judgement.sentence
        assert judgement.sentence.endswith(f"0 lost, 3 gained; p = {judgement.p:.2g} for a rise")
        assert judgement.numbers["p_mcnemar_two_sided"] == 0.25
        assert judgement.numbers["p"] == judgement.p

    @pytest.mark.parametrize(
        ("gate", "lost", "outcome", "claim"),
        [
            ("acc >= baseline - 0.02 @ 0.95", 20, "failed", "a fall beyond 0.02"),
            ("acc >= baseline - 0.02 @ 0.95", 0, "passed", "a fall of less than 0.02"),
            ("acc >= baseline - 5% @ 0.95", 30, "failed", "a fall beyond 5%"),
            ("acc >= baseline @ 0.95", 20, "failed", "a fall"),
            ("acc >= baseline + 0.02 @ 0.95", 0, "failed", "a rise of less than 0.02"),
            ("acc >= 0.9 @ 0.95", 40, "failed", "acc below 0.9"),
            ("acc >= 0.9 @ 0.95", 5, "passed", "acc above 0.9"),
            ("acc <= 0.9 @ 0.95", 5, "failed", "acc above 0.9"),
        ],
    )
    def test_of_a_limit_names_its_claim(self, gate: str, lost: int, outcome: str, claim: str) -> None:
        judgement = judge(gate, hits(200 - lost, lost), hits(200))
        assert (judgement.outcome, judgement.p is not None and judgement.p <= 0.05) == (outcome, True)
        assert f" for {claim}" in judgement.text
        assert "McNemar" not in judgement.text

    def test_of_an_inconclusive_gate_is_above_its_error(self) -> None:
        judgement = judge("acc >= baseline - 0.02 @ 0.95", hits(193, 7), hits(200))
        assert judgement.outcome == "inconclusive"
        assert judgement.p is not None
        assert judgement.p > 0.05
        assert f"; p = {judgement.p:.2g} for a fall beyond 0.02" in judgement.sentence

    def test_of_the_whole_data_set_is_not_shown(self) -> None:
        judgement = judge("acc >= baseline - 0.02 @ 0.95 dataset", hits(96, 4), hits(100))
        assert (judgement.outcome, judgement.p, judgement.interval) == ("failed", None, None)
        assert "p = " not in judgement.text


class TestPassages:
    """Two of ten passages lost, of twenty docs each: 40 docs, but little evidence."""

    def test_no_p_counts_docs(self) -> None:
        judgement = judge(
            "acc >= baseline - 0.05 @ 0.95", hits(160, 40), hits(200), clusters=[doc // 20 for doc in range(200)]
        )
        assert judgement.outcome == "inconclusive"
        assert judgement.p is not None
        assert judgement.p > 0.05
        assert "p < 0.0001" not in judgement.text
        assert "p_mcnemar_two_sided" not in judgement.numbers

    def test_checkpoints_are_compared_by_passages(self) -> None:
        value = [MetricValue("acc", "none", right, None, True, 200) for right in (1.0, 0.8)]
        sides = [Summary("t", "t", 1, 0, 200, 200, (one,)) for one in value]

        def results(scores: list[int], *, shared: bool) -> list[DocResult]:
            keys = [DocKey(f"{doc}", "p", f"{doc // 20}" if shared else None) for doc in range(200)]
            return [DocResult(doc, {"none": {"acc": score}}, key=keys[doc]) for doc, score in enumerate(scores)]

        moved = hits(200), hits(160, 40)
        (shared,) = trends_of_task(sides, [results(side, shared=True) for side in moved])
        (alone,) = trends_of_task(sides, [results(side, shared=False) for side in moved])
        # Two passages fell: the sign test cannot show more than p = .5.
        assert (shared.fell, shared.p_value) == (2, 0.5)
        assert (alone.fell, alone.p_value) == (40, pytest.approx(2**-39))
        # Ten numbers, eight of 0 and two of -1: sqrt(.16 * 10 / 9 / 10).
        assert shared.stderr == pytest.approx(math.sqrt(0.16 / 9))
        assert alone.stderr == pytest.approx(math.sqrt(0.16 / 199))

    def test_noise_flips_of_one_passage_show_no_direction(self) -> None:
        flips = NoiseFlips(12, 0, (0.1,), (), net=(0, 12))
        together = NoiseFlips(12, 0, (0.1,), (), net=(0, 1))
        assert (flips.may_excuse, together.may_excuse) == (False, True)

    def test_moves_are_added_within_a_passage(self) -> None:
        assert _stats.net_moves([1, -1, 1, 1, -1], ["a", "a", "b", "b", "c"]) == (1, 1)
        assert _stats.net_moves([1, -1, 1, 1, -1]) == (3, 2)
        assert _stats.standard_error([1.0, 0.0, 1.0, 0.0]) == pytest.approx(math.sqrt(0.25 / 3))
        assert _stats.standard_error([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"]) == pytest.approx(0.5)
        assert _stats.standard_error([1.0, 1.0], ["a", "a"]) is None


class TestBounds:
    @pytest.mark.parametrize(
        ("low", "high", "text"),
        [
            (0.25, 0.5, "between 0.2500 and 0.5000 (each bound holds at 95 %)"),
            (1.0, math.inf, "at least 1.0000 (this bound holds at 95 %; the upper one is unknown)"),
            (-math.inf, 0.0, "at most 0.0000 (this bound holds at 95 %; the lower one is unknown)"),
            (
                -math.inf,
                math.inf,
                "unknown: too few docs, or docs that are all alike, for bounds on a score whose range is unknown",
            ),
        ],
    )
    def test_what_is_not_known_is_said_in_words(self, low: float, high: float, text: str) -> None:
        assert bounds_text(Interval(low, high), 0.95) == text

    def test_an_average_of_unlike_tasks_stays_within_its_range(self) -> None:
        """A task of one doc counts as half: the linearised scores of its docs go far beyond 0 and 1."""
        metric = Metric("acc", "right", AGGREGATIONS["mean"], True)
        sample = sample_of([Column(metric, [1]), Column(metric, [0, 1] * 4)], by_size=False)
        assert sample is not None
        assert sample.scale == (0.0, 1.0)
        gate = parse_gate_text("acc >= 0.5 @ 0.95")
        verdict = judge_floor(gate, 0.95, sample, Draw("all", 9, 9, 2), Verdict("passed", "g"))
        interval = verdict.evidence.interval
        assert interval is not None
        assert 0.0 <= interval.low < interval.high <= 1.0

    def test_a_change_stays_within_the_range_of_the_scores(self) -> None:
        judgement = judge("f1 >= baseline - 0.5 @ 0.999", [0.0, 5.0], [5.0, 0.0], range=(0, 5))
        assert judgement.interval is not None
        assert -5.0 <= judgement.interval.low < judgement.interval.high <= 5.0

    def test_nothing_is_infinite_in_a_sentence(self) -> None:
        for scores, before in (([0.5], [0.7]), ([0.5] * 4, [0.7] * 4), ([0.25, 0.5], [0.25, 0.5])):
            assert "inf" not in judge("f1 >= 0.1 @ 0.95", scores).text
            assert "inf" not in judge("f1 >= baseline - 0.1 @ 0.95", scores, before).text


def test_the_tolerance_is_measured_in_errors_of_the_difference() -> None:
    """Of 1,221 docs 30 lost and 6 gained: the paired error is .0049, that of one run .0142."""
    now = [*hits(600), *hits(0, 30), *hits(6), *hits(0, 585)]
    before = [*hits(600), *hits(30), *hits(0, 6), *hits(0, 585)]
    error = math.sqrt((36 / 1221 - (24 / 1221) ** 2) / 1220)
    assert round(error, 4) == 0.0049
    text = judge("acc >= baseline - 0.02", now, before).text
    assert f"the tolerance is {0.02 / error:.1f} standard errors of the difference" in text


class TestFirstDocs:
    @pytest.mark.parametrize(
        ("gate", "outcome"),
        [
            ("acc >= 0.5 @ 0.95", "passed"),
            ("acc >= 0.9 @ 0.95", "failed"),
            ("acc >= 0.75 @ 0.95", "inconclusive"),
            ("acc >= baseline - 0.1 @ 0.95", "passed"),
        ],
    )
    def test_are_cautioned_whatever_the_outcome(self, gate: str, outcome: str) -> None:
        scores = hits(60, 20)
        first = judge(gate, scores, scores, total=1838, drawn="first")
        drawn = judge(gate, scores, scores, total=1838)
        assert first.outcome == drawn.outcome == outcome
        assert "; the first 80 docs are not a random sample of the others" in first.sentence
        assert "random sample" not in drawn.sentence

    def test_a_passed_gate_is_named_below_the_table(self) -> None:
        caution = judge_floor(
            parse_gate_text("acc >= 0.1 @ 0.95"),
            0.95,
            sample_of([Column(Metric("acc", "right", AGGREGATIONS["mean"], True), hits(60, 20))], by_size=True),
            Draw("first", 80, 1838),
            Verdict("passed", "t"),
        )
        lines = step_summary([ModelReport("m", gates=[GateLine("t.yaml::gate[acc]", caution)])]).splitlines()
        assert lines[-1] == (
            "- passed on the first docs, which are not a random sample of the others: t.yaml::gate[acc]; "
            "--llmeval-sample random:SEED draws at random"
        )


class TestAnInconclusiveGate:
    def test_names_the_docs_that_would_decide_it(self) -> None:
        """At .7 of 100 docs a floor of .65 has a bound .083 away and a gap of .05."""
        judgement = judge("acc >= 0.65 @ 0.95", hits(70, 30))
        assert judgement.outcome == "inconclusive"
        assert judgement.interval is not None
        times = ((1.6449 + 0.8416) / 1.6449 * (0.7 - judgement.interval.low) / 0.05) ** 2
        expected = int(float(f"{100 * times:.2g}"))
        assert judgement.sentence.endswith(
            f"; about {expected:,} docs would decide it in 80 % of runs if the observed value is the true one"
        )
        # With as many docs of that value the gate passes with room to spare.
        right = round(0.7 * expected)
        assert judge("acc >= 0.65 @ 0.95", hits(right, expected - right)).outcome == "passed"

    @pytest.mark.parametrize(
        ("gate", "docs", "needed"),
        [
            ("acc >= 0.98 @ 0.95", 148, "149 docs like these"),
            ("acc >= baseline - 0.01 @ 0.95", 298, "299 docs like these"),
            ("acc >= baseline - 0.02 @ 0.95", 2, "149 docs like these"),
            ("acc >= 0.5 @ 0.95", 1, "5 docs like these"),
            ("acc >= 1 @ 0.95", 100, "no number of docs like these"),
        ],
    )
    def test_without_a_wrong_doc_names_the_docs_that_can_pass(self, gate: str, docs: int, needed: str) -> None:
        judgement = judge(gate, [1] * docs, [1] * docs)
        assert judgement.sentence.endswith(f"; {needed} would decide it")
        if needed[0].isdigit():
            least = int(needed.split()[0])
            assert judge(gate, [1] * least, [1] * least).outcome == "passed"
            assert judge(gate, [1] * (least - 1), [1] * (least - 1)).outcome == "inconclusive"

    @pytest.mark.parametrize(
        ("gate", "scores", "before", "more"),
        [
            # All lost: not a question of docs without a flip, and no number of docs "like these".
            ("acc >= baseline - 0.02 @ 0.95", [0, 0], [1, 1], {}),
            # Equal scores that are not at an end of their range.
            ("f1 >= 0.6 @ 0.95", [0.7] * 12, None, {"range": (0, 1)}),
            # Passages count, not docs.
            ("acc >= 0.98 @ 0.95", [1] * 100, None, {"clusters": [doc // 2 for doc in range(100)]}),
        ],
    )
    def test_is_not_certain_of_the_docs_where_others_may_differ(
        self, gate: str, scores: list[float], before: list[float] | None, more: dict[str, Any]
    ) -> None:
        judgement = judge(gate, scores, before, **more)
        assert judgement.outcome == "inconclusive"
        assert "docs like these" not in judgement.sentence

    def test_of_a_data_set_needs_all_of_it(self) -> None:
        judgement = judge("acc >= 0.69 @ 0.95 dataset", hits(70, 30), total=400)
        assert judgement.sentence.endswith("; all 400 docs of the data set would decide it")

    def test_may_be_too_close(self) -> None:
        text = judge("acc >= 0.7 @ 0.95", hits(70, 30)).sentence
        assert text.endswith("; the value is too close to the limit for 100 times more docs to decide it")

    def test_without_these_names_the_loss_that_it_can_see(self) -> None:
        gate: Any = "acc >= 0.65 @ 0.55"
        judgement = judge(gate, hits(13, 7))
        assert judgement.outcome == "inconclusive"
        assert judgement.sentence.endswith("would fail this gate in 80 % of runs")
