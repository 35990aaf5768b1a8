"""Evidence over many nights that a model fell below its baseline, on docs that stay the same.

The docs are fixed and so is the accuracy b that the baseline stores; a night's flips are what chance decides. Two
hypotheses are tested together: the expected accuracy of each night, given the nights before, is at least ``b - margin``
on these docs; or the model never changed, and b is one draw of its accuracy, lucky or not.

A night bets on every doc that it is worse than in the mean of the runs before, the baseline among them. With x the
score of a doc, a that mean, and l the limit, the bet pays ``1 + stake (a - x - (mean of a - l))``. If docs flip
independently of each other and the mean of the expected scores is at least l, then the expected product over the docs
is at most 1, whatever the single expectations are (the inequality of the two means): an e-value for each night, given
the nights before. The e-values of nights in a row are multiplied, and the products that begin at each night are added
(the Shiryaev-Roberts form of Shin, Ramdas and Rinaldo 2024, "E-detectors"), so that a fall may begin at any night.
The sum less the number of nights is a supermartingale. It therefore reaches ``HORIZON / error`` within `HORIZON` nights
with probability at most `error` (Ville 1939). Stakes of several sizes have equal parts of the first capital.

The limit l is ``b - margin`` or, if that is higher, b less the luck of one run: a quantile of the normal distribution
with the variance that the flips show, ``flips / 2`` docs. Its share of the error is `_LUCK`.

A night whose answers repeat those before would multiply the same evidence. It counts once enough of its flips are new
(`flips_are_new`).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from collections.abc import Sequence
from statistics import NormalDist


#: The number of nights over which a false alarm has at most the allowed probability.
HORIZON = 100

#: The share of the error for a baseline that is luckier than the limit allows; the nights have the rest.
_LUCK = 0.2

#: Falls that the stakes are made for, in standard deviations of one night.
_FALLS = (0.5, 1.0, 2.0)

#: The greatest share of its capital that a night can lose on one doc.
_MOST = 0.8

#: The sum is cut at this many times its limit, so that a mended model is believed after a few nights.
_CUT = 10

#: A night is new if it differs from the last one by this share of the docs that differ between independent runs.
_NEW = 0.8


def drift_limit(error: float) -> float:
    """Return the evidence that is reached within `HORIZON` nights with probability at most `error`."""
    return 1 / ((1 - _LUCK) * error)


def drift_evidence(nights: Sequence[Sequence[int]], right: Sequence[bool], margin: float, error: float) -> list[float]:
    """Return the evidence for a fall beyond `margin` after each night, to be compared with `drift_limit`.

    `right` states which docs the baseline answered right; a night is the positions of the docs that it answered
    otherwise. The first night is without a bet, because the number of flips is not known before it.
    """
    import numpy as np

    docs, moved = len(right), np.unique(np.concatenate([np.zeros(0, int), *map(np.array, nights)]).astype(int))
    sign = np.where(np.array(right, bool)[moved], 1.0, -1.0)
    flips = np.zeros(len(moved))
    sums, cut, found = np.zeros(len(_FALLS)), HORIZON * _CUT * drift_limit(error), []
    for before, night in enumerate(nights):
        flipped = np.zeros(len(moved))
        flipped[np.searchsorted(moved, night)] = 1.0
        if before:
            usual = max(flips.sum() / before, 1.0)
            limit = max(margin, drift_luck(usual, error) / docs)
            # `expected` flips of a doc: in the mean of the baseline, which has none, and the nights before.
            expected = flips / (before + 1)
            gap = limit - float(sign @ expected) / docs
            stakes = np.minimum(np.array(_FALLS) / np.sqrt(usual / 2), _MOST / (1 + max(gap, 0.0)))[:, np.newaxis]
            bets = np.log1p(stakes * (sign * (flipped - expected) - gap)).sum(axis=1)
            bets += (docs - len(moved)) * np.log1p(-stakes[:, 0] * gap)
            sums = np.minimum((1 + sums) * np.exp(np.minimum(bets, 700.0)), cut)
        flips += flipped
        found.append(float(sums.mean()) / HORIZON)
    return found


def drift_luck(flips: float, error: float) -> float:
    """Return the docs by which one run may be luckier than its model, if `flips` docs differ between two runs."""
    return NormalDist().inv_cdf(1 - _LUCK * error) * math.sqrt(flips / 2)


def flips_are_new(night: Collection[int], last: Collection[int], counts: Sequence[tuple[int, int]]) -> bool:
    """Return True if a night differs from the last one as independent runs do, and not in a few docs only.

    `counts` holds the numbers of lost and gained docs of all nights, this one too. Docs that a fall moves are lost in
    each: twice the lesser number is the number of docs that differ by chance.
    """
    usual = sum(2 * min(both) for both in counts) / len(counts)
    return len(set(night) ^ set(last)) >= max(1.0, _NEW * usual)
