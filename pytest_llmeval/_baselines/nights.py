"""The nights of a gate: which docs each run answered otherwise than the baseline, in one file beside its tasks.

    {"llmeval nights": 1, "gate": "piqa acc.drop", "baseline": "b5bb9d8014a0f", "docs": 1838}
    {"date": "2026-12-01", "lost": 3, "gained": 1, "value": 0.6621, "e_value": 0.03, "flips": [17, 220, 9, 1301]}

`baseline` is a hash of the docs and of their scores in the baseline: nights of another baseline begin anew. `flips` are
places in the order of the docs' hashes, the first from 0 on and each other as the distance from the one before.
A night adds one line, so that a diff shows what it added. The e-value is for the reader: it is computed from the flips
of all nights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from itertools import accumulate
from itertools import pairwise
from pathlib import Path

from pytest_llmeval._baselines.baseline import quoted
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._plain import json_text
from pytest_llmeval._plain import write_whole


_FORMAT = 1
_TITLE = "llmeval nights"


@dataclass(frozen=True, slots=True)
class Night:
    """One counted run: the docs that it answered otherwise than the baseline (`flips`, in order), and its `value`.

    `lost` of them became wrong and `gained` right; `e_value` is the evidence for a fall after this night.
    """

    date: str
    lost: int
    gained: int
    value: float
    e_value: float
    flips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The nights of a `gate`, in order, against the `baseline` of that hash, which has `docs` docs."""

    gate: str
    baseline: str
    docs: int
    nights: tuple[Night, ...] = ()


def history_path(folder: Path, owner: str, gate_id: str) -> Path:
    """Return the path of the history of a gate, named after its task or group and its id."""
    return folder / f"{quoted(owner)}.{quoted(gate_id)}.nights.jsonl"


def write_history(path: Path, history: History) -> None:
    """Write a history atomically. Raises BaselineError if it cannot be written."""
    try:
        write_whole(path, _lines(history))
    except OSError as error:
        raise BaselineError(path, f"cannot be written: {error.strerror or error}") from None


def _lines(history: History) -> Iterator[str]:
    head = {_TITLE: _FORMAT, "gate": history.gate, "baseline": history.baseline, "docs": history.docs}
    yield json_text(head) + "\n"
    for night in history.nights:
        gaps = [*night.flips[:1], *(after - before for before, after in pairwise(night.flips))]
        line = {"date": night.date, "lost": night.lost, "gained": night.gained, "value": night.value}
        yield json_text(line | {"e_value": float(f"{night.e_value:.3g}"), "flips": gaps}) + "\n"


def read_history(path: Path, gate: str) -> History | None:
    """Return the history in a file, None if there is no file.

    Raises BaselineError, with the line and the mend, for a file that is damaged or not of this gate.
    """
    mend = "restore a committed version, or delete it to begin anew"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BaselineError(path, f"cannot be read: {error}") from None
    history = History(gate, "", 0)
    for number, line in enumerate(lines or [""], 1):
        try:
            history = _head(line, gate) if number == 1 else _longer(history, line)
        except (KeyError, TypeError, ValueError):
            expected = f"the nights of gate {gate!r}" if number == 1 else "a night"
            raise BaselineError(path, f"expected {expected}, found {line!r:.60}: {mend}", line=number) from None
    return history


def _head(line: str, gate: str) -> History:
    head = json.loads(line)
    if head[_TITLE] != _FORMAT or head["gate"] != gate:
        raise ValueError(line)
    return History(gate, str(head["baseline"]), int(head["docs"]))


def _longer(history: History, line: str) -> History:
    """Return a history with the night of a line. Raises KeyError, TypeError or ValueError for one that cannot be."""
    said = json.loads(line)
    flips = tuple(accumulate(map(int, said["flips"])))
    lost, gained = int(said["lost"]), int(said["gained"])
    ordered = all(before < after for before, after in pairwise(flips))
    if not ordered or (flips and not 0 <= flips[0] <= flips[-1] < history.docs) or lost + gained != len(flips):
        raise ValueError(line)
    night = Night(str(said["date"]), lost, gained, float(said["value"]), float(said["e_value"]), flips)
    return replace(history, nights=(*history.nights, night))
