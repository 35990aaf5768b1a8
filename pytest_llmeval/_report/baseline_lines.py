"""Report lines on the differences of a run from its baseline: unpaired docs, changed docs, and cautions."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval._plain import listed
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import changes_of_task


#: The number of tasks that get separate lines, or names in a line.
_MOST = 10


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of the report; a line with `is_error` makes the run fail."""

    text: str
    is_error: bool = False


def baseline_lines(
    report: ModelReport, baseline: str, *, ignore_unpaired: bool, noise_measured: bool
) -> Iterator[ReportLine]:
    """Yield the lines on the differences of one model's run from its baseline."""
    model = f", {report.id}" if report.id else ""
    head = f"baseline {baseline}{model}"
    tasks = [task.data for task in report.tasks]
    yield from _problems(head, tasks, ignore_unpaired)
    yield from _changes(head, tasks)
    records = [task.comparison.record for task in tasks if task.comparison and task.comparison.record]
    dtype = report.facts.get("model", {}).get("model_dtype")
    others = {model["dtype"] for record in records for model in record.header.models if model["dtype"]} - {dtype}
    if dtype and others and not noise_measured:
        yield ReportLine(
            f"{head}: answers were computed in {', '.join(sorted(others))}, now in {dtype}: close calls flip "
            "(--llmeval-noise estimates how many)"
        )
    if mixed := [record.header.task for record in records if len(record.header.models) > 1]:
        yield ReportLine(f"{head}: contains answers of several models, updated part by part: {listed(mixed, _MOST)}")
    measured = [(task.data.task.name, task.noise) for task in report.tasks if task.noise is not None]
    for name, noise in measured[:_MOST]:
        yield ReportLine(f"noise floor of {name}{model}: {noise}")
    if len(measured) > _MOST:
        yield ReportLine(f"noise floor{model}: and {len(measured) - _MOST} more tasks")


def _problems(head: str, tasks: Sequence[TaskData], ignore_unpaired: bool) -> Iterator[ReportLine]:
    """Yield one line per task that cannot be compared."""
    found = []
    for task in tasks:
        if task.comparison is not None:
            whole = len(task.results) == task.n_total
            if problems := task.comparison.problems(whole=whole, ignore_unpaired=ignore_unpaired):
                is_new = task.comparison.record is None and task.comparison.problem is None
                found.append((task.task.name, problems, is_new))
    for name, problems, is_new in found[:_MOST]:
        # A new task is not a mistake if the user allows unpaired docs.
        is_error = not (is_new and ignore_unpaired)
        yield ReportLine(f"{'ERROR: ' * is_error}{head}: {name}: {', '.join(problems)}", is_error)
    if len(found) > _MOST:
        yield ReportLine(f"ERROR: {head}: and {len(found) - _MOST} more tasks that cannot be compared", is_error=True)


def _changes(head: str, tasks: Sequence[TaskData]) -> Iterator[ReportLine]:
    """Yield the numbers of docs that changed by 0/1 scores and by other scores, and of docs that are not counted."""
    found = {task.task.name: changes for task in tasks if (changes := changes_of_task(task))}
    for flips in (True, False):
        own = {name: changes for name, changes in found.items() if changes.flips is flips}
        if not own:
            continue
        worse, better, docs = (sum(getattr(one, name) for one in own.values()) for name in ("worse", "better", "docs"))
        moved = [f"{name} -{one.worse} +{one.better}" for name, one in own.items() if one.worse or one.better]
        by_task = f" ({listed(moved, _MOST)})" if moved else ""
        if flips:
            yield ReportLine(f"{head}: {worse:,} lost, {better:,} gained of {docs:,} docs{by_task}")
        else:
            equal = docs - worse - better
            counts = f"{worse:,} worse, {better:,} better, {equal:,} equal of {docs:,} docs"
            yield ReportLine(f"{head}: {counts} with other scores than 0 and 1{by_task}")
    if silent := [task for task in tasks if task.task.name not in found and task.pairs]:
        docs = sum(len(task.pairs) for task in silent)
        names = listed((task.task.name for task in silent), _MOST)
        why = "have no score with a known direction and are not counted"
        yield ReportLine(f"{head}: {docs:,} docs {why} ({names})")
