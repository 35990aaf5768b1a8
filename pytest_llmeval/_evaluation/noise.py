"""Numerical noise: a few docs of each task, scored again by the same model in other ways.

The model says how (`LM.recomputed`): other groupings of the same requests, and another dtype if the user names one.
`_verdicts.noise` says what the numbers mean.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation.evaluation import Evaluation
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._evaluation.model_calls import chat_of
from pytest_llmeval._evaluation.model_calls import grouped
from pytest_llmeval._lm import LM
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._output_types import margin
from pytest_llmeval._output_types import pick
from pytest_llmeval._scoring import choice_values
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Noise
from pytest_llmeval._verdicts import noise_floor


#: Of the draw of docs: every worker and every run probes the same ones.
SEED = 1234


#: Of a task whose probe broke off: a worker died, or the model of a user failed.
UNFINISHED = Noise(problem="--llmeval-noise: the probe did not finish")


@dataclass(frozen=True, slots=True)
class Scoring:
    """A doc computed in one way: the values that each metric picks by, and 0/1 scores by metric and filter."""

    values: Mapping[str, Sequence[float]]
    scores: Mapping[str, float]


class NoiseFloors:
    """The noise of the tasks that were probed with one model, here or in a worker; each task is probed once."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._known: dict[str, Noise] = {}

    @property
    def asked_for(self) -> bool:
        """True if the user asked for a probe."""
        return self._evaluation.settings.noise_docs > 0

    def measure(self, lm: LM, tasks: Iterable[Task]) -> None:
        """Probe those of the tasks that are not known yet. A failure becomes the task's `Noise.problem`."""
        settings = self._evaluation.settings
        for task in tasks:
            if not self.asked_for or task.name in self._known:
                continue
            try:
                noise = measure(self._evaluation.open(task), lm, settings.noise_docs, settings.noise_dtype)
            except LLMEvalError as error:
                noise = Noise(problem=str(error))
            self._known[task.name] = noise

    def of(self, task: str) -> Noise | None:
        """Return the noise of a task; None if it was not probed."""
        return self._known.get(task)

    def needed(self, task: str) -> Noise | None:
        """Return the noise of a task; None if it was not asked for.

        If it was asked for and not measured, the value states the problem.
        """
        return self._known.get(task, UNFINISHED) if self.asked_for else None

    def to_list(self) -> list[Any]:
        """Return all noise as plain data, for another process."""
        return [[task, noise.to_list()] for task, noise in self._known.items()]

    def add(self, values: Iterable[Sequence[Any]]) -> None:
        """Add the noise that another process measured."""
        self._known.update({task: Noise.from_list(noise) for task, noise in values})


def measure(opened: OpenTask, lm: LM, n: int, dtype: str | None) -> Noise:
    """Score `n` docs of a task (all, if it has fewer) as usual and in each of the model's other ways.

    Docs that cannot be scored are left out. Raises ModelError if the model cannot compute otherwise, or gives numbers
    that are not finite when it does.
    """
    if not OUTPUT_TYPES[opened.task.output_type].has_margins:
        return Noise()
    docs = probed_docs(opened.asked, n)
    usual = _scored(opened, lm, docs)
    moves: dict[str, dict[int, float]] = {}
    changed: dict[str, set[int]] = {}
    ways = []
    for other_lm in _recomputed(lm, dtype):
        ways.append(str(getattr(other_lm, "name", type(other_lm).__name__)))
        for doc, other in _scored(opened, other_lm, docs).items():
            if doc not in usual:
                continue
            for metric, values in usual[doc].values.items():
                moved = _moved(values, other.values[metric], f"{opened.task.name} doc {doc}, {ways[-1]}")
                of_docs = moves.setdefault(metric, {})
                of_docs[doc] = max(moved, of_docs.get(doc, 0.0))
            for key, score in usual[doc].scores.items():
                changed.setdefault(key, set()).update([doc] if other.scores.get(key) != score else [])
    if not ways:
        raise ModelError(f"--llmeval-noise: {type(lm).__name__}.recomputed gave no other way of computing")
    floors = {metric: noise_floor(list(of_docs.values())) for metric, of_docs in moves.items()}
    return Noise(len(usual), floors, {key: len(docs) for key, docs in changed.items()}, ways)


def probed_docs(asked: Sequence[int], n: int) -> list[int]:
    """Return a seeded random part of the docs that a run asks for."""
    return sorted(random.Random(SEED).sample(list(asked), min(n, len(asked))))  # noqa: S311 - a sample, no secret


def _recomputed(lm: LM, dtype: str | None) -> Iterator[LM]:
    recomputed = getattr(lm, "recomputed", None)
    if recomputed is None:
        raise ModelError(
            f"--llmeval-noise: {type(lm).__name__}, which llmeval_model gave, has no method recomputed(dtype): give it "
            "one, or omit the option"
        )
    yield from recomputed(dtype)


def _scored(opened: OpenTask, lm: LM, docs: Sequence[int]) -> dict[int, Scoring]:
    """Return the docs as one model scores them, without those that it cannot."""
    task, chat = opened.task, chat_of(lm) if opened.settings.chat_template else None
    asked = {}
    for index in docs:
        try:
            asked[index] = opened.prepare(index, chat, None)
        except LLMEvalError:
            continue
    found = {}
    for index, (responses, refused) in ask_docs(lm, {i: instances for i, (_, instances) in asked.items()}).items():
        doc, instances = asked[index]
        answers = grouped(instances, responses) if refused is None else []
        result = score_doc(task, index, doc, answers, keep_sample=False) if answers else None
        if result is None or result.error is not None:
            continue
        scores = {
            f"{metric},{name}": item
            for name, items in result.scores.items()
            for metric, item in items.items()
            if item in (0, 1)
        }
        found[index] = Scoring(choice_values(task, doc, answers), scores)
    return found


def _moved(usual: Sequence[float], other: Sequence[float], where: str) -> float:
    """Return the movement of the margin of the usual pick. Raises ModelError if it is not finite."""
    index = pick(usual)
    if index < 0:
        return 0.0
    before, after = margin(usual, index), margin(other, index)
    moved = 0.0 if before == after else abs(after - before)
    if not math.isfinite(moved):
        raise ModelError(f"--llmeval-noise: the margin of {where}, is not finite: {before:g} became {after:g}")
    return moved
