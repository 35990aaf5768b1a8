"""The docs of a task: the rows of its evaluated split and of its few-shot pool, each opened when it is first used.

A doc is a plain dict, made when it is first read. A run may select some of the docs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from typing import overload

from pytest_llmeval._docs.opening import DataSource
from pytest_llmeval._docs.opening import describe
from pytest_llmeval._docs.readers import quiet_and_seeded
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._functions import call
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Task


def select(n: int, settings: Settings) -> Sequence[int]:
    """Return the indices of the docs that this run selects from `n` docs after `process_docs`, ascending.

    `settings.limit` is a count, or a share below 1, rounded up exactly: 0.07 of 100 is 7. These are the first docs, or
    with `sample_seed` docs drawn at random; a larger sample by the same seed contains the smaller one. Raises
    SettingError for any other limit.
    """
    limit = settings.limit
    if limit is None:
        return range(n)
    if not 0 < limit < math.inf or (limit >= 1 and limit != int(limit)):
        raise SettingError(f"limit: expected a number of docs (10) or a share below 1 (0.1), got {limit!r}")
    # Computed from the shortest decimal: the float nearest to 0.07 is above 7/100, so rounding up would give 8.
    count = min(n, int(limit) if limit >= 1 else math.ceil(Fraction(repr(limit)) * n))
    if settings.sample_seed is None:
        return range(count)
    order = list(range(n))
    random.Random(settings.sample_seed).shuffle(order)  # noqa: S311 - a sample, not a secret
    return sorted(order[:count])


#: Rows turned into Python objects at a time. One by one, a row takes 15 to 65 us, in blocks of this size 1 to 6 us,
#: and for examples drawn from a large split few unused rows are converted.
_BLOCK = 32


def as_rows(data: Any, where: str) -> Sequence[DocData]:
    """Return the docs of a `datasets.Dataset` or an iterable of dicts. Raises DataError that begins with `where`."""
    if hasattr(data, "column_names") and hasattr(data, "__len__"):
        return _TableRows(data)
    rows = list(data) if isinstance(data, Iterable) else [data]
    odd = [type(row).__name__ for row in rows if not isinstance(row, Mapping)]
    if odd:
        raise DataError(f"{where}: it returned docs of type {odd[0]}, expected a data set or a list of dicts")
    return rows


class _TableRows(Sequence[DocData]):
    """A `datasets.Dataset` as plain dicts, made in blocks when they are first read."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._blocks: dict[int, list[DocData]] = {}

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> DocData: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[DocData]: ...

    def __getitem__(self, index: int | slice) -> DocData | Sequence[DocData]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        number, offset = divmod(place, _BLOCK)
        if number not in self._blocks:
            columns = self._table[number * _BLOCK : (number + 1) * _BLOCK]
            self._blocks[number] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self._blocks[number][offset]

    def __iter__(self) -> Iterator[DocData]:
        return (self[i] for i in range(len(self)))


class TaskDocs:
    """The evaluated docs of one task, by index after `process_docs`, and its few-shot pool.

    `split` is the evaluated split.
    """

    def __init__(self, task: Task, settings: Settings, source: DataSource) -> None:
        if task.evaluated_split is None:
            raise DataError(
                f"task {task.name}: neither test_split nor validation_split is given, so there is nothing to evaluate "
                f"({task.path}:1)"
            )
        self.task = task
        self.split = task.evaluated_split
        self._settings = settings
        self._source = source
        self._rows = self._open(self.split, task.process_docs)
        if not len(self._rows):
            process = " after process_docs" if task.process_docs else ""
            raise DataError(
                f"{describe(task, self.split)}: it has no docs{process}; add some, or name another split in {task.path}"
            )
        self._pool: Sequence[DocData] | None = None
        self._pool_rows: Sequence[int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields of the evaluated docs."""
        return tuple(self._rows[0])

    @property
    def fewshot_split(self) -> str | None:
        """The split that few-shot examples come from; None if they are written in the task file."""
        task = self.task
        if task.fewshot.split is not None:
            return task.fewshot.split
        if task.fewshot.samples is not None:
            return None
        return task.training_split or task.validation_split or task.test_split

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> DocData:
        return self._rows[index]

    def fewshot_pool(self) -> Sequence[DocData]:
        """Return all docs that examples may be drawn from; they are opened by the first call. Raises DataError."""
        if self._pool is None:
            self._pool = self._open_pool()
        return self._pool

    def row_of_example(self, i: int) -> int | None:
        """Return the index of the doc that the pool's i-th example was made from, or None if that is not known.

        It is not known if the pool is another split, or if a `process_docs` of its own drops rows of this split.
        """
        self.fewshot_pool()
        return None if self._pool_rows is None else self._pool_rows[i]

    def _open_pool(self) -> Sequence[DocData]:
        task, split, samples = self.task, self.fewshot_split, self.task.fewshot.samples
        if split is not None:
            process = task.fewshot.process_docs or task.process_docs
            same = split == self.split and process is task.process_docs
            rows = self._rows if same else self._open(split, process)
        elif callable(samples):
            where = f"task {task.name}: fewshot_config samples ({task.path}:{task.line_of('fewshot_config')})"
            with quiet_and_seeded():
                rows = as_rows(call(samples, where), where)
        else:
            rows = samples or ()
        indices = task.fewshot.indices
        if split == self.split and len(rows) == len(self):
            self._pool_rows = range(len(rows)) if indices is None else indices
        if indices is None:
            return rows
        wrong = [index for index in indices if not 0 <= index < len(rows)]
        if wrong:
            raise DataError(
                f"task {task.name}: fewshot_indices {wrong} are not in the pool of {len(rows)} examples "
                f"(split {split!r}); correct them in {task.path}"
            )
        return [rows[index] for index in indices]

    def _open(self, split: str, process: DocFunction | None) -> Sequence[DocData]:
        key = "process_docs" if process is not None else "custom_dataset"
        where = f"{describe(self.task, split)}, {key} ({self.task.path}:{self.task.line_of(key)})"
        data = self._source.split(self.task, self._settings, split)
        if process is not None:
            with quiet_and_seeded():
                data = call(process, where, data)
        return as_rows(data, where)


def open_docs(task: Task, settings: Settings, source: DataSource | None = None) -> TaskDocs:
    """Return the evaluated docs of a task, after `process_docs`; the few-shot pool is not opened before it is used.

    Pass one `source` for all tasks of a run, so that each table is read once. Raises DataError if the data is not
    found, or if a split is missing or empty: it names data set, config, split, the places searched and the remedy.
    """
    return TaskDocs(task, settings, source or DataSource())
