"""The aggregations of lm_eval's format, in a table: functions from the items of all docs to the value of a metric.

Only a mean over docs has confidence bounds, so each record says if and how its value is a mean. A perplexity is the
exponential of a mean. A score per word is a ratio of sums; it is linearised (Cochran 1977, Sampling Techniques,
3rd ed., section 6.3): a doc of log-probability `ll` and `u` units contributes ``r + (-ll - r u) n / sum(u)`` with
``r = -sum(ll) / sum(u)``. The mean of these values is r, and their standard error is that of r.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_llmeval._plain import listed
from pytest_llmeval._scoring.standard_errors import DrawnDocs
from pytest_llmeval._scoring.standard_errors import Resample
from pytest_llmeval._scoring.standard_errors import bootstrap_stderr
from pytest_llmeval._scoring.standard_errors import mean_stderr
from pytest_llmeval._task import Aggregation
from pytest_llmeval._task import DocMean
from pytest_llmeval._task import ItemKind
from pytest_llmeval._task import ScoreRange


#: The largest number of draws for corpus scores, which are slow to compute.
TRANSLATION_DRAWS = 100


def f1(items: Sequence[tuple[Any, Any]]) -> float:
    """Return the F1 score of label 1; 0 if neither the gold nor the predicted labels contain a 1.

    Raises ValueError for other labels; -1, a doc without a prediction, counts as not 1.
    """
    return resample_f1(items)(np.arange(len(items)))


def resample_f1(items: Sequence[tuple[Any, Any]]) -> Callable[[DrawnDocs], float]:
    others = sorted({str(label) for item in items for label in item if label not in (0, 1, -1)})
    if others:
        raise ValueError(f"f1 is defined for the labels 0 and 1, but the data also has {listed(others)}")
    gold, predicted = (np.array([item[side] == 1 for item in items]) for side in (0, 1))

    def statistic(drawn: DrawnDocs) -> float:
        both = int((gold[drawn] & predicted[drawn]).sum())
        total = int(gold[drawn].sum() + predicted[drawn].sum())
        return 2 * both / total if total else 0.0

    return statistic


def matthews_corrcoef(items: Sequence[tuple[Any, Any]]) -> float:
    """Return the correlation of gold and predicted labels of any number (Gorodkin 2004); 0 if either is constant."""
    return resample_matthews_corrcoef(items)(np.arange(len(items)))


def resample_matthews_corrcoef(items: Sequence[tuple[Any, Any]]) -> Callable[[DrawnDocs], float]:
    numbers = {label: i for i, label in enumerate(dict.fromkeys(label for item in items for label in item))}
    n_labels = len(numbers)
    cells = np.array([numbers[gold] * n_labels + numbers[predicted] for gold, predicted in items])

    def statistic(drawn: DrawnDocs) -> float:
        return _correlation(np.bincount(cells[drawn], minlength=n_labels**2).reshape(n_labels, n_labels))

    return statistic


def _correlation(confusion: NDArray[np.intp]) -> float:
    n, hits = int(confusion.sum()), int(np.trace(confusion))
    gold, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread = (n**2 - int(gold @ gold)) * (n**2 - int(predicted @ predicted))
    return (hits * n - int(gold @ predicted)) / math.sqrt(spread) if spread else 0.0


def mean(items: Sequence[float]) -> float:
    return float(sum(items) / len(items))


def median(items: Sequence[float]) -> float:
    """Return the middle value; of an even number of items the mean of the two in the middle."""
    return float(statistics.median(items)) if not any(map(math.isnan, items)) else math.nan


def nanmean(items: Sequence[float]) -> float:
    """Return the mean of the items that are not NaN; NaN if there is none."""
    known = [item for item in items if not math.isnan(item)]
    return mean(known) if known else math.nan


def perplexity(lls: Sequence[float]) -> float:
    """Return exp of the negative mean of the docs' loglikelihoods."""
    return exp(-mean(lls))


