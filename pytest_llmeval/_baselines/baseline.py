"""Baseline folders, with one file per task: reading them, comparing a run with them, and updating them.

The baseline NAME is the folder ``.llmeval/baselines/NAME`` under pytest's root folder; PATH is any folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_llmeval._baselines.calibration import Calibration
from pytest_llmeval._baselines.comparison import Comparison
from pytest_llmeval._baselines.comparison import differing_settings
from pytest_llmeval._baselines.comparison import pair
from pytest_llmeval._baselines.comparison import replaced
from pytest_llmeval._baselines.entry import docs_named
from pytest_llmeval._baselines.entry import entry_of
from pytest_llmeval._baselines.next_tokens import Kept
from pytest_llmeval._baselines.next_tokens import digest_of
from pytest_llmeval._baselines.next_tokens import kept_text
from pytest_llmeval._baselines.next_tokens import read_kept
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._baselines.record import header_of
from pytest_llmeval._baselines.record import read_record
from pytest_llmeval._baselines.record import record_text
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._plain import listed
from pytest_llmeval._plain import version_of
from pytest_llmeval._plain import write_whole
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._results import nonfinite_in
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


#: The folder of named baselines, relative to pytest's root folder.
HOME = Path(".llmeval", "baselines")

#: The packages whose versions a header states.
PACKAGES = ("pytest-llmeval-harness", "torch", "transformers")

_SUFFIX = ".txt"
_NEXT_TOKENS = ".next-tokens"


class Baseline:
    """The baseline in a folder, for runs under `settings`. `name` is the name or path that the user gave."""

    def __init__(self, name: str, path: Path, settings: Settings) -> None:
        self.name = name
        self.path = path
        self.settings = settings

    @classmethod
    def named(cls, text: str, root: Path, base: Path, settings: Settings) -> Baseline:
        """Return the baseline of a name or path. ``.``, ``..`` and texts with a slash are paths, relative to `base`."""
        if set(text) & {"/", os.sep} or text.strip(".") == "" or Path(text).is_absolute():
            return cls(text, base / Path(text).expanduser(), settings)
        return cls(text, root / HOME / text, settings)

    def check(self, origin: str) -> None:
        """Raise SettingError unless the folder holds a baseline; the message names the baselines that exist."""
        if self.path.is_dir() and any(self.files()):
            return
        if self.path.is_dir():
            problem = f"{self.name!r} holds no baseline (no *{_SUFFIX} in {self.path})"
        elif self.path.exists():
            problem = f"{self.name!r} is not a folder"
        else:
            others = sorted({path.parent.name for path in self.path.parent.glob(f"*/*{_SUFFIX}")})
            known = f"; there are: {listed(others, 10)}{did_you_mean(self.path.name, others)}" if others else ""
            problem = f"there is no baseline {self.name!r} ({self.path}){known}"
        raise SettingError(f"{origin}: {problem}; --llmeval-update-baseline writes one")

    def check_writable(self, origin: str) -> None:
        """Raise SettingError if files cannot be written to the folder, which is not created here."""
        near = next(path for path in (self.path, *self.path.parents) if path.exists())
        if not near.is_dir():
            raise SettingError(f"{origin}: {self.name!r} cannot be written: {near} is not a folder")
        if not os.access(near, os.W_OK | os.X_OK):
            raise SettingError(f"{origin}: {self.name!r} cannot be written: {near} is read-only")

    def files(self) -> Iterator[Path]:
        """Return the files of all tasks."""
        return iter(sorted(self.path.glob(f"*{_SUFFIX}")))

    def path_of(self, task: str) -> Path:
        """Return the path of a task's file."""
        return self.path / f"{quoted(task)}{_SUFFIX}"

    def read(self, task: str) -> Record | None:
        """Return the record of a task, None if it has none. Raises BaselineError for a file that cannot be used."""
        path = self.path_of(task)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BaselineError(path, f"cannot be read: {error}") from None
        record = read_record(text, path)
        if record.header.task != task:
            raise BaselineError(path, f"is the baseline of {record.header.task!r}: was the file renamed?", line=3)
        return record

    def kept(self, record: Record) -> Kept | None:
        """Return the next tokens of a record's docs; None if it keeps none. Raises BaselineError."""
        stated = record.header.next_tokens
        return read_kept(self._next_tokens_of(record.header.task), stated) if stated else None

    def _next_tokens_of(self, task: str) -> Path:
        return self.path_of(task).with_suffix(_NEXT_TOKENS)

    def write(self, record: Record) -> Path:
        """Write a task's files atomically and return the path of the first. Raises SettingError if that fails."""
        path, beside = self.path_of(record.header.task), self._next_tokens_of(record.header.task)
        try:
            if record.header.next_tokens:
                write_whole(beside, [kept_text(record.entries)])
            write_whole(path, [record_text(record)])
            if not record.header.next_tokens:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise SettingError(f"baseline {self.name!r}: cannot write {path}: {error.strerror or error}") from None
        return path

    def compare(self, task: Task, results: Sequence[DocResult]) -> Comparison:
        """Return the comparison of a task's results with the baseline, without docs in error, which have no score."""
        now = header_of(task, self.settings)
        try:
            record = self.read(task.name)
        except BaselineError as error:
            return Comparison(now, problem=str(error))
        # Docs under other settings are neither compared nor counted.
        if record is None or differing_settings(record.header, now):
            return Comparison(now, record)
        entries = [entry_of(result) for result in results if result.error is None]
        return Comparison(now, record, pair(record.entries, entries))

    def update(
        self,
        task: Task,
        results: Sequence[DocResult],
        summary: Summary,
        model: str,
        facts: Mapping[str, Any],
        calibration: Calibration | None = None,
    ) -> Update:
        """Write the `results` of a task, in doc order, and return the update; `facts` are those of `LM.describe`.

        Raises SettingError if the file cannot be written, and BaselineError as `updated` does.
        """
        try:
            old = self.read(task.name)
        except BaselineError:
            # A run of all docs replaces even a file that cannot be read.
            if len(results) < summary.n_total:
                raise
            old = None
        if old is not None and len(results) < summary.n_total and (kept := self.kept(old)):
            texts = kept.texts
            entries = [replace(one, next_tokens=texts.get((one.key.doc, one.key.prompt), "")) for one in old.entries]
            old = replace(old, entries=entries)
        described = facts.get("model", {})
        own = {"name": model, "fingerprint": facts.get("fingerprint"), "dtype": described.get("model_dtype")}
        update = updated(
            old,
            self.path_of(task.name),
            task,
            self.settings,
            results,
            summary,
            own,
            calibration,
            vocabulary=facts.get("vocabulary"),
        )
        self.write(update.record)
        return update


