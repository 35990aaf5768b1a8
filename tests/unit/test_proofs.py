"""Gates proven by a part of their docs: when, at which error, and that certainty is what the full run says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._session.early_stop import EarlyStop
from pytest_llmeval._session.early_stop import in_random_order
from pytest_llmeval._session.early_stop import wave_size
from pytest_llmeval._settings import Settings
from pytest_llmeval._stats import exact_bounds
from pytest_llmeval._stats import threshold_for
from pytest_llmeval._stats.crossing import STAKES
from pytest_llmeval._task import Field
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Fact
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import Proof
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import can_be_proven
from pytest_llmeval._verdicts import errors_left
from pytest_llmeval._verdicts import errors_of
from pytest_llmeval._verdicts import final_verdict
from pytest_llmeval._verdicts import judge
from pytest_llmeval._verdicts import proof_of
from pytest_llmeval._verdicts import verdict_of_proof


PATH = Path("t.yaml")
OPERATORS = (">=", ">", "<=", "<")
#: The error that is left for the last of 40 docs at a floor of .5 and .95.
LEFT = 0.0298
JUDGED = "97.02 %"
#: Only what the other docs cannot change.
CERTAIN = 1.0


def task(name: str = "t", metric: str = "acc", kind: str = "multiple_choice", **more: Any) -> Task:
    text = Field("doc_to_text", text="{{q}}")
    metrics = resolve_metrics((MetricSpec(metric),), kind, processed="process_results" in more)
    return Task(name, PATH, kind, text, text, metrics=metrics, test_split="test", **more)


def results_of(own: Task, items: Sequence[Any]) -> list[DocResult]:
    metric = own.metrics[0].name
    return [DocResult(i, {"none": {metric: x}}, key=DocKey(f"{own.name}{i}", "p")) for i, x in enumerate(items)]


class Stream:
    """Docs of one or several tasks that come one after the other: `order` of all, of which the first are known."""

    def __init__(self, folder: Path | None = None) -> None:
        self.baseline = Baseline("main", folder / "main", Settings()) if folder else None
        self.columns: list[tuple[Task, list[DocResult]]] = []
        self.owner: Task | Group | None = None

    def add(self, own: Task, now: Sequence[Any], before: Sequence[Any] | None = None) -> Stream:
        self.columns.append((own, results_of(own, now)))
        if before is not None and self.baseline is not None:
            old = results_of(own, before)
            summary = summarize_task(own, old, n_total=len(old), num_fewshot=None, bootstrap_iters=0)
            self.baseline.update(own, old, summary, "m", {})
        return self

    def order(self) -> list[tuple[str, int]]:
        places = [(result.doc, own.name) for own, results in self.columns for result in results]
        return [(name, doc) for doc, name in sorted(places)]

    def evidence(self, count: int | None = None, **more: Any) -> GateData:
        first = set(self.order()[:count])
        parts = []
        for own, results in self.columns:
            known = [result for result in results if (own.name, result.doc) in first]
            comparison = self.baseline.compare(own, known) if self.baseline else None
            parts.append(TaskData(own, known, len(results), comparison))
        drawn: Any = "all" if count is None else "random"
        return GateData(self.owner or self.columns[0][0], parts, drawn, "main" if self.baseline else "", **more)

    def proof(self, entry: Any, count: int | None = None, stop: float = 0.95, members: int = 1) -> Any:
        gate, evidence = parse_gate(entry, path=PATH, line=1), self.evidence(count)
        return proof_of(gate, evidence, self.order(), members=members, stop_confidence=stop, split=0.5)

    def whole(self, entry: Any) -> Verdict:
        gate, evidence = parse_gate(entry, path=PATH, line=1), self.evidence()
        return judge(gate, evidence.summary(), data=evidence)


def floor(**more: Any) -> dict[str, Any]:
    return {"metric": "acc", "min": 0.5, "confidence": 0.95, **more}


def rights_needed(alpha: float, docs: int = 100) -> int:
    """At a floor of .5 each right doc multiplies a member's capital by 1 + its stake."""
    needed = exp(threshold_for(0.5, docs, alpha))
    return next(n for n in range(1, 100) if sum((1 + stake) ** n for stake in STAKES) / len(STAKES) >= needed)


