"""What stands at the end of a session: the report, the files, and the hook for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from pytest_llmeval._against import baseline_lines
from pytest_llmeval._errors import SettingError
from pytest_llmeval._options import value_of
from pytest_llmeval._output import runs_of
from pytest_llmeval._output import write_output
from pytest_llmeval._report import VariantReport
from pytest_llmeval._report import append_step_summary
from pytest_llmeval._report import compare
from pytest_llmeval._report import gather
from pytest_llmeval._report import write_report
from pytest_llmeval._session import Session


#: How many gates without a task are told.
_NAMED = 3


def close(session: Session, reporter: pytest.TerminalReporter) -> None:
    """Report everything that is known, also after an interrupt. A file that cannot be written is said, in red."""
    if session.config.option.collectonly or session.looks_only:
        return
    reports = gather(session, session.selected_gates)
    comparison = compare(session)
    write_report(reporter, reports, session.config.get_verbosity(), comparison)
    if session.config.get_verbosity() > 0:
        for text in _usage_lines(session):
            reporter.write_line(text)
    # Also with -q: nothing else tells of a misspelled name, whose gate would sleep.
    if idle := session.idle_rules():
        texts = ", ".join(repr(rule.gate.place.text) for rule in idle[:_NAMED]) + ", ..." * (len(idle) > _NAMED)
        reporter.write_line(f"llmeval_gates: {len(idle)} of {len(session.rules)} select nothing of this run: {texts}")
    for line in baseline_lines(session):
        reporter.write_line(line.text, red=line.is_error)
        session.unsound |= line.is_error
    try:
        append_step_summary(reports, os.environ, comparison)
        _write_files(session, reporter)
    except SettingError as error:
        session.unsound = True
        reporter.write_line(f"ERROR: {error}", red=True)
    _call_hook(session, reports)


def _usage_lines(session: Session) -> Iterator[str]:
    for variant, used in session.evaluation.used.items():
        if used:
            memory = used.get("peak_memory", 0) / 2**30
            yield f"{session.model_names[variant]}: {used.get('tokens', 0):,} tokens read, peak memory {memory:.2f} GiB"


def _write_files(session: Session, reporter: pytest.TerminalReporter) -> None:
    folder = value_of(session.config, "output")
    if not folder:
        return
    several = len(session.models.choices) > 1
    runs = runs_of(
        session,
        specs={choice.name if several else "": choice.spec for choice in session.models.choices},
        model_args=value_of(session.config, "model-args") or "",
        started=session.started.timestamp(),
        seconds=(datetime.now() - session.started).total_seconds(),
    )
    for path in write_output(session.config.invocation_params.dir / Path(folder), runs, session.started):
        if session.config.get_verbosity() > 0 or path.name.startswith("results_"):
            reporter.write_line(f"written: {path}")


def _call_hook(session: Session, reports: Sequence[VariantReport]) -> None:
    for report in reports:
        session.config.hook.pytest_llmeval_summary(
            variant=report.name, summaries=report.summaries, config=session.config
        )
