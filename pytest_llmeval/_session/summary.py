"""The end of a session: the report, the baseline written or compared with, the files, and the hook for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import listed
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import ReportLine
from pytest_llmeval._report import append_step_summary
from pytest_llmeval._report import baseline_lines
from pytest_llmeval._report import compare_models
from pytest_llmeval._report import model_lines
from pytest_llmeval._report import write_output
from pytest_llmeval._report import write_report
from pytest_llmeval._session.calibration import calibration_lines
from pytest_llmeval._session.options import order_text
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.report_data import model_reports
from pytest_llmeval._session.report_data import run_facts
from pytest_llmeval._session.session import Session
from pytest_llmeval._session.shards import close_shard
from pytest_llmeval._verdicts import changes_of_task


def close(session: Session, reporter: pytest.TerminalReporter) -> None:
    """Report everything that is known, also after an interrupt. A file that cannot be written is an error, in red."""
    if session.config.option.collectonly or session.looks_only:
        return
    if session.settings.shard:
        close_shard(session, reporter)
        return
    verbosity = session.config.get_verbosity()
    reports = model_reports(session)
    scored = [report for report in reports if report.tasks]
    comparison = compare_models(scored)
    write_report(reporter, reports, verbosity, comparison)
    for text in (line for report in scored for line in model_lines(report)) if verbosity > 0 else ():
        reporter.write_line(text)
    if any(summary.stopped_early for report in scored for summary in report.summaries):
        # Also with -q, where pytest prints no header.
        reporter.write_line(order_text(session.settings))
    # Also with -q: nothing else shows a misspelled name, whose gate would never be judged.
    if idle := session.rules.unmatched():
        rules = listed((repr(rule.gate.place.text) for rule in idle), 3)
        reporter.write_line(f"llmeval_gates: {len(idle)} of {len(session.rules)} select nothing of this run: {rules}")
    # Also with -q: answers that are not kept would be asked for again.
    for message in dict.fromkeys(text for run in session.selection.runs.values() for text in run.journal_messages()):
        reporter.write_line(f"llmeval: {message}", yellow=True)
    for line in _baseline_lines(session, scored):
        reporter.write_line(line.text, red=line.is_error)
        session.failed_at_end |= line.is_error
    try:
        append_step_summary(reports, os.environ, comparison)
        if folder := value_of(session.config, "output"):
            directory = session.config.invocation_params.dir / Path(folder)
            for path in write_output(directory, scored, run_facts(session), session.started):
                if verbosity > 0 or path.name.startswith("results_"):
                    reporter.write_line(f"written: {path}")
    except SettingError as error:
        session.failed_at_end = True
        reporter.write_line(f"ERROR: {error}", red=True)
    for report in reports:
        session.config.hook.pytest_llmeval_summary(model=report.name, summaries=report.summaries, config=session.config)


def _baseline_lines(session: Session, reports: Sequence[ModelReport]) -> Iterator[ReportLine]:
    """Write the baseline if it is to be updated, else compare with it, and report the result."""
    baseline = session.baseline.chosen
    if baseline is None or not reports:
        return
    if not session.baseline.updating:
        for report in reports:
            yield from baseline_lines(
                report,
                baseline.name,
                ignore_unpaired=session.baseline.ignores_unpaired,
                noise_measured=session.settings.noise_docs > 0,
            )
    elif session.interrupted:
        yield ReportLine(
            "ERROR: --llmeval-update-baseline: the run was stopped before its end, and the docs that were not run "
            "would keep the answers of another model: nothing is written",
            is_error=True,
        )
    elif len(reports) > 1:
        yield ReportLine(
            f"ERROR: --llmeval-update-baseline: a baseline holds the answers of one model, and {len(reports)} "
            f"answered ({', '.join(report.id for report in reports)}): nothing is written",
            is_error=True,
        )
    else:
        yield from _update(session, baseline, reports[0])


def _update(session: Session, baseline: Baseline, report: ModelReport) -> Iterator[ReportLine]:
    """Write one file per task; report failures, partial updates, gains that may be luck, flips and the total."""
    run, records = session.selection.run(report.id), {}
    docs, tasks, lucky, uncalibrated = 0, 0, [], []
    for task in report.tasks:
        changes = changes_of_task(task.data)
        calibration = None
        try:
            calibration = run.repeats.calibration(task.summary.name, task.data.results)
        except LLMEvalError as error:
            yield ReportLine(f"baseline {baseline.name}: {error}")
        try:
            update = baseline.update(
                task.data.task, task.data.results, task.summary, report.name, report.facts, calibration
            )
        except LLMEvalError as error:
            yield ReportLine(f"ERROR: {error}", is_error=True)
            continue
        records[task.summary.name] = update.record
        if update.lost_calibration or (calibration and not update.record.header.calibration):
            uncalibrated.append(task.summary.name)
        docs, tasks = docs + update.run, tasks + 1
        if update.kept or update.changed:
            yield ReportLine(f"baseline {baseline.name}: {task.summary.name}: {update}")
        if changes and changes.lucky and task.data.task.cluster is None:
            lucky.append(f"{task.summary.name} ({changes.better:,} gained, {changes.worse:,} lost)")
    if uncalibrated:
        yield ReportLine(
            f"baseline {baseline.name}: no longer calibrated, because its answers are not all of one calibrating run: "
            f"{listed(uncalibrated, 3)}; --llmeval-calibrate N calibrates a run of all docs"
        )
    if lucky:
        yield ReportLine(
            f"baseline {baseline.name}: renewed with gains that may be luck: {listed(lucky, 3)}; a baseline that is "
            "renewed whenever a run beats it rises without any change, and later runs fail against it"
        )
    if tasks:
        of = "1 task" if tasks == 1 else f"{tasks} tasks"
        yield ReportLine(f"baseline {baseline.name}: {docs:,} docs of {of} written to {baseline.path}")
    if run.repeats.runs:
        yield from calibration_lines(session, run, records)
