"""The power of gates, before and after a run: what a gate would probably detect, and on how few docs it cannot pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import ceil
from math import inf
from math import log
from math import sqrt
from typing import TYPE_CHECKING

from pytest_llmeval._stats import tango
from pytest_llmeval._stats.interval import check_count
from pytest_llmeval._stats.interval import error_of
from pytest_llmeval._stats.paired import SET_SHARE
from pytest_llmeval._stats.paired import drop_fails
from pytest_llmeval._stats.paired import drop_p


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval._stats.selfflips import Fails
    from pytest_llmeval._stats.tango import Ints

_LEFT_OUT = 1e-4
#: The drop is found up to this share of the shown one.
_PRECISION = 0.005


def detectable_drop(n: int, usual: float, error: float, power: float = 0.8, margin: float = 0.0) -> float:
    """Return the smallest true drop that fails the gate "drop at most `margin`" on n docs with probability `power`.

    `usual` is the share of docs that flip when nothing changed, half of them each way; docs that are lost by a drop are
    added to these, so that the discordance is `usual` plus the drop. `error` is the level at which the gate fails: one
    minus its confidence, or what a family leaves of that. The power is exact for the outcomes on which `drop_p` is at
    most `error` (Connor 1987, Biometrics 43, 207-211, without his normal approximation); between many numbers of
    discordant docs these are interpolated. Infinite if n docs cannot show any drop.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    check_count("n", n)
    if n == 0:
        return inf
    # At least one doc: that no flip was seen does not show that flips are impossible.
    usual = max(usual, 1 / n)
    fewest_lost = cache(lambda discordant: _fewest_lost(n, discordant, margin, error))
    low = max(margin, 0.0)
    most = 1 - usual
    if most <= low:
        return inf

    def lacking(drop: float) -> float:
        return power - _power(fewest_lost, n, usual, drop)

    # By normal theory, to try few drops: an outcome on the edge lies z standard errors above the margin.
    z, drop = -float(ndtri(error)) - float(ndtri(1 - power)), low
    for _ in range(5):
        drop = low + z * sqrt(max(usual + drop, 1 / n) / n)
    high = min(drop, most)
    if lacking(low) <= 0:
        # At the margin itself a gate fails at most at its level; only where that is high may rounding exceed it.
        return low
    while lacking(high) > 0:
        if high >= most:
            return inf
        low, high = high, min(1.3 * high, most)
    return float(brentq(lacking, low, high, rtol=_PRECISION, xtol=_PRECISION / n))


def docs_to_pass(margin: float, error: float) -> int:
    """Return the least number of docs on which the gate "drop at most `margin`" passes if none of them flips.

    ``(1 - margin)**n``, the probability of this outcome at the margin, must be about `error` (the rule of three). A
    margin of 0 or less asks for gains: the least number of docs that pass if all of them are gained.
    """
    # The p-value of this outcome is its probability over what the confidence set of the discordance leaves.
    n = max(ceil(log(error * (1 - SET_SHARE)) / log(1 - margin if margin > 0 else (1 - margin) / 2)), 1)
    while drop_p(0 if margin > 0 else n, 0, n, -margin) > error:
        n += 1
    return n


def docs_to_pass_floor(floor: float, error: float) -> float:
    """Return the least number of docs on which a floor passes if all of them are right; infinite for a floor of 1."""
    if floor <= 0:
        return 1
    return ceil(log(error) / log(floor) - 1e-9) if floor < 1 else inf


def floor_gap(n: int, p: float, confidence: float, power: float = 0.8) -> float:
    """Return the gap below a floor `p` at which the gate fails with probability `power`, on n docs.

    The gate is the exact binomial test (`exact_bounds`). Infinite if n docs cannot show any gap.
    """
    from scipy.special import bdtr
    from scipy.special import bdtri

    error = error_of(confidence)
    check_count("n", n)
    fewest, most = -1, n
    while most - fewest > 1:
        middle = (fewest + most) // 2
        if bdtr(middle, n, p) <= error:
            fewest = middle
        else:
            most = middle
    if fewest < 0:
        return inf
    return p - float(bdtri(fewest, n, power))


def _fewest_lost(n: int, discordant: int, margin: float, error: float) -> int:
    """Return the least number of lost docs among the discordant ones that fails the gate; one more if none does."""
    import numpy as np
    from scipy.special import ndtri

    @cache
    def fails(lost: int) -> bool:
        return lost > discordant or drop_fails(lost, discordant - lost, n, margin, error)

    lost = min(int(tango.fewest_gained(np.array([discordant]), n, margin, -float(ndtri(error)))[0]), discordant + 1)
    while not fails(lost):
        lost += 1
    while lost and fails(lost - 1):
        lost -= 1
    return lost


def failing_outcomes(n: int, margin: float, error: float) -> Fails:
    """Return a function of numbers of docs lost and gained: which of these outcomes fail "drop at most `margin`"."""
    import numpy as np

    fewest_lost = cache(lambda discordant: _fewest_lost(n, discordant, margin, error))

    def fails(lost: Ints, gained: Ints) -> NDArray[np.bool_]:
        # Counts that are taken to be independent may together exceed the docs.
        lost = np.minimum(lost, n)
        discordant = np.minimum(lost + gained, n)
        first = int(discordant.min())
        edges = _edges(fewest_lost, n, first, int(discordant.max()))
        return np.asarray(lost > edges[discordant - first])

    return fails


def _edges(fewest_lost: Callable[[int], int], n: int, first: int, last: int) -> NDArray[np.float64]:
    """Return, for each number of discordant docs from first to last, the edge above which a number of lost docs fails.

    It lies, on average, in the middle between the last outcome that does not fail and the first one that does.
    """
    import numpy as np

    # The same numbers serve all drops, so that most of their edges are known already.
    known = [0]
    while known[-1] < last:
        known.append(min(known[-1] + max(1, known[-1] // 12), n))
    known = [m for m, beyond in zip(known, [*known[1:], n + 1], strict=True) if beyond > first]
    return np.interp(np.arange(first, last + 1), known, [fewest_lost(m) - 0.5 for m in known])


def _power(fewest_lost: Callable[[int], int], n: int, usual: float, drop: float) -> float:
    """Return the probability to fail, with a drop beside the usual flips."""
    import numpy as np
    from scipy.stats import binom

    discordance = usual + abs(drop)
    first, last = (int(edge) for edge in binom.ppf((_LEFT_OUT, 1 - _LEFT_OUT), n, discordance))
    discordant = np.arange(first, last + 1)
    edges = _edges(fewest_lost, n, first, last)
    share_lost = (1 + drop / discordance) / 2
    return float(binom.pmf(discordant, n, discordance) @ binom.sf(np.floor(edges), discordant, share_lost))
