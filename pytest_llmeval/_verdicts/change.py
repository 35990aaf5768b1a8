"""Verdicts on the change of a value since the baseline, from the changes of its docs.

    capitals: acc 0.2400, was 1.0000: fell by 0.7600, allowed 0.02 at 95 % confidence
      change    between -0.8389 and -0.6650 (each bound holds at 95 %)
      docs      75 docs compared: 57 lost, 0 gained
      noise     p < 0.0001 for a fall beyond 0.02
      power     a true fall of 0.1077 would fail this gate in 80 % of runs

Both bounds of the change are one-sided, at the gate's confidence (.95 where it has none), and p is the one-sided
p-value of the gate's own limit, so that both agree with the outcome. `power` states the smallest true loss that fails
a gate on 0/1 scores in 80 % of runs. A relative tolerance is a share of the baseline's observed value. An absolute
tolerance on a perplexity is converted to the log scale, on which the value is a mean over docs, at the baseline's
observed value.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_llmeval import _stats
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._results import Summary
from pytest_llmeval._stats import Interval
from pytest_llmeval._verdicts.calibration import GoodBuild
from pytest_llmeval._verdicts.estimate import decide
from pytest_llmeval._verdicts.estimate import p_better
from pytest_llmeval._verdicts.estimate import p_worse
from pytest_llmeval._verdicts.paired import PairedEstimate
from pytest_llmeval._verdicts.paired import meets
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.sentence import advice
from pytest_llmeval._verdicts.sentence import allowance
from pytest_llmeval._verdicts.sentence import basis
from pytest_llmeval._verdicts.sentence import bounds_text
from pytest_llmeval._verdicts.sentence import change_shown
from pytest_llmeval._verdicts.sentence import docs_needed
from pytest_llmeval._verdicts.sentence import name_of_value
from pytest_llmeval._verdicts.sentence import no_bounds
from pytest_llmeval._verdicts.sentence import number_text
from pytest_llmeval._verdicts.sentence import p_shown
from pytest_llmeval._verdicts.sentence import passages_assumed
from pytest_llmeval._verdicts.verdict import Evidence
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Outcome
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


#: The confidence of the bounds that are shown for a gate without one.
USUAL_CONFIDENCE = 0.95

#: At most this p-value, the outcome of a gate on the observed value is called unlikely to be noise.
_LIKELY_REAL = 0.05

#: A gain above this number of standard errors of the difference of two independent runs is reported as unusual.
_UNUSUAL = 3.0


def judge_change(
    gate: Gate,
    change: Change,
    summary: Summary,
    seen: PairedEstimate,
    draw: Draw,
    settled: PairedEstimate | None = None,
    good: GoodBuild | None = None,
    members: int = 1,
) -> Verdict:
    """Return the verdict on the change of a value, without its family.

    `settled` is the estimate without flips that may be noise; a gate that fails only because of these is inconclusive.
    So is one whose net loss may well be that of the `good` build, the one that wrote the baseline. The visible loss is
    that of one gate among `members`.
    """
    verdict = Verdict("failed", headline_of_change(gate, change, summary, seen), numbers_of_values(summary, seen))
    if not (math.isfinite(seen.old) and math.isfinite(seen.new)):
        return verdict.adding(Fact("reason", f"{seen.value_now.metric} is not a finite number on both sides"))
    whole = gate.scope == "dataset" and draw.drawn == "all"
    observed = gate.confidence is None or whole
    confidence = gate.confidence or USUAL_CONFIDENCE
    # What is certain for the data set needs no bounds, which would be those of the population.
    estimate = None if whole else seen.estimate("population" if observed else gate.scope, draw)
    if estimate is None and not observed:
        side = seen.before if seen.before is not None and seen.before.tiny else seen.now
        undecided, reason = no_bounds(seen.value_now.metric, side)
        return replace(verdict, outcome=undecided).adding(Fact("reason", reason))
    interval = None if estimate is None else estimate.bounds(confidence)
    condition = [(change.operator, seen.margin(change))]
    excuse = ""
    if observed or estimate is None:
        outcome: Outcome = "passed" if meets(change, seen) else "failed"
    else:
        outcome = decide(estimate, confidence, condition)
        if outcome == "failed":
            other = settled and settled.estimate(gate.scope, draw)
            if other and decide(other, confidence, condition) != "failed":
                excuse = "without the flips under the noise floor it would not fail"
            elif good and good.excuses(change, **seen.counts()):
                excuse = "a good build may lose as much by itself"
    excused = bool(excuse)
    evidence = Evidence(interval and seen.on_scale(interval), visible=_visible(gate, change, seen, members, good))
    if estimate is not None:
        worse = None if outcome == "passed" else p_worse(estimate, condition)[0]
        better = None if outcome == "failed" else p_better(estimate, condition)
        evidence = replace(evidence, p_worse=worse, p_better=better)
    p_value = evidence.p_worse if outcome == "failed" and not (excused or observed) else None
    if excused:
        outcome = "inconclusive"
    numbers = {**verdict.numbers, **_numbers_of_change(seen, evidence)}
    verdict = replace(verdict, outcome=outcome, numbers=numbers, p_value=p_value, evidence=evidence)
    return verdict.adding(
        fact("reason", excuse),
        fact("change", evidence.interval and bounds_text(evidence.interval, confidence)),
        _docs(summary, seen),
        fact("noise", _chance(change, outcome, evidence, seen, observed=observed, excused=excused)),
        fact("range", passages_assumed(gate, seen.now)),
        fact("range", interval and _assumed(seen)),
        fact("power", _visible_text(seen, evidence.visible, members, good)),
        fact(
            "needs",
            interval
            and docs_needed(
                outcome, gate, seen.difference, [seen.margin(change)], interval, draw, varies=not seen.unflipped
            ),
        ),
        fact("certain", whole and "the whole data set was run, so this is certain"),
        fact("limit", gate.confidence is None and _in_stderrs(change, seen)),
        fact("caution", observed and _unusual(seen)),
        fact("sample", draw.not_random),
        fact("next", outcome == "inconclusive" and seen.now and seen.before and advice(gate, seen.before, seen.now)),
    )


def change_so_far(gate: Gate, change: Change, outcome: Outcome, summary: Summary, seen: PairedEstimate) -> Verdict:
    """Return the verdict of a comparison that stopped early, without bounds and p-values.

    These are valid for a number of docs fixed beforehand, not for a number that depends on the results.
    """
    verdict = Verdict(outcome, headline_of_change(gate, change, summary, seen), numbers_of_values(summary, seen))
    return verdict.adding(_docs(summary, seen))


def headline_of_change(gate: Gate, change: Change, summary: Summary, seen: PairedEstimate) -> str:
    """Return one line with the task, its values now and before, their difference, and the allowed difference."""
    old, new, digits = seen.old, seen.new, 4
    while digits < 9 and old != new and f"{old:.{digits}f}" == f"{new:.{digits}f}":
        digits += 1
    moved = f"{'fell' if new < old else 'rose'} by {number_text(abs(new - old))}" if new != old else "unchanged"
    shown = f"{name_of_value(seen.value_now)} {new:.{digits}f}, was {old:.{digits}f}"
    return f"{summary.name}: {shown}: {moved}, {allowance(gate, change, worse_is_up=seen.worse_is_up)}"


def numbers_of_values(summary: Summary, seen: PairedEstimate) -> dict[str, float | int]:
    """Return the values and the numbers of docs under their names in reports."""
    metric, n = seen.value_now.metric, seen.n
    return {metric: seen.new, f"{metric}_baseline": seen.old, "docs": n, "docs_total": summary.n_total}


def _numbers_of_change(seen: PairedEstimate, evidence: Evidence) -> dict[str, float | int]:
    numbers: dict[str, float | int] = {"difference": seen.new - seen.old, **seen.counts()}
    if seen.flips and seen.now and seen.now.clusters is None:
        numbers["p_mcnemar_two_sided"] = _stats.mcnemar_p(seen.flips.down, seen.flips.up)
    ends = evidence.interval or Interval(-math.inf, math.inf)
    more = {
        "difference_low": ends.low,
        "difference_high": ends.high,
        "p": evidence.p,
        "detectable_drop": evidence.visible,
    }
    return numbers | {name: number for name, number in more.items() if number is not None and math.isfinite(number)}


def _docs(summary: Summary, seen: PairedEstimate) -> Fact:
    flips = ", ".join(f"{count:,} {name}" for name, count in seen.counts().items())
    return Fact("docs", f"{basis(summary, seen.n)} compared" + (f": {flips}" if flips else ""))


def _chance(
    change: Change, outcome: Outcome, evidence: Evidence, seen: PairedEstimate, *, observed: bool, excused: bool
) -> str | None:
    """Return the p-value of the gate's limit; where the observed value decides, chance may have made it so."""
    upward = change.operator.startswith(">")
    worse, better = change_shown(change, above=not upward), change_shown(change, above=upward)
    if excused:
        return f"{p_shown(evidence, worse=worse, better=better)} if all flips count"
    shown = p_shown(evidence, worse=worse, better=better)
    if shown is None or not observed or (seen.flips and not seen.flips.down + seen.flips.up):
        return shown
    likely_real = evidence.p is not None and evidence.p <= _LIKELY_REAL
    return f"{shown}: {'unlikely to be noise' if likely_real else 'it may be noise'}"


