"""What a run makes of a task's baseline: a new one, or the old one with a part of its docs replaced."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_llmeval._baselines.entries import Entry
from pytest_llmeval._baselines.entries import docs_named
from pytest_llmeval._baselines.entries import entry_of
from pytest_llmeval._baselines.header import Header
from pytest_llmeval._baselines.header import header_of
from pytest_llmeval._baselines.header import model_of
from pytest_llmeval._baselines.header import versions
from pytest_llmeval._baselines.pairing import pair
from pytest_llmeval._baselines.pairing import replaced
from pytest_llmeval._baselines.pairing import unlike
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._results import nonfinite_in
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


@dataclass(frozen=True, slots=True)
class Update:
    """A task's new baseline: `run` docs were run, `kept` stay as they were, `changed` have scores that they had not.

    `is_new`: the task had no baseline before.
    """

    record: Record
    run: int
    kept: int
    changed: int
    is_new: bool

    def __str__(self) -> str:
        facts = [f"{self.run:,} docs written"]
        facts += [f"{self.kept:,} kept"] if self.kept else []
        facts += [] if self.is_new else [f"{self.changed:,} with other scores"]
        models = len(self.record.header.models)
        return ", ".join(facts) + (f"; it now holds answers of {models} models" if models > 1 else "")


def updated(
    old: Record | None,
    path: Path,
    task: Task,
    settings: Settings,
    results: Sequence[DocResult],
    summary: Summary,
    model: str,
    facts: Mapping[str, Any],
) -> Update:
    """The baseline of a task after a run; the results are in doc order, `facts` is what the model says of itself.

    Raises BaselineError for docs that cannot stand in a baseline (errors, NaN), and where the docs that were not
    run were answered under other settings, or to other prompts.
    """
    _check_docs(path, results, summary)
    now = [entry_of(result) for result in results]
    header, whole = header_of(task, settings), len(results) == summary.n_total
    own: Mapping[str, Any] = model_of(model, facts)
    if old is None or whole:
        entries, models = now, [own]
    else:
        if differing := _unlike(old.header, header):
            raise BaselineError(
                path, f"not updated: {'; '.join(differing)}; that is for all docs, so update by a run of all docs"
            )
        entries = replaced(old.entries, now)
        if len(entries) > len(now):
            _check_prompts(path, old.entries, now)
        models = [*old.header.models, *([own] if own not in old.header.models else [])]
        summary = _summary(task, entries, summary.n_total)
    written = replace(
        header,
        models=models,
        versions=versions(),
        docs=len(entries),
        docs_total=summary.n_total,
        values={value.key: value.value for value in summary.values},
    )
    pairs = pair(old.entries, now).pairs if old else ()
    changed = sum(before.scores != after.scores for before, after in pairs)
    return Update(Record(written, entries), len(now), len(entries) - len(now), changed, old is None)


def _check_docs(path: Path, results: Sequence[DocResult], summary: Summary) -> None:
    """Raise BaselineError if a doc has an error or a score that is no finite number."""
    broken = [result for result in results if result.error is not None]
    if broken:
        raise _unsound(path, broken, "could not be evaluated", f" ({summary.first_error})")
    odd = {result.doc: name for result in results if (name := _not_finite(result))}
    if odd:
        kinds = ", ".join(dict.fromkeys(odd.values()))
        raise _unsound(path, [result for result in results if result.doc in odd], f"got no usable number ({kinds})")


def _check_prompts(path: Path, before: Sequence[Entry], now: Sequence[Entry]) -> None:
    """Raise BaselineError if docs that were run had another prompt: those that were not run may have had it too."""
    if changed := pair(before, now).changed:
        raise BaselineError(
            path,
            f"not updated: the prompt of {docs_named(changed)} changed; the docs that were not run would stay with the "
            "old one, so update by a run of all docs",
        )


def _unsound(path: Path, docs: Sequence[DocResult], what: str, reason: str = "") -> BaselineError:
    named = ", ".join(f"doc[{result.doc}]" for result in docs[:3]) + ", ..." * (len(docs) > 3)
    count = "1 doc" if len(docs) == 1 else f"{len(docs):,} docs"
    return BaselineError(path, f"not written: {count} {what} ({named}); a baseline holds sound answers only{reason}")


def _not_finite(result: DocResult) -> str:
    """What a model or a score gives for a doc instead of a finite number; empty if all are finite."""
    items = (item for metrics in result.scores.values() for item in metrics.values())
    return result.nonfinite or next(filter(None, map(nonfinite_in, items)), "")


def _summary(task: Task, entries: Sequence[Entry], n_total: int) -> Summary:
    filters = [spec.name for spec in task.filters]
    results = [entry.as_result(filters) for entry in entries]
    return summarize_task(task, results, n_total=n_total, num_fewshot=None, bootstrap_iters=0)


def _unlike(before: Header, now: Header) -> list[str]:
    differing = unlike(before, now)
    for name in ("filters", "metrics"):
        if getattr(before, name) != getattr(now, name):
            differing.append(f"its {name} are not those of the task now")
    return differing
