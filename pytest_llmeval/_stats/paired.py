"""Paired 0/1 scores: McNemar's test, and exact bounds and p-values for the difference in accuracy.

Tango's interval is asymptotic, and with few discordant docs its error exceeds the nominal one: at n = 100 and a true
drop of .027 equal to the margin, runs without a single flip show a smaller drop in 6.5 % of comparisons. Here his
statistic is only used to *order* the outcomes, by its lower limit at .95. The probability of an outcome at least as
extreme is computed from the multinomial distribution, for the worst discordance that the data leave plausible:

- bounds that are exact for a given order of outcomes: Buehler (1957, JASA 52, 482-493), Lloyd and Kabaila (2003,
  Aust. N. Z. J. Stat. 45, 319-327);
- maximum over a confidence set of the nuisance parameter, whose error is added: Berger and Boos (1994, JASA 89,
  1012-1016).

Because the order depends neither on the margin nor on the confidence, bounds and p-values agree: the lower bound
reaches ``-margin`` at a confidence exactly if ``drop_p(gained, lost, n, -margin) <= 1 - confidence`` (up to 2e-7 of the
margin).

Docs are assumed to be independent draws, each with the same unknown probabilities of being lost and gained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmeval._stats import tango
from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.interval import check_count
from pytest_llmeval._stats.interval import error_of


if TYPE_CHECKING:
    from pytest_llmeval._stats.tango import Floats
    from pytest_llmeval._stats.tango import Ints

#: The error of the confidence set for the discordance, and the probability of the terms that sums leave out.
_SET_ERROR = 1e-6
_LEFT_OUT = 1e-11
#: The numbers of discordances tried over the confidence set, and then between the neighbours of the worst one.
_TRIED = 25
_TRIED_AGAIN = 9
#: The standard normal's .95 quantile: the order of outcomes is that of Tango's limits at this confidence.
_ORDER_Z = 1.6448536269514722
_PRECISION = 1e-7


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

    Exact (see the module docstring); never below 1e-6, the error of the confidence set. The p-value of the hypothesis
    that accuracy dropped by at least `margin` is ``drop_p(gained, lost, n, -margin)``.
    """
    _check(lost, gained, n)
    return _Tail.of(gained, lost, n).p(margin) if n else 1.0


@dataclass(frozen=True, slots=True)
class _Tail:
    """The outcomes that are at least as strong evidence for a large difference as the observed one.

    An outcome with `discordant[i]` discordant docs is among them if at least `fewest[i]` of these are gained. `lowest`
    and `highest` are the limits of the plausible discordance.
    """

    n: int
    discordant: Ints
    fewest: Ints
    lowest: float
    highest: float

    @classmethod
    def of(cls, lost: int, gained: int, n: int) -> _Tail:
        import numpy as np
        from scipy.special import betaincinv
        from scipy.stats import binom

        seen = lost + gained
        lowest = float(betaincinv(seen, n - seen + 1, _SET_ERROR / 2)) if seen else 0.0
        highest = float(betaincinv(seen + 1, n - seen, 1 - _SET_ERROR / 2)) if seen < n else 1.0
        first, last = binom.ppf(_LEFT_OUT, n, lowest), binom.isf(_LEFT_OUT, n, highest)
        discordant = np.arange(int(max(first, 0)), int(last) + 1)
        limit = tango.score_limit(lost, gained, n, _ORDER_Z)
        fewest = tango.fewest_gained(discordant, n, limit, _ORDER_Z)
        # The observed outcome is among them by definition; rounding must not exclude it.
        fewest[discordant == seen] = np.minimum(fewest[discordant == seen], gained)
        return cls(n, discordant, fewest, lowest, highest)

    def p(self, difference: float) -> float:
        """Return the greatest probability of these outcomes under any difference up to this one, by Berger and Boos.

        For each discordance the probability increases with the difference, so the greatest one is used.
        """
        import numpy as np

        if difference < -self.highest:
            return _SET_ERROR
        difference = min(difference, self.highest)
        tried = np.linspace(max(self.lowest, abs(difference)), self.highest, _TRIED)
        found = self._probabilities(difference, tried)
        worst = int(found.argmax())
        between = np.linspace(tried[max(worst - 1, 0)], tried[min(worst + 1, _TRIED - 1)], _TRIED_AGAIN)
        greatest = max(found[worst], self._probabilities(difference, between).max())
        return min(1.0, float(greatest) + _SET_ERROR + self.discordant.size * _LEFT_OUT)

    def bound(self, error: float, guess: float) -> float:
        """Return the least difference under which these outcomes have a probability of at least `error`."""
        from scipy.optimize import brentq

        low, high, step = -self.highest, self.highest, _PRECISION + abs(guess) / 16
        below, above = max(low, guess - step), min(high, guess + step)
        while below > low and self.p(below) > error:
            step *= 4
            below, above = max(low, below - step), below
        while above < high and self.p(above) <= error:
            step *= 4
            below, above = above, min(high, above + step)
        if self.p(below) > error:
            return below
        if self.p(above) <= error:
            return above
        root = brentq(lambda difference: self.p(difference) - error, below, above, xtol=_PRECISION)
        return max(low, float(root) - _PRECISION)

    def _probabilities(self, difference: float, discordances: Floats) -> Floats:
        """Return the probability of these outcomes for a difference and discordances of at least its size."""
        import numpy as np
        from scipy.special import bdtrc
        from scipy.special import gammaln
        from scipy.special import xlog1py
        from scipy.special import xlogy

        m, n, share = self.discordant, self.n, discordances[:, None]
        ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
        weights = np.exp(ways + xlogy(m, share) + xlog1py(n - m, -share))
        row, column = np.nonzero(weights > _LEFT_OUT)
        gained = np.where(share > 0, (1 + difference / np.where(share > 0, share, 1)) / 2, 0.5)[:, 0]
        chances = bdtrc(self.fewest[column] - 1, m[column], np.clip(gained, 0, 1)[row])
        return np.bincount(row, weights[row, column] * chances, minlength=len(discordances)).astype(np.float64)


def _lower_bound(lost: int, gained: int, n: int, error: float) -> float:
    from scipy.special import ndtri

    guess = tango.score_limit(lost, gained, n, -float(ndtri(error)))
    return _Tail.of(lost, gained, n).bound(error, guess)


def _check(lost: int, gained: int, n: int) -> None:
    check_count("lost", lost, n)
    check_count("gained", gained, n - lost)
