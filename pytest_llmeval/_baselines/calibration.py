"""The calibration of a baseline: how often the 0/1 scores of its docs flip when the same build answers them again.

The first of N runs are the committed answers. A doc that is right in K of the N runs differs between two of them with
probability ``2 K (N - K) / (N (N - 1))``, estimated without bias; the sum over docs is the number of flips to expect
between two runs of an unchanged build.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SelfFlips:
    """The flips of one 0/1 score between the runs of an unchanged build.

    `down` and `up`: for each run after the first, the numbers of docs that went from 1 in the first run to 0, and from
    0 to 1. `flips`: the expected number of docs that differ between two runs. `variances`: the variances of `down` and
    `up` over further runs, given the first; None if a single further run shows none.
    """

    down: Sequence[int]
    up: Sequence[int]
    flips: float
    variances: tuple[float, float] | None = None

    @classmethod
    def of(cls, first: Sequence[int], again: Sequence[Sequence[int]]) -> SelfFlips:
        """Return the flips of docs with the scores `first`, and `again` in each further run: at least one."""
        runs = len(again) + 1
        down = [sum(old > new for old, new in zip(first, run, strict=True)) for run in again]
        up = [sum(old < new for old, new in zip(first, run, strict=True)) for run in again]
        right = [sum(scores) for scores in zip(*again, strict=True)]
        flips = _flips([old + later for old, later in zip(first, right, strict=True)], runs)
        if runs < 3:
            return cls(down, up, flips)
        was_right, was_wrong = (
            [later for old, later in zip(first, right, strict=True) if old == side] for side in (1, 0)
        )
        # Two runs differ by twice the variance of one.
        return cls(down, up, flips, (_flips(was_right, runs - 1) / 2, _flips(was_wrong, runs - 1) / 2))


def _flips(right: Sequence[int], runs: int) -> float:
    """Return the expected number of docs that differ between two runs, given how often each is right in `runs` runs."""
    return round(sum(2 * count * (runs - count) for count in right) / (runs * (runs - 1)), 4)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The flips of an unchanged build on `docs` docs.

    `ways` names, for each run after the first, the way in which it was computed; `scores` has the flips of each 0/1
    score by ``metric,filter``.
    """

    docs: int
    ways: Sequence[str]
    scores: Mapping[str, SelfFlips]

    @property
    def runs(self) -> int:
        """The number of runs, that of the committed answers among them."""
        return len(self.ways) + 1

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Calibration:
        """Return the value that `dataclasses.asdict` turned into plain data. Raises KeyError or TypeError."""
        scores = {
            key: SelfFlips(one["down"], one["up"], one["flips"], one["variances"] and tuple(one["variances"]))
            for key, one in plain["scores"].items()
        }
        return cls(plain["docs"], plain["ways"], scores)
