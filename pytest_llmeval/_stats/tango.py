"""Tango's score statistic for the difference of two paired proportions, and its critical outcomes.

Of n docs `lost` were right before and are wrong now, `gained` the other way round, and ``discordant`` is their sum. The
difference now - before is ``(gained - lost) / n``.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING
from typing import TypeAlias


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]

_HALVINGS = 60
#: Statistics that differ by less are equal.
_TIE = 1e-9


def score(lost: Ints, gained: Ints, n: int, difference: float) -> Floats:
    """Return Tango's Z (1998, Statist. Med. 17, 891-908), about standard normal if `difference` is the true one.

    The variance is the maximum likelihood estimate under this difference. Z increases with `gained` and decreases with
    `lost` and `difference`. It is 0 if both numerator and variance are 0.
    """
    import numpy as np

    a = 2 * n
    b = -(lost + gained) + (2 * n - (gained - lost)) * difference
    c = -lost * difference * (1 - difference)
    loss = (np.sqrt(np.maximum(b * b - 4 * a * c, 0)) - b) / (2 * a)
    variance = n * np.maximum(2 * loss + difference * (1 - difference), 0)
    distance = gained - lost - n * difference
    known = variance > 0
    infinite = np.where(np.abs(distance) < _TIE, 0.0, np.copysign(np.inf, distance))
    return np.asarray(np.where(known, distance / np.sqrt(np.where(known, variance, 1)), infinite))


def score_limit(lost: int, gained: int, n: int, z: float) -> float:
    """Return Tango's asymptotic lower limit, the difference at which the score is `z`."""
    low, high = -1.0, (gained - lost) / n
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _score(lost, gained, n, middle) > z:
            low = middle
        else:
            high = middle
    return low


def fewest_gained(discordant: Ints, n: int, difference: float, z: float) -> Ints:
    """Return, for each number of discordant docs, the least `gained` whose score at `difference` reaches `z`.

    It is the number of discordant docs plus one if no score reaches `z`.
    """
    import numpy as np

    none, all_ = np.full_like(discordant, -1), discordant + 1
    for _ in range(int(discordant.max(initial=0) + 2).bit_length()):
        middle = (none + all_) // 2
        reached = score(discordant - middle, middle, n, difference) >= z - _TIE
        open_ = all_ - none > 1
        all_ = np.where(open_ & reached, middle, all_)
        none = np.where(open_ & ~reached, middle, none)
    return all_


def _score(lost: int, gained: int, n: int, difference: float) -> float:
    """Return `score` of one outcome, without arrays."""
    b = -(lost + gained) + (2 * n - (gained - lost)) * difference
    c = -lost * difference * (1 - difference)
    loss = (sqrt(max(b * b - 8 * n * c, 0)) - b) / (4 * n)
    variance = n * (2 * loss + difference * (1 - difference))
    distance = gained - lost - n * difference
    if variance > 0:
        return distance / sqrt(variance)
    return 0.0 if abs(distance) < _TIE else distance * float("inf")
