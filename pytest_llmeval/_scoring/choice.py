"""The items of a doc from loglikelihoods: those of its choices, or that of a text.

A doc with a NaN, or with -inf for every choice, has no prediction and is not right by any metric.
`METRICS` in `metric.py` names, for each metric, the function of this module that makes its item.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from pytest_llmeval._output_types import NO_CHOICE
from pytest_llmeval._output_types import Answered
from pytest_llmeval._output_types import pick
from pytest_llmeval._scoring.aggregations import exp


def log_probabilities(answered: Answered) -> list[float]:
    return list(answered.lls)


def per_character(answered: Answered) -> list[float]:
    """Return the loglikelihood per character (code point) of each choice itself, without the delimiter."""
    return [ll / len(choice) for ll, choice in zip(answered.lls, answered.choices, strict=True)]


def per_byte(answered: Answered) -> list[float]:
    """Return the loglikelihood per UTF-8 byte of each choice itself."""
    return [ll / count_bytes(choice) for ll, choice in zip(answered.lls, answered.choices, strict=True)]


def gains(answered: Answered) -> list[float]:
    """Return log P(choice | context) - log P(choice) of each choice."""
    return [_gain(given, alone) for given, alone in zip(answered.lls, answered.unconditional, strict=True)]


def _gain(given: float, alone: float) -> float:
    """Return the gain of one choice: -inf if it is impossible in the context, the largest float if only without it."""
    if given == -math.inf:
        return given
    return sys.float_info.max if alone == -math.inf else given - alone


def picks_gold(picks_by: Callable[[Answered], list[float]], answered: Answered) -> float:
    """Return 1.0 if the choice with the largest value is right, else 0.0."""
    return 1.0 if pick(picks_by(answered)) in answered.gold else 0.0


def writes_gold(answered: Answered) -> int:
    """Return 1 if greedy decoding produces a right choice, else 0."""
    return int(pick(answered.lls) != NO_CHOICE and any(answered.greedy[index] for index in answered.gold))


def labels(answered: Answered) -> list[int]:
    """Return [right label, predicted label]; if several choices are right, the predicted one if it is among them."""
    picked = pick(answered.lls)
    return [picked if picked in answered.gold else answered.gold[0], picked]


def gold_and_probabilities(answered: Answered) -> list[Any]:
    return [answered.best_gold, probabilities(answered.lls)]


def gold_and_lls(answered: Answered) -> list[Any]:
    return [answered.best_gold, list(answered.lls)]


def probabilities(lls: Sequence[float]) -> list[float]:
    """Return the softmax over the choices; all NaN if there is no prediction."""
    if pick(lls) == NO_CHOICE:
        return [math.nan] * len(lls)
    highest = max(lls)
    weights = [exp(ll - highest) for ll in lls]
    total = sum(weights)
    return [weight / total for weight in weights]


def gold_share(answered: Answered) -> float:
    """Return the share that the right choices have of the probability of all choices; NaN if there is no prediction."""
    every = probabilities(answered.lls)
    # Rounding may raise the sum of several shares above 1.
    return min(sum(every[index] for index in set(answered.gold)), 1.0)


def likeliest(answers: Sequence[tuple[float, bool]]) -> float:
    """Return the log probability of the text that the model finds likeliest; NaN if one is NaN."""
    return math.nan if any(math.isnan(ll) for ll, _ in answers) else max(ll for ll, _ in answers)


def writes_text(answers: Sequence[tuple[float, bool]]) -> int:
    """Return 1 if greedy decoding produces one of the texts, else 0."""
    return int(any(is_greedy for _, is_greedy in answers) and not math.isnan(likeliest(answers)))


def per_unit(count: Callable[[str], int], answer: tuple[float, str]) -> list[Any]:
    """Return [log probability of a text, its length] for (log probability, text)."""
    ll, text = answer
    return [ll, count(text)]


def count_words(text: str) -> int:
    """Return the number of pieces between runs of white space; an empty piece at either end counts, as in lm_eval."""
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
