"""Early stopping: a test that may be looked at after every doc."""

from __future__ import annotations

from itertools import permutations
from itertools import product
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_llmeval._stats import Crossing
from pytest_llmeval._stats import MeanTest
from pytest_llmeval._stats import threshold_for
from pytest_llmeval._stats.crossing import LEAST_PART
from pytest_llmeval._stats.crossing import STAKES
from pytest_llmeval._stats.crossing import log_capital


RIGHT = st.lists(st.integers(0, 1), min_size=1, max_size=60)


def ends(values: list[float], limit: float, *, low: float = 0.0, total: int | None = None) -> tuple[bool, bool, int]:
    """Above, below, and after how many docs."""
    test = MeanTest(limit, 0.05, low=low, total=total)
    test.update(values)
    return test.above, test.below, test.decided_after or 0


@given(RIGHT, st.sampled_from([0.0, 0.1, 0.35, 0.5, 0.9, 1.0]))
@settings(deadline=None)
def test_after_the_last_doc_of_a_data_set_the_mean_decides(right: list[int], limit: float) -> None:
    test = MeanTest(limit, 0.05, total=len(right))
    for score in right:
        assert not (test.above and test.below)
        test.update([score])
    assert test.above == (sum(right) >= limit * len(right) - 1e-9)
    assert test.below == (not test.above)


def test_a_limit_that_is_met_exactly() -> None:
    """47 of 100 reach .52 - .05, which is .47000000000000003."""
    scores = [1.0] * 47 + [0.0] * 53
    assert ends(scores, 0.52 - 0.05, total=100)[:2] == (True, False)
    assert ends(scores, 0.4701, total=100)[:2] == (False, True)
    changes = [-1.0] * 3 + [0.0] * 97
    assert ends(changes, 0.5 - 0.53, low=-1.0, total=100)[:2] == (True, False)


def test_logic_decides_before_the_end() -> None:
    """With 3 of 10 docs wrong, .8 is out of reach; with 8 right it is reached. No statistics would know yet."""
    assert ends([0, 0], 0.8, total=10) == (False, False, 0)
    assert ends([0, 0, 0], 0.8, total=10) == (False, True, 3)
    assert ends([1, 1, 1], 0.3, total=10) == (True, False, 3)
    assert ends([1, 1], 0.3, total=10) == (False, False, 0)


def test_limits_at_and_beyond_the_ends() -> None:
    assert ends([], 0.0) == (True, False, 0)
    assert ends([], 1.1) == (False, True, 0)
    assert ends([0.0], 1.0) == (False, True, 1)
    assert ends([1.0] * 500, 1.0)[:2] == (False, False)


@given(RIGHT, st.integers(1, 7), st.booleans())
@settings(deadline=None)
def test_windows_do_not_matter(right: list[int], window: int, whole: bool) -> None:
    total = len(right) + 5 if whole else None
    at_once, in_parts = (MeanTest(0.6, 0.2, total=total) for _ in range(2))
    at_once.update(right)
    for start in range(0, len(right), window):
        in_parts.update(right[start : start + window])
    assert (at_once.above, at_once.below, at_once.seen) == (in_parts.above, in_parts.below, in_parts.seen)
    assert at_once.decided_after == in_parts.decided_after


@given(RIGHT)
@settings(deadline=None)
def test_wrong_is_right_mirrored(right: list[int]) -> None:
    test, mirror = MeanTest(0.7, 0.2), MeanTest(0.3, 0.2)
    test.update(right)
    mirror.update(1 - score for score in right)
    assert (test.above, test.below) == (mirror.below, mirror.above)
    scaled = MeanTest(-0.6, 0.2, low=-2.0, high=0.0)
    scaled.update(2 * score - 2 for score in right)
    assert (test.above, test.below) == (scaled.above, scaled.below)


@pytest.mark.parametrize("total", [None, 200])
def test_the_error_is_kept_under_a_look_after_every_doc(total: int | None) -> None:
    """The limit is the truth, or (for "above" on a data set) just out of reach."""
    rng = np.random.default_rng(2)
    above = below = 0
    for _ in range(600):
        scores = rng.permutation([1.0] * 80 + [0.0] * 120)[:190] if total else (rng.random(190) < 0.4).astype(float)
        reached, missed = MeanTest(0.4, 0.1, total=total), MeanTest(0.4001 if total else 0.4, 0.1, total=total)
        # One update is a look after every doc: windows do not matter.
        reached.update(scores)
        missed.update(scores)
        above += missed.above
        below += reached.below
    # Three standard errors of a tenth among 600 are .037.
    assert above / 600 <= 0.1 + 0.037
    assert below / 600 <= 0.1 + 0.037