def quoted(name: str) -> str:
    """Return a name as a part of a file's name; characters that it cannot contain are quoted as in URLs."""
    return quote(name, safe=" ,+@()[]=")


@dataclass(frozen=True, slots=True)
class Update:
    """A task's new baseline, with the numbers of docs that were `run`, `kept` from before, and `changed` in score.

    `is_new`: the task had no baseline before. `lost_calibration`: it was calibrated before, and is not any more.
    """

    record: Record
    run: int
    kept: int
    changed: int
    is_new: bool
    lost_calibration: bool = False

    def __str__(self) -> str:
        facts = [f"{self.run:,} docs written"]
        facts += [f"{self.kept:,} kept"] if self.kept else []
        facts += [] if self.is_new else [f"{self.changed:,} with other scores"]
        models = len(self.record.header.models)
        return ", ".join(facts) + (f"; it now contains answers of {models} models" if models > 1 else "")


def updated(
    old: Record | None,
    path: Path,
    task: Task,
    settings: Settings,
    results: Sequence[DocResult],
    summary: Summary,
    model: Mapping[str, Any],
    calibration: Calibration | None = None,
    *,
    vocabulary: str | None = None,
) -> Update:
    """Return the update of a task's baseline by a run: a new record, or the old one with a part of its docs replaced.

    `results` are in doc order, `model` is the entry of the header's `models`, `vocabulary` identifies the token ids of
    next tokens. A `calibration` is that of the `results`, and is dropped if other docs are kept beside them. Raises
    BaselineError for docs that cannot be in a baseline (errors, NaN), and if the docs that were not run were answered
    under other settings, or to other prompts.
    """
    _check_docs(path, results, summary)
    now = [entry_of(result) for result in results]
    header, entries, models = header_of(task, settings), now, [model]
    stated: dict[str, Any] = {}
    if any(entry.next_tokens for entry in now):
        stated = {"top": settings.baseline_topk, "vocabulary": vocabulary}
    if old is not None and len(results) < summary.n_total:
        differing = differing_settings(old.header, header)
        for name in ("filters", "metrics"):
            if getattr(old.header, name) != getattr(header, name):
                differing.append(f"its {name} are not those of the task now")
        if {name: value for name, value in old.header.next_tokens.items() if name != "digest"} != stated:
            kept_then, kept_now = (f"{one.get('top', 0)} next tokens" for one in (old.header.next_tokens, stated))
            differing.append(f"it keeps {kept_then} a position, and this run {kept_now}, or of another vocabulary")
        if differing:
            raise BaselineError(
                path, f"not updated: {'; '.join(differing)}; this affects all docs, so update with a run of all docs"
            )
        entries = replaced(old.entries, now)
        if len(entries) > len(now) and (changed := pair(old.entries, now).changed):
            raise BaselineError(
                path,
                f"not updated: the prompt of {docs_named(changed)} changed; the docs that were not run would keep the "
                "old prompt, so update with a run of all docs",
            )
        models = [*old.header.models, *([model] if model not in old.header.models else [])]
        as_results = [entry.as_result([spec.name for spec in task.filters]) for entry in entries]
        summary = summarize_task(task, as_results, n_total=summary.n_total, num_fewshot=None, bootstrap_iters=0)
    written = replace(
        header,
        models=models,
        versions={package: version_of(package) for package in PACKAGES},
        docs=len(entries),
        docs_total=summary.n_total,
        values={value.key: value.value for value in summary.values},
        calibration=calibration if len(entries) == len(now) else None,
        next_tokens={**stated, "digest": digest_of(kept_text(entries))} if stated else {},
    )
    pairs = pair(old.entries, now).pairs if old else ()
    rescored = sum(before.scores != after.scores for before, after in pairs)
    lost_calibration = old is not None and old.header.calibration is not None and written.calibration is None
    return Update(Record(written, entries), len(now), len(entries) - len(now), rescored, old is None, lost_calibration)


def _check_docs(path: Path, results: Sequence[DocResult], summary: Summary) -> None:
    """Raise BaselineError if a doc has an error or a score that is not a finite number."""
    what, reason = "could not be evaluated", f" ({summary.first_error})"
    broken = [result for result in results if result.error is not None]
    if not broken:
        odd = {result.doc: name for result in results if (name := _not_finite(result))}
        what, reason = f"got no usable number ({', '.join(dict.fromkeys(odd.values()))})", ""
        broken = [result for result in results if result.doc in odd]
    if broken:
        raise BaselineError(
            path, f"not written: {docs_named(broken)} {what}; a baseline contains only usable answers{reason}"
        )


def _not_finite(result: DocResult) -> str:
    """Return the name of a number of a doc that is not finite, such as NaN; empty if all are finite."""
    items = (item for metrics in result.scores.values() for item in metrics.values())
    return result.nonfinite or next(filter(None, map(nonfinite_in, items)), "")