def weighted_perplexity(items: Sequence[tuple[float, int]]) -> float:
    """Return exp of the negative loglikelihood per unit (word, byte) of all docs together; items are (ll, units)."""
    return exp(-_weighted_mean(items))


def bits_per_byte(items: Sequence[tuple[float, int]]) -> float:
    return -_weighted_mean(items) / math.log(2)


def brier_score(items: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Return the mean squared distance of the probabilities from the right answer (Brier 1950); 0 is best, 2 worst.

    Items are (gold, probabilities); docs may have different numbers of choices.
    """
    return mean([sum((p - (i == gold)) ** 2 for i, p in enumerate(probabilities)) for gold, probabilities in items])


def likelihood(items: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Return the mean probability of the right choice. Items are (gold, log P(choice | context) of the choices)."""
    return mean(_likelihoods(items))


def acc_all(items: Sequence[tuple[Any, Mapping[str, Any]]]) -> float:
    """Return the share of questions whose answers all have the right label (MultiRC). Items are (prediction, doc)."""
    return mean(_whole_questions(items, lambda idx: (idx["paragraph"], idx["question"])))


def _acc_all_stderr(items: Sequence[tuple[Any, Mapping[str, Any]]], draws: int) -> float:
    # lm_eval groups by question number alone here.
    return mean_stderr(_whole_questions(items, lambda idx: idx["question"]), draws)


def _whole_questions(
    items: Sequence[tuple[Any, Mapping[str, Any]]], key: Callable[[Mapping[str, Any]], Any]
) -> list[float]:
    right: dict[Any, bool] = {}
    for prediction, doc in items:
        question = key(doc["idx"])
        right[question] = right.get(question, True) and (doc["label"] == 1) == prediction
    return [float(all_right) for all_right in right.values()]


def exp(exponent: float) -> float:
    """Return exp without overflow: infinite where a float cannot hold it."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _weighted_mean(items: Sequence[tuple[float, int]]) -> float:
    units = sum(count for _, count in items)
    return sum(ll for ll, _ in items) / units if units else math.nan


def _likelihoods(items: Sequence[tuple[int, Sequence[float]]]) -> list[float]:
    return [exp(lls[gold]) for gold, lls in items]


def _per_unit(items: Sequence[tuple[float, int]]) -> list[float]:
    """Return the linearised values of a score per unit."""
    rate, average = _rate_and_length(items)
    return [rate + (-ll - rate * count) / average for ll, count in items]


def _least_per_unit(items: Sequence[tuple[float, int]]) -> float:
    """Return the lower bound of a doc's linearised value, reached when every unit has probability 1.

    It is negative, since docs may be longer than average. No doc is assumed to be longer than the longest of `items`.
    """
    rate, average = _rate_and_length(items)
    longest: float = max(count for _, count in items)
    return rate * (1 - longest / average)


def _rate_and_length(items: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the score per unit, and the units of a doc of average length."""
    units = sum(count for _, count in items)
    if not units:
        return math.nan, math.nan
    return -sum(ll for ll, _ in items) / units, units / len(items)


def _nanmean_of(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _bootstrapped(
    name: str,
    function: Callable[[Any], float],
    resample: Resample | Callable[[Any], Any],
    needs: ItemKind = "number",
    doc_mean: DocMean | None = None,
    most_draws: int | None = None,
) -> Aggregation:
    stderr = partial(bootstrap_stderr, resample, most_draws=most_draws)
    return Aggregation(name, function, needs, stderr, doc_mean)


def _of_numbers(function: Callable[[Any], Any]) -> Resample:
    """Return the resampling of a statistic that numpy computes from an array of plain numbers."""

    def prepare(items: Sequence[float]) -> Callable[[Any], float]:
        values = np.asarray(items, dtype=float)
        return lambda drawn: float(function(values[drawn]))

    return prepare


def require_sacrebleu(name: str) -> None:
    """Raise ValueError, which says how to install sacrebleu, if it is not installed."""
    try:
        import sacrebleu.metrics  # noqa: F401 - an optional dependency, needed only by these metrics
    except ImportError:
        raise ValueError(f"metric {name} needs sacrebleu: pip install 'pytest-llmeval-harness[translation]'") from None


def _translation(name: str, scorer_class: str, **settings: int) -> Aggregation:
    """Return a score of a whole corpus by sacrebleu, 0 to 100 (TER may exceed it)."""

    def scorer() -> Any:
        require_sacrebleu(name)
        import sacrebleu.metrics

        return getattr(sacrebleu.metrics, scorer_class)(**settings)

    def streams(items: Sequence[tuple[Any, Any]]) -> tuple[list[str], list[tuple[str | None, ...]]]:
        # The predictions, and for each j the j-th references, None where a doc has fewer.
        references = [[given] if isinstance(given, str) else list(given) for given, _ in items]
        return [prediction for _, prediction in items], list(zip_longest(*references))

    def score(items: Sequence[tuple[Any, Any]]) -> float:
        return float(scorer().corpus_score(*streams(items)).score)

    def resample(items: Sequence[tuple[Any, Any]]) -> Callable[[DrawnDocs], float]:
        # Matches are counted once per doc; a draw only adds them up, as sacrebleu's own bootstrap does.
        made = scorer()
        counts = np.array(made._extract_corpus_statistics(*streams(items)))
        return lambda drawn: float(made._compute_score_from_stats(counts[drawn].sum(axis=0).tolist()).score)

    return _bootstrapped(name, score, resample, "texts", most_draws=TRANSLATION_DRAWS)


_ALL = (
    Aggregation("acc_all", acc_all, "labelled_doc", _acc_all_stderr),
    Aggregation(
        "bits_per_byte",
        bits_per_byte,
        "lengths",
        doc_mean=DocMean(
            lambda items: [value / math.log(2) for value in _per_unit(items)],
            floor=0.0,
            least=lambda items: _least_per_unit(items) / math.log(2),
        ),
    ),
    _translation("bleu", "BLEU"),
    Aggregation(
        "brier_score",
        brier_score,
        "choices",
        doc_mean=DocMean(lambda items: [brier_score([item]) for item in items], support=ScoreRange(0.0, 2.0)),
    ),
    Aggregation("bypass", lambda items: 999.0),  # lm_eval's placeholder where nothing is scored
    _translation("chrf", "CHRF"),
    _translation("chrf++", "CHRF", word_order=2),
    replace(_bootstrapped("f1", f1, resample_f1, "labels"), range=ScoreRange(0.0, 1.0)),
    Aggregation(
        "likelihood",
        likelihood,
        "choices",
        lambda items, draws: mean_stderr(_likelihoods(items), draws),
        DocMean(_likelihoods, support=ScoreRange(0.0, 1.0)),
    ),
    _bootstrapped("matthews_corrcoef", matthews_corrcoef, resample_matthews_corrcoef, "labels"),
    Aggregation(
        "mean", mean, "number", mean_stderr, DocMean(lambda items: [float(item) for item in items], plain=True)
    ),
    _bootstrapped("median", median, _of_numbers(np.median)),
    _bootstrapped("nanmean", nanmean, _of_numbers(_nanmean_of)),
    _bootstrapped(
        "perplexity",
        perplexity,
        _of_numbers(lambda lls: exp(-float(lls.mean()))),
        doc_mean=DocMean(lambda items: [-float(item) for item in items], log=True, floor=0.0, least=lambda items: 0.0),
    ),
    _translation("ter", "TER"),
    Aggregation(
        "weighted_perplexity",
        weighted_perplexity,
        "lengths",
        doc_mean=DocMean(_per_unit, log=True, floor=0.0, least=_least_per_unit),
    ),
)

AGGREGATIONS: Mapping[str, Aggregation] = MappingProxyType({one.name: one for one in _ALL})
