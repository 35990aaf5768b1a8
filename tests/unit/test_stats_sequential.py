"""Early stopping: a test that may be looked at after every doc."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._stats import MeanTest


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
