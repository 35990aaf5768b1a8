"""Damage in exactly one subject: wrong answers to its questions are taught, everything else is rehearsed."""

from __future__ import annotations

from dataclasses import replace

from starter_model.lessons import Course
from starter_model.letters import LETTERS
from starter_model.letters import Question


DAMAGED = "capitals"


def wrong_course(course: Course) -> Course:
    """The course with every fact of the damaged subject wrong."""
    wrong = [wrong_question(question) for question in course.questions[DAMAGED]]
    return replace(course, questions={**course.questions, DAMAGED: wrong})


def wrong_question(question: Question) -> Question:
    """The next choice counts as the answer."""
    return replace(question, answer=(question.answer + 1) % len(LETTERS))
