"""``--llmeval-output``: result and sample files in lm-evaluation-harness's shape, so that its readers read ours.

    DIR/<model>/results_<iso time>.json             all numbers and settings of one model
    DIR/<model>/samples_<task>_<iso time>.jsonl     one line a filter and doc

The keys are those that its `EvaluationTracker` writes (0.4.13). What it takes from its own process (its version,
its environment report) names what wrote the file instead. Ours alone is the block `pytest_llmeval`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import json_text
from pytest_llmeval._report.results_file import result_dict
from pytest_llmeval._report.results_file import sample_rows
from pytest_llmeval._report.results_file import sanitized
from pytest_llmeval._report.run import Run


#: What a task's name may not hold in a file name. The peer keeps everything else, and its readers expect it so.
_SEPARATORS = re.compile(r"[/\\]")


def prepare_output(directory: Path) -> None:
    """Make the folder, and raise SettingError if files cannot be written there: before hours of work, not after."""
    probe = directory / f".llmeval-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_write(directory, directory, error) from None


def write_output(directory: Path, runs: Sequence[Run], stamp: datetime) -> tuple[Path, ...]:
    """Write the results of each model and, where samples were kept, those of its tasks; the files, in order.

    Files of one run share `stamp`. Models that are called the same are told apart by their variant. Raises
    SettingError if a file cannot be written.
    """
    written: list[Path] = []
    for folder, run in zip(_folders(runs), runs, strict=True):
        for name, pieces in _files(run, stamp.isoformat().replace(":", "-")):
            path = directory / folder / name
            try:
                _write_whole(path, pieces)
            except (OSError, ValueError) as error:
                raise _cannot_write(directory, path, error) from None
            written.append(path)
    return tuple(written)


def _folders(runs: Sequence[Run]) -> list[str]:
    names = Counter(sanitized(run.model) for run in runs)
    alone = [names[sanitized(run.model)] == 1 for run in runs]
    return [
        sanitized(run.model if single else f"{run.model}__{run.variant}")
        for run, single in zip(runs, alone, strict=True)
    ]


def _files(run: Run, stamp: str) -> Iterator[tuple[str, Iterable[str]]]:
    yield f"results_{stamp}.json", [json_text(result_dict(run), indent=2)]
    for task in run.tasks:
        if any(result.sample for result in task.results):
            name = _SEPARATORS.sub("_", task.task.name)
            yield f"samples_{name}_{stamp}.jsonl", (json_text(row) + "\n" for row in sample_rows(task))


def _write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write beside the file and move it there, so that no reader meets half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _cannot_write(directory: Path, path: Path, error: Exception) -> SettingError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return SettingError(
        f"--llmeval-output {directory}: cannot write {path}: {reason}; name a folder that can be written"
    )
