"""The kinds of items: the values that a metric keeps per doc and that an aggregation needs.

lm_eval's metrics keep the kind that their aggregation needs. A function of the task may return anything, so its items
are checked per doc: a wrong one is an error of its doc, instead of only making the metric's value NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._task import Item
from pytest_llmeval._task import ItemKind
from pytest_llmeval._task import Metric


@dataclass(frozen=True, slots=True)
class ItemForm:
    """One kind of item.

    `keeps` and `form` are words for messages: what a metric keeps, and what a function must return. `fits` returns
    True if an item has that form.
    """

    keeps: str
    form: str
    fits: Callable[[Item], bool]


def misfit(metric: Metric, item: Item) -> str | None:
    """Return the form that the metric's aggregation needs, in words, if the item does not have it; else None."""
    kind = ITEM_KINDS[metric.aggregation.needs]
    return None if kind.fits(item) else kind.form


def _is_number(item: Item) -> bool:
    return isinstance(item, int | float)


def _is_pair(item: Item) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


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


ITEM_KINDS: Mapping[ItemKind, ItemForm] = MappingProxyType(
    {
        "any": ItemForm("whatever a function returns", "anything", lambda item: True),
        "choices": ItemForm(
            "a value per choice", "[index of the right choice, [a number for each choice]]", _are_choices
        ),
        "labelled_doc": ItemForm(
            "a prediction and its doc",
            "[prediction, doc with idx.paragraph, idx.question and label]",
            _is_labelled_doc,
        ),
        "labels": ItemForm(
            "the right and the predicted choice of each doc", "[right label, predicted label]", _are_labels
        ),
        "lengths": ItemForm(
            "a loglikelihood and a length of each doc",
            "[log-likelihood, length], two numbers",
            lambda item: _is_pair(item) and all(map(_is_number, item)),
        ),
        "number": ItemForm("a number per doc", "a number", _is_number),
        "right": ItemForm("whether each doc is right", "0 or 1", lambda item: _is_number(item) and item in (0, 1)),
        "share": ItemForm(
            "a share per doc", "a number from 0 to 1", lambda item: _is_number(item) and not (item < 0 or item > 1)
        ),
        "texts": ItemForm(
            "the texts of each doc", "[reference or list of references, prediction], all texts", _are_texts
        ),
    }
)
