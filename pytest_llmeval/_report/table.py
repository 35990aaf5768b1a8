"""Markdown tables of results: tasks and groups as rows with the columns of lm-evaluation-harness, or models as columns.

>>> print(markdown_table(("Tasks", "Value"), [("a", "0.2500"), ("b", "12.0000")], right={1}))
|Tasks|  Value|
|-----|------:|
|a    | 0.2500|
|b    |12.0000|
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence

from pytest_llmeval._report.model_report import Children
from pytest_llmeval._results import Summary


ARROWS = {True: "↑", False: "↓", None: ""}

_LEAST_WIDTH = 3


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Return the table without a line end after the last line. The columns in `right` are right-aligned."""
    columns = []
    for place, cells in enumerate(zip(headers, *rows, strict=True)):
        texts = [" ".join(cell.split("\n")).replace("|", r"\|") for cell in cells]
        width = max(_LEAST_WIDTH, *map(_width, texts))
        spaces = [" " * (width - _width(text)) for text in texts]
        if place in right:
            head, *padded = (space + text for space, text in zip(spaces, texts, strict=True))
            columns.append([head, "-" * (width - 1) + ":", *padded])
        else:
            head, *padded = (text + space for space, text in zip(spaces, texts, strict=True))
            columns.append([head, "-" * width, *padded])
    return "\n".join(f"|{'|'.join(line)}|" for line in zip(*columns, strict=True))


def _width(text: str) -> int:
    """Return the number of terminal columns of a text: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def result_table(summaries: Sequence[Summary], children: Children, *, groups_only: bool = False) -> str:
    """Return the table of all results, with each group above its indented members, or only of the groups.

    The cells are those that lm-evaluation-harness prints for the same numbers; all numbers have four decimals. A group
    that aggregates nothing has no row.
    """
    shown = {one.name: one for one in summaries if not groups_only or (one.tasks and one.values)}
    depths, order = hierarchy(children, shown)
    rows = [row for name in order for row in _rows(shown[name], depths.get(name, 0))]
    first = "Groups" if groups_only else "Tasks"
    headers = (first, "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
    return markdown_table(headers, rows, right={1, 3, 6, 8})


def version_of(summary: Summary) -> str | int | float:
    """Return the version as lm_eval prints it: of a task as written or ``Yaml``, of a group as text or ``N/A``."""
    if summary.tasks:
        return "N/A" if summary.version is None else str(summary.version)
    return "Yaml" if summary.version is None else summary.version


def number_text(value: float | None) -> str:
    """Return a number with four decimals; N/A for None, and zero for a negative zero."""
    return "N/A" if value is None else f"{round(value, 4) + 0.0:.4f}"


def _rows(summary: Summary, depth: int) -> Iterator[tuple[str, ...]]:
    """Yield one row per metric and filter; only the first has the name and version."""
    # Most versions are written as 1.0, and lm_eval prints them as 1.
    version = str(version_of(summary)).removesuffix(".0")
    name = indented(summary.display_name, depth)
    shots = "" if summary.num_fewshot is None else str(summary.num_fewshot)
    for value in sorted(summary.values, key=lambda value: value.key):
        numbers = (ARROWS[value.higher_is_better], number_text(value.value), "±", number_text(value.stderr))
        yield name, version, value.filter, shots, value.metric, *numbers
        name = version = ""


def indented(name: str, depth: int) -> str:
    return f"{' ' * depth}- {name}" if depth else name


def hierarchy(children: Children, shown: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """Return the depth of each name, and the names in the order of their rows.

    A member of two groups has a row under each. Names that are in no group come last.
    """
    depths: dict[str, int] = {}
    order: list[str] = []

    def visit(name: str, depth: int) -> None:
        depths[name] = depth
        order.extend([name] if name in shown else [])
        for child in sorted(children.get(name, ())):
            visit(child, depth + 1)

    members = {child for names in children.values() for child in names}
    for name in sorted(children):
        if name not in members:
            visit(name, 0)
    return depths, [*order, *(name for name in sorted(shown) if name not in depths)]
