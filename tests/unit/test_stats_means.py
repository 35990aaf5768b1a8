"""Real-valued scores: means, clusters, sign flips."""

from __future__ import annotations

from math import comb
from math import inf

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval import _stats as stats
from pytest_llmeval._stats import Interval
from pytest_llmeval._stats.means import Totals
from pytest_llmeval._stats.signflip import flip_p


#: Heights of cross- and self-fertilized maize, eighths of an inch, 15 pairs: Darwin's, in Fisher (1935), section 17.
CROSSED = [188, 96, 168, 176, 153, 172, 177, 163, 146, 173, 186, 168, 177, 184, 96]
SELFED = [139, 163, 160, 160, 147, 149, 149, 122, 132, 144, 130, 144, 102, 124, 144]
DARWIN = [crossed - selfed for crossed, selfed in zip(CROSSED, SELFED, strict=True)]

SCORES = st.lists(st.integers(0, 16).map(lambda sixteenths: sixteenths / 16), min_size=2, max_size=30)


def pair(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def test_the_range_that_scores_are_taken_to_have() -> None:
    """As far beyond the least and greatest as these are apart, whether docs come in clusters or not."""
    scores = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert stats.mean_bounds(scores, 0.95) == stats.mean_bounds(scores, 0.95, support=(-3, 9))
    clustered = stats.mean_bounds([1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 0.95, clusters="aabbccddee")
    assert pair(clustered) == pytest.approx(pair(stats.mean_bounds(scores, 0.95)))
    rng = np.random.default_rng(0)
    many = rng.normal(size=200)
    worst = many.min() - (many.max() - many.min())
    means = rng.dirichlet(np.ones(201), 100_000) @ [*many, worst]
    assert stats.mean_bounds(many.tolist(), 0.95).low == pytest.approx(np.quantile(means, 0.05), abs=2e-3)


def test_what_no_doc_can_have_is_not_assumed() -> None:
    scores = [1.0, 2.0, 5.0]
    assert stats.assumed_support(scores) == (-3, 9)
    assert stats.assumed_support(scores, 0.0) == (0, 9)
    assert stats.assumed_support(scores, -4.0) == (-3, 9)
    # Docs that have it all the same say that it is wrong.
    assert stats.assumed_support(scores, 2.0) == (1, 9)
    assert stats.mean_bounds(scores, 0.95, least=0.0) == stats.mean_bounds(scores, 0.95, support=(0, 9))
    assert stats.mean_bounds(scores, 0.95, least=0.0).low > stats.mean_bounds(scores, 0.95).low


def test_a_mean_without_spread_or_without_docs() -> None:
    unknown = Interval(-inf, inf)
    assert stats.mean_bounds([], 0.95) == unknown
    assert stats.mean_bounds([0.3], 0.95) == unknown
    assert stats.mean_bounds([0.3] * 50, 0.95) == unknown
    assert stats.mean_bounds([0.3, 0.4], 0.95, clusters="aa") == unknown
    assert stats.mean_bounds([], 0.95, support=(0, 1)) == Interval(0, 1)
    assert stats.mean_bounds([0.0], 0.95, support=(0, 1)).low == 0


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (1, 29), (15, 148), (81, 263), (99, 100)])
def test_of_right_and_wrong_the_bounds_are_clopper_and_pearsons(right: int, n: int) -> None:
    found = stats.mean_bounds([1.0] * right + [0.0] * (n - right), 0.95, support=(0, 1))
    exact = stats.exact_bounds(right, n, 0.95)
    assert pair(found) == pytest.approx(pair(exact), abs=0.0025)
    # The approximation by a saddlepoint errs to the safe side.
    assert found.low <= exact.low + 1e-5
    assert found.high >= exact.high - 1e-5


def test_gaffkes_bound_against_random_weights() -> None:
    scores = np.array([0.1, 0.4, 0.4, 0.7, 0.9, 1.0, 0.2, 0.55])
    weights = np.random.default_rng(0).dirichlet(np.ones(9), 400_000)
    found = stats.mean_bounds(scores.tolist(), 0.95, support=(0, 1))
    assert found.low == pytest.approx(np.quantile(weights @ np.append(scores, 0), 0.05), abs=2e-3)
    assert found.high == pytest.approx(np.quantile(weights @ np.append(scores, 1), 0.95), abs=2e-3)


