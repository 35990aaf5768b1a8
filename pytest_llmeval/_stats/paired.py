"""Paired 0/1 scores: McNemar's test, and exact bounds and p-values for the difference in accuracy.

Tango's interval is asymptotic, and with few discordant docs its error exceeds the nominal one: at n = 100 and a true
drop of .027 equal to the margin, runs without a single flip show a smaller drop in 6.5 % of comparisons. Here his
statistic is only used to *order* the outcomes. The probability of an outcome at least as extreme is computed from the
multinomial distribution, for the worst discordance that the data leave plausible:

- exact unconditional test of a margin, with the outcomes ordered by the score at this margin: Hsueh, Liu and Chen
  (2001, Biometrics 57, 478-483), Sidik (2003, Statist. Med. 22, 265-278);
- maximum over a confidence set of the nuisance parameter, whose error is added: Berger and Boos (1994, JASA 89,
  1012-1016). The error of the set is a fixed share of the level. The less the level, the larger is the set, so an
  outcome rejected at a level is also rejected at all greater ones, and the p-value is the least of them.

The score is that at the tested difference, rounded down to a multiple of a step that depends on n alone and divides the
usual margins. From one step to the next the order changes, and the probability may fall a little although the
difference rises. The p-value is therefore the greatest one up to the tested difference, and bounds, found by inverting
it, agree with it: the lower bound reaches ``-margin`` at a confidence exactly if
``drop_p(gained, lost, n, -margin) <= 1 - confidence`` (up to 2e-7 of the margin). The p-value does not depend on the
confidence, so it may be used at whatever level a family leaves.

Docs are assumed to be independent draws, each with the same unknown probabilities of being lost and gained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import asin
from math import ceil
from math import floor
from math import log
from math import log10
from math import sqrt
from typing import TYPE_CHECKING

from pytest_llmeval._stats import tango
from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.interval import check_count
from pytest_llmeval._stats.interval import error_of


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats
    from pytest_llmeval._stats.tango import Ints

#: The error of the confidence set for the discordance, as a share of the level.
SET_SHARE = 0.005
#: The terms that sums leave out, as a share of the level.
_LEFT_OUT = 1e-8
#: The numbers of discordances tried over the confidence set, and then between the neighbours of the worst one.
_TRIED = 13
_TRIED_AGAIN = 7
#: The greatest step of differences with one order of outcomes, times the root of n.
_STEP = 0.05
#: Lower steps are searched for a greater p-value as long as theirs is above this share of the greatest.
_NEAR = 0.7
#: No p-value is smaller, and above one half lower steps are not searched: no gate has such a level.
_LEAST_P = 1e-12
_NO_LEVEL = 0.5
_FIRST_LEVEL = 0.01
_PRECISION = 1e-7
_ROUNDING = 1e-6


def mcnemar_p(lost: int, gained: int) -> float:
    """Return the p-value of the exact two-sided test that nothing changed (McNemar 1947, Psychometrika 12, 153-157).

    Given the number of discordant docs, `gained` is binomial with 1/2 under this hypothesis. 1 without discordant docs.
    """
    from scipy.stats import binomtest

    check_count("lost", lost)
    check_count("gained", gained)
    return float(binomtest(gained, lost + gained).pvalue) if lost + gained else 1.0


def paired_bounds(lost: int, gained: int, n: int, confidence: float) -> Interval:
    """Return bounds on the true difference in accuracy, now - before, estimated by ``(gained - lost) / n``.

    Exact (see the module docstring): the error of each bound is at most ``1 - confidence`` for all n and discordances.
    """
    error = error_of(confidence)
    _check(lost, gained, n)
    if n == 0:
        return Interval(-1.0, 1.0)
    low, high = _lower_bound(lost, gained, n, error), -_lower_bound(gained, lost, n, error)
    difference = (gained - lost) / n
    return Interval(min(low, difference), max(high, difference))


def drop_p(lost: int, gained: int, n: int, margin: float) -> float:
    """Return the one-sided p-value of the hypothesis that accuracy dropped by at most `margin`.

    Exact (see the module docstring); never below 1e-12. The p-value of the hypothesis
    that accuracy dropped by at least `margin` is ``drop_p(gained, lost, n, -margin)``.
    """
    _check(lost, gained, n)
    return _Test.of(gained, lost, n).p(margin) if n else 1.0


def drop_fails(lost: int, gained: int, n: int, margin: float, error: float) -> bool:
    """Return ``drop_p(lost, gained, n, margin) <= error``, in a fraction of the time."""
    _check(lost, gained, n)
    return n > 0 and _Test.of(gained, lost, n).rejects(margin, error)


@dataclass(frozen=True, slots=True)
class _Test:
    """The test, for one outcome, that the true difference is at most a given one.

    Step k are the differences from ``k * step`` to ``(k + 1) * step``, for which outcomes are ordered by the score at
    ``k * step``. `discordant` are the numbers of discordant docs that any level needs, all without a gap.
    """

    lost: int
    gained: int
    n: int
    step: float
    discordant: Ints

    @classmethod
    def of(cls, lost: int, gained: int, n: int) -> _Test:
        import numpy as np

        first, last = _likely(n, *_plausible(lost + gained, n, _LEAST_P), _LEFT_OUT * _LEAST_P)
        return cls(lost, gained, n, _step(n), np.arange(first, last + 1))

    def p(self, difference: float) -> float:
        """Return the greatest p-value of the differences up to this one."""
        k = self._step_of(difference)
        greatest = self._p(self._fewest(k), difference)
        while greatest < _NO_LEVEL:
            k -= 1
            fewest, end = self._fewest(k), (k + 1) * self.step
            if self._least_level(fewest, end, _NEAR * greatest) <= _NEAR * greatest:
                break
            if self._least_level(fewest, end, greatest) > greatest:
                greatest = self._p(fewest, end)
        return greatest

    def rejects(self, difference: float, error: float) -> bool:
        """Return True if the p-value is at most `error`."""
        k = self._step_of(difference)
        level = self._least_level(self._fewest(k), difference, error)
        while _NEAR * error < level <= error:
            k -= 1
            level = self._least_level(self._fewest(k), (k + 1) * self.step, error)
        return level <= error

    def bound(self, error: float, guess: float) -> float:
        """Return the least difference whose p-value exceeds `error`, less at most 2e-7."""
        from scipy.optimize import brentq

        def exceeds(k: int, error: float) -> bool:
            return self._least_level(self._fewest(k), (k + 1) * self.step, error) > error

        least, most = self._step_of(-1), self._step_of(1)
        below = above = min(max(self._step_of(guess), least), most)
        width = 1
        while below > least and exceeds(below, error):
            above, below, width = below, max(below - width, least), 2 * width
        while above < most and not exceeds(above, error):
            below, above, width = above, min(above + width, most), 2 * width
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if exceeds(middle, error) else (middle, above)
        # As for p-values: the change of order may have raised the probability in a lower step.
        while below > least and exceeds(below, _NEAR * error):
            above, below = (below if exceeds(below, error) else above), below - 1
        fewest = self._fewest(above)

        def excess(difference: float) -> float:
            return self._least_level(fewest, difference, error) - error

        low, high = max(above * self.step, -1.0), min((above + 1) * self.step, 1.0)
        if excess(high) <= 0:
            return high
        root = low if excess(low) > 0 else float(brentq(excess, low, high, xtol=_PRECISION))
        return max(root - _PRECISION, -1.0)

    def _step_of(self, difference: float) -> int:
        return floor(difference / self.step + _ROUNDING)

    def _fewest(self, k: int) -> Ints:
        """Return, for each number of discordant docs, the fewest gained ones that are at least as strong evidence."""
        import numpy as np

        difference = min(max(k * self.step, -1.0), 1.0)
        z = float(tango.score(np.array(self.lost), np.array(self.gained), self.n, difference))
        fewest = tango.fewest_gained(self.discordant, self.n, difference, z)
        # The observed outcome is among them by definition; rounding must not exclude it.
        seen = self.discordant == self.lost + self.gained
        fewest[seen] = np.minimum(fewest[seen], self.gained)
        return fewest

    def _p(self, fewest: Ints, difference: float) -> float:
        """Return the p-value in an order: the level that is the least by itself, as smaller ones have a greater least.

        So it lies between any level and the least one of this level's.
        """
        from scipy.optimize import brentq

        def least(level: float) -> float:
            return min(max(self._least_level(fewest, difference, level), _LEAST_P), 1.0)

        first = least(_FIRST_LEVEL)
        low, high = sorted((first, least(first)))
        if least(low) <= low:
            return low
        if high - low <= _ROUNDING * high or least(high) >= high:
            return high
        return float(brentq(lambda level: least(level) - level, low, high, xtol=_ROUNDING * low))

    def _least_level(self, fewest: Ints, difference: float, level: float) -> float:
        """Return the least level that rejects if the set of plausible discordances is that of `level`.

        For each discordance the probability increases with the difference, so the greatest one is used.
        """
        import numpy as np

        lowest, highest = _plausible(self.lost + self.gained, self.n, level)
        if difference < -highest:
            return 0.0
        difference = min(difference, highest)
        ends, left_out = (max(lowest, abs(difference)), highest), _LEFT_OUT * level
        first, last = _likely(self.n, *ends, left_out)
        used = slice(first - self.discordant[0], last - self.discordant[0] + 1)
        discordant, fewest = self.discordant[used], fewest[used]
        # Evenly spaced in standard errors, so that small discordances are tried as closely as large ones.
        tried = np.clip(np.sin(np.linspace(asin(sqrt(ends[0])), asin(sqrt(ends[1])), _TRIED)) ** 2, *ends)
        found = _probabilities(discordant, fewest, self.n, difference, tried, left_out)
        worst = int(found.argmax())
        between = np.linspace(tried[max(worst - 1, 0)], tried[min(worst + 1, _TRIED - 1)], _TRIED_AGAIN)
        again = _probabilities(discordant, fewest, self.n, difference, between, left_out)
        return float(max(found[worst], again.max()) + discordant.size * left_out) / (1 - SET_SHARE)


def _plausible(seen: int, n: int, level: float) -> tuple[float, float]:
    """Return the ends of the confidence set for the discordance (Clopper and Pearson 1934, Biometrika 26, 404-413)."""
    from scipy.special import betaincinv

    half = SET_SHARE * level / 2
    lowest = float(betaincinv(seen, n - seen + 1, half)) if seen else 0.0
    return lowest, float(betaincinv(seen + 1, n - seen, 1 - half)) if seen < n else 1.0


def _likely(n: int, lowest: float, highest: float, left_out: float) -> tuple[int, int]:
    """Return the least and the greatest number of discordant docs, each with `left_out` beyond it at the most.

    By the bounds of Chernoff and Bernstein, as exact quantiles would take longer than all the rest.
    """
    room = -log(left_out)
    first = n * lowest - sqrt(2 * n * lowest * room)
    last = n * highest + room / 3 + sqrt(room**2 / 9 + 2 * n * highest * (1 - highest) * room)
    return max(floor(first), 0), min(ceil(last), n)


def _probabilities(
    discordant: Ints, fewest: Ints, n: int, difference: float, discordances: Floats, left_out: float
) -> Floats:
    """Return the probability of at least the fewest gained for each discordance, at least the difference's size."""
    import numpy as np
    from scipy.special import bdtrc
    from scipy.special import gammaln
    from scipy.special import xlog1py
    from scipy.special import xlogy

    m, share = discordant, discordances[:, None]
    ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
    weights = np.exp(ways + xlogy(m, share) + xlog1py(n - m, -share))
    row, column = np.nonzero(weights > left_out)
    gained = np.where(share > 0, (1 + difference / np.where(share > 0, share, 1)) / 2, 0.5)[:, 0]
    chances = bdtrc(fewest[column] - 1, m[column], np.clip(gained, 0, 1)[row])
    return np.bincount(row, weights[row, column] * chances, minlength=len(discordances)).astype(np.float64)


def _step(n: int) -> float:
    """Return the greatest of 1, 2 or 5 times a power of ten that is at most `_STEP` over the root of n."""
    most = _STEP / sqrt(n)
    power = 10.0 ** floor(log10(most))
    return power * max(digit for digit in (1, 2, 5) if digit * power <= most * (1 + _ROUNDING))


def _lower_bound(lost: int, gained: int, n: int, error: float) -> float:
    from scipy.special import ndtri

    guess = tango.score_limit(lost, gained, n, -float(ndtri(error)))
    return _Test.of(lost, gained, n).bound(error, guess)


def _check(lost: int, gained: int, n: int) -> None:
    check_count("lost", lost, n)
    check_count("gained", gained, n - lost)
