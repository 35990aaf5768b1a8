"""The few-shot examples before a doc. They depend on task, seed and doc, never on the other docs of a run.

The draws are those of lm-evaluation-harness when it runs all docs of a task in one process: one generator per
task, seeded once, used doc by doc. The draws are made in that order, up to the requested doc, and kept, so
that any selection of docs, in any order and in any process, gets the examples of the full run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

from pytest_llmeval._docs import TaskDocs
from pytest_llmeval._errors import DataError
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


def num_fewshot(task: Task, settings: Settings) -> int:
    """Return the number of examples before each doc: the run's setting, else the task's, else 0."""
    return (task.num_fewshot or 0) if settings.num_fewshot is None else settings.num_fewshot


class Shots:
    """The few-shot examples of every doc of one task."""

    def __init__(self, task: Task, docs: TaskDocs, settings: Settings) -> None:
        self._task = task
        self._docs = docs
        self._seed = settings.fewshot_seed
        self._n = num_fewshot(task, settings)
        self._n_is_given = settings.num_fewshot is not None
        self._rng = random.Random(self._seed)  # noqa: S311 - lm_eval's draws, not a secret
        #: Indices into the pool for doc 0, 1, ... as far as drawn, or the reason why there are none.
        self._drawn: list[tuple[int, ...] | DataError] = []

    def check(self) -> None:
        """Raise DataError if no doc can have its examples, because the pool is missing or too small.

        A single doc may still have too few examples, if copies of it are in the pool.
        """
        if self._n == 0:
            return
        pool = self._docs.fewshot_pool()
        # If the evaluated docs are the pool, each doc can have all docs but itself.
        have = len(pool) - (self._same_split and len(pool) == len(self._docs))
        if have < self._n:
            raise self._too_few(have, pool)

    def for_doc(self, index: int) -> tuple[DocData, ...]:
        """Return the examples of one doc, in the order in which they are shown.

        Raises DataError if the pool, without the doc itself, has fewer than `num_fewshot`.
        """
        if self._n == 0:
            return ()
        pool = self._docs.fewshot_pool()
        if self._task.fewshot.sampler == "first_n":
            return self._first(pool, index)
        while len(self._drawn) <= index:
            try:
                self._drawn.append(self._draw(pool, len(self._drawn)))
            except DataError as error:
                # Only this doc has an error: the examples of later docs are still drawn.
                self._drawn.append(error)
        drawn = self._drawn[index]
        if isinstance(drawn, DataError):
            raise drawn
        return tuple(pool[i] for i in drawn)

    @property
    def _same_split(self) -> bool:
        return self._docs.fewshot_split == self._docs.split

    @property
    def _peer_excludes(self) -> bool:
        """True if the task file names one split for examples and docs: lm_eval then draws one more and removes the doc.

        This includes naming neither, as for examples of the training split before docs of the validation split.
        """
        return self._task.fewshot.split == self._task.test_split

    def _first(self, pool: Sequence[DocData], index: int) -> tuple[DocData, ...]:
        excludes = self._same_split or self._peer_excludes
        others = (i for i in range(len(pool)) if not (excludes and self._is_doc(pool, i, index)))
        first = tuple(pool[i] for i in islice(others, self._n))
        if len(first) < self._n:
            raise self._too_few(len(first), pool)
        return first

    def _draw(self, pool: Sequence[DocData], index: int) -> tuple[int, ...]:
        """Return the examples of the next doc. Each doc takes as many random numbers as in lm_eval."""
        if self._peer_excludes:
            # One more than needed, if there is one. A pool of exactly n is an error in lm_eval, but not here.
            drawn = self._sample(range(len(pool)), min(self._n + 1, max(self._n, len(pool))), pool)
            kept = [i for i in drawn if not self._is_doc(pool, i, index)][: self._n]
            return tuple(kept if len(kept) == self._n else self._sample(self._others(pool, index), self._n, pool))
        if self._same_split and len(pool) <= self._n:
            raise self._too_few(len(self._others(pool, index)), pool)
        drawn = self._sample(range(len(pool)), self._n, pool)
        return self._without_doc(pool, drawn, index) if self._same_split else tuple(drawn)

    def _without_doc(self, pool: Sequence[DocData], drawn: Sequence[int], index: int) -> tuple[int, ...]:
        """Return the draw with the doc itself replaced; lm_eval would show the doc as its own example.

        The replacement comes from a separate generator for this doc, so that all other docs keep lm_eval's draws.
        """
        kept = [i for i in drawn if not self._is_doc(pool, i, index)]
        missing = self._n - len(kept)
        if not missing:
            return tuple(drawn)
        left = [i for i in self._others(pool, index) if i not in kept]
        if len(left) < missing:
            raise self._too_few(len(kept) + len(left), pool)
        own = random.Random(f"{self._seed}/{index}")  # noqa: S311
        return (*kept, *own.sample(left, missing))

    def _sample(self, candidates: Sequence[int], n: int, pool: Sequence[DocData]) -> list[int]:
        if len(candidates) < n:
            raise self._too_few(len(candidates), pool)
        return self._rng.sample(candidates, n)

    def _is_doc(self, pool: Sequence[DocData], i: int, index: int) -> bool:
        """Return True if an example is the doc, by its content (which also finds copies) or by its row."""
        return pool[i] == self._docs[index] or self._docs.row_of_example(i) == index

    def _others(self, pool: Sequence[DocData], index: int) -> list[int]:
        return [i for i in range(len(pool)) if not self._is_doc(pool, i, index)]

    def _too_few(self, have: int, pool: Sequence[DocData]) -> DataError:
        task, split = self._task, self._docs.fewshot_split
        source = "fewshot_config samples" if split is None else f"split {split!r}"
        besides = f" besides the evaluated doc (of {len(pool)})" if have < len(pool) else ""
        line = f"num_fewshot ({task.path}:{task.line_of('num_fewshot')})"
        return DataError(
            f"task {task.name}: {self._n} examples are needed, but {source} has {have}{besides}; lower "
            f"{'--llmeval-fewshot' if self._n_is_given else line} or draw them from another split (fewshot_split)"
        )
