"""What the terminal and the job summary say at the end: tables, gates, and what a reader of the numbers must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Protocol

from pytest_llmeval._report.results import Children
from pytest_llmeval._report.results import is_group
from pytest_llmeval._report.results import result_table
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts import Verdict


class Writer(Protocol):
    """The two methods of pytest's terminal reporter that a report needs."""

    def write_line(self, line: str, **markup: bool) -> None: ...

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class GateLine:
    """A selected gate and what became of it; without a verdict it was not judged (the run was stopped)."""

    nodeid: str
    verdict: Verdict | None

    @property
    def outcome(self) -> str:
        return "not judged" if self.verdict is None else self.verdict.outcome

    @property
    def sentence(self) -> str:
        return (
            "the run ended, or its model failed, before it was judged"
            if self.verdict is None
            else self.verdict.sentence
        )


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


def write_report(writer: Writer, reports: Iterable[VariantReport], verbosity: int = 0) -> None:
    """One section a model. ``-v`` adds gates that passed, ``-q`` leaves out notes, ``-qq`` all but failed gates."""
    for report in reports:
        outcomes = {"failed"} if verbosity < -1 else set(MARKUP) if verbosity > 0 else set(MARKUP) - {"passed"}
        gates = [gate for outcome in MARKUP if outcome in outcomes for gate in report.gates if gate.outcome == outcome]
        if verbosity >= -1 and report.summaries:
            writer.write_sep("=", f"llmeval: {report.name}" if report.name else "llmeval")
            _write_tables(writer, report)
        for gate in gates:
            # Not "FAILED ...": scripts count pytest's own lines of that form.
            writer.write_line(f"gate {gate.outcome}: {gate.nodeid}: {gate.sentence}", **MARKUP[gate.outcome])
        if verbosity >= 0:
            for line in notes(report):
                writer.write_line(line)


def _write_tables(writer: Writer, report: VariantReport) -> None:
    for table in tables(report):
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
    parts = [f"{task.name} {task.n:,} of {task.n_total:,}" for task in tasks if task.n + task.errors < task.n_total]
    if parts:
        yield f"evaluated on a part of the docs: {_named(parts)}"
    yield from _told(report.summaries)


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


def step_summary(reports: Iterable[VariantReport]) -> str:
    """The report as Markdown, for the summary of a CI job."""
    return "\n".join(line for report in reports for line in _markdown(report))


def _markdown(report: VariantReport) -> Iterator[str]:
    yield f"## llmeval: {report.name}\n" if report.name else "## llmeval\n"
    for table in tables(report):
        yield f"{table}\n"
    for gate in sorted(report.gates, key=lambda gate: list(MARKUP).index(gate.outcome)):
        yield f"- **{gate.outcome}** `{gate.nodeid}`: {gate.sentence}"
    yield from (f"- {line}" for line in notes(report))
    yield ""


def _named(parts: Sequence[str]) -> str:
    """The first tasks by name, the others as their number."""
    more = f", and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more
