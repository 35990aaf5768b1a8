"""The end of a run in words and tables: on the terminal and, under GitHub Actions, in the job's summary.

Numbers are printed here, never computed. Everything but `gather` works on plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from pytest_llmeval._errors import SettingError
from pytest_llmeval._report.checkpoints import Comparison
from pytest_llmeval._report.checkpoints import comparison_notes
from pytest_llmeval._report.checkpoints import comparison_table
from pytest_llmeval._report.lines import GateLine
from pytest_llmeval._report.lines import VariantReport
from pytest_llmeval._report.lines import Writer
from pytest_llmeval._report.lines import step_summary
from pytest_llmeval._report.lines import write_report
from pytest_llmeval._report.table import result_table
from pytest_llmeval._report.table import version_of


__all__ = [
    "Comparison",
    "GateLine",
    "VariantReport",
    "Writer",
    "append_lines",
    "append_step_summary",
    "comparison_notes",
    "comparison_table",
    "result_table",
    "step_summary",
    "version_of",
    "write_report",
]

#: Where GitHub Actions names the file that becomes the job's summary.
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def append_step_summary(
    reports: Sequence[VariantReport], environ: Mapping[str, str], comparison: Comparison | None = None
) -> None:
    """Add the report to the CI job's summary, if there is one. Raises SettingError if its file cannot be written."""
    if any(report.summaries or report.gates for report in reports):
        append_lines([step_summary(reports, comparison)], environ)


def append_lines(lines: Sequence[str], environ: Mapping[str, str]) -> None:
    """Add Markdown to the CI job's summary, if there is one. Raises SettingError if its file cannot be written."""
    path = environ.get(STEP_SUMMARY)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except OSError as error:
        raise SettingError(f"environment variable {STEP_SUMMARY}: cannot write {path!r}: {error.strerror}") from None