class TestWhenItIsKnown:
    def test_a_clear_pass_and_a_clear_fail(self) -> None:
        needed = rights_needed(0.025)
        assert needed == 7
        right = Stream().add(task(), [1.0] * 100)
        assert right.proof(floor(), needed - 1) is None
        assert right.proof(floor(), needed) == Proof("passed", 7, 100, 0.95)
        assert right.proof(floor(), 64) == Proof("passed", 7, 100, 0.95)
        assert Stream().add(task(), [0.0] * 100).proof(floor()) == Proof("failed", 7, 100, 0.95)

    def test_gates_of_one_rule_share_the_error_of_a_failure_alone(self) -> None:
        needed = rights_needed(0.025 / 57)
        assert needed == 13
        assert Stream().add(task(), [0.0] * 100).proof(floor(), members=57).after == needed
        assert Stream().add(task(), [1.0] * 100).proof(floor(), members=57).after == 7

    def test_docs_that_alternate_prove_nothing(self) -> None:
        assert Stream().add(task(), [1.0, 0.0] * 300).proof(floor()) is None

    def test_only_the_first_docs_of_the_order_count(self) -> None:
        stream = Stream().add(task(), [1.0] * 100)
        order = [("t", 99), *stream.order()[:99]]
        gate = parse_gate(floor(), path=PATH, line=1)
        assert proof_of(gate, stream.evidence(50), order, members=1, stop_confidence=0.95, split=0.5) is None

    @pytest.mark.parametrize(
        ("gate", "after", "outcome"),
        [
            ("acc >= 0.5", 5, "passed"),
            ("acc > 0.5", 6, "passed"),
            ("acc <= 0.5", 6, "failed"),
            ("acc < 0.5", 5, "failed"),
        ],
    )
    def test_certain_is_what_the_other_docs_cannot_change(self, gate: str, after: int, outcome: str) -> None:
        stream = Stream().add(task(), [1.0] * 10)
        assert stream.proof(gate, after - 1, CERTAIN) is None
        assert stream.proof(gate, after, CERTAIN) == Proof(outcome, after, 10)  # type: ignore[arg-type]

    def test_both_bounds_must_be_shown(self) -> None:
        stream = Stream().add(task(), [1.0] * 6 + [0.0] * 4)
        wide, narrow = ({"metric": "acc", "min": 0.5, "max": most} for most in (0.7, 0.55))
        assert stream.proof(wide, 8, CERTAIN) is None
        assert stream.proof(wide, 9, CERTAIN) == Proof("passed", 9, 10)
        assert stream.proof(narrow, 6, CERTAIN) == Proof("failed", 6, 10)

    @settings(deadline=None)
    @given(
        st.lists(st.integers(0, 1), min_size=1, max_size=25), st.sampled_from(OPERATORS), st.integers(0, 25), st.data()
    )
    def test_certainty_is_the_verdict_of_the_full_run(
        self, items: list[int], operator: str, hits: int, data: st.DataObject
    ) -> None:
        limit = min(hits, len(items)) / len(items)
        gate, stream = f"acc {operator} {limit!r}", Stream().add(task(), [float(item) for item in items])
        count = data.draw(st.integers(1, len(items)))
        proof = stream.proof(gate, count, CERTAIN)
        seen = sum(items[:count])
        ends = {
            Stream().add(task(), [1.0] * right + [0.0] * (len(items) - right)).whole(gate).outcome
            for right in (seen, seen + len(items) - count)
        }
        assert (proof is not None) == (len(ends) == 1)
        if proof:
            assert proof.outcome == stream.whole(gate).outcome == ends.pop()


