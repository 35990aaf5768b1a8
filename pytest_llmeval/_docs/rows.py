"""Tables as docs: plain dicts, made when they are first read."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import overload

from pytest_llmeval._errors import DataError
from pytest_llmeval._task import DocData


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
