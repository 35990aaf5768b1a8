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
    `floor`: where log-probabilities make the number, which are 0 at most, what the mean is never below; `least` then
    says the same of a doc's number, from the items of all.
    """

    values: Callable[[Sequence[Item]], Sequence[float]]
    log: bool = False
    support: tuple[float, float] | None = None
    plain: bool = False
    floor: float | None = None
    least: Callable[[Sequence[Item]], float] | None = None


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
    rate, average = _rate_and_length(items)
    return [rate + (-ll - rate * count) / average for ll, count in items]


def _rate_and_length(items: Sequence[Any]) -> tuple[float, float]:
    """The score per unit, and the units of a doc of average length."""
    units = sum(count for _, count in items)
    if not units:
        return math.nan, math.nan
    return -sum(ll for ll, _ in items) / units, units / len(items)


def _bits(items: Sequence[Any]) -> list[float]:
    return [value / math.log(2) for value in _per_unit(items)]


def _no_less(items: Sequence[Any]) -> float:
    return 0.0


def _least_per_unit(items: Sequence[Any]) -> float:
    """What a doc adds of which every unit is certain: below 0 if it is longer than the average.

    No doc is taken to be longer than the longest of these.
    """
    rate, average = _rate_and_length(items)
    longest: float = max(count for _, count in items)
    return rate * (1 - longest / average)


def _least_bits(items: Sequence[Any]) -> float:
    return _least_per_unit(items) / math.log(2)


#: By the name of the aggregation.
DOC_MEANS: Mapping[str, DocMean] = MappingProxyType(
    {
        "bits_per_byte": DocMean(_bits, floor=0.0, least=_least_bits),
        "brier_score": DocMean(_brier, support=(0.0, 2.0)),
        "likelihood": DocMean(_likelihoods, support=(0.0, 1.0)),
        "mean": DocMean(_numbers, plain=True),
        "perplexity": DocMean(_negative, log=True, floor=0.0, least=_no_less),
        "weighted_perplexity": DocMean(_per_unit, log=True, floor=0.0, least=_least_per_unit),
    }
)
