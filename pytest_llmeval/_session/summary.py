"""What the end of a session does with the baseline: write it, or tell how the run differs from it.

What stands at the end of a session: the report, the files, and the hook for others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._report import VariantReport
from pytest_llmeval._report import append_step_summary
from pytest_llmeval._report import write_report
from pytest_llmeval._report.files import write_output
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.report_data import compare
from pytest_llmeval._session.report_data import gather
from pytest_llmeval._session.report_data import runs_of
from pytest_llmeval._session.report_data import scored_tasks
from pytest_llmeval._session.session import Session
from pytest_llmeval._verdicts import Changes
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import changes_of_task


#: How many tasks are told one by one.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report; an error makes the run fail."""

    text: str
    is_error: bool = False


def baseline_lines(session: Session) -> Iterator[Line]:
    """Write the baseline if that was asked for, else compare with it, and say what came of it."""
    scored = session.evaluation.ledger.scored()
    variants = list(dict.fromkeys(variant for variant, _ in scored))
    if session.baseline.chosen is None or not variants:
        return
    if not session.baseline.updating:
        for variant in variants:
            yield from _differences(session, variant)
            yield from _origins(session, variant)
            yield from _noise(session, variant)
    elif session.cut_short:
        yield Line(
            "ERROR: --llmeval-update-baseline: the run was stopped before its end, and half of it would be of another "
            "model than the rest: nothing is written",
            is_error=True,
        )
    elif len(variants) > 1:
        yield Line(
            f"ERROR: --llmeval-update-baseline: a baseline holds the answers of one model, and {len(variants)} "
            f"answered ({', '.join(variants)}): nothing is written",
            is_error=True,
        )
    else:
        yield from _update(session, session.baseline.chosen, variants[0])


def _update(session: Session, baseline: Baseline, variant: str) -> Iterator[Line]:
    """Write task by task, say which files could not be and which did not just get new ones, and count."""
    docs, tasks = 0, 0
    head = f"baseline {baseline.name}"
    for task in scored_tasks(session, variant):
        part, name = session.part(task, variant), session.model_names.get(variant, variant)
        facts = session.evaluation.described.get(variant, {})
        try:
            update = baseline.update(task, part.results, session.summary(task, variant), name, facts)
        except LLMEvalError as error:
            yield Line(f"ERROR: {error}", is_error=True)
            continue
        docs, tasks = docs + update.run, tasks + 1
        if update.kept or update.changed:
            yield Line(f"{head}: {task.name}: {update}")
    if tasks:
        yield Line(f"{head}: {docs:,} docs of {tasks} tasks written to {baseline.path}")


def _differences(session: Session, variant: str) -> Iterator[Line]:
    """What does not pair, task by task, and which tasks flipped."""
    parts = [session.part(task, variant) for task in scored_tasks(session, variant)]
    told = [(part, problems) for part in parts if (problems := _problems(session, part))]
    head = f"baseline {session.baseline.name}" + (f", {variant}" if variant else "")
    for part, problems in told[:_NAMED]:
        # A task that is new is no mistake where the user lets docs go unpaired.
        is_new = part.comparison is not None and part.comparison.record is None and part.comparison.problem is None
        is_error = not (is_new and session.unpaired == "ignore")
        yield Line(f"{'ERROR: ' * is_error}{head}: {part.task.name}: {', '.join(problems)}", is_error)
    if len(told) > _NAMED:
        yield Line(f"ERROR: {head}: and {len(told) - _NAMED} more tasks that cannot be compared", is_error=True)
    yield from _changes(head, parts)


def _changes(head: str, parts: Sequence[TaskData]) -> Iterator[Line]:
    """How many docs changed: those that are right or wrong, those with other scores, and those that cannot be told."""
    found = [(part.task.name, changes) for part in parts if (changes := changes_of_task(part))]
    if flips := [(name, changes) for name, changes in found if changes.flips]:
        worse, better, docs = _sums(flips)
        yield Line(f"{head}: {worse:,} lost, {better:,} gained of {docs:,} docs{_by_task(flips)}")
    if scores := [(name, changes) for name, changes in found if not changes.flips]:
        worse, better, docs = _sums(scores)
        equal = docs - worse - better
        counts = f"{worse:,} worse, {better:,} better, {equal:,} equal of {docs:,} docs"
        yield Line(f"{head}: {counts} with other scores than 0 and 1{_by_task(scores)}")
    told = {name for name, _ in found}
    if silent := [part for part in parts if part.task.name not in told and part.pairs]:
        docs = sum(len(part.pairs) for part in silent)
        named = ", ".join(part.task.name for part in silent[:_NAMED]) + ", ..." * (len(silent) > _NAMED)
        yield Line(f"{head}: {docs:,} docs have no score of their own of which one side is better ({named})")


def _sums(changed: Sequence[tuple[str, Changes]]) -> tuple[int, int, int]:
    return (
        sum(changes.worse for _, changes in changed),
        sum(changes.better for _, changes in changed),
        sum(changes.docs for _, changes in changed),
    )


def _by_task(changed: Sequence[tuple[str, Changes]]) -> str:
    """`` (birds -2 +0)``"""
    told = [f"{name} -{one.worse} +{one.better}" for name, one in changed if one.worse or one.better]
    more = f", and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return f" ({', '.join(told[:_NAMED])}{more})" if told else ""


def _origins(session: Session, variant: str) -> Iterator[Line]:
    """What of the baseline's answers makes small differences, or is no single model's."""
    dtype = session.evaluation.described.get(variant, {}).get("model", {}).get("model_dtype")
    parts = [session.part(task, variant) for task in scored_tasks(session, variant)]
    records = [part.comparison.record for part in parts if part.comparison and part.comparison.record]
    head = f"baseline {session.baseline.name}" + (f", {variant}" if variant else "")
    mixed = [record.header.task for record in records if len(record.header.models) > 1]
    others = {model["dtype"] for record in records for model in record.header.models if model["dtype"]} - {dtype}
    if dtype and others and not session.settings.noise_docs:
        yield Line(
            f"{head}: answers were computed in {', '.join(sorted(others))}, now in {dtype}: close calls flip "
            "(--llmeval-noise tells how many)"
        )
    if mixed:
        named = ", ".join(mixed[:_NAMED]) + ", ..." * (len(mixed) > _NAMED)
        yield Line(f"{head}: holds answers of several models, updated part by part: {named}")


def _noise(session: Session, variant: str) -> Iterator[Line]:
    """What rounding alone did to the tasks that were probed."""
    model = f", {variant}" if variant else ""
    found = [(task.name, session.noise.of(variant, task.name)) for task in scored_tasks(session, variant)]
    known = [(name, noise) for name, noise in found if noise is not None]
    for name, noise in known[:_NAMED]:
        yield Line(f"noise floor of {name}{model}: {noise}")
    if len(known) > _NAMED:
        yield Line(f"noise floor{model}: and {len(known) - _NAMED} more tasks")


def _problems(session: Session, part: TaskData) -> list[str]:
    if part.comparison is None:
        return []
    whole = len(part.results) == part.n_total
    return part.comparison.problems(whole=whole, ignore_unpaired=session.unpaired == "ignore")


#: How many gates without a task are told.
_NAMED_RULES = 3


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
        texts = ", ".join(repr(rule.gate.place.text) for rule in idle[:_NAMED_RULES]) + ", ..." * (
            len(idle) > _NAMED_RULES
        )
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