def _assumed(seen: PairedEstimate) -> str | None:
    """Return the largest change of a doc's score that the bounds assume, where the score's range is unknown."""
    before, now = seen.before, seen.now
    if before is None or now is None or (before.support is not None and now.support is not None):
        return None
    most = _stats.assumed_change(before.values, now.values)
    size = f"a factor of {math.exp(min(most, 700)):.3g}" if now.log else f"{most:.3g}"
    return f"assuming that a doc's score changes by at most {size}" if most else None


def _visible(gate: Gate, change: Change, seen: PairedEstimate, members: int, good: GoodBuild | None) -> float | None:
    """Return the smallest true loss that fails the gate in 80 % of runs; None if scores are not 0 and 1.

    Among several gates it must fail at the first of Holm's levels, the least one.
    """
    flips = seen.flips
    holds_losses = change.operator.startswith("<") is seen.worse_is_up
    if flips is None or not holds_losses or gate.confidence is None or gate.scope == "dataset" or seen.now is None:
        return None
    if seen.now.clusters is not None:
        return None
    margin = -seen.margin(change) if change.operator.startswith(">") else seen.margin(change)
    error = (1 - gate.confidence) / members
    if good is not None:
        return good.visible_drop(error, max(margin, 0.0))
    # A drop adds flips one way, so twice the lesser count flips anyway.
    usual = 2 * min(flips.down, flips.up) / flips.n
    return _stats.detectable_drop(flips.n, usual, error, margin=max(margin, 0.0))


