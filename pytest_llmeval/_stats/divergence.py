"""The Kullback-Leibler divergence of two next-token distributions of which a few probabilities are known.

The baseline keeps the probabilities p_i of its likeliest tokens, that of all others together, p_R, and one token j
that is drawn from the others in proportion to their probabilities. A later run reports its own probabilities q of
these. By the chain rule (Cover and Thomas 2006, Elements of Information Theory, theorem 2.5.3)

    KL(p || q) = KL of the kept tokens and the others as one  +  p_R KL(p' || q')

with p', q' the distributions among the others. The first term alone is a lower bound of the sum (log-sum inequality,
theorem 2.7.1). An upper bound would be of no use: a token that is not kept may have any small probability in the run.
So the second term is estimated. With ``r = q'(j) / p'(j)``, ``r - 1 - log r`` is never negative and its expectation
over the draws of j is KL(p' || q') (Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html). The
estimate is therefore never below the lower bound, and has no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


#: Larger log-ratios count as this, so that every estimate is a finite number.
_MOST = 100.0


@dataclass(frozen=True, slots=True)
class Known:
    """The known part of a distribution: minus the logs of the probabilities `kept`, of all `others`, and of the one
    `drawn` from these.

    They may be rounded: probabilities that do not add up to 1 are divided by their sum.
    """

    kept: Sequence[float]
    others: float
    drawn: float


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL(before || now) in nats: its lower bound `least`, and its `estimate` without bias, which is not below it."""

    least: float
    estimate: float


def divergence(before: Known, now: Known) -> Divergence:
    """Return the divergence at one position; both sides are known for the same tokens. NaN if a number is NaN.

    >>> same = Known([0.5, 1.5], 1.8, 4.0)
    >>> divergence(same, same)
    Divergence(least=0.0, estimate=0.0)
    """
    p, q = [*before.kept, before.others], [*now.kept, now.others]
    if any(map(math.isnan, (*p, *q, before.drawn, now.drawn))):
        return Divergence(math.nan, math.nan)
    sums = [math.fsum(math.exp(-value) for value in side) for side in (p, q)]
    terms = (math.exp(-old) * min(new - old, _MOST) for old, new in zip(p, q, strict=True))
    # Cancellation leaves a rest of about 1e-16.
    least = max(0.0, math.fsum(terms) / sums[0] + math.log(sums[1] / sums[0]))
    log_ratio = (now.others - now.drawn) - (before.others - before.drawn)
    log_ratio = max(-_MOST, min(log_ratio, _MOST))
    share = math.exp(-before.others) / sums[0]
    return Divergence(least, least + share * max(0.0, math.expm1(log_ratio) - log_ratio))
