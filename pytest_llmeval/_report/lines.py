"""Report lines: tables, gates and notes for the terminal, and as Markdown for the summary of a CI job."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import listed
from pytest_llmeval._report.model_comparison import ModelComparison
from pytest_llmeval._report.model_comparison import comparison_notes
from pytest_llmeval._report.model_comparison import comparison_table
from pytest_llmeval._report.model_report import GateLine
from pytest_llmeval._report.model_report import ModelReport
from pytest_llmeval._report.table import result_table


class ReportWriter(Protocol):
    """The two methods of pytest's terminal reporter that a report needs."""

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...


#: Outcome of a gate -> markup of its lines, in the order of the lines.
MARKUP: dict[str, dict[str, bool]] = {
    "failed": {"red": True},
    "not judged": {"yellow": True},
    "inconclusive": {"yellow": True},
    "passed": {"green": True},
}

#: The environment variable in which GitHub Actions names the file that becomes the job's summary.
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


def write_report(
    writer: ReportWriter,
    reports: Sequence[ModelReport],
    verbosity: int = 0,
    comparison: ModelComparison | None = None,
) -> None:
    """Write one section per model; models that can be compared share one section, without ``-v``.

    ``-v`` adds passed gates and all facts of each gate, ``-q`` leaves out notes, ``-qq`` all but failed gates.
    """
    if comparison is not None and verbosity >= -1:
        writer.write_sep("=", f"llmeval: {len(comparison.models)} models")
        _write_tables(writer, [comparison_table(comparison, everything=verbosity > 0)])
        for line in comparison_notes(comparison, everything=verbosity > 0) if verbosity >= 0 else ():
            writer.write_line(line)
    together = comparison is not None and verbosity <= 0
    for report in reports:
        if verbosity >= -1 and report.summaries and not together:
            writer.write_sep("=", f"llmeval: {report.name}" if report.name else "llmeval")
            _write_tables(writer, tables(report))
        outcomes = {"failed"} if verbosity < -1 else set(MARKUP) if verbosity > 0 else set(MARKUP) - {"passed"}
        for gate in [gate for gate in in_order(report.gates) if gate.outcome in outcomes]:
            # Not "FAILED ...": scripts count pytest's own lines of that form.
            sentence = gate.full_sentence if verbosity > 0 else gate.sentence
            writer.write_line(f"gate {gate.outcome}: {gate.nodeid}: {sentence}", **MARKUP[gate.outcome])
        # With -v the facts of each gate already contain its next step.
        steps = (gate.next_step for gate in report.gates if gate.outcome == "failed")
        if verbosity == 0 and (step := next(filter(None, steps), None)):
            writer.write_line(f"next: {step}")
        if verbosity >= 0 and not together:
            for line in notes(report):
                writer.write_line(line)
    if together and verbosity >= 0:
        for line in shared_notes(reports):
            writer.write_line(line)


def _write_tables(writer: ReportWriter, tables: Iterable[str]) -> None:
    for table in tables:
        for line in table.split("\n"):
            writer.write_line(line)
        writer.write_line("")


def tables(report: ModelReport) -> Iterator[str]:
    """Yield the table of all results and, if groups aggregate something, the table of groups."""
    yield result_table(report.summaries, report.children)
    if any(group.summary.values for group in report.groups):
        yield result_table(report.summaries, report.children, groups_only=True)


def in_order(gates: Iterable[GateLine]) -> list[GateLine]:
    """Return the gates by outcome, failed ones first."""
    order = list(MARKUP)
    return sorted(gates, key=lambda gate: order.index(gate.outcome))


