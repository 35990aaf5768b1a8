"""The items of a doc from loglikelihoods: those of its choices, or that of a text.

`METRICS` in `metric.py` names, for each metric, the function of this module that makes its item.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._scoring.aggregations import exp
from pytest_llmeval._task import Metric


#: In place of a predicted label where no choice has a usable loglikelihood.
NO_CHOICE = -1


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of a model to a doc's choices.

    `lls`: natural logs of P(delimiter + choice | context). `greedy`: whether greedy decoding writes the choice.
    `gold`: indices of the right choices, any of which is right. `unconditional`: the lls without the context, for
    `acc_mutual_info` only; no other metric uses them.
    """

    lls: Sequence[float]
    greedy: Sequence[bool]
    choices: Sequence[str]
    gold: Sequence[int]
    unconditional: Sequence[float] = ()

    @property
    def usable(self) -> bool:
        """True if there is a prediction: no NaN anywhere, and not every choice impossible."""
        return pick(self.lls) != NO_CHOICE and not any(map(_is_broken, self.unconditional))

    @property
    def best_gold(self) -> int:
        """The right choice that the model finds likeliest."""
        return max(self.gold, key=lambda index: self.lls[index])


def choice_scores(answered: Answered, metrics: Iterable[Metric]) -> dict[str, Any]:
    """The items of a multiple-choice doc by metric name.

    NaN is never a prediction: a doc with one, or with nothing but -inf, is not right by any metric. Raises
    ValueError for an empty choice, which no length can normalise.
    """
    if "" in answered.choices:
        raise ValueError(f"choice {list(answered.choices).index('')} is empty")
    return {metric.name: metric.item(answered) for metric in metrics if metric.item is not None}


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


def log_probabilities(answered: Answered) -> list[float]:
    return list(answered.lls)


def per_character(answered: Answered) -> list[float]:
    """Loglikelihood per character (code point) of the choice itself, without the delimiter."""
    return [ll / len(choice) for ll, choice in zip(answered.lls, answered.choices, strict=True)]


def per_byte(answered: Answered) -> list[float]:
    """Loglikelihood per UTF-8 byte of the choice itself."""
    return [ll / count_bytes(choice) for ll, choice in zip(answered.lls, answered.choices, strict=True)]


def gains(answered: Answered) -> list[float]:
    """log P(choice | context) - log P(choice)"""
    return [_gain(given, alone) for given, alone in zip(answered.lls, answered.unconditional, strict=True)]


def _gain(given: float, alone: float) -> float:
    """What the context makes impossible gains nothing; what is impossible only without it gains most."""
    if given == -math.inf:
        return given
    return sys.float_info.max if alone == -math.inf else given - alone


def picks_gold(picks_by: Callable[[Answered], list[float]], answered: Answered) -> float:
    """1.0 if the choice with the largest value is right, else 0.0."""
    return 1.0 if pick(picks_by(answered)) in answered.gold else 0.0


def writes_gold(answered: Answered) -> int:
    """1 if greedy decoding writes a right choice, else 0."""
    return int(pick(answered.lls) != NO_CHOICE and any(answered.greedy[index] for index in answered.gold))


def labels(answered: Answered) -> list[int]:
    """[right label, predicted label]; of several right choices the predicted one if it is among them."""
    picked = pick(answered.lls)
    return [picked if picked in answered.gold else answered.gold[0], picked]


def gold_and_probabilities(answered: Answered) -> list[Any]:
    return [answered.best_gold, probabilities(answered.lls)]


def gold_and_lls(answered: Answered) -> list[Any]:
    return [answered.best_gold, list(answered.lls)]


def probabilities(lls: Sequence[float]) -> list[float]:
    """Softmax over the choices; all NaN where there is no prediction."""
    if pick(lls) == NO_CHOICE:
        return [math.nan] * len(lls)
    highest = max(lls)
    weights = [exp(ll - highest) for ll in lls]
    total = sum(weights)
    return [weight / total for weight in weights]


def likeliest(answers: Sequence[tuple[float, bool]]) -> float:
    """The log probability of the text that the model finds likeliest; NaN if one is NaN."""
    return math.nan if any(math.isnan(ll) for ll, _ in answers) else max(ll for ll, _ in answers)


def writes_text(answers: Sequence[tuple[float, bool]]) -> int:
    """1 if greedy decoding writes one of the texts, else 0."""
    return int(any(is_greedy for _, is_greedy in answers) and not math.isnan(likeliest(answers)))


def per_unit(count: Callable[[str], int], answer: tuple[float, str]) -> list[Any]:
    """[log probability of a text, its length] from (log probability, text)."""
    ll, text = answer
    return [ll, count(text)]


def count_words(text: str) -> int:
    """Pieces between runs of white space; an empty piece at an end counts, as in lm-evaluation-harness."""
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
