"""The good build of a calibrated baseline beside a gate: what it flips by itself, and how often it would fail.

    calibration  8 runs of the baseline's build: 61 of 1,221 docs differ between two of them, and 95 % of runs have a
                 net loss of at most 9 docs; this gate would fail 0.8 % of good builds (0.1 to 4 %, from 8 runs)

A failed comparison is excused, so that it is inconclusive, if its net loss is at most that of 95 % of runs of the
good build. Flips never make a gate pass, and p-values count all of them. The shares of good builds that fail are those
of runs against this one baseline: where it was lucky, they are above the level of the gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_llmeval import _stats
from pytest_llmeval._baselines import Calibration
from pytest_llmeval._baselines import Record
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._stats import Interval
from pytest_llmeval._stats import SelfLoss
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.estimate import Bounded
from pytest_llmeval._verdicts.estimate import decide
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.observed import holds
from pytest_llmeval._verdicts.samples import weighs_by_size
from pytest_llmeval._verdicts.sentence import condition
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_llmeval._stats import Fails

#: Smaller shares are all shown alike.
_LEAST_SHOWN = 0.001
#: The comparison that is named beside a plain threshold: a loss of at most one point, at 95 % confidence.
_USUAL_DROP, _USUAL_LOSS = Change(">=", Fraction(-1, 100)), Change("<=", Fraction(1, 100))
#: Counts of docs that differ by less are equal.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class GoodBuild:
    """The 0/1 scores of the build that wrote a baseline, over `runs` runs, that of the baseline among them.

    `loss`: the docs that a run of it loses and gains against the baseline. `flips`: the expected number of docs that
    differ between two runs. `right`: the number of docs that score 1 in the baseline. `worse_is_up`: these are the bad
    ones.
    """

    runs: int
    loss: SelfLoss
    flips: float
    right: int
    worse_is_up: bool = False

    @classmethod
    def of(cls, owner: Task | Group, records: Sequence[Record | None], gate: Gate) -> GoodBuild | None:
        """Return the good build of a gate's metric, given the baselines of all of its tasks.

        None if one of them is not calibrated for this metric, or if the owner does not count all docs equally.
        """
        found = list(_calibrated(records, gate))
        if len(found) < len(records) or not found:
            return None
        if not weighs_by_size(owner, gate.metric, found[0][2].rpartition(",")[2]):
            return None
        rule = found[0][0].header.metrics.get(gate.metric, NOTHING).get("higher_is_better")
        upward = gate.change.operator.startswith(">") if rule is None and gate.change else rule is not False
        moves, flips, docs, right = [0.0] * 4, 0.0, 0, 0
        for record, calibration, key in found:
            one = calibration.scores[key]
            means = sum(one.down) / len(one.down), sum(one.up) / len(one.up)
            # A sum of independent docs varies at most as much as Poisson's, whose variance is its mean.
            moves = [total + own for total, own in zip(moves, (*means, *(one.variances or means)), strict=True)]
            flips, docs = flips + one.flips, docs + calibration.docs
            right += round(record.header.values[key] * record.header.docs)
        down, up, of_down, of_up = moves
        sides = (down, up, of_down, of_up) if upward else (up, down, of_up, of_down)
        runs = min(calibration.runs for _, calibration, _ in found)
        return cls(runs, SelfLoss(docs, runs - 1, *sides), flips, right, not upward)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs of the baseline's build: {self.flips:.3g} of {docs_text(self.loss.docs)} differ between "
            f"two of them, and 95 % of runs have a net {'loss' if self.loss.most >= 0 else 'gain'} of at "
            f"{'most' if self.loss.most >= 0 else 'least'} {docs_text(abs(math.floor(self.loss.most)))}"
        )

    def allowed_loss(self, change: Change) -> float | None:
        """Return the loss that a gate allows, below 0 for a required gain; None if the gate limits gains."""
        if change.operator.startswith("<") is not self.worse_is_up:
            return None
        offset = float(change.offset) * (self.right / self.loss.docs if change.relative else 1.0)
        return offset if self.worse_is_up else -offset

    def excuses(self, change: Change, lost: int, gained: int) -> bool:
        """Return True if a gate limits losses, and a run of the good build may well have lost as much."""
        allowed = self.allowed_loss(change)
        return allowed is not None and allowed >= 0 and lost - gained <= self.loss.most

    def visible_drop(self, error: float, margin: float) -> float:
        """Return the smallest true drop that fails "drop at most `margin`" at a level in 80 % of runs."""
        return self.loss.detectable_drop(self._fails(error, margin), margin)

    def failing(self, gate: Gate, members: int = 1, *, whole: bool = True) -> tuple[float, Interval] | None:
        """Return the share of good builds that a gate would fail, with its limits; None if it is not known.

        `members` counts the gates of its family, `whole` tells that the docs are those of the whole data set.
        """
        if gate.must_stay_right is not None or (gate.confidence is not None and gate.scope == "dataset" and not whole):
            return None
        if gate.change is not None:
            return self._failing_change(gate, gate.change, members)
        return self._failing_bounds(gate, members)

    def _failing_change(self, gate: Gate, change: Change, members: int) -> tuple[float, Interval] | None:
        n, loss, margin = self.loss.docs, self.loss, self.allowed_loss(change)
        if margin is None:
            return None
        if gate.confidence is not None and gate.scope == "population":
            return loss.failing(self._fails((1 - gate.confidence) / members, margin))
        slack = -_ROUNDING if change.operator in (">", "<") else _ROUNDING
        return loss.failing(lambda lost, gained: lost - gained > n * margin + slack)

    def _fails(self, error: float, margin: float) -> Fails:
        """Return a function of outcomes: which of them fail "drop at most `margin`" at a level, and are not excused."""
        beyond = _stats.failing_outcomes(self.loss.docs, margin, error)
        # A required gain is not excused.
        most = self.loss.most if margin >= 0 else -math.inf
        return lambda lost, gained: beyond(lost, gained) & (lost - gained > most)

    def _failing_bounds(self, gate: Gate, members: int) -> tuple[float, Interval]:
        limits = [(bound.operator, bound.value) for bound in gate.bounds]
        n, sign = self.loss.docs, 1 if self.worse_is_up else -1
        confidence = None if gate.confidence is None or gate.scope == "dataset" else 1 - (1 - gate.confidence) / members

        def misses(right: int) -> bool:
            if confidence is None:
                return not all(holds(bound, right / n) for bound in gate.bounds)
            return decide(Bounded(lambda at: _stats.exact_bounds(right, n, at)), confidence, limits) == "failed"

        def fails(lost: NDArray[np.int64], gained: NDArray[np.int64]) -> NDArray[np.bool_]:
            import numpy as np

            right = np.clip(self.right + sign * (lost - gained), 0, n)
            first = int(right.min())
            missed = np.array([misses(count) for count in range(first, int(right.max()) + 1)])
            return np.asarray(missed[right - first])

        return self.loss.failing(fails)


def good_build(gate: Gate, data: GateData) -> GoodBuild | None:
    """Return the good build of the baseline that docs are compared with; None if it is not known for these docs."""
    if any(one.comparison is None or one.task.cluster is not None for one in data.tasks):
        return None
    records = [one.comparison.record for one in data.tasks if one.comparison is not None]
    good = GoodBuild.of(data.owner, records, gate)
    paired = sum(len(one.pairs) for one in data.tasks)
    return good if good is not None and good.loss.docs == paired else None


def with_good_build(verdict: Verdict, gate: Gate, data: GateData) -> Verdict:
    """Return the verdict with the share of good builds that its gate would fail, if the baseline is calibrated."""
    good = good_build(gate, data)
    if good is None or (gate.compares and not any(one.label == "docs" for one in verdict.facts)):
        return verdict
    failing = good.failing(gate, data.members, whole=data.drawn == "all")
    if failing is None:
        return verdict
    share, limits = failing
    numbers = {
        "self_flips": good.flips,
        "good_builds_failing": share,
        "good_builds_failing_low": limits.low,
        "good_builds_failing_high": limits.high,
    }
    verdict = replace(verdict, numbers={**verdict.numbers, **numbers})
    return verdict.adding(Fact("calibration", f"{good}; this gate {_failing_text(failing, good.runs)}"))


def good_builds_line(gate: Gate, good: GoodBuild, members: int, *, whole: bool) -> str | None:
    """Return the share of good builds that a gate would fail, with that of a comparison beside a plain threshold.

    None if it is not known. ::

        acc >= 0.935 would fail 14 % of good builds (5 to 30 %, from 8 runs)
    """
    failing = good.failing(gate, members, whole=whole)
    if failing is None:
        return None
    text = f"{gate.key} {condition(gate)} {_failing_text(failing, good.runs)}"
    if gate.compares:
        return text
    other = replace(gate, bounds=(), change=_USUAL_LOSS if good.worse_is_up else _USUAL_DROP, confidence=0.95)
    compared = good.failing(other)
    return text if compared is None else f"{text}; {gate.key} {condition(other)} {_failing_text(compared, good.runs)}"


def _calibrated(records: Sequence[Record | None], gate: Gate) -> Iterator[tuple[Record, Calibration, str]]:
    """Yield the records that are calibrated for the metric of a gate, each with the key of the score."""
    for record in records:
        calibration = None if record is None else record.header.calibration
        if record is None or calibration is None:
            continue
        keys = [f"{gate.metric},{gate.filter}"] if gate.filter else list(calibration.scores)
        keys = [key for key in keys if key.rpartition(",")[0] == gate.metric and key in calibration.scores]
        if len(keys) == 1 and keys[0] in record.header.values:
            yield record, calibration, keys[0]


def _failing_text(failing: tuple[float, Interval], runs: int) -> str:
    share, limits = failing
    ends = f"up to {_percent(limits.high)} %, " if limits.high >= _LEAST_SHOWN else ""
    if limits.low >= _LEAST_SHOWN:
        ends = " to ".join(dict.fromkeys(map(_percent, (limits.low, limits.high)))) + " %, "
    return f"would fail {_percent(share)} % of good builds ({ends}from {runs} runs)"


def _percent(share: float) -> str:
    if share < _LEAST_SHOWN:
        return "under 0.1"
    return f"{100 * share:.2g}" if share < 0.995 else f"{100 * share:.0f}"
