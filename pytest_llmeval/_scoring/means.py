"""Which metrics are a mean over docs, and of what: only these have bounds at a confidence.

A perplexity is the exponential of a mean. A score per word is a ratio of sums; it is linearised (Cochran 1977,
Sampling Techniques, 3rd ed., section 6.3): a doc of log-probability `ll` and `u` units contributes
``r + (-ll - r u) n / sum(u)`` with ``r = -sum(ll) / sum(u)``, values whose mean is r and whose spread is that of r.

Whether an aggregation can work with what a function of the task gives for a doc.

The metrics of the format keep of a doc what their aggregation needs. A function of the task may give anything; told
at its doc a mistake is found, among all docs it would only make their number NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._scoring.aggregations import Item
from pytest_llmeval._scoring.aggregations import brier_score
from pytest_llmeval._scoring.aggregations import exp
from pytest_llmeval._scoring.metric import NEEDED
from pytest_llmeval._scoring.metric import Kind
from pytest_llmeval._scoring.metric import Metric
from pytest_llmeval._scoring.metric import aggregation_name


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


@dataclass(frozen=True, slots=True)
class Shape:
    """What an aggregation needs of a doc, in words, and whether an item is that."""

    words: str
    fits: Callable[[Item], bool]


def misfit(metric: Metric, item: Item) -> str | None:
    """What the aggregation of a metric needs instead of this item; None if it can work with it.

    An aggregation of the user's knows what it takes.
    """
    shape = None if metric.owned else _SHAPES.get(aggregation_name(metric))
    return None if shape is None or shape.fits(item) else shape.words


def _is_number(item: Item) -> bool:
    return isinstance(item, int | float)


def _is_pair(item: Item) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


def _are_lengths(item: Item) -> bool:
    return _is_pair(item) and all(map(_is_number, item))


def _are_labels(item: Item) -> bool:
    return _is_pair(item) and not any(isinstance(label, list | tuple | Mapping) for label in item)


def _are_texts(item: Item) -> bool:
    if not _is_pair(item):
        return False
    references, prediction = item
    given = references if isinstance(references, list | tuple) else [references]
    return bool(given) and all(isinstance(text, str) for text in (*given, prediction))


def _are_choices(item: Item) -> bool:
    if not _is_pair(item):
        return False
    gold, values = item
    is_list = isinstance(values, list | tuple) and all(map(_is_number, values))
    return is_list and isinstance(gold, int) and 0 <= gold < len(values)


def _is_labelled_doc(item: Item) -> bool:
    if not _is_pair(item) or not isinstance(item[1], Mapping):
        return False
    idx: Any = item[1].get("idx")
    return "label" in item[1] and isinstance(idx, Mapping) and {"paragraph", "question"} <= idx.keys()


_OF_KIND: Mapping[Kind, Shape] = MappingProxyType(
    {
        "choices": Shape("[index of the right choice, [a number for each choice]]", _are_choices),
        "labels": Shape("[right label, predicted label]", _are_labels),
        "lengths": Shape("[log-likelihood, length], two numbers", _are_lengths),
        "number": Shape("a number", _is_number),
        "texts": Shape("[reference or list of references, prediction], all texts", _are_texts),
    }
)

#: By the name of the aggregation; `bypass` takes anything.
_SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "acc_all": Shape("[prediction, doc with idx.paragraph, idx.question and label]", _is_labelled_doc),
        **{name: _OF_KIND[kind] for name, kind in NEEDED.items()},
    }
)