def test_clear_cases_stop_early() -> None:
    rng = np.random.default_rng(0)
    clear_pass, clear_fail = (rng.random(1_000) < 0.5).tolist(), (rng.random(1_000) < 0.25).tolist()
    for total in (None, 1_000):
        above, below, docs = ends(clear_pass, 0.35, total=total)
        assert (above, below) == (True, False)
        assert docs < 300
        above, below, docs = ends(clear_fail, 0.35, total=total)
        assert (above, below) == (False, True)
        assert docs < 400


def test_later_docs_do_not_change_what_was_shown() -> None:
    test = MeanTest(0.35, 0.05)
    test.update([1.0] * 20)
    shown = test.decided_after
    assert test.above
    test.update([0.0] * 2_000)
    assert (test.above, test.below, test.decided_after) == (True, False, shown)


def test_values_and_tests_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"values must lie in \[0, 1\], got 0.5 to 1.5"):
        MeanTest(0.5, 0.05).update([0.5, 1.5])
    with pytest.raises(ValueError, match="values must lie in"):
        MeanTest(0.5, 0.05).update([float("nan")])
    with pytest.raises(ValueError, match="the data set has 2 docs, got 3"):
        MeanTest(0.5, 0.05, total=2).update([0, 1, 1])
    for wrong in ({"alpha": 1.5}, {"total": 0}, {"low": 1.0}):
        with pytest.raises(ValueError, match="invalid test: alpha"):
            MeanTest(**({"limit": 0.5, "alpha": 0.05} | wrong))  # type: ignore[arg-type]


class TestCalibration:
    """Errors of closed plans on 0/1 scores, against the sum over all sequences of few docs."""

    @pytest.mark.parametrize("limit", [0.2, 0.5, 0.9])
    @pytest.mark.parametrize("alpha", [0.2, 0.05])
    def test_every_sequence_of_a_dozen_docs(self, limit: float, alpha: float) -> None:
        docs, error = 12, 0.3
        threshold = threshold_for(limit, docs, alpha)
        exact = Crossing.of(limit, docs, threshold)
        left = exact.error_left(error)
        sequences = np.array(list(product((0, 1), repeat=docs)))
        right, seen = sequences.cumsum(axis=1), np.arange(1, docs + 1)
        reached = np.array([(log_capital(limit, row, seen) >= threshold).any() for row in right])
        chances = limit ** right[:, -1] * (1 - limit) ** (docs - right[:, -1])
        crossed = chances[reached].sum()
        together = chances[reached | (binom.sf(right[:, -1] - 1, docs, limit) <= left)].sum()
        for sequence, row in zip(sequences[::331], reached[::331], strict=True):
            test = MeanTest(limit, alpha, most=docs)
            test.update(sequence)
            assert test.above == row or test.below
        assert exact.reached == pytest.approx(crossed, abs=1e-9)
        assert crossed <= alpha
        assert together <= error
        assert exact.reached + exact.open_.sum() == pytest.approx(1)

    def test_the_last_doc_is_judged_at_all_that_is_left(self) -> None:
        """One right doc fewer would be too many: both errors together then exceed 5 %."""
        exact = Crossing.of(0.35, 100, threshold_for(0.35, 100, 0.025))
        least = next(k for k in range(101) if binom.sf(k - 1, 100, 0.35) <= exact.error_left(0.05))
        ending = exact.open_[np.arange(exact.first, exact.first + len(exact.open_)) >= least].sum()
        one_more = exact.open_[least - 1 - exact.first]
        assert exact.reached + ending <= 0.05 < exact.reached + ending + one_more

    @given(st.integers(5, 60), st.floats(0.05, 0.95), st.sampled_from([0.25, 0.05, 0.01]))
    @settings(deadline=None, max_examples=40)
    def test_it_is_never_stricter_than_villes_bound(self, docs: int, limit: float, alpha: float) -> None:
        threshold = threshold_for(limit, docs, alpha)
        assert log(LEAST_PART / alpha) <= threshold <= -log(alpha)
        assert Crossing.of(limit, docs, threshold).reached <= alpha

    @given(RIGHT, st.integers(1, 7), st.sampled_from([0.3, 0.6]))
    @settings(deadline=None, max_examples=50)
    def test_windows_do_not_matter(self, right: list[int], window: int, limit: float) -> None:
        at_once, in_parts = (MeanTest(limit, 0.1, most=60) for _ in range(2))
        at_once.update(right)
        for start in range(0, len(right), window):
            in_parts.update(right[start : start + window])
        assert (at_once.above, at_once.below) == (in_parts.above, in_parts.below)
        assert at_once.decided_after == in_parts.decided_after

    def test_fewer_docs_are_needed(self) -> None:
        """At a floor of .5 each right doc multiplies the capital of a strategy by 1 + its stake: 40 takes 8 docs."""
        capital = [sum((1 + stake) ** docs for stake in STAKES) / len(STAKES) for docs in range(12)]
        ville, calibrated = MeanTest(0.5, 0.025), MeanTest(0.5, 0.025, most=100)
        ville.update([1.0] * 20)
        calibrated.update([1.0] * 20)
        assert (ville.decided_after, calibrated.decided_after) == (8, 7)
        assert capital[7] < 40 <= capital[8]

    def test_values_that_do_not_fit(self) -> None:
        for values in ([0.5], [1.0] * 4):
            with pytest.raises(ValueError, match="expected up to 3 values 0 or 1"):
                MeanTest(0.5, 0.05, most=3).update(values)
        with pytest.raises(ValueError, match="invalid test"):
            MeanTest(0.5, 0.05, most=3, total=3)


