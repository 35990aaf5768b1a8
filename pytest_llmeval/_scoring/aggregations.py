"""F1 and Matthews correlation of predicted labels, equal to scikit-learn's. Items are (gold, prediction).

From what a metric keeps of each doc to one number, and that number's standard error.

Names, formulas and the choice between a closed form and the bootstrap are lm-evaluation-harness's. Values that
overflow are infinite, and NaN stays NaN: neither is an error here, and neither passes a gate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval._plain import listed
from pytest_llmeval._scoring import aggregations as labels
from pytest_llmeval._scoring import text as translation
from pytest_llmeval._scoring.standard_errors import Drawn
from pytest_llmeval._scoring.standard_errors import Resample
from pytest_llmeval._scoring.standard_errors import bootstrap_stderr
from pytest_llmeval._scoring.standard_errors import mean_stderr


def f1(items: Sequence[tuple[Any, Any]]) -> float:
    """F1 of label 1 against label 0; 0 where neither gold nor prediction holds a 1.

    Raises ValueError for other labels; -1, a doc without a prediction, counts as not 1.
    """
    return resample_f1(items)(np.arange(len(items)))


def resample_f1(items: Sequence[tuple[Any, Any]]) -> Callable[[Drawn], float]:
    others = sorted({str(label) for item in items for label in item if label not in (0, 1, -1)})
    if others:
        raise ValueError(f"f1 is defined for the labels 0 and 1, here are also {listed(others)}")
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


#: What a metric keeps of one doc: a number, [gold, prediction], [loglikelihood, length], [gold, probabilities].
Item: TypeAlias = Any

#: Most draws for corpus scores that are slow to compute.
TRANSLATION_DRAWS = 100


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How items become a number. `stderr` takes the items and the number of bootstrap draws; None: no formula."""

    function: Callable[[Sequence[Item]], float]
    stderr: Callable[[Sequence[Item], int], float] | None = None


def mean(items: Sequence[float]) -> float:
    return float(sum(items) / len(items))


def median(items: Sequence[float]) -> float:
    """The middle value; of an even number of items the mean of the two in the middle."""
    return float(statistics.median(items)) if not any(map(math.isnan, items)) else math.nan


def nanmean(items: Sequence[float]) -> float:
    """The mean of the items that are not NaN; NaN if there is none."""
    known = [item for item in items if not math.isnan(item)]
    return mean(known) if known else math.nan


def perplexity(lls: Sequence[float]) -> float:
    """exp of the negative mean loglikelihood of a doc."""
    return exp(-mean(lls))


def weighted_perplexity(items: Sequence[tuple[float, int]]) -> float:
    """exp of the negative loglikelihood per unit (word, byte), over all docs together; items are (ll, units)."""
    return exp(-_weighted_mean(items))


def bits_per_byte(items: Sequence[tuple[float, int]]) -> float:
    return -_weighted_mean(items) / math.log(2)


def brier_score(items: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Mean squared distance of the choices' probabilities from the right answer (Brier 1950); 0 is best, 2 worst.

    Items are (gold, probabilities); docs may have different numbers of choices.
    """
    return mean([sum((p - (i == gold)) ** 2 for i, p in enumerate(probabilities)) for gold, probabilities in items])


def likelihood(items: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Mean probability of the right choice, P(choice | context). Items are (gold, loglikelihoods of the choices)."""
    return mean([exp(lls[gold]) for gold, lls in items])


def _likelihood_stderr(items: Sequence[tuple[int, Sequence[float]]], draws: int) -> float:
    return mean_stderr([exp(lls[gold]) for gold, lls in items], draws)


def acc_all(items: Sequence[tuple[Any, Mapping[str, Any]]]) -> float:
    """Share of questions all of whose answers were labelled rightly (MultiRC). Items are (prediction, doc)."""
    return mean(_whole_questions(items, lambda idx: (idx["paragraph"], idx["question"])))


def _acc_all_stderr(items: Sequence[tuple[Any, Mapping[str, Any]]], draws: int) -> float:
    # The format groups by question number alone here.
    return mean_stderr(_whole_questions(items, lambda idx: idx["question"]), draws)


def _whole_questions(
    items: Sequence[tuple[Any, Mapping[str, Any]]], key: Callable[[Mapping[str, Any]], Any]
) -> list[float]:
    right: dict[Any, bool] = {}
    for prediction, doc in items:
        question = key(doc["idx"])
        right[question] = right.get(question, True) and (doc["label"] == 1) == prediction
    return [float(all_right) for all_right in right.values()]


def bypass(items: Sequence[Item]) -> float:
    """The format's placeholder where nothing is to be scored."""
    return 999.0


def exp(exponent: float) -> float:
    """exp without overflow: infinite where a float cannot hold it."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _weighted_mean(items: Sequence[tuple[float, int]]) -> float:
    units = sum(count for _, count in items)
    return sum(ll for ll, _ in items) / units if units else math.nan


def _resampled(function: Callable[[Any], Any]) -> Resample:
    """For statistics of plain numbers that numpy computes from an array."""

    def prepare(items: Sequence[float]) -> Callable[[Any], float]:
        values = np.asarray(items, dtype=float)
        return lambda drawn: float(function(values[drawn]))

    return prepare


def _nanmean_of(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _bootstrapped(function: Callable[[Any], float], resample: Resample, draws: int | None = None) -> Aggregation:
    return Aggregation(function, partial(bootstrap_stderr, resample, most_draws=draws))


def _translation(name: str) -> Aggregation:
    resample = partial(translation.resample, name)
    return _bootstrapped(partial(translation.corpus_score, name), resample, TRANSLATION_DRAWS)


AGGREGATIONS: Mapping[str, Aggregation] = MappingProxyType(
    {
        "acc_all": Aggregation(acc_all, _acc_all_stderr),
        "bits_per_byte": Aggregation(bits_per_byte),
        "bleu": _translation("bleu"),
        "brier_score": Aggregation(brier_score),
        "bypass": Aggregation(bypass),
        "chrf": _translation("chrf"),
        "chrf++": _translation("chrf++"),
        "f1": _bootstrapped(labels.f1, labels.resample_f1),
        "likelihood": Aggregation(likelihood, _likelihood_stderr),
        "matthews_corrcoef": _bootstrapped(labels.matthews_corrcoef, labels.resample_matthews_corrcoef),
        "mean": Aggregation(mean, mean_stderr),
        "median": _bootstrapped(median, _resampled(np.median)),
        "nanmean": _bootstrapped(nanmean, _resampled(_nanmean_of)),
        "perplexity": _bootstrapped(perplexity, _resampled(lambda lls: exp(-float(lls.mean())))),
        "ter": _translation("ter"),
        "weighted_perplexity": Aggregation(weighted_perplexity),
    }
)
