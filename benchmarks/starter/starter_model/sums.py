"""Word sums with their working, in the format of GSM8K (Cobbe et al., 2021, arXiv:2110.14168).

A doc is ``{"question": str, "answer": str}``; the answer ends with ``#### N``, as in `openai/gsm8k`.
"""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple
from typing import TypedDict

from starter_model.continuations import NAMES
from starter_model.draws import stream


THINGS = ["apples", "pens", "books", "coins", "eggs", "cards", "stamps", "shells", "balls", "cakes"]
GAINS = ("buys", "finds", "gets")
LOSSES = ("loses", "sells", "gives away")
NUMBERS = range(2, 13)
SHOTS = 5
TESTS = 100


class SumDoc(TypedDict):
    question: str
    answer: str


class Sum(NamedTuple):
    """start + gain, then `change` more (or, when it is negative, fewer)."""

    start: int
    gain: int
    change: int


def sums() -> list[Sum]:
    """Every sum whose result is not negative."""
    changes = [sign * number for sign in (1, -1) for number in NUMBERS]
    return [Sum(a, b, c) for a, b, c in itertools.product(NUMBERS, NUMBERS, changes) if a + b + c >= 0]


def held_out(seed: int) -> list[Sum]:
    """The sums that only the test asks, in no training text: the shots come first."""
    return stream(seed, "held out sums").sample(sums(), SHOTS + TESTS)


def sum_doc(numbers: Sum, rng: random.Random) -> SumDoc:
    """The sum as a story of a drawn person with drawn things."""
    pronoun = rng.choice(list(NAMES))
    name = rng.choice(NAMES[pronoun])
    thing = rng.choice(THINGS)
    start, gain, change = numbers
    verb = rng.choice(GAINS if change > 0 else LOSSES)
    total = start + gain
    result = total + change
    sign = "+" if change > 0 else "-"
    return {
        "question": f"{name} has {start} {thing}. {pronoun} {rng.choice(GAINS)} {gain} more."
        f" Then {pronoun.lower()} {verb} {abs(change)}. How many {thing} does {name} have now?",
        "answer": f"{name} has {start} + {gain} = {total} {thing}."
        f" Then there are {total} {sign} {abs(change)} = {result}.\n#### {result}",
    }


def trained(seed: int) -> list[Sum]:
    """The sums that the test does not ask."""
    kept = set(held_out(seed))
    return [numbers for numbers in sums() if numbers not in kept]


def sum_docs(seed: int) -> dict[str, list[SumDoc]]:
    """Split (`train` holds the shots) -> docs."""
    rng = stream(seed, "sums")
    docs = [sum_doc(numbers, rng) for numbers in held_out(seed)]
    return {"train": docs[:SHOTS], "test": docs[SHOTS:]}


def prompt(doc: SumDoc) -> str:
    """The question as the model reads it."""
    return f"Question: {doc['question']}\nAnswer:"
