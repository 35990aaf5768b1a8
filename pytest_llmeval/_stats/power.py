"""The power of gates: the smallest drop, or gap below a floor, that a gate would probably detect."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pytest_llmeval._stats import tango
from pytest_llmeval._stats.interval import check_count
from pytest_llmeval._stats.interval import error_of


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Ints

_DROP_HALVINGS = 30
_SCORE_HALVINGS = 12
#: The discordances at which the error of the gate is bounded, as multiples of the given one.
_GUARDED = (1.0, 1.5, 2.0, 3.0)
_LEFT_OUT = 1e-9


def detectable_drop(n: int, discordance: float, confidence: float, power: float = 0.8, margin: float = 0.0) -> float:
    """Return the smallest true drop that fails the gate "drop at most `margin`" on n docs with probability `power`.

    `discordance` is the share of docs on which the two models differ; a drop implies at least a discordance of its
    size. A negative margin requires an improvement, and the returned drop may then be negative too. The gate is assumed
    to fail on the outcomes whose Tango score is so large that their probability, for a true drop equal to the margin,
    is at most ``1 - confidence`` at this discordance and at up to three times as much; their probability under a larger
    drop is then exact (Connor 1987, Biometrics 43, 207-211, without his normal approximation). Infinite if n docs
    cannot show any drop.
    """
    error = error_of(confidence)
    check_count("n", n)
    if n == 0:
        return inf
    discordant, lost = _critical_lost(n, max(discordance, abs(margin)), margin, error)

    def seen(drop: float) -> bool:
        return _chance(discordant, lost, n, max(discordance, abs(drop)), drop) >= power

    return _least(seen, margin, 1.0, _DROP_HALVINGS)


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


def _critical_lost(n: int, discordance: float, margin: float, error: float) -> tuple[Ints, Ints]:
    """Return all numbers of discordant docs, and for each the least number of lost docs that fails the gate."""
    import numpy as np
    from scipy.special import ndtri

    discordant = np.arange(n + 1)

    def critical(z: float) -> Ints:
        return tango.fewest_gained(discordant, n, margin, z)

    def kept(z: float) -> bool:
        lost = critical(z)
        guarded = (min(1.0, times * discordance) for times in _GUARDED)
        return all(_chance(discordant, lost, n, share, margin) <= error for share in guarded)

    z = -float(ndtri(error))
    return discordant, critical(z if kept(z) else min(_least(kept, z, 2 * z + 2, _SCORE_HALVINGS), 2 * z + 2))


def _chance(discordant: Ints, lost: Ints, n: int, discordance: float, drop: float) -> float:
    """Return the probability of at least `lost` lost docs, for a true drop and discordance."""
    import numpy as np
    from scipy.special import bdtrc
    from scipy.stats import binom

    weights = binom.pmf(discordant, n, discordance)
    likely = weights > _LEFT_OUT
    share_lost = (1 + drop / discordance) / 2 if discordance else 0.5
    chances = bdtrc(lost[likely] - 1, discordant[likely], min(share_lost, 1.0))
    return float(np.dot(weights[likely], chances))


def _least(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Return the least number at which a monotone condition holds; infinite if it does not hold at `high`."""
    if not holds(high):
        return inf
    for _ in range(halvings):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