class TestAgainstABaseline:
    def test_the_docs_needed_for_no_change(self, tmp_path: Path) -> None:
        """Without a flip each doc is worth its distance from the margin: 0 - -.1 of the 1 - .1 that can be lost."""
        stream = Stream(tmp_path).add(task(), [1.0, 0.0] * 100, [1.0, 0.0] * 100)
        gate = {"metric": "acc", "max_drop": 0.1, "confidence": 0.95}
        after = stream.proof(gate).after
        needed = next(n for n in range(1, 500) if sum((1 + s * 0.1 / 0.9) ** n for s in STAKES) / len(STAKES) >= 40)
        assert after == needed
        assert stream.proof(gate).outcome == "passed"

    def test_a_clear_loss(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [0.0] * 100, [1.0] * 100)
        proof = stream.proof({"metric": "acc", "max_drop": 0.1, "confidence": 0.95}, 20)
        assert (proof.outcome, proof.after <= 20) == ("failed", True)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=16),
        st.sampled_from(["acc >= baseline - 0.25", "acc > baseline - 10%", "acc >= baseline - 50%", "acc > baseline"]),
        st.data(),
    )
    def test_certainty_is_the_verdict_of_the_full_run(
        self, tmp_path_factory: pytest.TempPathFactory, docs: list[tuple[int, int]], gate: str, data: st.DataObject
    ) -> None:
        before, now = [float(old) for old, _ in docs], [float(new) for _, new in docs]
        stream = Stream(tmp_path_factory.mktemp("b")).add(task(), now, before)
        proof = stream.proof(gate, data.draw(st.integers(1, len(docs))), CERTAIN)
        if proof:
            assert proof.outcome == stream.whole(gate).outcome
        final = stream.proof(gate, None, CERTAIN)
        assert final is not None
        assert final.outcome == stream.whole(gate).outcome

    def test_a_changed_prompt_fails_at_once(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [1.0] * 100, [1.0] * 100)
        own, results = stream.columns[0]
        stream.columns[0] = (own, [replace(result, key=DocKey(f"t{result.doc}", "other")) for result in results])
        assert stream.proof("acc >= baseline", 32) == Proof("failed", 32, 100, judged=True)

    def test_a_baseline_with_docs_that_the_data_lacks_needs_a_full_run(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [1.0] * 100, [1.0] * 101)
        assert stream.proof("acc >= baseline - 0.5", 90) is None
        assert stream.whole("acc >= baseline - 0.5").outcome == "failed"


class TestAFloorBesideABaseline:
    """A data set of 200 docs of which 120 were right: no change is worth .1 of the 1 that a doc can move."""

    def stream(self, folder: Path, recorded: int = 200) -> Stream:
        scores = [float(doc % 5 < 3) for doc in range(200)]
        return Stream(folder).add(task(), scores, scores[:recorded])

    @pytest.mark.parametrize("gate", ["acc >= 0.4", floor(min=0.4, scope="dataset")])
    def test_its_scores_are_a_control(self, tmp_path: Path, gate: Any) -> None:
        alone, beside = Stream().add(task(), [float(doc % 5 < 3) for doc in range(200)]), self.stream(tmp_path)
        controlled = beside.proof(gate)
        assert controlled.after < alone.proof(gate).after
        assert str(controlled).endswith(" of 200 docs at 95 %, with the baseline's scores of all docs as control")
        assert "control" not in str(alone.proof(gate))

    def test_not_on_the_population_nor_with_a_part_of_the_docs(self, tmp_path: Path) -> None:
        assert not self.stream(tmp_path).proof(floor(min=0.4)).controlled
        assert not self.stream(tmp_path / "part", recorded=199).proof("acc >= 0.4").controlled

    def test_certain_is_certain_without_it(self, tmp_path: Path) -> None:
        assert self.stream(tmp_path).proof("acc >= 0.4", stop=CERTAIN) == Proof("passed", 132, 200)


class TestDocsThatMustStayRight:
    def test_the_first_loss_decides(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [1.0] * 7 + [0.0] + [1.0] * 92, [1.0] * 100)
        gate = {"metric": "acc", "must_stay_right": "all"}
        assert stream.proof(gate, 7) is None
        assert stream.proof(gate, 8) == Proof("failed", 8, 100, judged=True)

    def test_named_docs_are_enough(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [1.0] * 100, [1.0] * 100)
        gate = {"metric": "acc", "must_stay_right": [2, 7]}
        assert stream.proof(gate, 2) is None
        assert stream.proof(gate, 7) is None
        assert stream.proof(gate, 8) == Proof("passed", 8, 100, judged=True)


