"""KL divergence from a few probabilities: hand-computed, and its properties over all draws of a distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies

from pytest_llmeval._stats import Divergence
from pytest_llmeval._stats import Known
from pytest_llmeval._stats import divergence


def known(probabilities: list[float], kept: int, drawn: int) -> Known:
    """The likeliest tokens come first."""
    costs = [-math.log(p) for p in probabilities]
    return Known(costs[:kept], -math.log(sum(probabilities[kept:])), costs[drawn])


def of_draw(p: list[float], q: list[float], kept: int, drawn: int) -> Divergence:
    return divergence(known(p, kept, drawn), known(q, kept, drawn))


def true_kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


P, Q = [0.5, 0.25, 0.125, 0.125], [0.25, 0.5, 0.2, 0.05]


def test_kept_tokens_and_the_others_as_one_by_hand() -> None:
    # .5 ln 2 + .25 ln .5 + .25 ln 1
    assert of_draw(P, Q, 2, 2).least == pytest.approx(0.25 * math.log(2))


def test_the_part_of_the_others_by_hand() -> None:
    # p' = (.5, .5), q' = (.8, .2): r = 1.6 or .4, and r - 1 - ln r = .12999637 or .31629073, weighted by .25.
    assert of_draw(P, Q, 2, 2).estimate - of_draw(P, Q, 2, 2).least == pytest.approx(0.25 * 0.12999637)
    assert of_draw(P, Q, 2, 3).estimate - of_draw(P, Q, 2, 3).least == pytest.approx(0.25 * 0.31629073)
    # Their mean is the true divergence of the others, .25 (.5 ln .625 + .5 ln 2.5) = .25 * .22314355.
    mean = (of_draw(P, Q, 2, 2).estimate + of_draw(P, Q, 2, 3).estimate) / 2
    assert mean == pytest.approx(true_kl(P, Q))


shares = strategies.lists(strategies.floats(0.001, 1.0), min_size=3, max_size=8)


@given(shares, shares, strategies.integers(1, 7))
@settings(max_examples=150, deadline=None)
def test_lumped_is_a_lower_bound_and_the_mean_over_draws_is_the_true_divergence(
    first: list[float], second: list[float], kept: int
) -> None:
    n = min(len(first), len(second))
    kept = min(kept, n - 1)
    p = sorted((value / sum(first[:n]) for value in first[:n]), reverse=True)
    q = [value / sum(second[:n]) for value in second[:n]]
    found = [of_draw(p, q, kept, drawn) for drawn in range(kept, n)]
    mean = sum(one.estimate * share for one, share in zip(found, p[kept:], strict=True)) / sum(p[kept:])
    assert all(-1e-12 <= found[0].least <= one.estimate for one in found)
    assert found[0].least <= true_kl(p, q) + 1e-12
    assert mean == pytest.approx(true_kl(p, q), abs=1e-9)


@given(strategies.lists(strategies.floats(0.0, 30.0), min_size=1, max_size=9), strategies.floats(0.0, 30.0))
@settings(max_examples=100, deadline=None)
def test_nothing_diverges_from_itself_however_it_is_rounded(costs: list[float], others: float) -> None:
    same = Known([round(cost, 2) for cost in costs], others, others + 1)
    assert divergence(same, same) == Divergence(0.0, 0.0)


def test_more_kept_tokens_raise_the_lower_bound() -> None:
    draw = np.random.default_rng(1)
    p = sorted(draw.dirichlet(np.ones(50)), reverse=True)
    q = list(draw.dirichlet(np.ones(50)))
    bounds = [of_draw(p, q, kept, 49).least for kept in (1, 2, 5, 20, 49)]
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(true_kl(p, q))


def test_a_token_that_became_impossible_leaves_a_finite_number() -> None:
    found = divergence(Known([0.1, 3.0], 3.2, 6.0), Known([999.0, 0.0], 999.0, 999.0))
    assert math.isfinite(found.estimate)
    assert found.estimate > 80
