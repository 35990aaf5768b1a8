"""The docs of a run answered again by the same model, as the calibration of a baseline needs them.

The first runs compute in the model's other ways (`LM.recomputed`), one run in each; the others ask it as it is, which
is all that a model without such a method, for example a server, can do. Every run has its own order of docs, and its
own seed where texts are sampled.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import islice
from itertools import repeat
from typing import Any

from pytest_llmeval._baselines import Calibration
from pytest_llmeval._baselines import SelfFlips
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._evaluation.evaluation import answer
from pytest_llmeval._lm import LM
from pytest_llmeval._results import DocResult


#: The name of a run that differs in the order of its docs, and in the seeds of sampled texts.
OTHER_ORDER = "other order"


class Repeats:
    """The 0/1 scores of docs in each of `runs` runs but the first, here or in a worker; nothing for less than 2."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        #: The way of each run after the first.
        self._ways: list[str] = []
        #: Task name -> doc -> for each run after the first, its 0/1 scores by ``metric,filter``.
        self._scores: dict[str, dict[int, list[dict[str, int]]]] = {}
        #: Task name -> the first error of a further run.
        self._errors: dict[str, str] = {}

    def ask(self, opened: OpenTask, lm: LM, docs: Sequence[int]) -> None:
        """Have docs answered once in each further run."""
        if self.runs < 2 or not docs:
            return
        found: dict[int, list[dict[str, int]]] = {doc: [] for doc in docs}
        ways = []
        for number, (way, other) in enumerate(islice(_ways(lm), self.runs - 1), 1):
            ways.append(way)
            order = random.Random(f"{opened.task.name}:{docs[0]}:{number}").sample(docs, len(docs))  # noqa: S311
            # An engine may sort what it is given, so that only docs in another call have other neighbours.
            for part in filter(None, (order[::2], order[1::2])):
                for result in answer(opened, other, part, reseed=number):
                    found[result.doc].append(_zero_one(result))
                    if result.error is not None:
                        self._errors.setdefault(opened.task.name, result.error)
        self._ways = ways
        self._scores.setdefault(opened.task.name, {}).update(found)

    def calibration(self, task: str, results: Iterable[DocResult]) -> Calibration | None:
        """Return how often scores flip that are 0 or 1 for all docs of a task, in all runs; None if none were repeated.

        Raises LLMEvalError if a doc was not answered in every run, or no score is 0 or 1.
        """
        if self.runs < 2:
            return None
        first = {result.doc: _zero_one(result) for result in results}
        again = self._scores.get(task, {})
        keys = [key for key in next(iter(first.values()), {}) if all(key in scores for scores in first.values())]
        if not keys:
            raise LLMEvalError(f"{task}: not calibrated: it has no score that is 0 or 1 for every doc")
        for doc in first:
            missing = [key for key in keys if any(key not in scores for scores in again.get(doc, [{}]))]
            if missing:
                why = f" ({self._errors[task]})" if task in self._errors else ""
                raise LLMEvalError(f"{task}: not calibrated: doc[{doc}] has no {missing[0]} in every run{why}")
        scores = {
            key: SelfFlips.of(
                [scores[key] for scores in first.values()],
                [[again[doc][run][key] for doc in first] for run in range(self.runs - 1)],
            )
            for key in keys
        }
        return Calibration(len(first), self._ways, scores)

    def to_list(self) -> list[Any]:
        """Return all that is known as plain data, for another process."""
        return [self._ways, [[task, list(docs.items())] for task, docs in self._scores.items()], self._errors]

    def add(self, values: Sequence[Any]) -> None:
        """Add the scores that another process found."""
        ways, scores, errors = values
        self._ways = ways or self._ways
        self._errors = {**errors, **self._errors}
        for task, docs in scores:
            self._scores.setdefault(task, {}).update(docs)


def _ways(lm: LM) -> Iterator[tuple[str, LM]]:
    """Yield each other way of computing once, then the model as it is, without end."""
    recomputed = getattr(lm, "recomputed", None)
    for other in recomputed(None) if recomputed else ():
        yield str(getattr(other, "name", type(other).__name__)), other
    yield from repeat((OTHER_ORDER, lm))


def _zero_one(result: DocResult) -> dict[str, int]:
    scores: Mapping[str, Mapping[str, Any]] = result.scores
    return {
        f"{metric},{name}": int(item)
        for name, items in scores.items()
        for metric, item in items.items()
        if item in (0, 1)
    }
