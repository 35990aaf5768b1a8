"""Scores of one multiple-choice doc, from the loglikelihoods of its choices."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._metrics.aggregations import exp


#: In place of a predicted label where no choice has a usable loglikelihood.
NO_CHOICE = -1


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model said of a doc's choices.

    `lls`: natural logs of P(delimiter + choice | context). `greedy`: whether greedy decoding writes the choice.
    `gold`: indices of the right ones, any of which is right. `unconditional`: the lls without the context, for
    `acc_mutual_info` only; no other metric looks at them.
    """

    lls: Sequence[float]
    greedy: Sequence[bool]
    choices: Sequence[str]
    gold: Sequence[int]
    unconditional: Sequence[float] = ()

    @property
    def usable(self) -> bool:
        """Whether there is a prediction: no NaN anywhere, and not every choice impossible."""
        unconditional = not any(map(_is_broken, self.unconditional))
        return pick(self.lls) != NO_CHOICE and unconditional

    @property
    def best_gold(self) -> int:
        """The right choice that the model finds likeliest."""
        return max(self.gold, key=lambda index: self.lls[index])


def choice_scores(answered: Answered, metrics: Iterable[str]) -> dict[str, Any]:
    """The items of some metrics of `CHOICE_METRICS`.

    NaN is never a prediction: a doc with one, or with nothing but -inf, is not right by any metric. Raises
    ValueError for an empty choice, which no length can normalise.
    """
    if "" in answered.choices:
        raise ValueError(f"choice {list(answered.choices).index('')} is empty")
    return {metric: CHOICE_METRICS[metric](answered) for metric in metrics}


def pick(lls: Sequence[float]) -> int:
    """Index of the largest value, the first of equals; NO_CHOICE if one is NaN or +inf, or all are -inf."""
    best, highest = NO_CHOICE, -math.inf
    for index, ll in enumerate(lls):
        if _is_broken(ll):
            return NO_CHOICE
        if ll > highest:
            best, highest = index, ll
    return best


def _is_broken(ll: float) -> bool:
    return ll != ll or ll == math.inf


def _right(lls: Sequence[float], gold: Sequence[int]) -> float:
    return 1.0 if pick(lls) in gold else 0.0


def _acc(answered: Answered) -> float:
    return _right(answered.lls, answered.gold)


def _acc_norm(answered: Answered) -> float:
    """By loglikelihood per character (code point) of the choice itself, without the delimiter."""
    lengths = map(len, answered.choices)
    return _right([ll / length for ll, length in zip(answered.lls, lengths, strict=True)], answered.gold)


def _acc_bytes(answered: Answered) -> float:
    """By loglikelihood per UTF-8 byte of the choice itself."""
    lengths = (len(choice.encode("utf-8", "surrogatepass")) for choice in answered.choices)
    return _right([ll / length for ll, length in zip(answered.lls, lengths, strict=True)], answered.gold)


def _acc_mutual_info(answered: Answered) -> float:
    """By log P(choice | context) - log P(choice)."""
    pairs = zip(answered.lls, answered.unconditional, strict=True)
    return _right([_gain(given, alone) for given, alone in pairs], answered.gold)


def _gain(given: float, alone: float) -> float:
    """What the context makes impossible gains nothing; what is impossible only without it gains most."""
    if given == -math.inf:
        return given
    return sys.float_info.max if alone == -math.inf else given - alone


def _exact_match(answered: Answered) -> int:
    """Whether greedy decoding writes a right choice."""
    return int(pick(answered.lls) != NO_CHOICE and any(answered.greedy[index] for index in answered.gold))


def _labels(answered: Answered) -> list[int]:
    picked = pick(answered.lls)
    return [picked if picked in answered.gold else answered.gold[0], picked]


def _brier_score(answered: Answered) -> list[Any]:
    return [answered.best_gold, probabilities(answered.lls)]


def _likelihood(answered: Answered) -> list[Any]:
    return [answered.best_gold, list(answered.lls)]


def probabilities(lls: Sequence[float]) -> list[float]:
    """Softmax over the choices; all NaN where there is no prediction."""
    if pick(lls) == NO_CHOICE:
        return [math.nan] * len(lls)
    highest = max(lls)
    weights = [exp(ll - highest) for ll in lls]
    total = sum(weights)
    return [weight / total for weight in weights]


CHOICE_METRICS: Mapping[str, Callable[[Answered], Any]] = MappingProxyType(
    {
        "acc": _acc,
        "acc_bytes": _acc_bytes,
        "acc_mutual_info": _acc_mutual_info,
        "acc_norm": _acc_norm,
        "brier_score": _brier_score,
        "exact_match": _exact_match,
        "f1": _labels,
        "likelihood": _likelihood,
        "mcc": _labels,
    }
)
