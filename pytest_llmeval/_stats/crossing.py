"""The exact error of a sequential test by betting on 0/1 scores, of which at most a known number comes.

Ville's inequality bounds the probability that the capital ever reaches ``1 / alpha``, for any number of docs and any
scores. On 0/1 scores the capital of constant stakes depends on the docs only through their number and the number of
right ones. The probability of reaching a threshold within N docs is then computed exactly, by a recursion over the docs
that follows the number of right ones until the threshold is reached (the sample space of a closed sequential plan,
Armitage, McPherson and Rowe 1969, J. R. Stat. Soc. A 132, 235-244). It is greatest if each doc is right with exactly
the probability `limit` of the hypothesis, because the capital grows with every doc that is right instead of wrong. A
lower threshold therefore has the same error, and the last doc may be judged at the error that early decisions leave.

The error of a comparison also depends on how many docs flip. The recursion would need the worst such number, which is
not known and seems to be the greatest (`perf/verdict_study.py early_flips`): comparisons keep Ville's bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats
    from pytest_llmeval._stats.tango import Ints

#: The stake of each strategy, as a fraction of the greatest bet that cannot lose the whole capital.
STAKES = tuple(0.9 / 1.9**power for power in range(5))
#: A calibrated threshold is at least this part of ``1 / alpha``: below it no capital is looked at.
LEAST_PART = 0.25
#: A threshold whose error is at least this part of the allowed one needs no further search.
_NEAR = 0.98
_MOST_TRIED = 12
#: Capitals whose logarithms differ by less are equal: a doc more or less counts as reaching the threshold.
_TIE = 1e-9
#: Probabilities of counts that the recursion leaves out, and the sum of all of them.
_NEGLIGIBLE = 1e-18
_LEFT_OUT = 1e-12


@dataclass(frozen=True, slots=True)
class Crossing:
    """The error of bets that the mean of `docs` 0/1 scores exceeds `limit`, under a mean of exactly `limit`.

    `reached` is the probability that the capital reaches the threshold after any of the docs. `open_` holds the
    probabilities of not reaching it and ending with `first`, ``first + 1``, ... right docs.
    """

    limit: float
    docs: int
    reached: float
    first: int
    open_: Floats

    @classmethod
    def of(cls, limit: float, docs: int, threshold: float) -> Crossing:
        """Return the error at a threshold, given as the logarithm of the capital."""
        import numpy as np

        chances, first, end, reached = np.zeros(docs + 2), 0, 1, 0.0
        chances[0] = 1.0
        for least in _least_right(limit, docs, threshold).tolist():
            right = chances[first:end] * limit
            chances[first:end] -= right
            end += 1
            chances[first + 1 : end] += right
            if least < end:
                reached += float(chances[least:end].sum())
                chances[least:end] = 0
                end = max(least, first)
            while first < end and chances[first] < _NEGLIGIBLE:
                first += 1
        return cls(limit, docs, min(1.0, reached + _LEFT_OUT), first, chances[first:end])

    def error_left(self, error: float) -> float:
        """Return the greatest error of an exact test of all docs with which both tests together err at most by `error`.

        The last doc counts only if the threshold was not reached. The error is rounded so that it reads well, and
        selects the same outcomes.
        """
        import numpy as np
        from scipy.stats import binom

        together = self.reached + np.concatenate((np.cumsum(self.open_[::-1])[::-1], [0.0]))
        least = self.first + int((together <= error).argmax()) if (together <= error).any() else self.docs + 1
        within, beyond = (float(binom.sf(least - more, self.docs, self.limit)) for more in (1, 2))
        rounded = float(f"{(within + min(beyond, error)) / 2:.3g}")
        return rounded if within < rounded < min(beyond, error) else within


def threshold_for(limit: float, docs: int, alpha: float) -> float:
    """Return the least threshold, as the logarithm of the capital, that is reached with a probability up to `alpha`.

    It is sought up to a fiftieth of `alpha`, and never lower than `LEAST_PART` of Ville's ``1 / alpha``.
    """
    low, high = log(LEAST_PART / alpha), -log(alpha)
    error, tried = Crossing.of(limit, docs, high).reached, 1
    while error < _NEAR * alpha and high - low > 1e-3 and tried < _MOST_TRIED:
        # About inversely proportional to the capital that is asked for.
        guess = high + log(max(error, 1e-300) / alpha)
        if not low < guess < high:
            guess = (low + high) / 2 if tried > 1 else low
        found, tried = Crossing.of(limit, docs, guess).reached, tried + 1
        if found <= alpha:
            high, error = guess, found
        else:
            low = guess
    return high


def _least_right(limit: float, docs: int, threshold: float) -> Ints:
    """Return, for n = 1, 2, ... docs, the smallest number of right ones with which the test stops.

    It is n + 1 if the test cannot stop at n.
    """
    import numpy as np

    seen = np.arange(1, docs + 1)
    none, all_ = np.full(docs, -1), seen + 1
    while (all_ - none > 1).any():
        middle = (none + all_) // 2
        reached = log_capital(limit, middle, seen) >= threshold - _TIE
        open_ = all_ - none > 1
        all_, none = np.where(open_ & reached, middle, all_), np.where(open_ & ~reached, middle, none)
    return all_


def log_capital(limit: float, right: Ints, seen: Ints) -> Floats:
    """Return the logarithm of the capital after `right` of `seen` docs, the average over the strategies."""
    import numpy as np

    bets = np.array(STAKES)[:, None] / max(limit, 1e-12)
    logs = right * np.log1p(bets * (1 - limit)) + (seen - right) * np.log1p(-bets * limit)
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - log(len(STAKES)))
