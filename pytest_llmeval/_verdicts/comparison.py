"""Verdicts on gates against the baseline: the docs are paired, their noise flips are found, and the change is judged.

rounding  39 flips under the noise floor 0.1000 (25 lost, 14 gained) may be rounding; without them it fell by 0.0250
"""

from __future__ import annotations

from dataclasses import replace

from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.calibration import good_build
from pytest_llmeval._verdicts.change import headline_of_change
from pytest_llmeval._verdicts.change import judge_change
from pytest_llmeval._verdicts.change import numbers_of_values
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import paired_docs
from pytest_llmeval._verdicts.noise import NoiseFlips
from pytest_llmeval._verdicts.noise import noise_flips
from pytest_llmeval._verdicts.noise import noise_problem
from pytest_llmeval._verdicts.noise import without_margin
from pytest_llmeval._verdicts.observed import headline_of_value
from pytest_llmeval._verdicts.paired import PairedEstimate
from pytest_llmeval._verdicts.paired import directed
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import p_text
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


def judge_comparison(gate: Gate, change: Change, summary: Summary, value: MetricValue, data: GateData) -> Verdict:
    """Return the verdict on a gate against the baseline, without its family."""
    paired = paired_docs(data, value)
    if isinstance(paired, str):
        numbers = {value.metric: value.value, "docs": value.n}
        return Verdict("failed", headline_of_value(gate, summary, value), numbers).adding(Fact("reason", paired))
    seen = PairedEstimate.of(gate, paired, data, value)
    of_many = gate.confidence is not None and gate.scope == "population"
    no_floor = noise_problem(data.noise)
    if of_many and no_floor and seen.flips is not None:
        headline = headline_of_change(gate, change, summary, seen)
        return Verdict("failed", headline, numbers_of_values(summary, seen)).adding(Fact("reason", no_floor))
    noise = noise_flips(directed(gate, value), data.noise, paired.before, paired.now)
    settled = seen.without(noise, data) if noise is not None and noise.may_excuse and of_many else None
    good = good_build(gate, data) if of_many else None
    verdict = judge_change(gate, change, summary, seen, data.draw, settled, good, members=data.members)
    more: dict[str, float | int] = {}
    if settled is not None:
        more["difference_without_ties"] = settled.difference
    if noise is not None:
        more["flips_under_noise"] = noise.count
    return replace(verdict, numbers={**verdict.numbers, **more}).adding(
        fact("rounding", no_floor or _rounding(seen, noise, settled, data, asked=of_many)),
        fact("caution", paired.left_out),
    )


def _rounding(
    seen: PairedEstimate, noise: NoiseFlips | None, settled: PairedEstimate | None, data: GateData, *, asked: bool
) -> str | None:
    """Return the part of the flips that may be rounding; `asked`: it can make the gate inconclusive."""
    if noise is None:
        return without_margin(seen.value_now, data.noise) if seen.flips else None
    if settled is not None:
        moved = f"{'fell' if settled.difference < 0 else 'rose'} by {number_text(abs(settled.difference))}"
        return f"{noise} may be rounding; without them it {moved if settled.difference else 'is unchanged'}"
    if asked and noise.count:
        return f"{noise} mostly go one way ({p_text(noise.p_value)}), so none is attributed to rounding"
    return str(noise)
