"""A task's run beside its baseline: which docs pair, and what speaks against a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval._baselines.entries import docs_named
from pytest_llmeval._baselines.entries import entry_of
from pytest_llmeval._baselines.folder import Folder
from pytest_llmeval._baselines.header import Header
from pytest_llmeval._baselines.header import header_of
from pytest_llmeval._baselines.pairing import Pairing
from pytest_llmeval._baselines.pairing import pair
from pytest_llmeval._baselines.pairing import unlike
from pytest_llmeval._baselines.pairing import unlike_column
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._results import DocResult
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


NO_PAIRS = Pairing(())


@dataclass(frozen=True, slots=True)
class Comparison:
    """`record` is None where the task has no baseline, or where it cannot be read: `problem` then says why."""

    now: Header
    record: Record | None = None
    pairing: Pairing = NO_PAIRS
    problem: str | None = None

    def problems(self, *, whole: bool, ignore_unpaired: bool) -> list[str]:
        """Why docs cannot be compared, in words. `whole`: the run holds all docs of the data set."""
        if self.record is None:
            return [self.problem or f"it has nothing of task {self.now.task}"]
        if differing := unlike(self.record.header, self.now):
            return differing
        return list(self._unpaired(whole, ignore_unpaired))

    def column_problems(self, metric: str, filter_name: str) -> list[str]:
        """Likewise of one metric under one filter."""
        return [] if self.record is None else unlike_column(self.record.header, self.now, metric, filter_name)

    @property
    def complete(self) -> bool:
        """Whether run and baseline have the same docs."""
        return bool(self.pairing.pairs) and not (self.pairing.changed or self.pairing.unknown or self.pairing.unused)

    def _unpaired(self, whole: bool, ignore: bool) -> Iterator[str]:
        pairing = self.pairing
        if pairing.changed:
            yield f"the prompt of {docs_named(pairing.changed)} changed"
            return
        if not pairing.pairs:
            yield "it has none of the docs that were run"
            return
        if ignore:
            return
        if pairing.unknown:
            yield f"it lacks {docs_named(pairing.unknown)} of the run"
        if whole and pairing.unused:
            yield f"the data has no longer {docs_named(pairing.unused)} of it"


def compare_task(folder: Folder, task: Task, settings: Settings, results: Sequence[DocResult]) -> Comparison:
    """A task's results beside its baseline; docs in error, which have no score to compare, are left out."""
    now = header_of(task, settings)
    try:
        record = folder.read(task.name)
    except BaselineError as error:
        return Comparison(now, problem=str(error))
    if record is None:
        return Comparison(now)
    if unlike(record.header, now):
        # Their docs are not to be compared, not even counted.
        return Comparison(now, record)
    entries = [entry_of(result) for result in results if result.error is None]
    return Comparison(now, record, pair(record.entries, entries))