class TestWhatHasNoTest:
    @pytest.mark.parametrize(
        ("own", "item"),
        [
            (task(metric="perplexity", kind="loglikelihood"), -1.0),
            (task(metric="f1"), [1, 1]),
            (task(metric="word_perplexity", kind="loglikelihood_rolling"), [-1.0, 3]),
        ],
    )
    def test_scores_without_known_ends(self, own: Task, item: Any) -> None:
        stream = Stream().add(own, [item] * 50)
        gate = parse_gate(f"{own.metrics[0].name} >= 0.5", path=PATH, line=1)
        assert not can_be_proven(gate, stream.evidence(), stream.order())
        assert stream.proof(f"{own.metrics[0].name} >= 0.5", 40) is None

    def test_ends_that_the_task_tells_are_known(self) -> None:
        """4 of 5 points each: as far from a floor of 1 as docs of .8 are from one of .2."""
        needed = next(n for n in range(1, 500) if sum((1 + s * 0.6 / 0.2) ** n for s in STAKES) / len(STAKES) >= 40)
        gate = {"metric": "points", "min": 1, "confidence": 0.95}
        own = task(metric="points", kind="generate_until", process_results=max)
        assert Stream().add(own, [4.0] * 50).proof(gate, 40) is None
        told = replace(own, metrics=(replace(own.metrics[0], declared_range=ScoreRange(0, 5)),))
        assert Stream().add(told, [4.0] * 50).proof(gate, 40) == Proof("passed", needed, 50, 0.95)

    def test_docs_that_share_a_passage_are_no_draws_of_questions_but_those_of_a_data_set(self) -> None:
        stream = Stream().add(task(metadata={"cluster": "passage"}), [1.0] * 100)
        assert stream.proof(floor(), 50) is None
        assert stream.proof(floor(scope="dataset"), 50).outcome == "passed"

    def test_a_limit_leaves_a_data_set_unknown(self) -> None:
        stream = Stream().add(task(), [1.0] * 100)
        gate, evidence = parse_gate(floor(scope="dataset"), path=PATH, line=1), stream.evidence()
        limited = replace(evidence, tasks=[replace(part, n_total=1000) for part in evidence.tasks])
        assert can_be_proven(gate, evidence, stream.order())
        assert not can_be_proven(gate, limited, stream.order())


class TestADocWithoutANumber:
    def test_an_error_and_a_nan_fail_whatever_follows(self) -> None:
        for broken in (DocResult(5, {}, error="no gold"), DocResult(5, {"none": {"acc": 0.0}}, nonfinite="NaN")):
            stream = Stream().add(task(), [1.0] * 100)
            stream.columns[0][1][5] = broken
            assert stream.proof("acc >= 0.9", 5) is None
            assert stream.proof("acc >= 0.9", 6) == Proof("failed", 6, 100, judged=True)


class TestGroups:
    @settings(max_examples=80, deadline=None)
    @given(
        st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=2, max_size=3),
        st.booleans(),
        st.sampled_from(OPERATORS),
        st.sampled_from([0.25, 0.5, 0.6]),
        st.data(),
    )
    def test_certainty_is_the_verdict_of_the_full_run(
        self, columns: list[list[int]], by_size: bool, operator: str, limit: float, data: st.DataObject
    ) -> None:
        stream = Stream()
        for place, items in enumerate(columns):
            stream.add(task(f"t{place}"), [float(item) for item in items])
        members = tuple(own for own, _ in stream.columns)
        stream.owner = Group("all", PATH, members, metrics=(GroupMetric("acc", weight_by_size=by_size),))
        gate = f"acc {operator} {limit}"
        proof = stream.proof(gate, data.draw(st.integers(1, len(stream.order()))), CERTAIN)
        whole = stream.whole(gate)
        if proof:
            assert proof.outcome == whole.outcome
        final = stream.proof(gate, None, CERTAIN)
        assert final is not None
        assert final.outcome == whole.outcome


class TestWords:
    def test_a_proven_floor(self) -> None:
        stream = Stream().add(task(), [1.0] * 100)
        gate, evidence = parse_gate(floor(), path=PATH, line=1), stream.evidence(32)
        verdict = verdict_of_proof(gate, stream.proof(floor(), 32), evidence.summary(), evidence)
        assert verdict == Verdict(
            "passed",
            "t: acc 1.0000 on 32 of 100 docs, required >= 0.5 at 95 % confidence",
            {"acc": 1.0, "docs": 32, "docs_total": 100, "min": 0.5, "proven_after": 7},
            (Fact("proof", "proven after 7 of 100 docs at 95 %"),),
        )

    def test_a_proven_comparison_shows_no_bounds(self, tmp_path: Path) -> None:
        stream = Stream(tmp_path).add(task(), [0.0] * 100, [1.0] * 100)
        gate, evidence = parse_gate("acc >= baseline - 0.1 @ 0.95", path=PATH, line=1), stream.evidence(32)
        proof = stream.proof("acc >= baseline - 0.1 @ 0.95", 32)
        verdict = verdict_of_proof(gate, proof, evidence.summary(), evidence)
        assert verdict.sentence == (
            "t: acc 0.0000, was 1.0000: fell by 1.0000, allowed 0.1 at 95 % confidence; "
            f"32 of 100 docs compared: 32 lost, 0 gained; proven after {proof.after} of 100 docs at 95 %"
        )
        assert verdict.outcome == "failed"

    def test_certain(self) -> None:
        assert str(Proof("failed", 1500, 1838)) == "certain after 1,500 of 1,838 docs"
        assert str(Proof("failed", 1500, 1838, 0.99)) == "proven after 1,500 of 1,838 docs at 99 %"
        assert str(Proof("failed", 15, 18, 0.57)) == "proven after 15 of 18 docs at 57 %"
        assert str(Proof("failed", 15, 18, 0.99999999)) == "proven after 15 of 18 docs at 99.999999 %"


