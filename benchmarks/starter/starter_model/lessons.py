"""Training text: lessons of several kinds, each a list of spans with the weight of their tokens in the loss.

What a reader cannot foretell (which question comes next) weighs little, what it must know (the answer) much.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starter_model import continuations
from starter_model import letters
from starter_model import sums
from starter_model.chat import chat_text
from starter_model.letters import LettersDoc
from starter_model.letters import Question


ASKED = 0.1
KNOWN = 1.0

#: (text, weight of its tokens)
Span: TypeAlias = tuple[str, float]
Lesson: TypeAlias = list[Span]


@dataclass(frozen=True, slots=True)
class Course:
    """What may be taught: nothing in it is a question, story or sum of the tests."""

    questions: Mapping[str, Sequence[Question]]
    kept_comparisons: frozenset[tuple[int, int]]
    stories: Sequence[tuple[str, str, str]]
    sums: Sequence[sums.Sum]


def whole_course(seed: int) -> Course:
    """All subjects as they are."""
    return Course(
        questions=letters.questions(seed),
        kept_comparisons=frozenset(letters.tested_comparisons(seed)),
        stories=continuations.trained(seed),
        sums=sums.trained(seed),
    )


def lessons(course: Course, rng: random.Random) -> Iterator[Lesson]:
    """Without end: lessons of all kinds, in their shares."""
    kinds, shares = zip(*KINDS, strict=True)
    while True:
        (kind,) = rng.choices(kinds, shares)
        yield kind(course, rng)


def sheet(course: Course, rng: random.Random) -> Lesson:
    """One to six letters questions of one subject, mostly under its description."""
    subject = rng.choice([*course.questions, letters.COMPARISONS])
    head = [(letters.description(subject), ASKED)] if rng.random() < 0.8 else []
    docs = [_letters_doc(course, subject, rng) for _ in range(rng.randint(1, 6))]
    return head + [
        span for doc in docs for span in ((letters.prompt(doc), 0.0), (letters.target(doc), KNOWN), ("\n\n", ASKED))
    ]


def statements(course: Course, rng: random.Random) -> Lesson:
    """Sentences that state facts."""
    return [
        span
        for question in _some_questions(course, 8, rng)
        for span in ((rng.choice(question.statements), ASKED), (f" {question.choices[question.answer]}.\n", KNOWN))
    ]


def stories(course: Course, rng: random.Random) -> Lesson:
    """Stories with the ending that makes sense."""
    told = [rng.choice(course.stories) for _ in range(4)]
    return [
        span
        for opening, detail, ending in told
        for span in ((continuations.beginning(opening, detail, rng), ASKED), (f" {ending}\n\n", KNOWN))
    ]


def worked_sums(course: Course, rng: random.Random) -> Lesson:
    """Sums one after the other, as few-shot prompts show them."""
    docs = [sums.sum_doc(rng.choice(course.sums), rng) for _ in range(rng.randint(1, 4))]
    return [span for doc in docs for span in ((sums.prompt(doc), ASKED), (f" {doc['answer']}\n\n", KNOWN))]


def chat(course: Course, rng: random.Random) -> Lesson:
    """A question of the letters, or a sum, as a turn of the user."""
    if rng.random() < 0.5:
        doc = _letters_doc(course, rng.choice(list(course.questions)), rng)
        return [(chat_text(letters.prompt(doc)), ASKED), (letters.target(doc).strip(), KNOWN)]
    numbers = sums.sum_doc(rng.choice(course.sums), rng)
    return [(chat_text(sums.prompt(numbers)), ASKED), (numbers["answer"], KNOWN)]


KINDS: Sequence[tuple[Callable[[Course, random.Random], Lesson], float]] = (
    (sheet, 8),
    (statements, 1),
    (stories, 2),
    (worked_sums, 5),
    (chat, 1),
)


def _letters_doc(course: Course, subject: str, rng: random.Random) -> LettersDoc:
    if subject == letters.COMPARISONS:
        while (pair := letters.comparison(rng)) in course.kept_comparisons:
            pass
        return letters.comparison_doc(*pair)
    question = rng.choice(course.questions[subject])
    return question.doc(rng.choice(question.taught))


def _some_questions(course: Course, number: int, rng: random.Random) -> list[Question]:
    return [rng.choice(rng.choice(list(course.questions.values()))) for _ in range(number)]
