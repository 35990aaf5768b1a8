"""Verdicts over nights: a gate that allows a fall fails if its runs together show a fall that no single one may show.

    reason    over 41 nights it became worse on these docs than allowed, at 95 % confidence over 100 nights
    nights    41 nights: worse by 0.0142 on average, worse by 0.0231 in the last 10; e-value 83 for a loss beyond 0.02,
              25 fails

The docs are those of the baseline, in every run, and the question is about them and the scores that the baseline stores
(`_stats.drift`), whatever the gate asks of one run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_llmeval import _stats
from pytest_llmeval._baselines import History
from pytest_llmeval._baselines import Night
from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import hash_of
from pytest_llmeval._verdicts.change import USUAL_CONFIDENCE
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import paired_docs
from pytest_llmeval._verdicts.paired import PairedEstimate
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import percent_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict


#: The nights whose mean is shown beside that of all.
_LATEST = 10
_HASH_CHARS = 13


@dataclass(frozen=True, slots=True)
class Tonight:
    """The docs of a run in the order of their hashes: those that the baseline answered `right`, and the `flips`.

    `baseline` is the hash of the docs and their scores in the baseline. `value` is that of the run. `margin` is the
    allowed fall.
    """

    baseline: str
    right: Sequence[bool]
    flips: tuple[int, ...]
    value: float
    margin: float

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of docs lost and gained."""
        lost = sum(self.right[doc] for doc in self.flips)
        return lost, len(self.flips) - lost


def over_nights(
    verdict: Verdict, gate: Gate, data: GateData, history: History, date: str
) -> tuple[Verdict, History | None]:
    """Return a verdict with what the nights before and this run show together, and the history with this run.

    The history is None where this run is not counted. Docs that cannot be compared, and gates that allow no fall, have
    no nights.
    """
    tonight = _tonight(gate, data)
    if tonight is None:
        return verdict, None
    if isinstance(tonight, str):
        return verdict.adding(Fact("nights", f"not counted: {tonight}")), None
    anew = history.baseline != tonight.baseline
    nights = () if anew else history.nights
    lost, gained = tonight.counts
    counts = [*((night.lost, night.gained) for night in nights), (lost, gained)]
    is_new = _stats.flips_are_new(tonight.flips, nights[-1].flips if nights else (), counts)
    error = (1 - (gate.confidence or USUAL_CONFIDENCE)) / data.members
    flips = [*(night.flips for night in nights), *[tonight.flips] * is_new]
    e_value = (0.0, *_stats.drift_evidence(flips, tonight.right, tonight.margin, error))[-1]
    if is_new:
        nights = (*nights, Night(date, lost, gained, tonight.value, e_value, tonight.flips))
    shown = _shown(nights, e_value, tonight, error)
    if not is_new:
        why = "it mostly repeats the flips of the last night" if nights else "no doc flipped"
        shown += f"; this run is not counted, because {why}"
    if anew and history.nights:
        shown += f"; the {len(history.nights)} nights before were against another baseline"
    numbers = {**verdict.numbers, "nights": len(nights), "nights_e_value": e_value}
    judged = replace(verdict, numbers=numbers).adding(Fact("nights", shown))
    if e_value >= _stats.drift_limit(error):
        confidence = percent_text(gate.confidence or USUAL_CONFIDENCE)
        why = f"over {len(nights)} nights it became worse on these docs than allowed, at {confidence} confidence over "
        judged = replace(judged, outcome="failed").adding(Fact("reason", f"{why}{_stats.HORIZON} nights"))
    return judged, History(history.gate, tonight.baseline, len(tonight.right), nights) if is_new else None


def _tonight(gate: Gate, data: GateData) -> Tonight | str | None:
    """Return this run's docs, the reason why it is not counted, or None if there is nothing to count."""
    change, found = gate.change, data.summary().find(gate.metric, gate.filter)
    if change is None or len(found) != 1:
        return None
    paired = paired_docs(data, found[0])
    if isinstance(paired, str):
        return None
    seen = PairedEstimate.of(gate, paired, data, found[0])
    margin = seen.margin(change) if seen.worse_is_up else -seen.margin(change)
    if margin < 0 or change.operator != ("<=" if seen.worse_is_up else ">="):
        return None
    if not all(one.comparison is not None and one.comparison.complete for one in data.tasks):
        return "this run and the baseline do not have the same docs"
    before, now = seen.before, seen.now
    if before is None or now is None or seen.flips is None or seen.flips.n != paired.n:
        return "only docs with a score of 0 or 1 that count equally are watched over nights"
    if now.clusters is not None:
        return "docs that share a passage do not flip independently of each other"
    # Places in the file follow the hashes, so that a data set in another order has the same ones.
    keys = [
        json.dumps([task.name, result.key and [result.key.doc, result.key.prompt], result.doc])
        for task, results in paired.before
        for result in results
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    stored = hash_of(json.dumps([[keys[place], before.values[place]] for place in order]))[:_HASH_CHARS]
    flips = tuple(number for number, place in enumerate(order) if before.values[place] != now.values[place])
    right = [(before.values[place] == 0) is seen.worse_is_up for place in order]
    return Tonight(stored, right, flips, seen.new, margin)


def _shown(nights: Sequence[Night], e_value: float, tonight: Tonight, error: float) -> str:
    if not nights:
        return "none is counted yet"
    moved = f"{_moved(nights, tonight)} on average"
    if len(nights) > _LATEST:
        moved += f", {_moved(nights[-_LATEST:], tonight)} in the last {_LATEST}"
    limit = _limit(nights, tonight, error)
    return (
        f"{len(nights)} night{'s' * (len(nights) > 1)}: {moved}; e-value {e_value:.2g} for a loss beyond {limit}, "
        f"{_stats.drift_limit(error):.0f} fails"
    )


def _moved(nights: Sequence[Night], tonight: Tonight) -> str:
    loss = sum(night.lost - night.gained for night in nights) / len(nights) / len(tonight.right)
    return f"{'better' if loss < 0 else 'worse'} by {number_text(abs(loss))}"


def _limit(nights: Sequence[Night], tonight: Tonight, error: float) -> str:
    """Return the loss up to which nothing is claimed: the allowed one, or the luck of one run if that is more."""
    flips = max(sum(len(night.flips) for night in nights) / len(nights), 1.0)
    luck = _stats.drift_luck(flips, error) / len(tonight.right)
    return f"{tonight.margin:.12g}" if luck <= tonight.margin else f"{number_text(luck)} (the luck of a baseline run)"
