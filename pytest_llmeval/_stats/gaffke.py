"""The quantile of Gaffke's bound, by a saddlepoint approximation instead of random draws.

A mean under Dirichlet weights is at most ``mu`` exactly if ``sum E_i (sum_i - mu * size_i) <= 0`` with independent
standard exponentials E_i. The tail of such a sum follows from its cumulant generating function
``K(t) = -sum log(1 - t a_i)``, with a relative error of about 1 % (Lugannani and Rice 1980, Adv. Appl. Probab. 12,
475-490). It takes milliseconds for 14,042 docs and needs no seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats

_BOUND_PRECISION = 1e-9
_STEP_PRECISION = 1e-10
_STEPS = 200


def lower_bound(sums: Floats, sizes: Floats, worst: float, error: float) -> float:
    """Return the `error` quantile of the mean under Dirichlet weights on the units and one unit of the worst score."""
    import numpy as np
    from scipy.optimize import brentq

    best = float(np.max(sums / sizes))
    if best <= worst:
        return worst
    width = best - worst
    root = brentq(
        lambda mean: tail(sums, sizes, worst, mean) - error,
        worst,
        best,
        xtol=_BOUND_PRECISION * width,
    )
    return max(worst, float(root) - _BOUND_PRECISION * width)


def tail(sums: Floats, sizes: Floats, worst: float, mean: float) -> float:
    """Return the probability that the mean under these Dirichlet weights (see `lower_bound`) is at most `mean`."""
    import numpy as np

    return _probability_below_zero(np.append(sums - mean * sizes, (worst - mean) * np.max(sizes)))


def _probability_below_zero(coefficients: Floats) -> float:
    """Return ``P(sum E_i a_i <= 0)``."""
    import numpy as np
    from scipy.special import ndtr

    a = coefficients[coefficients != 0] / np.abs(coefficients).max()
    if a.min(initial=0.0) >= 0:
        return 0.0
    if a.max(initial=0.0) <= 0:
        return 1.0
    t = _saddlepoint(a)
    ratio = a / (1 - t * a)
    spread = np.sqrt(ratio @ ratio)
    w = np.copysign(np.sqrt(2 * _excess(-t * a).sum()), t)
    u = t * spread
    # The limit of 1 / w - 1 / u as both go to 0 is a sixth of the skewness.
    gap = 2 * (ratio**3).sum() / spread**3 / 6 if abs(u) < 1e-5 else 1 / w - 1 / u
    density = np.exp(-w * w / 2) / np.sqrt(2 * np.pi)
    return float(np.clip(ndtr(w) + density * gap, 0, 1))


def _excess(x: Floats) -> Floats:
    """Return log(1 + x) - x / (1 + x) without cancellation; ``t K'(t) - K(t)`` is a sum of such terms."""
    import numpy as np

    series = x**2 * (1 / 2 - x * (2 / 3 - x * (3 / 4 - x * 4 / 5)))
    return np.where(np.abs(x) < 1e-3, series, np.log1p(x) - x / (1 + x))


def _saddlepoint(a: Floats) -> float:
    """Return the root of K'(t) = sum a / (1 - t a), between the poles 1 / min(a) and 1 / max(a).

    K' increases. Takes Newton steps, or bisects where a step leaves the interval.
    """
    low, high, t = 1 / float(a.min()), 1 / float(a.max()), 0.0
    for _ in range(_STEPS):
        ratio = a / (1 - t * a)
        slope = float(ratio.sum())
        low, high = (low, t) if slope > 0 else (t, high)
        following = t - slope / float(ratio @ ratio)
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - t) <= _STEP_PRECISION:
            return following
        t = following
    return t
