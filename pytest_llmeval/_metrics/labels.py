"""F1 and Matthews correlation of predicted labels, equal to scikit-learn's. Items are (gold, prediction)."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval._metrics.standard_errors import Drawn


def f1(items: Sequence[tuple[Any, Any]]) -> float:
    """F1 of label 1 against label 0; 0 where neither gold nor prediction holds a 1.

    Raises ValueError for other labels; -1, a doc without a prediction, counts as not 1.
    """
    return resample_f1(items)(np.arange(len(items)))


def resample_f1(items: Sequence[tuple[Any, Any]]) -> Callable[[Drawn], float]:
    others = sorted({str(label) for item in items for label in item if label not in (0, 1, -1)})
    if others:
        raise ValueError(f"f1 is defined for the labels 0 and 1, here are also {', '.join(others[:5])}")
    gold, predicted = (np.array([item[side] == 1 for item in items]) for side in (0, 1))

    def statistic(drawn: Drawn) -> float:
        both = int((gold[drawn] & predicted[drawn]).sum())
        total = int(gold[drawn].sum() + predicted[drawn].sum())
        return 2 * both / total if total else 0.0

    return statistic


def matthews_corrcoef(items: Sequence[tuple[Any, Any]]) -> float:
    """Correlation of gold and predicted labels, for any number of labels (Gorodkin 2004); 0 if one side is constant."""
    return resample_matthews_corrcoef(items)(np.arange(len(items)))


def resample_matthews_corrcoef(items: Sequence[tuple[Any, Any]]) -> Callable[[Drawn], float]:
    numbers = {label: i for i, label in enumerate(dict.fromkeys(label for item in items for label in item))}
    n_labels = len(numbers)
    cells = np.array([numbers[gold] * n_labels + numbers[predicted] for gold, predicted in items])

    def statistic(drawn: Drawn) -> float:
        return _correlation(np.bincount(cells[drawn], minlength=n_labels**2).reshape(n_labels, n_labels))

    return statistic


def _correlation(confusion: NDArray[np.intp]) -> float:
    n, hits = int(confusion.sum()), int(np.trace(confusion))
    gold, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread = (n**2 - int(gold @ gold)) * (n**2 - int(predicted @ predicted))
    return (hits * n - int(gold @ predicted)) / math.sqrt(spread) if spread else 0.0
