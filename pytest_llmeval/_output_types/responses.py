"""The responses of a model as plain values, and the choice of a doc that they pick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._results import nonfinite_in


#: In place of a predicted label where no choice has a usable loglikelihood.
NO_CHOICE = -1

#: The amount by which rounding may raise a sum of log-probabilities above 0.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of a model to a doc's choices.

    `lls`: natural logs of P(delimiter + choice | context). `greedy`: whether greedy decoding writes the choice.
    `gold`: indices of the right choices, any of which is right. `unconditional`: the lls without the context, for
    `acc_mutual_info` only; no other metric uses them. Raises ValueError for an empty choice, which cannot be
    normalised by length.
    """

    lls: Sequence[float]
    greedy: Sequence[bool]
    choices: Sequence[str]
    gold: Sequence[int]
    unconditional: Sequence[float] = ()

    def __post_init__(self) -> None:
        if "" in self.choices:
            raise ValueError(f"choice {list(self.choices).index('')} is empty")

    @property
    def usable(self) -> bool:
        """True if there is a prediction: no NaN anywhere, and not every choice impossible."""
        return pick(self.lls) != NO_CHOICE and not any(map(_is_broken, self.unconditional))

    @property
    def best_gold(self) -> int:
        """The right choice that the model finds likeliest."""
        return max(self.gold, key=lambda index: self.lls[index])


def pick(lls: Sequence[float]) -> int:
    """Return the index of the largest value, the first of equals; NO_CHOICE if one is NaN or +inf, or all are -inf."""
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
    """Return a value minus the largest of the others; infinite if all others are impossible.

    >>> margin([-1.0, -1.5, -4.0], 0), margin([-1.0, -1.5, -4.0], 1)
    (0.5, -0.5)
    """
    return values[index] - max((value for place, value in enumerate(values) if place != index), default=-math.inf)


def read_pair(response: Any) -> tuple[float, bool]:
    """Return (log probability, is_greedy). Raises TypeError or ValueError for anything else."""
    logprob, greedy = response
    return read_logprob(logprob), bool(greedy)


def read_logprob(response: Any) -> float:
    """Return a response as a number. Raises ValueError if it is finite and clearly above 0; NaN and infinities pass."""
    if isinstance(response, str | bytes) or _ROUNDING < (value := float(response)) < math.inf:
        raise ValueError(response)
    return value


def read_text(response: Any) -> str:
    if not isinstance(response, str):
        raise TypeError(response)
    return str(response)


def choices_answered(doc: RenderedDoc, answers: Sequence[Any]) -> Answered:
    """Return the answers to a doc's choices, and those without the context if they were requested.

    Raises ValueError for another number of answers, and if a filter returned anything but pairs.
    """
    choices = doc.choices or ()
    if len(answers) not in (len(choices), 2 * len(choices)) or not doc.gold:
        raise ValueError(f"{len(answers)} answers to {len(choices)} choices, of which {len(doc.gold)} are right")
    pairs = pairs_answered(doc, answers)
    lls = [ll for ll, _ in pairs]
    greedy = [is_greedy for _, is_greedy in pairs[: len(choices)]]
    return Answered(lls[: len(choices)], greedy, choices, doc.gold, lls[len(choices) :])


def pairs_answered(doc: RenderedDoc, answers: Sequence[Any]) -> list[tuple[float, bool]]:
    for answer in answers:
        if not isinstance(answer, tuple):
            found = f"the filter returned {answer!r:.80} instead of (log-probability, is_greedy)"
            raise ValueError(f"{found}; end the pipeline with take_first")
    return [(ll, is_greedy) for ll, is_greedy in answers]


def text_answered(doc: RenderedDoc, answers: Sequence[Any]) -> tuple[float, str]:
    """Return (log probability of the doc's text, the text)."""
    (text,), (ll,) = doc.references, answers
    return ll, text


def unusable_number(doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> str:
    """Return the name of the first log-likelihood that is NaN or +inf; -inf, an impossible text, is a usable number."""
    lls = (response[0] if isinstance(response, tuple) else response for repeats in responses for response in repeats)
    return next((name for ll in lls if ll != -math.inf and (name := nonfinite_in(ll))), "")


def unusable_choices(doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> str:
    """Return the reason why a model picks none of the choices, empty if it picks one."""
    lls = [repeats[0][0] for repeats in responses]
    n = len(doc.choices or ())
    answered = Answered(lls[:n], (), doc.choices or (), doc.gold, lls[n:])
    return unusable_number(doc, responses) or ("" if answered.usable else "-inf for every choice")