def _visible_text(seen: PairedEstimate, visible: float | None, members: int, good: GoodBuild | None) -> str | None:
    if visible is None:
        return None
    word = "rise" if seen.worse_is_up else "fall"
    if not math.isfinite(visible):
        return f"too few docs to detect any {word}"
    family = f", if no other of its {members} gates failed" if members > 1 else ""
    flips = f", by the flips of {good.runs} runs" if good else ""
    return f"a true {word} of {number_text(visible)} would fail this gate in 80 % of runs{flips}{family}"


def _in_stderrs(change: Change, seen: PairedEstimate) -> str | None:
    """Return the tolerance in standard errors; below one, chance decides a gate without a confidence."""
    stderr, margin = seen.stderr, seen.margin(change)
    if not change.offset or change.relative or not stderr or not math.isfinite(margin):
        return None
    return f"the tolerance is {abs(margin) / stderr:.1f} standard errors of the difference"


def _unusual(seen: PairedEstimate) -> str | None:
    if seen.before is None or seen.now is None:
        return None
    errors = [_stats.standard_error(side.values, side.clusters) for side in (seen.before, seen.now)]
    gain = seen.difference * (-1 if seen.worse_is_up else 1)
    if not any(errors) or gain <= _UNUSUAL * math.hypot(*(error or 0.0 for error in errors)):
        return None
    return "an unusually large gain: check that both runs are set up as intended"