def notes(report: ModelReport) -> Iterator[str]:
    """Yield the counts of gates and wrong answers, then the notes that qualify the numbers."""
    if report.gates:
        counts = Counter(gate.outcome for gate in report.gates)
        yield "gates: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in MARKUP if counts[outcome])
    judged = Counter(result.correct for task in report.tasks for result in task.data.results)
    if answered := judged[True] + judged[False]:
        yield f"wrong answers: {judged[False]:,} of {answered:,}"
    if recalled := report.usage.get("from_journal"):
        yield f"answers from the journal: {recalled:,} of {report.usage['answers']:,}"
    parts = [task.summary for task in report.tasks if task.summary.n + task.summary.errors < task.summary.n_total]
    if limited := [f"{one.name} {one.n:,} of {one.n_total:,}" for one in parts if not one.stopped_early]:
        yield f"evaluated on a part of the docs: {listed(limited)}"
    # Gates that did not pass have this caution in their own line.
    if passed := [gate.nodeid for gate in report.gates if gate.outcome == "passed" and gate.judges_first_docs]:
        yield (
            f"passed on the first docs, which are not a random sample of the others: {listed(passed)}; "
            "--llmeval-sample random:SEED draws at random"
        )
    if stopped := [f"{one.name} on {one.n:,} of {one.n_total:,} docs" for one in parts if one.stopped_early]:
        yield f"stopped early, all gates proven: {listed(stopped)}"
    # A note that several summaries share, with or without a count, is written once.
    counted: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    for summary in report.summaries:
        for note in summary.notes:
            sentence, _, count = note.rpartition(": ")
            if sentence and count.isdigit():
                counted.setdefault(sentence, []).append(f"{summary.name} {int(count):,}")
            else:
                shared.setdefault(note, []).append(summary.name)
    yield from (f"{sentence}: {listed(counts)}" for sentence, counts in counted.items())
    yield from (f"{listed(names)}: {note}" for note, names in shared.items())


def model_lines(report: ModelReport) -> Iterator[str]:
    """Yield the tokens and memory that a model used, its engines, and the reasons why faster ones were refused."""
    if report.usage.get("tokens"):
        parts = [f"{report.usage['tokens']:,} tokens read"]
        if "peak_memory" in report.usage:
            parts.append(f"peak memory {report.usage['peak_memory'] / 2**30:.2f} GiB")
        yield f"{report.name}: {', '.join(parts)}"
    engines = [f"{report.engine[what]} for {what}" for what in ("scoring", "generation") if report.engine.get(what)]
    if engines:
        yield f"{report.name}: engine: {', '.join(engines)}"
    for name, reason in report.engine.get("refused", {}).items():
        yield f"{report.name}: engine: {name} refused: {reason}"


def shared_notes(reports: Sequence[ModelReport]) -> Iterator[str]:
    """Yield the notes of several models: shared ones once, the others after the names of their models."""
    names: dict[str, list[str]] = {}
    for report in reports:
        for line in notes(report):
            names.setdefault(line, []).append(report.name)
    for line, own in names.items():
        yield line if len(own) == len(reports) else f"{listed(own)}: {line}"


def step_summary(reports: Sequence[ModelReport], comparison: ModelComparison | None = None) -> str:
    """Return the report as Markdown, with the tables of compared models in collapsed sections."""
    lines: list[str] = []
    if comparison is None:
        for report in reports:
            lines.append(f"## llmeval: {report.name}\n" if report.name else "## llmeval\n")
            lines += [f"{table}\n" for table in tables(report)]
            lines += [*_gate_items(report.gates), *(f"- {line}" for line in notes(report)), ""]
        return "\n".join(lines)
    lines.append(f"## llmeval: {len(comparison.models)} models\n")
    lines.append(f"{comparison_table(comparison, everything=False)}\n")
    lines += [f"- {line}" for line in comparison_notes(comparison, everything=False)]
    lines += _gate_items(gate for report in reports for gate in report.gates)
    lines += [*(f"- {line}" for line in shared_notes(reports)), ""]
    for report in reports:
        lines.append(f"<details><summary>{html.escape(report.name)}</summary>\n")
        lines += [*(f"{table}\n" for table in tables(report)), "</details>\n"]
    return "\n".join(lines)


def _gate_items(gates: Iterable[GateLine]) -> list[str]:
    return [f"- **{gate.outcome}** `{gate.nodeid}`: {gate.sentence}" for gate in in_order(gates)]


def append_step_summary(
    reports: Sequence[ModelReport], environ: Mapping[str, str], comparison: ModelComparison | None = None
) -> None:
    """Add the report to the CI job's summary, if there is one. Raises SettingError if its file cannot be written."""
    if environ.get(STEP_SUMMARY) and any(report.summaries or report.gates for report in reports):
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
