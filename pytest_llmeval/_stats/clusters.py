"""Docs that share a passage are not independent: here the units of a sample are passages, or docs without one."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Sequence
from math import fsum
from math import sqrt


def standard_error(values: Sequence[float], clusters: Sequence[Hashable] | None = None) -> float | None:
    """Return the standard error of the mean of `values`; None for fewer than two units.

    It is that of the sums of ``value - mean`` per unit (Cochran 1977, Sampling Techniques, section 9A.1), for single
    docs the usual ``s / sqrt(n)``.
    """
    mean = fsum(values) / len(values) if values else 0.0
    sums = _sums([value - mean for value in values], clusters)
    if len(sums) < 2:
        return None
    return sqrt(fsum(one * one for one in sums) * len(sums) / (len(sums) - 1)) / len(values)


def net_moves(moves: Iterable[float], clusters: Sequence[Hashable] | None = None) -> tuple[int, int]:
    """Return the numbers of units whose moves sum to more and to less than zero, for a sign test (`mcnemar_p`)."""
    sums = _sums(list(moves), clusters)
    return sum(one > 0 for one in sums), sum(one < 0 for one in sums)


def _sums(values: Sequence[float], clusters: Sequence[Hashable] | None) -> list[float]:
    """Return the sum per unit."""
    if clusters is None:
        return list(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value
    return list(sums.values())
