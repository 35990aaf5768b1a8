"""Which docs of a task a run asks for.

Tables as docs: plain dicts, made when they are first read.

The docs of a task: the rows of its evaluated split and of its few-shot pool, each opened only when asked for.
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

from pytest_llmeval._docs.opening import Opened
from pytest_llmeval._docs.opening import describe
from pytest_llmeval._docs.opening import open_split
from pytest_llmeval._docs.readers import quiet_and_settled
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._functions import call
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Task


def select(n: int, settings: Settings) -> Sequence[int]:
    """Which of `n` docs (counted after `process_docs`) this run asks for, ascending.

    `settings.limit` is a count, or below 1 a share of which the ceiling is taken, exactly: 0.07 of 100 is 7. With
    `sample_seed` as many docs are drawn at random; a larger sample by the same seed holds the smaller one.
    """
    if settings.limit is None:
        return range(n)
    count = min(n, _count(n, settings.limit))
    if settings.sample_seed is None:
        return range(count)
    order = list(range(n))
    random.Random(settings.sample_seed).shuffle(order)  # noqa: S311 - a sample, no secret
    return sorted(order[:count])


def _count(n: int, limit: int | float) -> int:
    if not 0 < limit < math.inf or (limit >= 1 and limit != int(limit)):
        raise SettingError(f"limit: expected a number of docs (10) or a share below 1 (0.1), got {limit!r}")
    if limit >= 1:
        return int(limit)
    # By way of its shortest decimal: the float nearest to 0.07 is larger than 7/100, and its ceiling would be 8.
    return math.ceil(Fraction(repr(limit)) * n)


#: Rows turned into Python objects at a time: one by one a row takes 15 to 65 us, in blocks of this size 1 to 6, and
#: examples drawn from all over a large split still wait for few rows that nobody asked for.
_BLOCK = 32


def as_rows(data: Any, where: str) -> Sequence[DocData]:
    """A `datasets.Dataset`, or any iterable of dicts, as docs. Raises DataError, which starts with `where`."""
    if hasattr(data, "column_names") and hasattr(data, "__len__"):
        return _TableRows(data)
    rows = list(data) if isinstance(data, Iterable) else [data]
    odd = [type(row).__name__ for row in rows if not isinstance(row, Mapping)]
    if odd:
        raise DataError(f"{where}: it gave docs of type {odd[0]}, expected a data set or a list of dicts")
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


class DataSource:
    """Data sets opened so far: tasks that share a data set share its tables. One object serves one run."""

    def __init__(self) -> None:
        self._splits: dict[tuple[Any, ...], Any] = {}
        self._opened = Opened()

    def split(self, task: Task, settings: Settings, split: str) -> Any:
        """The raw split, before `process_docs`. Raises DataError."""
        key = (
            task.dataset_path,
            task.dataset_name,
            repr(dict(task.dataset_kwargs)),
            task.custom_dataset,
            repr(dict(task.metadata)) if task.custom_dataset else None,
            task.path.parent,
            settings.data_dir,
            split,
        )
        if key not in self._splits:
            self._splits[key] = open_split(task, settings, split, self._opened)
        return self._splits[key]


class TaskDocs:
    """The evaluated docs of one task, by index after `process_docs`, and the pool its examples come from.

    `split` is the evaluated split, `columns` the names of its fields, `notes` what was done differently from
    what the task file says.
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
        return tuple(self._rows[0])

    @property
    def notes(self) -> tuple[str, ...]:
        if "trust_remote_code" not in self.task.dataset_kwargs:
            return ()
        return (f"task {self.task.name}: dataset_kwargs trust_remote_code is ignored, no code of a data set is run",)

    @property
    def fewshot_split(self) -> str | None:
        """The split that examples come from; None where they are written in the task file."""
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
        """All docs that examples may be drawn from; opened with the first call. Raises DataError."""
        if self._pool is None:
            self._pool = self._open_pool()
        return self._pool

    def row_of_example(self, i: int) -> int | None:
        """The index of the doc that the pool's i-th example was made from, as far as that is known.

        It is not where the pool has another split, nor where its own process_docs drops rows of this one.
        """
        self.fewshot_pool()
        return None if self._pool_rows is None else self._pool_rows[i]

    def _open_pool(self) -> Sequence[DocData]:
        split = self.fewshot_split
        if split is None:
            rows = _written_samples(self.task)
        else:
            process = self.task.fewshot.process_docs or self.task.process_docs
            same = split == self.split and process is self.task.process_docs
            rows = self._rows if same else self._open(split, process)
        indices = self.task.fewshot.indices
        if split == self.split and len(rows) == len(self):
            self._pool_rows = range(len(rows)) if indices is None else indices
        return rows if indices is None else self._picked(rows, indices)

    def _open(self, split: str, process: DocFunction | None) -> Sequence[DocData]:
        key = "process_docs" if process is not None else "custom_dataset"
        where = f"{describe(self.task, split)}, {key} ({self.task.path}:{self.task.line_of(key)})"
        data = self._source.split(self.task, self._settings, split)
        if process is not None:
            with quiet_and_settled():
                data = call(process, where, data)
        return as_rows(data, where)

    def _picked(self, rows: Sequence[DocData], indices: Sequence[int]) -> Sequence[DocData]:
        wrong = [index for index in indices if not 0 <= index < len(rows)]
        if wrong:
            raise DataError(
                f"task {self.task.name}: fewshot_indices {wrong} are not in the pool of {len(rows)} examples "
                f"(split {self.fewshot_split!r}); correct them in {self.task.path}"
            )
        return [rows[index] for index in indices]


def open_docs(task: Task, settings: Settings, source: DataSource | None = None) -> TaskDocs:
    """The evaluated docs of a task, after `process_docs`; the few-shot pool stays closed until it is asked for.

    Pass one `source` for all tasks of a run, so that each table is read once. Raises DataError where the data
    cannot be had, a split is missing or empty: it names data set, config, split, the places looked at, the mend.
    """
    return TaskDocs(task, settings, source or DataSource())


def _written_samples(task: Task) -> Sequence[DocData]:
    samples = task.fewshot.samples
    if not callable(samples):
        return samples or ()
    where = f"task {task.name}: fewshot_config samples ({task.path}:{task.line_of('fewshot_config')})"
    with quiet_and_settled():
        made = call(samples, where)
    return as_rows(made, where)
