"""``--llmeval-output``: result and sample files in lm-evaluation-harness's shape, which its readers can read.

    DIR/<model>/results_<iso time>.json             all numbers and settings of one model
    DIR/<model>/samples_<task>_<iso time>.jsonl     one line per filter and doc

The keys are those that its `EvaluationTracker` writes (0.4.13). Its version and environment report are replaced by
those of the packages that wrote the file. The block `pytest_llmeval` is an addition.
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
from pytest_llmeval._plain import write_whole
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._report.model_report import RunFacts
from pytest_llmeval._report.results_file import result_dict
from pytest_llmeval._report.results_file import sample_rows
from pytest_llmeval._report.results_file import sanitized


#: The characters of a task's name that a file name may not hold. lm_eval keeps all others, and its readers expect them.
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


def write_output(directory: Path, reports: Sequence[ModelReport], run: RunFacts, stamp: datetime) -> tuple[Path, ...]:
    """Write the results of each model and, where samples were kept, those of its tasks; return the files, in order.

    Files of one run share `stamp`. Models of one name are distinguished by their ids. Raises SettingError if a file
    cannot be written.
    """
    time = stamp.isoformat().replace(":", "-")
    written: list[Path] = []
    names = Counter(sanitized(report.file_name) for report in reports)
    for report in reports:
        shared = names[sanitized(report.file_name)] > 1
        folder = directory / sanitized(f"{report.file_name}__{report.id}" if shared else report.file_name)
        for name, pieces in _files(report, run, time):
            try:
                write_whole(folder / name, pieces)
            except (OSError, ValueError) as error:
                raise _cannot_write(directory, folder / name, error) from None
            written.append(folder / name)
    return tuple(written)


def _files(report: ModelReport, run: RunFacts, time: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Return the names of a model's files and the pieces of their texts."""
    yield f"results_{time}.json", [json_text(result_dict(report, run), indent=2)]
    for task in report.tasks:
        if any(result.sample for result in task.data.results):
            name = _SEPARATORS.sub("_", task.summary.name)
            yield f"samples_{name}_{time}.jsonl", (json_text(row) + "\n" for row in sample_rows(task.data.results))


def _cannot_write(directory: Path, path: Path, error: Exception) -> SettingError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return SettingError(
        f"--llmeval-output {directory}: cannot write {path}: {reason}; name a folder that can be written"
    )
