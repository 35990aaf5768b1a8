"""Markdown tables laid out as lm-evaluation-harness prints them.

The layout is that of pytablewriter, which it prints with: a column of numbers is set to the right and gets as
many decimals as its most precise number needs (``0.25`` and ``0.3333`` become ``0.2500`` and ``0.3333``), a column
that holds a text is set to the left, wide characters count as two.

>>> print(markdown_table(("Tasks", "Value"), [("a", "0.2500"), ("b", "1.0000")], numbers={1}))
|Tasks|Value|
|-----|----:|
|a    | 0.25|
|b    | 1.00|

Tasks and groups as rows: the tables that lm-evaluation-harness prints at the end of a run.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from decimal import InvalidOperation
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary


Kind: TypeAlias = Literal["text", "blank", "integer", "real", "nan", "infinity"]

NUMBERS = frozenset({"integer", "real", "nan", "infinity"})

_MIN_WIDTH = 3


@dataclass(frozen=True, slots=True)
class _Cell:
    kind: Kind
    text: str
    number: Decimal = Decimal(0)


def markdown_table(
    headers: Sequence[str], rows: Sequence[Sequence[str | int | float]], *, numbers: Collection[int] = ()
) -> str:
    """The table as lines, without a line end after the last.

    `numbers` are the columns in which a cell that reads as a number is one; all other columns hold text.
    """
    columns = [_column(header, [row[i] for row in rows], i in numbers) for i, header in enumerate(headers)]
    return "\n".join("|" + "|".join(cells) + "|" for cells in zip(*columns, strict=True))


def _column(header: str, values: Sequence[str | int | float], numeric: bool) -> list[str]:
    """Header, rule and cells, all padded to one width."""
    cells = _typed(values) if numeric else [_Cell("text", str(value)) for value in values]
    kinds: set[Kind] = {cell.kind for cell in cells}
    as_reals = _is_real(kinds)
    to_right = as_reals or kinds in ({"integer"}, {"integer", "blank"})
    places = max((_decimals(cell) for cell in cells if cell.kind in ("integer", "real")), default=0)
    texts = [_shown(cell, places, as_reals).replace("\r\n", " ").replace("\n", " ") for cell in cells]
    width = max(_MIN_WIDTH, *(_width(text) for text in (header, *texts)))
    rule = "-" * (width - 1) + ":" if to_right else "-" * width
    sides = [to_right or ("text" in kinds and cell.kind in ("integer", "real")) for cell in cells]
    return [
        _centered(header, width),
        rule,
        *(_padded(text, width, side) for text, side in zip(texts, sides, strict=True)),
    ]


def _typed(values: Sequence[str | int | float]) -> list[_Cell]:
    """Cells of a column, from the top: once most are texts, what reads as a number stays the text that it is."""
    cells: list[_Cell] = []
    seen: Counter[Kind] = Counter()
    for value in values:
        mostly_text = bool(seen) and seen.most_common(1)[0][0] == "text"
        kept = mostly_text and isinstance(value, str) and value.strip()
        cell = _Cell("text", str(value)) if kept else _cell(value)
        seen[cell.kind] += 1
        cells.append(cell)
    return cells


def _cell(value: str | int | float) -> _Cell:
    text = str(value)
    if not text.strip():
        return _Cell("blank", text)
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return _Cell("text", text)
    if number.is_nan():
        return _Cell("nan", "NaN")
    if number.is_infinite():
        return _Cell("infinity", str(number))
    # A negative zero is shown as zero.
    return _Cell("integer" if number == number.to_integral_value() else "real", text, number or Decimal(0))


def _is_real(kinds: set[Kind]) -> bool:
    """Whether a column is one of reals; one that holds nothing but integers and blanks is not."""
    if not kinds <= NUMBERS | {"blank"}:
        return False
    return kinds == {"real"} or len(kinds - {"integer"}) >= 2 or len(kinds - {"blank"}) >= 2


def _decimals(cell: _Cell) -> int:
    return 0 if cell.kind == "integer" else len(str(abs(float(cell.number))).partition(".")[2])


def _shown(cell: _Cell, places: int, as_reals: bool) -> str:
    if cell.kind == "real" or (cell.kind == "integer" and as_reals):
        return f"{cell.number:.{places}f}"
    return str(int(cell.number)) if cell.kind == "integer" else cell.text


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _padded(text: str, width: int, to_right: bool) -> str:
    space = " " * (width - _width(text))
    escaped = text.replace("|", r"\|")
    return space + escaped if to_right else escaped + space


def _centered(text: str, width: int) -> str:
    space = width - _width(text)
    return " " * (space // 2) + text.replace("|", r"\|") + " " * math.ceil(space / 2)


#: Name of a group -> names of its direct members, tasks or groups.
Children = Mapping[str, Sequence[str]]

ARROWS = {True: "↑", False: "↓", None: ""}

#: What stands for a missing version: of a task, of a group.
NO_TASK_VERSION, NO_GROUP_VERSION = "Yaml", "N/A"

_NUMBER_COLUMNS = (1, 3, 6, 8)


def result_table(summaries: Sequence[Summary], children: Children, *, groups_only: bool = False) -> str:
    """All results, each group above its members and these indented; or the groups alone.

    Equal to what the peer prints for the same numbers, but that it prints a negative infinity as ``Infinity``.
    A group that aggregates nothing has no row.
    """
    shown = {
        summary.name: summary for summary in summaries if not groups_only or (is_group(summary) and summary.values)
    }
    depths, order = hierarchy(children, shown)
    rows = [row for name in order for row in _rows(shown[name], depths.get(name, 0))]
    first = "Groups" if groups_only else "Tasks"
    headers = (first, "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
    return markdown_table(headers, rows, numbers=_NUMBER_COLUMNS)


def is_group(summary: Summary) -> bool:
    return bool(summary.tasks)


def version_of(summary: Summary) -> str | int | float:
    """The version as the peer reports it: a task's as written, a group's as text."""
    if is_group(summary):
        return NO_GROUP_VERSION if summary.version is None else str(summary.version)
    return NO_TASK_VERSION if summary.version is None else summary.version


def _rows(summary: Summary, depth: int) -> Iterator[tuple[str | int | float, ...]]:
    """One row a metric and filter; name and version stand in the first only."""
    name: str | int | float = " " * depth + "- " + summary.display_name if depth else summary.display_name
    version = version_of(summary)
    shots = " " if summary.num_fewshot is None else str(summary.num_fewshot)
    for value in sorted(summary.values, key=lambda value: value.key):
        yield name, version, value.filter, shots, value.metric, *_value(value)
        name = version = ""


def _value(value: MetricValue) -> tuple[str, str, str, str]:
    stderr = "   N/A" if value.stderr is None else f"{value.stderr:.4f}"
    return ARROWS[value.higher_is_better], f"{value.value:.4f}", "±", stderr


def hierarchy(children: Children, shown: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """How deep each name is indented, and the names in the order of their rows.

    A member of two groups has a row under each. What no group lists comes last.
    """
    depths: dict[str, int] = {}
    order: list[str] = []

    def visit(name: str, depth: int) -> None:
        depths[name] = depth
        order.extend([name] if name in shown else [])
        for child in sorted(children.get(name, ())):
            visit(child, depth + 1)

    listed = {child for members in children.values() for child in members}
    for name in sorted(children):
        if name not in listed:
            visit(name, 0)
    return depths, [*order, *(name for name in sorted(shown) if name not in depths)]
