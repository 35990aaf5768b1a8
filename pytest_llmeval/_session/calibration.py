"""The lines after a calibrating run: how often docs flip by themselves, and which share of good builds gates fail."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping

from pytest_llmeval._baselines import Record
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import SelectedGate
from pytest_llmeval._report import ReportLine
from pytest_llmeval._session.session import Session
from pytest_llmeval._verdicts import GoodBuild
from pytest_llmeval._verdicts import good_builds_line


#: The number of tasks that get lines of their own.
_MOST = 10


def calibration_lines(session: Session, run: ModelRun, records: Mapping[str, Record]) -> Iterator[ReportLine]:
    """Yield the flips of each task whose new baseline is calibrated, and the share of good builds that gates fail."""
    calibrated = {name: record.header.calibration for name, record in records.items()}
    shown = [(name, found) for name, found in calibrated.items() if found is not None]
    for name, calibration in shown[:_MOST]:
        for key, flips in calibration.scores.items():
            down, up = (
                " to ".join(dict.fromkeys((f"{min(side):,}", f"{max(side):,}"))) for side in (flips.down, flips.up)
            )
            yield ReportLine(
                f"calibration of {name}: {key.removesuffix(',none')}: {flips.flips:.3g} of {calibration.docs:,} docs "
                f"differ between two of {calibration.runs} runs; compared with the first, {down} fell and {up} rose"
            )
    if len(shown) > _MOST:
        yield ReportLine(f"calibration: and {len(shown) - _MOST} more tasks")
    for gate in run.gates.values():
        if text := _failing(session, run, gate, records):
            yield ReportLine(text)


def _failing(session: Session, run: ModelRun, selected: SelectedGate, records: Mapping[str, Record]) -> str | None:
    """Return the line on the share of good builds that a gate would fail; None if it is not known."""
    tasks = session.evaluation.leaves(selected.owner)
    known = [records.get(task.name) for task in tasks]
    good = GoodBuild.of(selected.owner, known, selected.gate)
    if good is None or any(task.cluster is not None for task in tasks):
        return None
    whole = all(record.header.docs == record.header.docs_total for record in known if record)
    text = good_builds_line(selected.gate, good, run.family_size(selected.gate), whole=whole)
    return text and f"calibration of {selected.owner.name}: {text}"