@example(scores=[0.6875, 0.875, 7 / 16, 7 / 16, 3 / 16], confidence=0.5)
@example(scores=[0.375] * 3 + [9 / 16] * 3 + [7 / 16, 0.6875, 0.5] + [0.0] * 6, confidence=0.5)
@given(scores=SCORES, confidence=st.sampled_from([0.5, 0.8, 0.95, 0.999]))
@settings(deadline=None)
def test_laws_of_bounds_with_a_support(scores: list[float], confidence: float) -> None:
    found = stats.mean_bounds(scores, confidence, support=(0, 1))
    assert 0 <= found.low <= np.mean(scores) + 1e-12
    assert np.mean(scores) - 1e-12 <= found.high <= 1
    other = stats.mean_bounds([1 - score for score in scores], confidence, support=(0, 1))
    assert pair(found) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-6)
    better = stats.mean_bounds([(score + 1) / 2 for score in scores], confidence, support=(0, 1))
    assert better.low >= found.low - 1e-6
    assert better.high >= found.high - 1e-6
    assert pair(stats.mean_bounds([10 * score - 3 for score in scores], confidence, support=(-3, 7))) == pytest.approx(
        (10 * found.low - 3, 10 * found.high - 3), abs=1e-6
    )


def test_the_error_of_bounds_with_a_support_is_kept_where_students_is_not() -> None:
    rng = np.random.default_rng(1)
    samples = np.where(rng.random((400, 100)) < 0.97, 1.0, rng.random((400, 100)))
    stderrs = samples.std(axis=1, ddof=1) / 10
    student = np.mean(samples.mean(axis=1) - 1.660391 * stderrs > 0.985)
    bounded = np.mean([stats.mean_bounds(sample, 0.95, support=(0, 1)).low > 0.985 for sample in samples])
    assert student > 0.10
    assert bounded <= 0.05


def test_scores_that_are_none() -> None:
    with pytest.raises(ValueError, match="finite"):
        stats.mean_bounds([0.1, float("nan")], 0.95)
    with pytest.raises(ValueError, match="2 scores have 3 clusters"):
        stats.mean_bounds([0.1, 0.2], 0.95, clusters="abc")
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got a mean of 0.5 to 1.5"):
        stats.mean_bounds([0.5, 1.5], 0.95, support=(0, 1))
    with pytest.raises(ValueError, match="2 scores before and 1 now do not pair"):
        stats.paired_mean_bounds([1, 2], [1], 0.95)


def test_sign_flips_of_darwins_maize() -> None:
    """Fisher (1935, section 21): of the 32,768 ways to sign the differences, 863 sum to 314 or more."""
    assert flip_p(Totals.of(DARWIN), 0.0) == pytest.approx(863 / 32_768)
    # As a test of a drop no stronger than that, in either direction.
    within = stats.difference_p(SELFED, CROSSED, 0.0, side="within")
    assert within == stats.difference_p(CROSSED, SELFED, 0.0, side="beyond")
    assert within >= 863 / 32_768
    # Heights are 92 eighths apart: the mean under random weights, one of them on a loss of that, is below 0 so often.
    weights = np.random.default_rng(0).dirichlet(np.ones(16), 400_000)
    assert within == pytest.approx(float((weights @ [*DARWIN, -92] <= 0).mean()), rel=0.02)


def test_sign_flips_rank_the_means_of_subsets() -> None:
    """Of 1, 2, 3 these are 1, 1.5, 2, 2, 2, 2.5, 3: of the 8 signings, each adds an eighth."""
    totals = Totals.of([1, 2, 3])
    assert [flip_p(totals, mean) for mean in (0.99, 1, 1.5, 2, 2.6, 3)] == [1 / 8, 2 / 8, 3 / 8, 6 / 8, 7 / 8, 1]
    # Clusters flip whole: the means are 1.5 of a, 6 of b, and 3 of both.
    clustered = Totals.of([1, 2, 6], "aab")
    assert [flip_p(clustered, mean) for mean in (1.4, 1.5, 3, 6)] == [1 / 4, 2 / 4, 3 / 4, 1]


def test_too_few_differences_for_a_confidence() -> None:
    unknown = Interval(-inf, inf)
    assert stats.paired_mean_bounds([], [], 0.95) == unknown
    assert stats.difference_p([], [], 0.1, side="within") == 1
    assert stats.paired_mean_bounds([0] * 4, [1, 2, 3, 4], 0.95) == unknown
    found = stats.paired_mean_bounds([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], 0.95)
    bounded = stats.paired_mean_bounds([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], 0.95, support=(1, 10))
    assert pair(found) == pytest.approx(pair(bounded))
    assert stats.paired_mean_bounds([1, 2, 3, 4, 5], [2, 4, 6, 8, 10], 0.95, clusters="aabbb") == unknown


def test_scores_that_are_all_the_same_say_nothing_of_what_a_doc_can_lose() -> None:
    unknown = Interval(-inf, inf)
    same, others = [0.7] * 9, [0.1, 0.9, *[0.7] * 7]
    assert stats.paired_mean_bounds(same, others, 0.9) == unknown
    assert stats.paired_mean_bounds(others, same, 0.9) == unknown
    assert stats.difference_p(same, others, 0.5, side="within") == 1
    assert stats.difference_p(others, same, 0.5, side="beyond") == 1
    known = stats.paired_mean_bounds(same, others, 0.9, support=(0, 1))
    assert known.low == pytest.approx(stats.paired_mean_bounds(others, same, 0.9, support=(0, 1)).high * -1)


