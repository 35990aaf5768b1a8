"""Which metrics are a mean over docs, and of what: only these have bounds at a confidence.

A perplexity is the exponential of a mean. A score per word is a ratio of sums; it is linearised (Cochran 1977,
Sampling Techniques, 3rd ed., section 6.3): a doc of log-probability `ll` and `u` units contributes
``r + (-ll - r u) n / sum(u)`` with ``r = -sum(ll) / sum(u)``, values whose mean is r and whose spread is that of r.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._metrics.aggregations import Item
from pytest_llmeval._metrics.aggregations import brier_score
from pytest_llmeval._metrics.aggregations import exp
from pytest_llmeval._metrics.metric import Metric
from pytest_llmeval._metrics.metric import aggregation_name


@dataclass(frozen=True, slots=True)
class DocMean:
    """`values` makes one number a doc of a metric's items; the metric is their mean, or with `log` its exponential.

    `support`: the least and greatest number that a doc can have, where known. `plain`: the items are these numbers.
    """

    values: Callable[[Sequence[Item]], Sequence[float]]
    log: bool = False
    support: tuple[float, float] | None = None
    plain: bool = False


def doc_mean(metric: Metric) -> DocMean | None:
    """How a metric is a mean over docs; None if it is none (f1, bleu, what a function of the user aggregates)."""
    return None if metric.owned else DOC_MEANS.get(aggregation_name(metric))


def _numbers(items: Sequence[Any]) -> list[float]:
    return [float(item) for item in items]


def _negative(items: Sequence[Any]) -> list[float]:
    return [-float(item) for item in items]


def _brier(items: Sequence[Any]) -> list[float]:
    return [brier_score([item]) for item in items]


def _likelihoods(items: Sequence[Any]) -> list[float]:
    return [exp(lls[gold]) for gold, lls in items]


def _per_unit(items: Sequence[Any]) -> list[float]:
    units = sum(count for _, count in items)
    if not units:
        return [math.nan] * len(items)
    rate = -sum(ll for ll, _ in items) / units
    return [rate + (-ll - rate * count) * len(items) / units for ll, count in items]


def _bits(items: Sequence[Any]) -> list[float]:
    return [value / math.log(2) for value in _per_unit(items)]


#: By the name of the aggregation.
DOC_MEANS: Mapping[str, DocMean] = MappingProxyType(
    {
        "bits_per_byte": DocMean(_bits),
        "brier_score": DocMean(_brier, support=(0.0, 2.0)),
        "likelihood": DocMean(_likelihoods, support=(0.0, 1.0)),
        "mean": DocMean(_numbers, plain=True),
        "perplexity": DocMean(_negative, log=True),
        "weighted_perplexity": DocMean(_per_unit, log=True),
    }
)
