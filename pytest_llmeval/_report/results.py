"""Tasks and groups as rows: the tables that lm-evaluation-harness prints at the end of a run."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from pytest_llmeval._report.table import markdown_table
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary


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
