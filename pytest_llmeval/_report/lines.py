"""What the terminal and the job summary say at the end: tables, gates, and what a reader of the numbers must know."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Protocol

from pytest_llmeval._report.checkpoints import Comparison
from pytest_llmeval._report.checkpoints import comparison_notes
from pytest_llmeval._report.checkpoints import comparison_table
from pytest_llmeval._report.table import Children
from pytest_llmeval._report.table import is_group
from pytest_llmeval._report.table import result_table
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts import Verdict


class Writer(Protocol):
    """The two methods of pytest's terminal reporter that a report needs."""

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class GateLine:
    """A selected gate and what became of it; without a verdict it was not judged, and `why` says why not, if known."""

    nodeid: str
    verdict: Verdict | None
    why: str | None = None

    @property
    def outcome(self) -> str:
        return "not judged" if self.verdict is None else self.verdict.outcome

    @property
    def sentence(self) -> str:
        if self.verdict is None:
            return self.why or "the run ended before it was judged"
        return self.verdict.sentence


@dataclass(frozen=True, slots=True)
class VariantReport:
    """What one model scored. `answered` docs have a right or wrong answer, `wrong` of them a wrong one."""

    name: str
    summaries: Sequence[Summary]
    children: Children = field(default_factory=dict)
    gates: Sequence[GateLine] = ()
    answered: int = 0
    wrong: int = 0


#: Outcome -> how its lines look. The order is that of the lines.
MARKUP: dict[str, dict[str, bool]] = {
    "failed": {"red": True},
    "not judged": {"yellow": True},
    "inconclusive": {"yellow": True},
    "passed": {"green": True},
}

#: How many tasks a note names before it only counts them.
_NAMED = 5


def write_report(
    writer: Writer, reports: Sequence[VariantReport], verbosity: int = 0, comparison: Comparison | None = None
) -> None:
    """One section a model; if they can be compared, one for all instead, and theirs only with ``-v``.

    ``-v`` adds gates that passed, ``-q`` leaves out notes, ``-qq`` all but failed gates.
    """
    if comparison is not None:
        _write_comparison(writer, comparison, verbosity)
    together = comparison is not None and verbosity <= 0
    for report in reports:
        if verbosity >= -1 and report.summaries and not together:
            writer.write_sep("=", f"llmeval: {report.name}" if report.name else "llmeval")
            _write_tables(writer, tables(report))
        _write_gates(writer, report.gates, verbosity)
        if verbosity >= 0 and not together:
            for line in notes(report):
                writer.write_line(line)
    if together and verbosity >= 0:
        for line in shared_notes(reports):
            writer.write_line(line)


def _write_comparison(writer: Writer, comparison: Comparison, verbosity: int) -> None:
    if verbosity < -1:
        return
    writer.write_sep("=", f"llmeval: {len(comparison.models)} models")
    _write_tables(writer, [comparison_table(comparison, everything=verbosity > 0)])
    for line in comparison_notes(comparison, everything=verbosity > 0) if verbosity >= 0 else ():
        writer.write_line(line)


def _write_gates(writer: Writer, gates: Sequence[GateLine], verbosity: int) -> None:
    outcomes = {"failed"} if verbosity < -1 else set(MARKUP) if verbosity > 0 else set(MARKUP) - {"passed"}
    for gate in [gate for outcome in MARKUP if outcome in outcomes for gate in gates if gate.outcome == outcome]:
        # Not "FAILED ...": scripts count pytest's own lines of that form.
        writer.write_line(f"gate {gate.outcome}: {gate.nodeid}: {gate.sentence}", **MARKUP[gate.outcome])


def _write_tables(writer: Writer, tables: Iterable[str]) -> None:
    for table in tables:
        for line in table.split("\n"):
            writer.write_line(line)
        writer.write_line("")