def test_no_doc_is_taken_to_change_by_more_than_docs_differ() -> None:
    before = [0.1, 0.5, 0.5, 0.6, 0.7, 0.4]
    now = [0.2, 0.4, 0.5, 0.9, 0.7, 0.5]
    found = stats.paired_mean_bounds(before, now, 0.9)
    bounded = stats.paired_mean_bounds(before, now, 0.9, support=(0.1, 0.9))
    assert found.low <= bounded.low
    assert found.high >= bounded.high
    assert pair(found) == pytest.approx(pair(bounded), abs=0.02)


def test_losses_of_a_few_docs_are_not_taken_for_noise() -> None:
    """If 2 % of 1,221 docs lose all, at most 17 do in 7.3 % of runs; flips alone call that rarer than 5 %."""
    before = [1.0] * 17 + [0.0, 1.0] * 602
    now = [0.0] * 17 + [0.0, 1.0] * 602
    changes = [new - old for old, new in zip(before, now, strict=True)]
    chance = sum(comb(1_221, k) * 0.02**k * 0.98 ** (1_221 - k) for k in range(18))
    assert chance == pytest.approx(0.0729, abs=5e-5)
    assert flip_p(Totals.of(changes), -0.02) < 0.05
    assert stats.difference_p(before, now, 0.02, side="within") == pytest.approx(chance, rel=0.02)
    assert stats.difference_p(before, now, 0.02, side="within", support=(0, 1)) == pytest.approx(chance, rel=0.02)


@pytest.mark.parametrize("n", [4, 15, 16, 60])
@pytest.mark.parametrize("support", [None, (-4.0, 4.0)])
def test_bounds_and_p_values_of_differences_agree(n: int, support: tuple[float, float] | None) -> None:
    rng = np.random.default_rng(n)
    before = rng.normal(size=n).clip(-4, 4)
    now = (before + rng.normal(0.1, 0.5, n)).clip(-4, 4)
    for confidence in (0.8, 0.9):
        found = stats.paired_mean_bounds(before, now, confidence, support=support)
        for step, shown in ((1e-6, True), (-1e-6, False)):
            within = stats.difference_p(before, now, -found.low + step, side="within", support=support)
            beyond = stats.difference_p(before, now, -found.high - step, side="beyond", support=support)
            assert (within <= 1 - confidence + 1e-9) == shown
            assert (beyond <= 1 - confidence + 1e-9) == shown


def test_where_nothing_changed_unseen_losses_stay_thinkable() -> None:
    """Those of two hundred docs without one."""
    scores = [0.0, *np.random.default_rng(0).random(198).tolist(), 1.0]
    unseen = stats.paired_bounds(0, 0, 200, 0.95).low
    for support in (None, (0, 1)):
        found = stats.paired_mean_bounds(scores, scores, 0.95, support=support)
        assert found.low == -found.high == pytest.approx(unseen, rel=0.02)
        assert stats.difference_p(scores, scores, 0.01, side="within", support=support) == pytest.approx(
            0.99**200, rel=0.05
        )
        assert stats.difference_p(scores, scores, 0.01, side="beyond", support=support) == 1


@given(st.lists(st.integers(-8, 8), min_size=5, max_size=25), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_laws_of_sign_flips(eighths: list[int], seed: int) -> None:
    changes = [change / 8 for change in eighths]
    before = [place / 4 for place in range(len(changes))]
    now = [old + change for old, change in zip(before, changes, strict=True)]
    found = stats.paired_mean_bounds(before, now, 0.9, seed=seed)
    assert found.low <= np.mean(changes) <= found.high
    assert stats.paired_mean_bounds(now, before, 0.9, seed=seed) == Interval(-found.high, -found.low)
    lowered = [Totals.of([change - shift for change in changes]) for shift in (0, 1)]
    assert flip_p(lowered[0], 0.25, seed) == flip_p(lowered[1], -0.75, seed)


def test_the_error_of_sign_flips_is_kept() -> None:
    rng = np.random.default_rng(5)
    samples = [Totals.of(rng.standard_t(3, 40)) for _ in range(800)]
    # Standard error of a tenth among 800: .011.
    assert np.mean([flip_p(sample, 0.0) <= 0.1 for sample in samples]) == pytest.approx(0.1, abs=0.03)
    found = [stats.paired_mean_bounds([0.0] * 40, sample.sums.tolist(), 0.9) for sample in samples[:400]]
    assert np.mean([bound.low > 0 for bound in found]) <= 0.13
    assert np.mean([bound.high < 0 for bound in found]) <= 0.13
