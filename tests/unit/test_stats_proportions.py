"""Bounds on one proportion, and what a floor can see."""

from __future__ import annotations

import subprocess
import sys
from math import comb
from math import inf

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from pytest_llmeval import _stats as stats
from pytest_llmeval._stats import Interval


#: Right answers among docs.
COUNTS = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
CONFIDENCES = st.sampled_from([0.5, 0.8, 0.95, 0.999])


def rounded(interval: Interval, digits: int = 4) -> tuple[float, float]:
    return round(interval.low, digits), round(interval.high, digits)


@pytest.mark.parametrize(
    ("successes", "n", "exact"),
    [
        (81, 263, (0.2527, 0.3676)),
        (15, 148, (0.0578, 0.1617)),
        (0, 20, (0.0000, 0.1684)),
        (1, 29, (0.0009, 0.1776)),
    ],
)
def test_the_examples_of_newcombe_1998(successes: int, n: int, exact: tuple[float, float]) -> None:
    """His 95 % intervals are two-sided: each bound has .975 (Statist. Med. 17, 857-872, table I)."""
    assert rounded(stats.exact_bounds(successes, n, 0.975)) == exact


@pytest.mark.parametrize("n", [1, 20, 1221])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.975, 1 - 0.05 / 57])
def test_exact_bounds_are_those_of_scipy(n: int, confidence: float) -> None:
    for successes in {0, 1, n // 3, n}:
        known = binomtest(successes, n).proportion_ci(2 * confidence - 1, "exact")
        found = stats.exact_bounds(successes, n, confidence)
        assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-12)


@given(counts=COUNTS, confidence=CONFIDENCES)
@settings(deadline=None)
def test_laws_of_bounds_on_a_proportion(counts: tuple[int, int], confidence: float) -> None:
    bounds = stats.exact_bounds
    successes, n = counts
    found = bounds(successes, n, confidence)
    assert 0 <= found.low <= successes / n <= found.high <= 1
    other = bounds(n - successes, n, confidence)
    assert (found.low, found.high) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-9)
    wider = bounds(successes, n, 0.9999)
    assert wider.low <= found.low
    assert wider.high >= found.high
    if successes < n:
        more = bounds(successes + 1, n, confidence)
        assert more.low >= found.low
        assert more.high >= found.high


@pytest.mark.parametrize("n", [1, 5, 30])
@pytest.mark.parametrize("truth", [0.02, 0.3, 0.5, 0.77, 0.95])
def test_the_error_of_exact_bounds_is_kept(n: int, truth: float) -> None:
    """By summing over all outcomes instead of drawing some."""
    chances = [comb(n, k) * truth**k * (1 - truth) ** (n - k) for k in range(n + 1)]
    found = [stats.exact_bounds(k, n, 0.95) for k in range(n + 1)]
    assert sum(p for p, bound in zip(chances, found, strict=True) if bound.low > truth) <= 0.05
    assert sum(p for p, bound in zip(chances, found, strict=True) if bound.high < truth) <= 0.05


def test_without_docs_nothing_is_known() -> None:
    nothing = Interval(0, 1)
    assert stats.exact_bounds(0, 0, 0.95) == nothing
    assert stats.finite_bounds(0, 0, 0, 0.95) == nothing
    assert stats.finite_bounds(0, 0, 7, 0.95) == nothing


def test_a_part_of_a_data_set_worked_out_by_hand() -> None:
    """Two of three docs seen, both right. If the third is wrong, such a pair comes up in 1 of 3 draws."""
    assert stats.finite_bounds(2, 2, 3, 0.95) == Interval(2 / 3, 1)
    assert stats.finite_bounds(2, 2, 3, 0.6) == Interval(1, 1)
    # 1 of 2 seen, of 4: 1, 2 or 3 right are possible; with 1 right, one is seen in half of the draws.
    assert stats.finite_bounds(1, 2, 4, 0.95) == Interval(1 / 4, 3 / 4)
    assert stats.finite_bounds(1, 2, 4, 0.5) == Interval(1 / 4, 3 / 4)


@given(counts=COUNTS, unseen=st.integers(0, 50), confidence=CONFIDENCES)
@settings(max_examples=40, deadline=None)
def test_laws_of_bounds_on_a_data_set(counts: tuple[int, int], unseen: int, confidence: float) -> None:
    successes, seen = counts
    total = seen + unseen
    found = stats.finite_bounds(successes, seen, total, confidence)
    assert successes / total <= found.low <= found.high <= (successes + unseen) / total
    assert unseen or found.low == found.high == successes / seen
    other = stats.finite_bounds(seen - successes, seen, total, confidence)
    assert (found.low, found.high) == pytest.approx((1 - other.high, 1 - other.low))


@pytest.mark.parametrize(("total", "seen"), [(30, 10), (30, 25), (12, 11)])
def test_the_error_on_a_data_set_is_kept(total: int, seen: int) -> None:
    found = {k: stats.finite_bounds(k, seen, total, 0.95) for k in range(seen + 1)}
    for right in range(total + 1):
        chances = {k: comb(right, k) * comb(total - right, seen - k) / comb(total, seen) for k in found if k <= right}
        assert sum(p for k, p in chances.items() if p and found[k].low > right / total) <= 0.05
        assert sum(p for k, p in chances.items() if p and found[k].high < right / total) <= 0.05


def test_how_far_below_a_floor_shows() -> None:
    """Of 10 docs at .5, at most 1 is right in 11 of 1,024 runs and at most 2 in 56: the gate fails on 0 or 1."""
    assert stats.exact_bounds(1, 10, 0.95).high < 0.5 < stats.exact_bounds(2, 10, 0.95).high
    truth = 0.5 - stats.floor_gap(10, 0.5, 0.95, power=0.8)
    assert (1 - truth) ** 10 + 10 * truth * (1 - truth) ** 9 == pytest.approx(0.8)
    assert stats.floor_gap(4, 0.5, 0.95) == inf
    assert stats.floor_gap(14_042, 0.5, 0.95) < stats.floor_gap(1_221, 0.5, 0.95) < stats.floor_gap(100, 0.5, 0.95)


@pytest.mark.parametrize("confidence", [0.3, 1.0, 95.0, float("nan")])
def test_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must be at least"):
        stats.exact_bounds(1, 2, confidence)


def test_counts_that_are_none() -> None:
    with pytest.raises(ValueError, match="successes must be at least 0 and at most 2, got 3"):
        stats.exact_bounds(3, 2, 0.95)
    with pytest.raises(ValueError, match="seen must be at least 0 and at most 4, got 5"):
        stats.finite_bounds(3, 5, 4, 0.95)


def test_the_room_alone_loads_nothing_heavy() -> None:
    code = "import sys, pytest_llmeval._stats; print(sorted(set(sys.modules) & {'numpy', 'scipy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