def tables(report: VariantReport) -> Iterator[str]:
    """The table of all results and, if groups aggregate something, the one of groups."""
    yield result_table(report.summaries, report.children)
    if any(is_group(summary) and summary.values for summary in report.summaries):
        yield result_table(report.summaries, report.children, groups_only=True)


def notes(report: VariantReport) -> Iterator[str]:
    """Counts of gates and wrong answers, then everything that qualifies the numbers."""
    if report.gates:
        counts = Counter(gate.outcome for gate in report.gates)
        yield "gates: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in MARKUP if counts[outcome])
    if report.answered:
        yield f"wrong answers: {report.wrong:,} of {report.answered:,}"
    tasks = [summary for summary in report.summaries if not is_group(summary)]
    for sentence, stopped in (("evaluated on a part of the docs", False), ("stopped early, all gates proven", True)):
        parts = [
            f"{task.name} {'on ' * stopped}{task.n:,} of {task.n_total:,}{' docs' * stopped}"
            for task in tasks
            if task.n + task.errors < task.n_total and task.stopped_early is stopped
        ]
        if parts:
            yield f"{sentence}: {_named(parts)}"
    yield from _told(report.summaries)


def shared_notes(reports: Sequence[VariantReport]) -> Iterator[str]:
    """The notes of several models: each that all of them have once, others with the names of theirs."""
    told: dict[str, list[str]] = {}
    for report in reports:
        for line in notes(report):
            told.setdefault(line, []).append(report.name)
    for line, names in told.items():
        yield line if len(names) == len(reports) else f"{', '.join(names)}: {line}"


def _told(summaries: Iterable[Summary]) -> Iterator[str]:
    """What summaries say of their numbers. A sentence that several end in a count, or share, is told once."""
    counted: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    for summary in summaries:
        for note in summary.notes:
            sentence, _, count = note.rpartition(": ")
            if sentence and count.isdigit():
                counted.setdefault(sentence, []).append(f"{summary.name} {int(count):,}")
            else:
                shared.setdefault(note, []).append(summary.name)
    yield from (f"{sentence}: {_named(parts)}" for sentence, parts in counted.items())
    yield from (f"{_named(names)}: {note}" for note, names in shared.items())


def step_summary(reports: Sequence[VariantReport], comparison: Comparison | None = None) -> str:
    """The report as Markdown, for the summary of a CI job."""
    if comparison is not None:
        return "\n".join(_markdown_of_several(reports, comparison))
    return "\n".join(line for report in reports for line in _markdown(report))


def _markdown(report: VariantReport) -> Iterator[str]:
    yield f"## llmeval: {report.name}\n" if report.name else "## llmeval\n"
    for table in tables(report):
        yield f"{table}\n"
    yield from _markdown_of_gates(report.gates)
    yield from (f"- {line}" for line in notes(report))
    yield ""


def _markdown_of_gates(gates: Iterable[GateLine]) -> Iterator[str]:
    for gate in sorted(gates, key=lambda gate: list(MARKUP).index(gate.outcome)):
        yield f"- **{gate.outcome}** `{gate.nodeid}`: {gate.sentence}"


def _markdown_of_several(reports: Sequence[VariantReport], comparison: Comparison) -> Iterator[str]:
    """What was compared and judged; the tables of each model folded away."""
    yield f"## llmeval: {len(comparison.models)} models\n"
    yield f"{comparison_table(comparison, everything=False)}\n"
    yield from (f"- {line}" for line in comparison_notes(comparison, everything=False))
    yield from _markdown_of_gates(gate for report in reports for gate in report.gates)
    yield from (f"- {line}" for line in shared_notes(reports))
    yield ""
    for report in reports:
        yield f"<details><summary>{html.escape(report.name)}</summary>\n"
        yield from (f"{table}\n" for table in tables(report))
        yield "</details>\n"


def _named(parts: Sequence[str]) -> str:
    """The first tasks by name, the others as their number."""
    more = f", and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more
