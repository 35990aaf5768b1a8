"""Whether an aggregation can work with what a function of the task gives for a doc.

The metrics of the format keep of a doc what their aggregation needs. A function of the task may give anything; told
at its doc a mistake is found, among all docs it would only make their number NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._metrics.aggregations import Item
from pytest_llmeval._metrics.metric import NEEDED
from pytest_llmeval._metrics.metric import Kind
from pytest_llmeval._metrics.metric import Metric
from pytest_llmeval._metrics.metric import aggregation_name


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
