"""Paired real-valued scores: bounds and p-values by the sign-flip permutation test.

If the differences are symmetric around their mean, the deviation of a doc from it is equally likely to have either sign
(Fisher 1935, The Design of Experiments, section 21). The rank of the observed sum among the sums after random sign
flips is then uniform. Flipping a subset increases the sum exactly if the mean of the subset lies below the hypothetical
mean. So the p-value of every hypothetical mean is its rank among the *means of subsets*, and bounds are quantiles of
these (Hartigan 1969, "Using subsample values as typical values", JASA 64, 1303-1317). The test stays exact with random
subsets (Hemerik and Goeman 2018, TEST 27, 811-825), which are the same for the same seed.

Differences between two checkpoints are rarely symmetric: most docs do not change, and a few lose much. With the
sign-flip test alone, a true drop equal to the margin passes in 9 % of comparisons (1,221 docs, 2 % lost) instead of
5 %. The bounds are therefore at least as wide as Gaffke's for the assumed range of differences (see `means`), which
allow for losses too rare to be observed. If the range is known, Gaffke's bounds are used alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence
from math import inf
from math import isclose
from typing import TYPE_CHECKING
from typing import Literal

from pytest_llmeval._stats.gaffke import tail
from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.interval import error_of
from pytest_llmeval._stats.means import SAME
from pytest_llmeval._stats.means import Totals
from pytest_llmeval._stats.means import gaffke_bounds


if TYPE_CHECKING:
    import numpy as np

    from pytest_llmeval._stats.tango import Floats

#: The number of random subsets; for up to `_ENUMERATED` units all subsets are used instead.
_DRAWS = 4_999
_ENUMERATED = 15
#: The number of bits drawn at a time, which keeps memory below a few dozen MB.
_BITS_AT_A_TIME = 4_000_000


def paired_mean_bounds(
    before: Sequence[float],
    now: Sequence[float],
    confidence: float,
    *,
    clusters: Sequence[Hashable] | None = None,
    support: tuple[float, float] | None = None,
    seed: int = 0,
) -> Interval:
    """Return bounds on the true mean of ``now - before`` over docs; whole clusters flip together.

    `support`: the least and greatest score that a doc can have, if known; the error then holds for every distribution.
    Without it a score is assumed to change by at most `assumed_change`. Infinite if that is 0, and if there are too few
    units for the confidence (fewer than five for .95).
    """
    error = error_of(confidence)
    totals = _differences(before, now, clusters)
    if support is not None:
        width = support[1] - support[0]
        return gaffke_bounds(totals, error, -width, width)
    means = _subset_means(totals, seed)
    # A bound is the most extreme subset mean that the test does not reject.
    rank = int(error * (len(means) + 1) * (1 + 1e-12))
    if rank < 1:
        return Interval(-inf, inf)
    flips = Interval(min(float(means[rank - 1]), totals.mean), max(float(means[-rank]), totals.mean))
    width = assumed_change(before, now)
    return flips.joined(gaffke_bounds(totals, error, -width, width)) if width else Interval(-inf, inf)


def difference_p(
    before: Sequence[float],
    now: Sequence[float],
    margin: float,
    *,
    side: Literal["within", "beyond"],
    clusters: Sequence[Hashable] | None = None,
    support: tuple[float, float] | None = None,
    seed: int = 0,
) -> float:
    """Return the one-sided p-value for the true mean of ``now - before``, consistent with `paired_mean_bounds`.

    `side` is what a small p-value shows: "within", that the mean is above ``-margin``; "beyond", that it is below.
    """
    totals = _differences(before, now, clusters)
    if side == "beyond":
        totals, margin = Totals(-totals.sums, totals.sizes), -margin
    if totals.units == 0:
        return 1.0
    if support is not None:
        return tail(totals.sums, totals.sizes, support[0] - support[1], -margin)
    width = assumed_change(before, now)
    return max(flip_p(totals, -margin, seed), tail(totals.sums, totals.sizes, -width, -margin)) if width else 1.0


def flip_p(totals: Totals, mean: float, seed: int = 0) -> float:
    """Return the one-sided p-value of the sign-flip test of "the mean is at most `mean`"."""
    import numpy as np

    means = _subset_means(totals, seed)
    return float(1 + np.searchsorted(means, mean, side="right")) / (len(means) + 1)


def _differences(before: Sequence[float], now: Sequence[float], clusters: Sequence[Hashable] | None) -> Totals:
    import numpy as np

    if len(before) != len(now):
        raise ValueError(f"{len(before)} scores before and {len(now)} now do not pair")
    return Totals.of(np.asarray(now, dtype=np.float64) - np.asarray(before, dtype=np.float64), clusters)


def assumed_change(before: Sequence[float], now: Sequence[float]) -> float:
    """Return the assumed largest change of a doc's score: the range of all observed scores, before and now together.

    0 if all scores of one side are equal: no change can then be assumed.
    """
    sides = [(min(side), max(side)) for side in (before, now)]
    if any(isclose(*side, rel_tol=SAME, abs_tol=SAME) for side in sides):
        return 0.0
    return max(most for _, most in sides) - min(least for least, _ in sides)


def _subset_means(totals: Totals, seed: int) -> Floats:
    """Return the means of subsets of units in increasing order: of all non-empty subsets, or of random ones."""
    import numpy as np

    units = totals.units
    if units <= _ENUMERATED:
        chosen = (np.arange(1, 2**units)[:, None] >> np.arange(units)) & 1
        return np.sort((chosen @ totals.sums) / (chosen @ totals.sizes))
    rng = np.random.default_rng(seed)
    step = max(1, _BITS_AT_A_TIME // units)
    parts = [_random_subset_means(totals, min(step, _DRAWS - done), rng) for done in range(0, _DRAWS, step)]
    return np.sort(np.concatenate(parts))


def _random_subset_means(totals: Totals, draws: int, rng: np.random.Generator) -> Floats:
    import numpy as np

    chosen = np.unpackbits(rng.integers(0, 256, (draws, -(-totals.units // 8)), dtype=np.uint8), axis=1)
    chosen = chosen[:, : totals.units].astype(np.float64)
    sizes = chosen @ totals.sizes
    some = sizes > 0
    return np.asarray((chosen @ totals.sums)[some] / sizes[some])