class TestControls:
    """Bets on the differences from numbers that all docs have beforehand."""

    @given(RIGHT, st.data())
    @settings(deadline=None, max_examples=60)
    def test_the_mean_decides_at_the_last_doc_whatever_they_are(self, right: list[int], data: st.DataObject) -> None:
        docs = len(right)
        controls = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=docs, max_size=docs))
        test = MeanTest(0.6, 0.05, total=docs, control=sum(controls) / docs)
        for score, control in zip(right, controls, strict=True):
            test.update([score], [control])
        assert test.above == (sum(right) >= 0.6 * docs - 1e-9)

    @pytest.mark.parametrize("agreeing", ["alike", "unlike"])
    def test_every_order_of_few_docs(self, agreeing: str) -> None:
        """A floor just missed, or just reached, is judged wrongly in at most a fifth of all orders of nine docs."""
        scores = [1, 1, 1, 1, 1, 0, 0, 0, 0]
        controls = [1, 1, 1, 1, 0, 0, 0, 0, 0] if agreeing == "alike" else [0, 0, 1, 0, 0, 1, 1, 1, 0]
        kinds = sorted(zip(scores, controls, strict=True))
        orders = set(permutations(kinds[:2] + kinds[-3:])) if agreeing == "unlike" else set(permutations(kinds[1:8]))
        for limit, wrong in ((0.5, "below"), (0.6, "above")):
            errors = 0
            for order in orders:
                now, before = zip(*order, strict=True)
                mean = sum(now) / len(now)
                edge = mean if wrong == "below" else mean + 0.5 / len(now)
                test = MeanTest(edge, 0.2, total=len(now), control=sum(before) / len(now))
                test.update(now[:-1], before[:-1])
                errors += getattr(test, wrong)
            assert errors <= 0.2 * len(orders), limit

    def test_a_model_like_the_baseline_needs_fewer_docs(self) -> None:
        rng = np.random.default_rng(0)
        before = (rng.random(1_000) < 0.6).astype(float)
        now = np.where(rng.random(1_000) < 0.04, 1 - before, before)
        needed = {}
        for control in (None, float(before.mean())):
            test = MeanTest(0.5, 0.05, total=1_000, control=control)
            test.update(now, () if control is None else before)
            assert test.above
            needed[control is None] = test.decided_after or 0
        assert needed == {True: 370, False: 57}

    def test_values_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match="expected a control for each value if the test has them, got 1"):
            MeanTest(0.5, 0.05, total=3, control=0.5).update([1.0, 1.0], [1.0])
        with pytest.raises(ValueError, match="expected a control for each value"):
            MeanTest(0.5, 0.05, total=3).update([1.0], [1.0])
        with pytest.raises(ValueError, match="invalid test"):
            MeanTest(0.5, 0.05, control=0.5)
