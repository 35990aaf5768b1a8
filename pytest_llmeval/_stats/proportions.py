"""Bounds on one proportion, such as an accuracy, over the population of docs or over one data set."""

from __future__ import annotations

from collections.abc import Callable

from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.interval import check_count
from pytest_llmeval._stats.interval import error_of


_ROUNDING = 1e-9


def exact_bounds(successes: int, n: int, confidence: float) -> Interval:
    """Return Clopper and Pearson's bounds (1934, Biometrika 26, 404-413): quantiles of beta distributions.

    Assumes only that docs are independent: each error is at most ``1 - confidence`` for every n and true proportion.
    The quantiles are computed directly, because `scipy.stats.binomtest(...).proportion_ci`, which gives the same bounds
    to 5e-13, takes 10 ms instead of 6 us, and a p-value needs 40 bounds.
    """
    from scipy.special import betaincinv

    error = error_of(confidence)
    check_count("successes", successes, n)
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, error))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - error))
    return Interval(low, high)


def finite_bounds(successes: int, seen: int, total: int, confidence: float) -> Interval:
    """Return bounds on the share over all `total` docs of a data set, from `seen` docs drawn at random.

    Inverts the hypergeometric test (Konijn 1973, Statistical Theory of Sample Survey Design, ch. 3; Buonaccorsi
    1987, Amer. Statist. 41, 215-218), so the bounds are exact. Assumes that every subset of that size was equally
    likely to be drawn and that a doc always gets the same score. With all docs seen both bounds are the observed share.
    """
    from scipy.stats import hypergeom

    error = error_of(confidence)
    check_count("seen", seen, total)
    check_count("successes", successes, seen)
    if total == 0:
        return Interval(0.0, 1.0)
    fewest, most = successes, total - (seen - successes)
    # A tail that equals the error up to rounding does not count as below it, which is the conservative choice.
    error *= 1 - _ROUNDING
    low = _first(fewest, most, lambda right: hypergeom.sf(successes - 1, total, right, seen) > error)
    high = _first(fewest, most, lambda right: hypergeom.cdf(successes, total, right + 1, seen) <= error)
    return Interval(low / total, high / total)


def _first(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `start` at which a monotone condition holds; `stop` if none before."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start
