"""Items of one doc whose text itself is scored.

Scores of one multiple-choice doc, from the loglikelihoods of its choices.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pytest_llmeval._scoring.aggregations import exp


def count_words(text: str) -> int:
    """Pieces between runs of white space; an empty piece at an end counts, as in lm-evaluation-harness."""
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def target_scores(answers: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """loglikelihood: of the text that is best scored, its log probability and whether greedy decoding writes it."""
    likeliest = max(ll for ll, _ in answers) if not any(math.isnan(ll) for ll, _ in answers) else math.nan
    greedy = any(is_greedy for _, is_greedy in answers) and not math.isnan(likeliest)
    return {"perplexity": likeliest, "acc": int(greedy)}


#: loglikelihood_rolling: what a metric divides the log probability of a text by.
ROLLING_METRICS: Mapping[str, Callable[[str], int]] = MappingProxyType(
    {"word_perplexity": count_words, "byte_perplexity": count_bytes, "bits_per_byte": count_bytes}
)


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


def margin(values: Sequence[float], index: int) -> float:
    """How far a value lies above the largest of the others, or below it; infinite if only that one is possible.

    >>> margin([-1.0, -1.5, -4.0], 0), margin([-1.0, -1.5, -4.0], 1)
    (0.5, -0.5)
    """
    return values[index] - max((value for place, value in enumerate(values) if place != index), default=-math.inf)


def _lls(answered: Answered) -> list[float]:
    return list(answered.lls)


def _per_character(answered: Answered) -> list[float]:
    """Loglikelihood per character (code point) of the choice itself, without the delimiter."""
    lengths = map(len, answered.choices)
    return [ll / length for ll, length in zip(answered.lls, lengths, strict=True)]


def _per_byte(answered: Answered) -> list[float]:
    """Loglikelihood per UTF-8 byte of the choice itself."""
    lengths = (len(choice.encode("utf-8", "surrogatepass")) for choice in answered.choices)
    return [ll / length for ll, length in zip(answered.lls, lengths, strict=True)]


def _gains(answered: Answered) -> list[float]:
    """log P(choice | context) - log P(choice)"""
    return [_gain(given, alone) for given, alone in zip(answered.lls, answered.unconditional, strict=True)]


def _picks_gold(values_of: Callable[[Answered], list[float]], answered: Answered) -> float:
    return 1.0 if pick(values_of(answered)) in answered.gold else 0.0


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


#: The values, choice by choice, of which a metric picks the largest; it is right if that choice is.
PICKED_BY: Mapping[str, Callable[[Answered], list[float]]] = MappingProxyType(
    {"acc": _lls, "acc_bytes": _per_byte, "acc_mutual_info": _gains, "acc_norm": _per_character}
)

CHOICE_METRICS: Mapping[str, Callable[[Answered], Any]] = MappingProxyType(
    {
        **{name: partial(_picks_gold, values_of) for name, values_of in PICKED_BY.items()},
        "brier_score": _brier_score,
        "exact_match": _exact_match,
        "f1": _labels,
        "likelihood": _likelihood,
        "mcc": _labels,
    }
)
