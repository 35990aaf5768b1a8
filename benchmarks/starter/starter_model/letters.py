"""Multiple choice by letter, in the format of MMLU (Hendrycks et al., 2021, arXiv:2009.03300).

A doc is ``{"question": str, "choices": [str] * 4, "answer": int}``, as in the data set `cais/mmlu`.

A model of this size, trained this briefly, does not learn to look its answer up among choices that move: each
fact keeps its four choices and their order. What is new in the test is the wording: it asks every fact in the one
of its three wordings that training leaves out for this fact. Comparisons need no such care: their choices are the
same for all, and the numbers of the test are held out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypedDict

from starter_model.draws import stream
from starter_model.facts import Subject
from starter_model.facts import subjects


LETTERS = "ABCD"
SHOTS = 5
COMPARISONS = "comparisons"
COMPARISON_CHOICES = (
    "The first is greater.",
    "The second is greater.",
    "Both are the same.",
    "They cannot be compared.",
)
COMPARISON_TESTS = 80
NUMBERS = range(10, 100)


class LettersDoc(TypedDict):
    question: str
    choices: list[str]
    answer: int


@dataclass(frozen=True, slots=True)
class Question:
    """A fact with its choices. `tested` is the wording that is kept for the test, `taught` are the others."""

    tested: str
    taught: tuple[str, ...]
    statements: tuple[str, ...]
    choices: tuple[str, ...]
    answer: int

    def doc(self, wording: str) -> LettersDoc:
        return {"question": wording, "choices": list(self.choices), "answer": self.answer}


def description(subject: str) -> str:
    """The line above the first question of a sheet."""
    return f"The following are multiple choice questions (with answers) about {subject}.\n\n"


def prompt(doc: LettersDoc) -> str:
    """The question as the model reads it, up to the answer's letter."""
    choices = "".join(f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, doc["choices"], strict=True))
    return f"{doc['question']}\n{choices}Answer:"


def target(doc: LettersDoc) -> str:
    """What follows the prompt."""
    return f" {LETTERS[doc['answer']]}"


def questions(seed: int) -> dict[str, list[Question]]:
    """Subject -> its questions; the choices are drawn from the answers of the subject."""
    return {subject.name: _questions_of(subject, stream(seed, subject.name)) for subject in subjects()}


def comparison_doc(first: int, second: int) -> LettersDoc:
    """Two numbers compared; the choices are always the same."""
    answer = 0 if first > second else 1 if second > first else 2
    question = f"How do the numbers {first} and {second} compare?"
    return {"question": question, "choices": list(COMPARISON_CHOICES), "answer": answer}


def comparison(rng: random.Random) -> tuple[int, int]:
    """A drawn pair of numbers: one in three is of the same number twice."""
    first = rng.choice(NUMBERS)
    return first, first if rng.random() < 1 / 3 else rng.choice(NUMBERS)


def tested_comparisons(seed: int) -> list[tuple[int, int]]:
    """The pairs that occur in no training text, all different: the shots, then the test."""
    rng = stream(seed, COMPARISONS)
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < SHOTS + COMPARISON_TESTS:
        pairs[comparison(rng)] = None
    return list(pairs)


def letters_docs(seed: int) -> dict[str, dict[str, list[LettersDoc]]]:
    """Subject -> split (`dev` holds the shots, `test` the questions) -> docs."""
    docs = {name: [each.doc(each.tested) for each in asked] for name, asked in questions(seed).items()}
    docs[COMPARISONS] = [comparison_doc(*pair) for pair in tested_comparisons(seed)]
    return {name: {"dev": some[:SHOTS], "test": some[SHOTS:]} for name, some in docs.items()}


def _questions_of(subject: Subject, rng: random.Random) -> list[Question]:
    answers = subject.answers()
    result = []
    for index, fact in enumerate(subject.facts):
        choices = [fact.answer, *rng.sample([answer for answer in answers if answer != fact.answer], 3)]
        rng.shuffle(choices)
        tested = fact.questions[index % len(fact.questions)]
        taught = tuple(wording for wording in fact.questions if wording != tested)
        result.append(Question(tested, taught, fact.statements, tuple(choices), choices.index(fact.answer)))
    return result
