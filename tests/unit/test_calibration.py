"""Calibrated baselines: flips counted by hand, the share of good builds that gates fail, and what flips excuse."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import poisson

from pytest_llmeval import FakeLM
from pytest_llmeval import _stats
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import Calibration
from pytest_llmeval._baselines import SelfFlips
from pytest_llmeval._baselines import read_record
from pytest_llmeval._baselines import record_text
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._gates import parse_gate_text
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._stats import SelfLoss
from pytest_llmeval._task import Field
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Planned
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import good_builds_line
from pytest_llmeval._verdicts import judge
from pytest_llmeval._verdicts import prospects
from pytest_llmeval._verdicts.calibration import GoodBuild


DOCS = 200
RIGHT = 150


def task() -> Task:
    text = Field("doc_to_text", text="{{q}}")
    metrics = resolve_metrics((MetricSpec("acc"),), "multiple_choice")
    return Task("t", Path("t.yaml"), "multiple_choice", text, text, metrics=metrics, test_split="test")


def results(right: Sequence[int]) -> list[DocResult]:
    return [DocResult(i, {"none": {"acc": float(one)}}, key=DocKey(f"{i}", "p")) for i, one in enumerate(right)]


def calibration(*, lost: Sequence[int], gained: Sequence[int], variance: float, docs: int = DOCS) -> Calibration:
    flips = SelfFlips(lost, gained, sum(lost + gained) / len(lost), (variance / 2, variance / 2))  # type: ignore[operator]
    return Calibration(docs, ["other order"] * len(lost), {"acc,none": flips})


def compared(tmp_path: Path, calibrated: Calibration | None, lost: int, gained: int) -> GateData:
    """A run that lost and gained docs since a baseline of 200 docs, 150 of them right."""
    own = task()
    baseline = Baseline("main", tmp_path, Settings())
    before = results([1] * RIGHT + [0] * (DOCS - RIGHT))
    now = results([0] * lost + [1] * (RIGHT - lost + gained) + [0] * (DOCS - RIGHT - gained))
    summary = summarize_task(own, before, n_total=DOCS, num_fewshot=None, bootstrap_iters=0)
    baseline.update(own, before, summary, "m", {}, calibrated)
    return GateData(own, [TaskData(own, now, DOCS, baseline.compare(own, now))], baseline="main")


def judged(data: GateData, gate: str) -> Verdict:
    return judge(parse_gate_text(gate), data.summary(), data=data)


class TestCounting:
    def test_four_runs(self) -> None:
        """Right in 3, 2, 3 and 4 of 4: 2 (3 + 4 + 3) / 12 flips. Each of the first three has later 2 of 3: 2 / 6."""
        found = SelfFlips.of([1, 0, 1, 1], [[0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 1]])
        assert (found.down, found.up) == ([1, 0, 1], [1, 1, 0])
        assert (found.flips, found.variances) == (1.6667, pytest.approx((2 / 3, 1 / 3), abs=1e-4))

    def test_two_runs_show_no_variance(self) -> None:
        assert SelfFlips.of([1, 0], [[0, 0]]) == SelfFlips([1], [0], 1.0, None)

    def test_the_file(self, tmp_path: Path) -> None:
        calibrated = calibration(lost=[3, 5], gained=[2, 2], variance=3.0)
        compared(tmp_path, calibrated, 0, 0)
        record = Baseline("main", tmp_path, Settings()).read("t")
        assert record is not None
        assert (record.header.calibration, record_text(record).splitlines()[0]) == (
            calibrated,
            "llmeval baseline, format 1",
        )

    def test_without_one_the_file_is_as_before(self, tmp_path: Path) -> None:
        compared(tmp_path, None, 0, 0)
        text = (tmp_path / "t.txt").read_text()
        assert "calibration" not in text
        assert read_record(text, tmp_path).header.calibration is None


class TestShares:
    def test_coins(self) -> None:
        """Four coins that were right: more than two are lost in 5 of 16 runs."""
        coins = SelfLoss(100, 1000, 2.0, 0.0, 1.0, 0.0)
        share, limits = coins.failing(lambda lost, gained: lost - gained > 2)
        assert share == pytest.approx(5 / 16)
        assert limits.low < share < limits.high

    def test_rare_flips(self) -> None:
        share, _ = SelfLoss(10_000, 50, 2.0, 1.0, 2.0, 1.0).failing(lambda lost, gained: lost - gained > 3)
        exact = sum(poisson.pmf(gained, 1) * poisson.sf(3 + gained, 2) for gained in range(30))
        assert share == pytest.approx(exact, rel=2e-3)

    def test_no_flips_may_be_a_few(self) -> None:
        """Seven further runs without a flip: their score limit is z^2 / 7 a run, .3865."""
        share, limits = SelfLoss(200, 7, 0.0, 0.0, 0.0, 0.0).failing(lambda lost, gained: lost - gained > 0)
        assert (share, limits.low) == (0, 0)
        assert limits.high == pytest.approx(1 - np.exp(-(1.6448536**2) / 7), abs=2e-3)

    def test_what_most_runs_lose(self) -> None:
        loss = SelfLoss(200, 7, 12.0, 8.0, 6.0, 4.0)
        assert loss.most == pytest.approx(4 + 1.6448536 * (10 * 8 / 7) ** 0.5)

    @pytest.mark.parametrize("margin", [0.0, 0.02, -0.02])
    def test_outcomes_that_fail(self, margin: float) -> None:
        lost, gained = np.arange(12)[:, None], np.arange(12)[None, :]
        fails = _stats.failing_outcomes(150, margin, 0.05)(lost, gained)
        exact = [[_stats.drop_fails(i, j, 150, margin, 0.05) for j in range(12)] for i in range(12)]
        assert [[bool(one) for one in row] for row in fails] == exact


def test_more_flips_than_docs() -> None:
    """Five docs that nearly all flip: sums of independent counts reach beyond them."""
    loss = SelfLoss(5, 1, 3.0, 2.0, 3.0, 2.0)
    share, limits = loss.failing(_stats.failing_outcomes(5, 0.0, 0.05))
    assert 0 <= limits.low <= share <= limits.high <= 1
    assert 0 < loss.detectable_drop(_stats.failing_outcomes(5, 0.0, 0.05)) <= 1


class TestGoodBuilds:
    def test_a_plain_threshold(self, tmp_path: Path) -> None:
        """150 of 200 right, of which 16 are coins: below 140 of 200 with more than 10 of 16."""
        data = compared(tmp_path, calibration(lost=[8] * 3, gained=[0] * 3, variance=8.0), 0, 0)
        record = data.tasks[0].comparison.record  # type: ignore[union-attr]
        gate = parse_gate_text("acc >= 0.7")
        good = GoodBuild.of(data.owner, [record], gate)
        assert good is not None
        found = good.failing(gate)
        assert found is not None
        assert found[0] == pytest.approx(binom.sf(10, 16, 0.5))

    def test_the_line(self) -> None:
        """8 coins each way: fewer than 148 of 150 right if at most 5 of 16 come out well."""
        good = GoodBuild(8, SelfLoss(200, 7, 4.0, 4.0, 2.0, 2.0), 8.0, 150)
        line = good_builds_line(parse_gate_text("acc >= 0.74"), good, 1, whole=True)
        assert line is not None
        share = binom.cdf(5, 16, 0.5)
        assert line.startswith(f"acc >= 0.74 would fail {100 * share:.2g} % of good builds (")
        assert line.endswith(
            " %, from 8 runs); acc >= baseline - 0.01 at 95 % confidence would fail under 0.1 % of good builds (up to "
            "0.58 %, from 8 runs)"
        )
        assert good_builds_line(parse_gate_text("acc >= 0.7 @ 0.95 dataset"), good, 1, whole=False) is None

    def test_worse_is_up(self) -> None:
        good = GoodBuild(8, SelfLoss(200, 700, 4.0, 0.0, 2.0, 0.0), 4.0, 20, worse_is_up=True)
        assert good.failing(parse_gate_text("acc <= 0.12"))[0] == pytest.approx(binom.sf(4, 8, 0.5))  # type: ignore[index]
        assert good.failing(parse_gate_text("acc <= baseline + 0.02"))[0] == pytest.approx(  # type: ignore[index]
            binom.sf(4, 8, 0.5)
        )
        assert good.failing(parse_gate_text("acc >= baseline - 0.02")) is None


class TestExcuse:
    GATE = "acc >= baseline @ 0.95"

    def test_a_loss_that_is_usual(self, tmp_path: Path) -> None:
        """8 lost fail; a build that loses 4 of its own, +- 3, does so too at times. The p-value stays."""
        plain = judged(compared(tmp_path, None, 8, 0), self.GATE)
        usual = calibration(lost=[4, 5, 3, 4], gained=[0, 0, 0, 0], variance=6.0)
        excused = judged(compared(tmp_path, usual, 8, 0), self.GATE)
        assert (plain.outcome, excused.outcome) == ("failed", "inconclusive")
        assert excused.numbers["p"] == plain.numbers["p"]
        assert "; a good build may lose as much by itself; " in excused.sentence
        assert excused.p_value is None

    def test_a_loss_beyond(self, tmp_path: Path) -> None:
        """At most 4 + 1.645 (6 x 5 / 4)^.5 = 8.5."""
        usual = calibration(lost=[4, 5, 3, 4], gained=[0, 0, 0, 0], variance=6.0)
        verdict = judged(compared(tmp_path, usual, 9, 0), self.GATE)
        assert verdict.outcome == "failed"
        assert "95 % of runs have a net loss of at most 8 docs; this gate would fail " in verdict.text

    def test_flips_never_pass_a_gate(self, tmp_path: Path) -> None:
        """A baseline that was unlucky: of 30 gained, 20 are usual."""
        usual = calibration(lost=[0, 0], gained=[20, 20], variance=4.0)
        for gained, outcome in ((0, "inconclusive"), (30, "passed")):
            assert judged(compared(tmp_path, usual, 0, gained), self.GATE).outcome == outcome

    @pytest.mark.parametrize(("gate", "gained"), [("acc >= baseline + 0.1 @ 0.95", 0), ("acc <= baseline @ 0.95", 20)])
    def test_only_losses_are_excused(self, tmp_path: Path, gate: str, gained: int) -> None:
        """A gain that was required, or one that was not allowed, is no loss."""
        usual = calibration(lost=[4, 4], gained=[0, 0], variance=4.0)
        assert judged(compared(tmp_path, usual, 0, gained), gate).outcome == "failed"

    def test_of_other_docs_it_says_nothing(self, tmp_path: Path) -> None:
        other = calibration(lost=[9, 9], gained=[0, 0], variance=4.0, docs=190)
        verdict = judged(compared(tmp_path, other, 8, 0), self.GATE)
        assert (verdict.outcome, "calibration" in verdict.text) == ("failed", False)

    def test_the_visible_drop_is_by_these_flips(self, tmp_path: Path) -> None:
        usual = calibration(lost=[6, 6], gained=[6, 6], variance=6.0)
        verdict = judged(compared(tmp_path, usual, 0, 0), self.GATE)
        drop = verdict.numbers["detectable_drop"]
        # Twelve coins on each side, beside the docs that the drop loses; up to 1.645 (6 x 3 / 2)^.5 = 4.9 are excused.
        coins, more = binom.pmf(np.arange(13), 12, 0.5), binom.pmf(np.arange(60), 200, drop)
        lost = np.convolve(coins, more)
        at, gained = np.arange(len(lost))[:, None], np.arange(13)[None, :]
        fails = _stats.failing_outcomes(200, 0.0, 0.05)(at, gained) & (at - gained > 4)
        assert lost @ fails @ coins == pytest.approx(0.8, abs=0.01)
        good = GoodBuild(3, SelfLoss(200, 2, 6.0, 6.0, 3.0, 3.0), 12.0, 150)
        (line,) = prospects([Planned("gate[acc] of t", parse_gate_text(self.GATE), 200, good=good)])
        assert line == (
            f"acc >= baseline at 95 % confidence: a true fall of {drop:.4f} on 200 docs would fail in 80 % of runs, as "
            "6 % of the docs flip anyway (measured in 3 runs)"
        )


TASK = """\
task: t
dataset_path: json
dataset_kwargs: {data_files: {test: t.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "{{q}}"
doc_to_target: "yes"
generation_kwargs: {until: ["."], do_sample: true, temperature: 0.7, seed: 5}
metric_list: [{metric: exact_match}]
"""


class Waverer(FakeLM):
    """A fake that can also compute in another way."""

    def recomputed(self, dtype: str | None) -> Iterator[FakeLM]:
        yield FakeLM(text_of="no", name="other passes")


class TestAsking:
    def run(self, tmp_path: Path, lm: Any) -> ModelRun:
        (tmp_path / "t.yaml").write_text(TASK)
        (tmp_path / "t.jsonl").write_text('{"q": "a"}\n{"q": "b"}\n{"q": "c"}\n')
        registry = Registry()
        own: Any = registry.load(tmp_path / "t.yaml")
        run = ModelRun(Evaluation(Settings(calibration_runs=3), registry))
        run.score(lm, own, run.evaluation.open(own).asked)
        return run

    def test_sampled_texts_have_other_seeds(self, tmp_path: Path) -> None:
        """The doc b is right with odd seeds only: with 5, not with 6, again with 7."""

        def text_of(context: str, kwargs: GenerationKwargs) -> str:
            return "yes" if context != "b" or kwargs.seed % 2 else "no"

        lm = FakeLM(text_of=text_of)
        run = self.run(tmp_path, lm)
        seeds = [kwargs.seed for _, (_, kwargs) in lm.calls]
        assert sorted(seeds) == [5] * 3 + [6] * 3 + [7] * 3
        found = run.repeats.calibration("t", run.results("t").values())
        assert found is not None
        assert (found.ways, found.scores["exact_match,none"].down) == (["other order"] * 2, [1, 0])

    def test_other_ways_come_first(self, tmp_path: Path) -> None:
        run = self.run(tmp_path, Waverer(text_of="yes"))
        found = run.repeats.calibration("t", run.results("t").values())
        assert found is not None
        assert (found.ways, found.scores["exact_match,none"].down) == (["other passes", "other order"], [3, 0])

    def test_an_error_is_the_reason(self, tmp_path: Path) -> None:
        def text_of(context: str, kwargs: GenerationKwargs) -> str:
            if kwargs.seed == 7 and context == "b":
                raise ModelError("the server is gone")
            return "yes"

        run = self.run(tmp_path, FakeLM(text_of=text_of))
        with pytest.raises(
            LLMEvalError, match=r"t: not calibrated: doc\[1\] has no exact_match,none in every run \(the"
        ):
            run.repeats.calibration("t", run.results("t").values())
