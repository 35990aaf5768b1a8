"""Nights: the evidence of many runs against one baseline, the file that keeps them, and their part in a verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import History
from pytest_llmeval._baselines import Night
from pytest_llmeval._baselines import history_path
from pytest_llmeval._baselines import read_history
from pytest_llmeval._baselines import write_history
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._settings import Settings
from pytest_llmeval._stats import drift_evidence
from pytest_llmeval._task import Field
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import over_nights


class TestEvidence:
    def test_of_two_nights_by_hand(self) -> None:
        """100 docs, all right before; doc 0 was lost in the first night, doc 1 in the second.

        One doc flips in a night, so one run may be luckier by 2.33 sqrt(1/2) docs, less than the 10 allowed. Of the two
        runs before the second night doc 0 was wrong in one, so they lie .5 docs below the baseline.
        """
        gap = 0.1 - 0.5 / 100
        stakes = [min(fall / math.sqrt(0.5), 0.8 / (1 + gap)) for fall in (0.5, 1.0, 2.0)]
        bets = [(1 - stake * (0.5 + gap)) * (1 + stake * (1 - gap)) * (1 - stake * gap) ** 98 for stake in stakes]
        evidence = drift_evidence([[0], [1]], [True] * 100, 0.1, 0.05)
        assert evidence == pytest.approx([0.0, sum(bets) / 3 / 100])

    @pytest.mark.parametrize("chances", [(0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25), (0.0, 0.0, 0.0, 1.0)])
    def test_is_at_most_one_expected_at_the_edge(self, chances: Sequence[float]) -> None:
        """Four docs, three right before, and .5 allowed: at the edge the mean of the expected scores is .25."""
        right, found = [True, True, True, False], 0.0
        for now in product([False, True], repeat=4):
            flips = [doc for doc in range(4) if now[doc] != right[doc]]
            (_, evidence) = drift_evidence([[0], flips], right, 0.5, 0.2)
            found += evidence * math.prod(c if hit else 1 - c for c, hit in zip(chances, now, strict=True))
        assert 0 < found * _stats.HORIZON <= 1 + 1e-12

    def test_a_fall_that_no_night_shows(self) -> None:
        """2,000 docs of which 100 are right by chance; 32 are lost in every night, where 20 are allowed."""
        rng = np.random.default_rng(5)
        right = [True] * 1950 + [False] * 50
        chance = np.r_[1900:2000]
        nights = [[*range(32), *chance[(rng.random(100) < 0.5) != np.array(right)[1900:]].tolist()] for _ in range(40)]
        lost = [sum(right[doc] for doc in night) for night in nights]
        # A gate with the same error over 100 nights.
        assert not any(
            _stats.drop_fails(down, len(night) - down, 2000, 0.01, 0.0005)
            for down, night in zip(lost, nights, strict=True)
        )
        evidence = drift_evidence(nights, right, 0.01, 0.05)
        limit = _stats.drift_limit(0.05)
        assert limit == pytest.approx(25)
        assert evidence[4] < limit < evidence[-1]
        # At most ten times the limit, so that a mended model is believed soon.
        assert evidence[-1] <= 10 * limit + 1e-9
        mended = [night[32:] for night in nights[:8]]
        assert drift_evidence([*nights, *mended], right, 0.01, 0.05)[-1] < 1

    def test_the_luck_of_the_baseline_is_no_evidence(self) -> None:
        """Of 20 docs that are right by chance 15 were right in the baseline: five more are lost than gained."""
        right = [True] * 495 + [False] * 5
        nights = [[*range(0, 15, 2), 495, 497, 499], [*range(1, 15, 2), 496, 498]] * 30
        flips = (11 + 9) / 2
        assert _stats.drift_luck(flips, 0.05) == pytest.approx(2.3263 * math.sqrt(5), rel=1e-4)
        assert max(drift_evidence(nights, right, 0.0, 0.05)) < 1
        # A smaller error in a family leaves more to luck.
        assert _stats.drift_luck(flips, 0.05 / 57) > 1.5 * _stats.drift_luck(flips, 0.05)

    def test_no_night_and_no_flip(self) -> None:
        assert drift_evidence([], [True], 0.0, 0.05) == []
        assert drift_evidence([[], []], [True] * 50, 0.02, 0.05)[-1] < 0.01


class TestNewFlips:
    def test_a_repeated_run_is_none(self) -> None:
        assert _stats.flips_are_new([3, 5], [], [(1, 1)])
        assert not _stats.flips_are_new([3, 5], [3, 5], [(1, 1), (1, 1)])
        assert not _stats.flips_are_new([], [], [(0, 0)])

    def test_independent_runs_differ_by_as_many_docs_as_flip(self) -> None:
        last, counts = list(range(20)), [(10, 10), (10, 10)]
        assert not _stats.flips_are_new(list(range(7, 27)), last, counts)  # 14 of 20 differ
        assert _stats.flips_are_new(list(range(8, 28)), last, counts)  # 16 of 20

    def test_docs_that_stay_lost_are_no_reason(self) -> None:
        """30 docs were lost for good beside the 20 that flip by chance."""
        steady = list(range(100, 130))
        counts = [(40, 10), (40, 10)]
        assert _stats.flips_are_new([*range(8, 28), *steady], [*range(20), *steady], counts)


HISTORY = History(
    "piqa acc.drop",
    "b5bb9d8014a0f",
    1838,
    (Night("2026-12-01", 1, 1, 0.75, 0.0, (0, 17)), Night("2026-12-02", 2, 0, 0.5, 12.3456, (1836, 1837))),
)


class TestFile:
    def test_round_trip(self, tmp_path: Path) -> None:
        path = history_path(tmp_path, "org/piqa", "acc.drop")
        assert path.name == "org%2Fpiqa.acc.drop.nights.jsonl"
        assert read_history(path, "piqa acc.drop") is None
        write_history(path, HISTORY)
        head, first, second = path.read_text().splitlines()
        assert json.loads(head) == {
            "llmeval nights": 1,
            "gate": "piqa acc.drop",
            "baseline": "b5bb9d8014a0f",
            "docs": 1838,
        }
        assert json.loads(first)["flips"] == [0, 17]
        assert json.loads(second) == {
            "date": "2026-12-02",
            "lost": 2,
            "gained": 0,
            "value": 0.5,
            "e_value": 12.3,
            "flips": [1836, 1],
        }
        read = read_history(path, "piqa acc.drop")
        assert read is not None
        assert [night.flips for night in read.nights] == [(0, 17), (1836, 1837)]
        assert read.nights[0] == HISTORY.nights[0]
        assert [path.name for path in Baseline("main", tmp_path, Settings()).files()] == []

    @pytest.mark.parametrize(
        ("line", "text", "message"),
        [
            (1, "{}", "expected the nights of gate 'piqa acc.drop', found '{}'"),
            (1, "", "expected the nights of gate"),
            (1, '{"llmeval nights": 1, "gate": "boolq acc.drop", "baseline": "b", "docs": 9}', "expected the nights"),
            (1, '{"llmeval nights": 2, "gate": "piqa acc.drop", "baseline": "b", "docs": 9}', "expected the nights"),
            (2, "<<<<<<< HEAD", "expected a night, found '<<<<<<< HEAD'"),
            (3, '{"date": "2026-12-02", "lost": 2, "gained": 0', "expected a night"),
            (3, '{"date": "d", "lost": 2, "gained": 0, "value": 1, "e_value": 0, "flips": [5]}', "expected a night"),
            (3, '{"date": "d", "lost": 1, "gained": 0, "value": 1, "e_value": 0, "flips": [1838]}', "expected a night"),
            (3, '{"date": "d", "lost": 2, "gained": 0, "value": 1, "e_value": 0, "flips": [5, 0]}', "expected a night"),
            (3, "7", "expected a night, found '7'"),
        ],
    )
    def test_damaged_and_foreign_files(self, tmp_path: Path, line: int, text: str, message: str) -> None:
        path = tmp_path / "piqa.acc.drop.nights.jsonl"
        write_history(path, HISTORY)
        lines = path.read_text().splitlines()
        lines[line - 1] = text
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(BaselineError) as error:
            read_history(path, "piqa acc.drop")
        assert str(error.value).startswith(f"{path}:{line}: {message}")
        assert str(error.value).endswith(": restore a committed version, or delete it to begin anew")

    def test_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "piqa.acc.drop.nights.jsonl"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(BaselineError, match=r"nights\.jsonl: cannot be read: .*utf-8"):
            read_history(path, "piqa acc.drop")
        with pytest.raises(BaselineError, match="cannot be written: "):
            write_history(path / "below", HISTORY)


FIELD = Field("doc_to_text", text="{{q}}")
TASK = Task(
    "piqa",
    Path("piqa.yaml"),
    "multiple_choice",
    FIELD,
    FIELD,
    metrics=resolve_metrics((MetricSpec("acc"), MetricSpec("brier_score")), "multiple_choice"),
    test_split="t",
)

ERRORS = resolve_metrics((MetricSpec("acc", higher_is_better=False),), "multiple_choice")


def results(scores: Sequence[float]) -> list[DocResult]:
    """The docs with their scores; their hashes are not in the order of their numbers."""
    keys = [DocKey(f"{doc * 7 % 1000:03}", "p") for doc in range(len(scores))]
    return [DocResult(doc, {"none": {"acc": score}}, key=keys[doc]) for doc, score in enumerate(scores)]


class Nights:
    """A baseline of 200 docs, the first 150 of them right, and its history."""

    def __init__(self, folder: Path, gate: str = "acc >= baseline - 0.02 @ 0.95", task: Task = TASK) -> None:
        self.task = task
        self.baseline, self.gate = Baseline("main", folder, Settings()), parse_gate(gate, path=TASK.path, line=1)
        self.history = History("piqa acc.drop", "", 0)
        self.renew([1] * 150 + [0] * 50)

    def renew(self, scores: Sequence[float]) -> None:
        """Write another baseline."""
        old = TaskData(self.task, results(scores), len(scores))
        self.scores = list(scores)
        self.baseline.update(self.task, old.results, old.summary(old.results), "m", {})

    def run(self, *flipped: int, docs: int = 200, members: int = 1, shuffled: bool = False) -> Verdict:
        """Return the verdict on a run that answers some docs otherwise than the baseline."""
        now = results([1 - score if doc in flipped else score for doc, score in enumerate(self.scores[:docs])])
        if shuffled:
            now.reverse()
        part = TaskData(self.task, now, 200, self.baseline.compare(self.task, now))
        data = GateData(self.task, [part], drawn="all" if docs == 200 else "first", baseline="main", members=members)
        verdict, history = over_nights(Verdict("passed", "piqa: fine"), self.gate, data, self.history, "2026-12-01")
        self.history = history or self.history
        return verdict


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


class TestVerdicts:
    def test_a_good_model_passes(self, nights: Nights) -> None:
        for number in range(12):
            verdict = nights.run(number, 150 + number)
        assert verdict.outcome == "passed"
        assert verdict.text.splitlines()[1].startswith(
            "  nights    12 nights: worse by 0.0000 on average, worse by 0.0000 in the last 10; e-value "
        )
        assert verdict.text.endswith(" for a loss beyond 0.02, 25 fails")
        assert (verdict.numbers["nights"], verdict.numbers["nights_e_value"] < 0.05) == (12, True)
        # Flips are places in the order of the docs' hashes.
        order = sorted(range(200), key=lambda doc: doc * 7 % 1000)
        assert nights.history.nights[0].flips == tuple(sorted([order.index(0), order.index(150)]))

    def test_a_loss_over_nights_fails(self, nights: Nights) -> None:
        """Each night loses 12 of 200 docs, where 4 are allowed and one run may be luckier by 2.33 sqrt(12/2)."""
        outcomes = [nights.run(*range(12 * number % 144, 12 * number % 144 + 12)).outcome for number in range(16)]
        assert (outcomes[0], outcomes[-1]) == ("passed", "failed")
        verdict = nights.run(*range(12))
        assert "over 17 nights it became worse on these docs than allowed, at 95 % confidence over 100 nights" in (
            verdict.sentence
        )
        assert "worse by 0.0600 on average" in verdict.text
        assert verdict.text.endswith("for a loss beyond 0.0285 (the luck of a baseline run), 25 fails")
        # Each of 20 gates in a family needs more.
        assert nights.run(*range(12, 24), members=20).text.endswith("(the luck of a baseline run), 500 fails")
        # The same answers once more are no further evidence, and no acquittal.
        repeated = nights.run(*range(12, 24))
        assert (repeated.outcome, repeated.numbers["nights"]) == ("failed", 18)
        assert repeated.text.endswith(
            "; this run is not counted, because it mostly repeats the flips of the last night"
        )

    def test_what_repeats_is_not_counted(self, nights: Nights) -> None:
        assert nights.run().text == (
            "piqa: fine\n  nights    none is counted yet; this run is not counted, because no doc flipped"
        )
        for _ in range(5):
            verdict = nights.run(*range(30))
        assert (verdict.outcome, verdict.numbers["nights"], verdict.numbers["nights_e_value"]) == ("passed", 1, 0.0)

    def test_another_order_of_the_docs_is_the_same_data(self, nights: Nights) -> None:
        nights.run(3, 160)
        nights.run(4, 170, shuffled=True)
        assert nights.run(3, 160).numbers["nights"] == 3
        assert nights.history.nights[0].flips == nights.history.nights[2].flips

    def test_other_docs_are_not_counted(self, nights: Nights) -> None:
        nights.run(3, 160)
        verdict = nights.run(4, 50, docs=100)
        assert verdict.text.endswith("nights    not counted: this run and the baseline do not have the same docs")
        assert len(nights.history.nights) == 1

    def test_a_renewed_baseline_begins_anew(self, nights: Nights) -> None:
        nights.run(3, 160)
        nights.run(4, 170)
        nights.renew([1] * 149 + [0] * 51)
        verdict = nights.run(5, 180)
        assert verdict.numbers["nights"] == 1
        assert verdict.text.endswith("; the 2 nights before were against another baseline")
        assert nights.run(3, 190).numbers["nights"] == 2

    def test_scores_between_0_and_1(self, nights: Nights) -> None:
        nights.renew([0.5] * 200)
        assert nights.run(3).text.endswith(
            "nights    not counted: only docs with a score of 0 or 1 that count equally are watched over nights"
        )

    @pytest.mark.parametrize("gate", ["acc > baseline @ 0.95", "acc >= baseline + 0.1", "acc stays right on all"])
    def test_gates_that_allow_no_loss(self, tmp_path: Path, gate: str) -> None:
        nights = Nights(tmp_path, gate)
        assert nights.run(3, 160) == Verdict("passed", "piqa: fine")
        assert nights.history.nights == ()

    def test_a_metric_that_should_be_low(self, tmp_path: Path) -> None:
        """Errors: of 200 docs 150 are wrong, and a doc becomes worse from 0 to 1."""
        errors = Task("piqa", TASK.path, TASK.output_type, FIELD, FIELD, metrics=ERRORS, test_split="t")
        nights = Nights(tmp_path, "acc <= baseline + 0.02", errors)
        for number in range(14):
            verdict = nights.run(*range(150 + 12 * (number % 4), 162 + 12 * (number % 4)))
        assert {(night.lost, night.gained) for night in nights.history.nights} == {(12, 0)}
        assert verdict.outcome == "failed"