class TestTheLastDoc:
    @pytest.mark.parametrize(("split", "early"), [(0.5, 0.025), (0.2, 0.01)])
    def test_the_rest_of_the_error_is_kept(self, split: float, early: float) -> None:
        gate, stream = parse_gate("acc >= baseline @ 0.95", path=PATH, line=1), Stream().add(task(), [1.0] * 40)
        assert errors_of(gate, 5, 0.95, split).passing == pytest.approx(early)
        assert errors_of(gate, 5, 0.95, split).failing == pytest.approx(early / 5)
        assert errors_of(parse_gate("acc >= 0.5", path=PATH, line=1), 1, 0.99, split).failing == pytest.approx(0.01)
        left = errors_left(gate, stream.evidence(), stream.order(), 5, split)
        assert (left.passing, left.failing) == pytest.approx((0.05 - early, 0.05 - early))
        assert left.of_family == pytest.approx((0.05 - early) / 5)

    def test_a_floor_keeps_what_its_early_looks_leave(self) -> None:
        """Beside early looks at .025 the last doc may reject from 27 of 40 on (p .019), not from 26 on (p .040)."""
        stream, gate = Stream().add(task(), [1.0] * 40), parse_gate(floor(), path=PATH, line=1)
        left = errors_left(gate, stream.evidence(), stream.order(), 1, 0.5)
        assert left.passing == left.failing == left.of_family == LEFT
        family = errors_left(gate, stream.evidence(), stream.order(), 5, 0.5)
        assert family.passing == LEFT
        assert 0.005 < family.of_family < 0.01 < family.failing

    @pytest.mark.parametrize("limit", ["acc >= 1 @ 0.95", floor(max=0.8)])
    def test_limits_without_a_calibration(self, limit: Any) -> None:
        stream, gate = Stream().add(task(), [1.0] * 40), parse_gate(limit, path=PATH, line=1)
        assert errors_left(gate, stream.evidence(), stream.order(), 1, 0.5).passing == pytest.approx(0.025)

    @pytest.mark.parametrize(("right", "outcome"), [(100, "failed"), (115, "inconclusive")])
    def test_a_family_shares_it(self, right: int, outcome: str) -> None:
        """Of 300 docs at .5, spread so that no early look decides: 100 are p 4e-9, 115 are p 3e-5."""
        draw, gate = random.Random(1), parse_gate(floor(), path=PATH, line=1)
        items = [1.0] * right + [0.0] * (300 - right)
        draw.shuffle(items)
        stream = Stream().add(task(), items)
        verdict = final_verdict(
            gate, stream.evidence().summary(), stream.evidence(), stream.order(), members=10_000, split=0.5
        )
        assert verdict.outcome == outcome
        assert "the error shared equally by 10000 gates" in verdict.sentence

    @pytest.mark.parametrize(("confidence", "judged"), [("0.95", JUDGED), ("0.999999", "99.9999154 %")])
    def test_the_verdict_shows_what_was_asked_for(self, confidence: str, judged: str) -> None:
        gate = parse_gate(f"acc >= 0.5 @ {confidence}", path=PATH, line=1)
        stream = Stream().add(task(), [1.0, 0.0] * 20)
        evidence = stream.evidence()
        final = final_verdict(gate, evidence.summary(), evidence, stream.order(), members=1, split=0.5)
        asked = f"{float(confidence) * 100:.12g} % confidence"
        assert final.headline.endswith(f"required >= 0.5 at {asked}")
        assert final.facts[0].text.endswith(f"(each bound holds at {judged})")
        spent = f"; judged at {judged}, because early looks may spend a part of the error at {asked};"
        assert spent in final.sentence

    def test_it_is_judged_at_the_rest(self) -> None:
        """20 of 40: Clopper and Pearson's bounds."""
        stream, gate = Stream().add(task(), [1.0, 0.0] * 20), parse_gate(floor(), path=PATH, line=1)
        evidence = stream.evidence()
        verdict = final_verdict(gate, evidence.summary(), evidence, stream.order(), members=1, split=0.5)
        bounds = exact_bounds(20, 40, 1 - LEFT)
        assert (verdict.numbers["low"], verdict.numbers["high"]) == pytest.approx((bounds.low, bounds.high))


