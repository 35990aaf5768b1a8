"""Right or wrong twice: McNemar, bounds and p-values of the difference, and what a gate can see."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from functools import cache
from math import comb
from math import inf
from math import log
from math import log1p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_llmeval import _stats as stats
from pytest_llmeval._stats import Interval
from pytest_llmeval._stats.tango import fewest_gained
from pytest_llmeval._stats.tango import score
from pytest_llmeval._stats.tango import score_limit


#: Lost, gained, and all docs.
FLIPS = st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 400)).map(
    lambda drawn: (drawn[0], drawn[1], sum(drawn))
)
CONFIDENCES = st.sampled_from([0.5, 0.8, 0.95, 0.999])


def test_mcnemar_by_hand() -> None:
    assert stats.mcnemar_p(1, 5) == pytest.approx(2 * (1 + 6) / 2**6)
    assert stats.mcnemar_p(5, 1) == stats.mcnemar_p(1, 5)
    assert stats.mcnemar_p(4, 0) == pytest.approx(2 / 2**4)
    assert stats.mcnemar_p(3, 3) == pytest.approx(1)
    assert stats.mcnemar_p(0, 0) == 1


@pytest.mark.parametrize(
    ("lost", "gained", "n", "z", "interval"),
    [
        # Tango (1998), soft contact lenses: 43 pairs agree, one does not; his 90 % interval.
        (1, 0, 44, 1.6448536, (-0.096, 0.037)),
        # Bentur et al. 2009 in Fagerland, Lydersen and Laake (2014, Statist. Med. 33, 2850-2875); 95 %.
        (7, 1, 21, 1.9599640, (-0.517, -0.026)),
    ],
)
def test_published_examples_of_tangos_interval(
    lost: int, gained: int, n: int, z: float, interval: tuple[float, float]
) -> None:
    found = score_limit(lost, gained, n, z), -score_limit(gained, lost, n, z)
    assert (round(found[0], 3), round(found[1], 3)) == interval


@given(flips=FLIPS.filter(lambda flips: flips[2] > 0), difference=st.floats(-0.9, 0.9))
@settings(deadline=None)
def test_the_variance_of_the_score_is_that_of_the_greatest_likelihood(
    flips: tuple[int, int, int], difference: float
) -> None:
    """Against a search over the chance to be lost, for the published closed form."""
    lost, gained, n = flips
    lost_chance = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200_001)[1:-1]
    kept = np.maximum(1 - difference - 2 * lost_chance, 1e-300)
    likelihood = (
        lost * np.log(lost_chance) + gained * np.log(lost_chance + difference) + (n - lost - gained) * np.log(kept)
    )
    best = lost_chance[likelihood.argmax()]
    expected = (gained - lost - n * difference) / np.sqrt(n * (2 * best + difference - difference**2))
    found = float(score(np.array(lost), np.array(gained), n, difference))
    assert found == pytest.approx(expected, rel=2e-2, abs=2e-2)


def test_thresholds_of_the_score() -> None:
    """The score without a margin is (gained - lost) / sqrt(their sum): 4 of 4 reach 2, of 5 four give 3 / sqrt 5."""
    assert fewest_gained(np.array([0, 1, 4, 5, 9]), 100, 0.0, 2.0).tolist() == [1, 2, 4, 5, 8]


def test_no_flip_at_all_is_the_rule_of_three() -> None:
    """If .0295 of docs were lost, none of 100 would be in 5 % of runs; .995 of the error is left for that."""
    found = stats.paired_bounds(0, 0, 100, 0.95)
    assert found.low == pytest.approx(-(1 - (0.995 * 0.05) ** (1 / 100)), abs=1e-6)
    assert found.high == -found.low
    assert stats.drop_p(0, 0, 100, -0.02) == pytest.approx(0.98**100 / 0.995, abs=1e-5)
    assert stats.drop_p(0, 0, 100, 0.02) == 1


def test_only_losses_are_a_proportion() -> None:
    """With nothing gained the worst case for "dropped by 5 % or more" is that nothing can be gained."""
    chance = 0.95**100 + 100 * 0.05 * 0.95**99
    assert stats.drop_p(0, 1, 100, -0.05) == pytest.approx(chance / 0.995, rel=1e-4)


@pytest.mark.parametrize(("lost", "gained", "n"), [(7, 1, 21), (16, 6, 161), (60, 40, 1_221), (700, 650, 14_042)])
def test_bounds_are_a_little_wider_than_tangos(lost: int, gained: int, n: int) -> None:
    found = stats.paired_bounds(lost, gained, n, 0.95)
    low, high = score_limit(lost, gained, n, 1.6448536), -score_limit(gained, lost, n, 1.6448536)
    width = high - low
    assert low - 0.05 * width <= found.low <= low + 0.01 * width
    assert high - 0.01 * width <= found.high <= high + 0.05 * width


@given(flips=FLIPS, confidence=CONFIDENCES)
@settings(max_examples=40, deadline=None)
def test_laws_of_paired_bounds(flips: tuple[int, int, int], confidence: float) -> None:
    lost, gained, n = flips
    found = stats.paired_bounds(lost, gained, n, confidence)
    if n:
        assert -1 <= found.low <= (gained - lost) / n <= found.high <= 1
    assert stats.paired_bounds(gained, lost, n, confidence) == Interval(-found.high, -found.low)
    wider = stats.paired_bounds(lost, gained, n, 0.9999)
    assert wider.low <= found.low + 1e-6
    assert wider.high >= found.high - 1e-6
    if lost:
        better = stats.paired_bounds(lost - 1, gained + 1, n, confidence)
        assert better.low >= found.low - 1e-6
        assert better.high >= found.high - 1e-6


@given(flips=FLIPS, confidence=st.sampled_from([0.8, 0.95, 0.999]), side=st.sampled_from([-1e-5, 1e-5]))
@settings(max_examples=40, deadline=None)
def test_bounds_and_p_values_agree(flips: tuple[int, int, int], confidence: float, side: float) -> None:
    lost, gained, n = flips
    if not n:
        return
    found = stats.paired_bounds(lost, gained, n, confidence)
    if -0.99 < found.low < (gained - lost) / n - 1e-4:
        assert (stats.drop_p(gained, lost, n, found.low - side) <= 1 - confidence) == (side > 0)
    if (gained - lost) / n + 1e-4 < found.high < 0.99:
        assert (stats.drop_p(lost, gained, n, -found.high + side) <= 1 - confidence) == (side < 0)


@cache
def all_bounds(n: int) -> dict[tuple[int, int], Interval]:
    found = {}
    for m in range(n + 1):
        for lost in range(m // 2 + 1):
            bounds = stats.paired_bounds(lost, m - lost, n, 0.95)
            found[lost, m - lost], found[m - lost, lost] = bounds, Interval(-bounds.high, -bounds.low)
    return found


@pytest.mark.parametrize("difference", [-0.3, -0.05, -0.01, 0.0, 0.02, 0.1])
@pytest.mark.parametrize("discordance", [0.02, 0.05, 0.1, 0.3, 0.6, 1.0])
def test_the_error_of_paired_bounds_is_kept(difference: float, discordance: float) -> None:
    """By summing over all outcomes of 20 docs."""
    if discordance < abs(difference):
        return
    n, gain, loss = 20, (discordance + difference) / 2, (discordance - difference) / 2
    too_high = too_low = 0.0
    for (lost, gained), bounds in all_bounds(n).items():
        ways = comb(n, lost) * comb(n - lost, gained)
        chance = ways * loss**lost * gain**gained * (1 - discordance) ** (n - lost - gained)
        too_high += chance * (bounds.low > difference)
        too_low += chance * (bounds.high < difference)
    assert too_high <= 0.0501
    assert too_low <= 0.0501


#: The usual error, half of it, what Holm leaves to the first of 57 subjects, and what early stopping leaves to that.
LEVELS = (0.05, 0.025, 0.05 / 57, 0.0004)


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_the_error_of_p_values_is_kept_and_used_at_all_levels(margin: float) -> None:
    """By summing over all outcomes of 20 docs. With so few docs no outcome has a probability just below the level."""
    n = 20
    discordances = np.linspace(margin, 0.8, 41)[1:]
    sizes = np.zeros((len(LEVELS), len(discordances)))
    for m in range(1, n + 1):
        for lost in range(m // 2 + 1, m + 1):
            p = stats.drop_p(lost, m - lost, n, margin)
            loss, gain = (discordances + margin) / 2, (discordances - margin) / 2
            ways = comb(n, m) * comb(m, lost)
            chances = ways * loss**lost * gain ** (m - lost) * (1 - discordances) ** (n - m)
            sizes += np.outer([p <= level for level in LEVELS], chances)
    for size, level in zip(sizes.max(axis=1), LEVELS, strict=True):
        assert 0.4 * level <= size <= level


def fewest_lost(p: Callable[[int, int], float], most: int, level: float) -> Iterator[int]:
    """Yield, for each number of discordant docs up to `most`, the fewest lost ones with a p-value up to `level`."""
    lost = 0
    for m in range(most + 1):
        while lost <= m and p(lost, m - lost) > level:
            lost += 1
        yield lost


def test_a_family_of_57_loses_nothing_against_mcnemar() -> None:
    n, level = 75, 0.05 / 57
    by_score = list(fewest_lost(lambda lost, gained: stats.drop_p(lost, gained, n, 0.0), 32, level))
    by_mcnemar = list(fewest_lost(lambda lost, gained: binom.sf(lost - 1, lost + gained, 0.5), 32, level))
    for drop, chances in ((0.10, (0.130, 0.086)), (0.15, (0.416, 0.333))):
        discordance, m = 0.05 + drop, np.arange(33)
        for fewest, chance in zip((by_score, by_mcnemar), chances, strict=True):
            fails = binom.sf(np.array(fewest) - 1, m, (1 + drop / discordance) / 2)
            assert binom.pmf(m, n, discordance) @ fails == pytest.approx(chance, abs=0.002)


def test_overwhelming_data_fail_at_any_confidence() -> None:
    assert stats.drop_p(3_000, 0, 14_042, 0.01) < 1e-9
    assert stats.paired_bounds(3_000, 0, 14_042, 0.9999999).high < -0.19


def test_tangos_own_interval_does_not_keep_it() -> None:
    """Of 100 docs of which 2.7 % are lost, none is in 6.5 % of runs; his limit then lies above the truth."""
    assert score_limit(0, 0, 100, 1.6448536) > -0.027
    assert 0.973**100 > 0.064
    assert stats.paired_bounds(0, 0, 100, 0.95).low < -0.027


@pytest.mark.parametrize(
    ("n", "usual", "margin", "level"),
    [(75, 0.05, 0.02, 0.05), (75, 0.05, 0.02, 0.05 / 57), (150, 0.02, 0.0, 0.05 / 57)],
)
def test_a_detectable_drop_fails_in_four_of_five_runs(n: int, usual: float, margin: float, level: float) -> None:
    """By the p-value of every outcome, beside the usual flips and at the level of a family."""
    drop = stats.detectable_drop(n, usual, level, margin=margin)
    discordance = usual + drop
    most = int(binom.isf(1e-4, n, discordance))
    fewest = list(fewest_lost(lambda lost, gained: stats.drop_p(lost, gained, n, margin), most, level))
    m = np.arange(most + 1)
    fails = binom.pmf(m, n, discordance) @ binom.sf(np.array(fewest) - 1, m, (1 + drop / discordance) / 2)
    assert 0.78 <= fails <= 0.84


def test_what_a_gate_can_see() -> None:
    assert stats.detectable_drop(0, 0.05, 0.05) == inf
    assert stats.detectable_drop(2, 0.05, 0.05) == inf
    drops = [stats.detectable_drop(n, 0.05, 0.05) for n in (100, 1_221, 14_042)]
    assert drops == sorted(drops, reverse=True)
    # Of many docs: (1.645 + .842) standard errors of the difference, with the drop's own flips.
    assert drops[2] == pytest.approx(2.486 * ((0.05 + drops[2]) / 14_042) ** 0.5, rel=0.02)
    assert stats.detectable_drop(1_221, 0.05, 0.05 / 57) > 1.4 * drops[1]


@given(flips=FLIPS, margin=st.sampled_from([0.0, 0.01, 0.05, -0.02]), error=st.sampled_from([0.05, 0.0004]))
@settings(max_examples=25, deadline=None)
def test_a_drop_fails_if_its_p_value_is_at_most_the_error(
    flips: tuple[int, int, int], margin: float, error: float
) -> None:
    assert stats.drop_fails(*flips, margin, error) == (stats.drop_p(*flips, margin) <= error)


@pytest.mark.parametrize("n", [1, 2, 50, 75])
@pytest.mark.parametrize(
    ("error", "margin", "usual"), [(0.5, 0.0, 0.99), (0.05, 0.9, 0.05), (1e-9, 0.02, 0.0), (0.3, 0.3, 1.0)]
)
def test_a_detectable_drop_of_extreme_gates_is_a_drop(n: int, error: float, margin: float, usual: float) -> None:
    """Nearly all docs flip, or few docs and a tiny level: a drop from the margin to 1, or none at all."""
    drop = stats.detectable_drop(n, usual, error, margin=margin)
    assert margin <= drop <= 1 or drop == inf


@pytest.mark.parametrize(("margin", "docs"), [(0.01, 299), (0.02, 149), (0.05, 59), (0.0, 5)])
def test_fewest_docs_on_which_a_drop_can_pass(margin: float, docs: int) -> None:
    """Of a drop without flips; without a margin, if all docs are gained."""
    assert stats.docs_to_pass(margin, 0.05) == docs
    gained = 0 if margin else docs
    assert stats.paired_bounds(0, gained, docs, 0.95).low >= -margin
    assert stats.paired_bounds(0, max(gained - 1, 0), docs - 1, 0.95).low < -margin


def test_fewest_docs_on_which_a_floor_can_pass() -> None:
    assert stats.docs_to_pass(1e-6, 0.05) == pytest.approx(log(0.995 * 0.05) / log1p(-1e-6), abs=2)
    assert [stats.docs_to_pass_floor(floor, 0.05) for floor in (0.0, 0.5, 0.98, 1.0)] == [1, 5, 149, inf]
    assert stats.exact_bounds(149, 149, 0.95).low >= 0.98 > stats.exact_bounds(148, 148, 0.95).low


def test_flips_that_are_none() -> None:
    with pytest.raises(ValueError, match="gained must be at least 0 and at most 2, got 3"):
        stats.paired_bounds(8, 3, 10, 0.95)
    with pytest.raises(ValueError, match="lost must be at least 0, got -1"):
        stats.mcnemar_p(-1, 2)
    assert stats.paired_bounds(0, 0, 0, 0.95) == Interval(-1, 1)
    assert stats.drop_p(0, 0, 0, 0.1) == stats.drop_p(0, 0, 0, -0.1) == 1