def final_outcome(gate: Gate, stream: Stream) -> str:
    """What a session comes to: the proof, else the judgement of all docs at what is left."""
    evidence, order = stream.evidence(), stream.order()
    proof = proof_of(gate, evidence, order, members=1, stop_confidence=0.95, split=0.5)
    if proof is not None:
        return proof.outcome
    return final_verdict(gate, evidence.summary(), evidence, order, members=1, split=0.5).outcome


def test_false_alarms_on_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 600 runs whose true accuracy is the floor 5 % (30) may pass and 5 % may fail; 47 are 3.2 deviations more."""
    for module in ("_stats", "_verdicts"):
        # The runs differ in their scores only, and all search for the same thresholds.
        monkeypatch.setattr(f"pytest_llmeval.{module}.sequential.threshold_for", cache(threshold_for))
    draw, gate = random.Random(7), parse_gate(floor(), path=PATH, line=1)
    outcomes = [
        final_outcome(gate, Stream().add(task(), [float(draw.random() < 0.5) for _ in range(150)])) for _ in range(600)
    ]
    assert 1 <= outcomes.count("failed") <= 47
    assert 1 <= outcomes.count("passed") <= 47


class TestOrder:
    def test_it_is_the_same_in_every_process(self) -> None:
        assert [doc for _, doc in in_random_order("piqa", range(8), 0)] == [4, 3, 6, 5, 2, 7, 0, 1]
        assert [doc for _, doc in in_random_order("piqa", range(8), 1)] != [4, 3, 6, 5, 2, 7, 0, 1]
        assert [doc for _, doc in in_random_order("boolq", range(8), 0)] != [4, 3, 6, 5, 2, 7, 0, 1]

    @given(st.sets(st.integers(0, 60)), st.integers(0, 5))
    def test_fewer_docs_keep_their_order(self, docs: set[int], seed: int) -> None:
        whole = [doc for _, doc in in_random_order("t", range(61), seed)]
        assert [doc for _, doc in in_random_order("t", docs, seed)] == [doc for doc in whole if doc in docs]

    def test_a_group_and_its_tasks_agree(self) -> None:
        early = early_stop({"a": 30, "b": 50})
        a, b = task("a"), task("b")
        order = early.order(Group("all", PATH, (a, b)))
        assert sorted(order) == [("a", doc) for doc in range(30)] + [("b", doc) for doc in range(50)]
        assert [place for place in order if place[0] == "a"] == early.order(a)
        assert order[:30] != early.order(a)

    def test_a_limit_orders_what_it_asks_for(self) -> None:
        early = early_stop({"a": 30}, limit=10)
        assert sorted(early.order(task("a"))) == [("a", doc) for doc in range(10)]

    def test_waves_grow_with_what_is_known(self) -> None:
        assert [wave_size(known) for known in (0, 32, 64, 100, 1000)] == [32, 32, 32, 50, 500]
        assert wave_size(0, tasks=57) == 228


def early_stop(sizes: dict[str, int], **settings: Any) -> EarlyStop:
    evaluation: Any = SimpleNamespace(
        settings=Settings(early_stop=True, **settings),
        sizes={name: (count, count) for name, count in sizes.items()},
    )

    def leaves(owner: Task | Group) -> tuple[Task, ...]:
        return (owner,) if isinstance(owner, Task) else tuple(m for m in owner.members if isinstance(m, Task))

    evaluation.leaves = leaves
    progress: Any = None
    baseline: Any = SimpleNamespace(data=lambda run, owner: GateData(owner, []))
    words = {"missing_data": "fail", "inconclusive": "pass"}
    return EarlyStop(evaluation, baseline, progress, on_worker=False, **words)
