"""Simulate, with fixed seeds, how often verdicts err, what they can detect, and what early stopping saves.

    python perf/verdict_study.py [--quick] [floor_errors paired_power ...]

Prints Markdown tables. Confidence is .95 everywhere: a verdict may be wrong in 5 % of comparisons. Each rate comes
from at least 2,000 simulated comparisons; one standard error of a rate of 5 % is then .5 points (.15 with 20,000).
Counts of flips are drawn from their multinomial distribution: a paired verdict uses nothing else of a comparison, in
particular not the accuracy before.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.special import ndtri
from scipy.stats import beta
from scipy.stats import binom
from scipy.stats import binomtest

from pytest_llmeval import _stats as stats
from pytest_llmeval import judge
from pytest_llmeval._baselines import SelfFlips
from pytest_llmeval._gates import parse_gate_text
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._stats import Crossing
from pytest_llmeval._stats import threshold_for
from pytest_llmeval._stats.crossing import STAKES
from pytest_llmeval._stats.crossing import log_capital
from pytest_llmeval._stats.gaffke import tail
from pytest_llmeval._stats.means import Totals
from pytest_llmeval._stats.paired import _Test
from pytest_llmeval._stats.signflip import flip_p
from pytest_llmeval._stats.tango import fewest_gained
from pytest_llmeval._stats.tango import score
from pytest_llmeval._stats.tango import score_limit
from pytest_llmeval._task import Metric
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._verdicts.calibration import GoodBuild
from pytest_llmeval._verdicts.calibration import good_builds_line
from pytest_llmeval._verdicts.estimate import decide
from pytest_llmeval._verdicts.estimate import estimate_of
from pytest_llmeval._verdicts.samples import Column
from pytest_llmeval._verdicts.samples import Draw
from pytest_llmeval._verdicts.samples import sample_of


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
SIZES = (100, 1_221, 14_042)
DISCORDANCES = (0.02, 0.05, 0.10)
Z = 1.6448536269514722
#: Quantiles at which chances of docs are integrated.
MIDDLES = (np.arange(20_000) + 0.5) / 20_000

#: Docs per subject of MMLU's test split, by its four groups.
MMLU = {
    "stem": (100, 135, 152, 144, 100, 100, 100, 102, 100, 235, 145, 378, 310, 203, 100, 270, 151, 216, 112),
    "humanities": (126, 165, 204, 237, 121, 108, 163, 346, 895, 311, 324, 1534, 171),
    "social": (114, 198, 193, 390, 238, 545, 131, 612, 110, 245, 201, 100),
    "other": (100, 265, 173, 100, 223, 103, 234, 100, 783, 306, 282, 272, 166),
}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def rate(hits: float) -> str:
    return f"{100 * hits:.1f}"


class PairedGate:
    """The verdicts of "drop at most `margin`" on n docs.

    For one number of discordant docs each verdict is a threshold on the gained ones: sought from Tango's with
    the p-value itself, and kept, so that twenty thousand comparisons take seconds.
    """

    def __init__(
        self, n: int, margin: float, error: float = ALPHA, p: Callable[[int, int, int, float], float] | None = None
    ) -> None:
        self.n, self.margin, self.error, self.p = n, margin, error, p
        self.least_passing = cache(self._least_passing)
        self.least_unfailing = cache(self._least_unfailing)

    def rates(self, lost: Ints, gained: Ints) -> tuple[float, float]:
        """The shares of passes and fails among outcomes."""
        outcomes, counts = np.unique(np.stack([lost + gained, gained]), axis=1, return_counts=True)
        passes = [g >= self.least_passing(int(m)) for m, g in outcomes.T]
        fails = [g < self.least_unfailing(int(m)) for m, g in outcomes.T]
        return float(np.dot(passes, counts) / len(lost)), float(np.dot(fails, counts) / len(lost))

    def fails(self, discordance: float, drop: float) -> float:
        """The exact probability to fail."""
        m = np.arange(int(binom.ppf(1e-9, self.n, discordance)), int(binom.isf(1e-9, self.n, discordance)) + 1)
        least = np.array([self.least_unfailing(int(count)) for count in m])
        gained_share = max(0.0, (1 - drop / discordance) / 2)
        return float(binom.pmf(m, self.n, discordance) @ binom.cdf(least - 1, m, gained_share))

    def failing(self, lost: Ints, gained: Ints) -> NDArray[np.bool_]:
        """Return which outcomes fail."""
        return gained < np.array([self.least_unfailing(int(m)) for m in lost + gained])

    def asymptotic_rates(self, lost: Ints, gained: Ints) -> tuple[float, float]:
        """The same with Tango's interval as published."""
        z = score(lost, gained, self.n, -self.margin)
        return float((z >= Z).mean()), float((z < -Z).mean())

    def _rejects(self, lost: int, gained: int, margin: float) -> bool:
        if self.p is None:
            return stats.drop_fails(lost, gained, self.n, margin, self.error)
        return self.p(lost, gained, self.n, margin) <= self.error

    def _least_passing(self, m: int) -> int:
        def passes(gained: int) -> bool:
            return self._rejects(gained, m - gained, -self.margin)

        return self._first(passes, m, self._guess(m, float(ndtri(1 - self.error))))

    def _least_unfailing(self, m: int) -> int:
        def unfailing(gained: int) -> bool:
            return not self._rejects(m - gained, gained, self.margin)

        return self._first(unfailing, m, self._guess(m, float(ndtri(self.error))))

    def _guess(self, m: int, z: float) -> int:
        gained = np.arange(m + 1)
        return int((score(m - gained, gained, self.n, -self.margin) < z).sum())

    def _first(self, holds: Callable[[int], bool], m: int, guess: int) -> int:
        while guess > 0 and holds(guess - 1):
            guess -= 1
        while guess <= m and not holds(guess):
            guess += 1
        return guess


@cache
def paired_gate(n: int, margin: float) -> PairedGate:
    return PairedGate(n, margin)


def flips(rng: Rng, n: int, discordance: float, drop: float, times: int) -> tuple[Ints, Ints]:
    lost, gained, _ = rng.multinomial(n, [(discordance + drop) / 2, (discordance - drop) / 2, 1 - discordance], times).T
    return lost, gained


def paired_errors(times: int) -> None:
    rows = []
    for margin, name in ((0.0, "drop 0"), (0.01, "drop .01"), (0.05, "drop .05"), (-0.01, "improvement .01")):
        for n in SIZES:
            for discordance in DISCORDANCES:
                # A large margin is of interest where few docs can show anything.
                if discordance < abs(margin) or (margin == 0.05 and n > 100):
                    continue
                rng = np.random.default_rng(1)
                edge = flips(rng, n, discordance, margin, times)
                within = flips(rng, n, discordance, max(margin - 0.005, -discordance), times)
                beyond = flips(rng, n, discordance, min(margin + 0.005, discordance), times)
                gate = paired_gate(n, margin)
                passed, failed = gate.rates(*edge)
                old_passed, old_failed = gate.asymptotic_rates(*edge)
                rates = (failed, passed, gate.rates(*within)[1], gate.rates(*beyond)[0], old_failed, old_passed)
                rows.append((name, f"{n:,}", f"{discordance:.0%}", *map(rate, rates)))
    head = ("gate", "n", "discordance", "fail, edge", "pass, edge", "fail, .005 within", "pass, .005 beyond")
    head += ("Tango as published: fail, edge", "pass, edge")
    table(f"Wrong verdicts of paired 0/1 gates, % of {times:,} comparisons", head, rows)


def paired_power(times: int) -> None:
    rows = []
    for margin in (0.0, 0.01):
        for n in SIZES:
            for discordance in DISCORDANCES:
                rng = np.random.default_rng(2)
                gate = paired_gate(n, margin)
                cells = [
                    rate(gate.rates(*flips(rng, n, discordance, drop, times))[1]) if drop <= discordance else "-"
                    for drop in (0.01, 0.02, 0.03, 0.05)
                ]
                same = rate(gate.rates(*flips(rng, n, discordance, 0.0, times))[0])
                seen = stats.detectable_drop(n, discordance, ALPHA, margin=margin)
                at_seen = rate(gate.rates(*flips(rng, n, discordance + seen, seen, times))[1])
                rows.append((margin, f"{n:,}", f"{discordance:.0%}", *cells, f"{seen:.4f}", at_seen, same))
    head = ("max drop", "n", "discordance", "1 point", "2", "3", "5")
    head += ("detectable_drop beside these flips", "fails at it", "passes, no change")
    table(f"Power: fails of a true drop, % of {times:,} comparisons", head, rows)


class OrderAt95(_Test):
    """The test with all outcomes in the order of Tango's lower limit at .95, whatever is tested."""

    def _fewest(self, k: int) -> Ints:
        limit = score_limit(self.lost, self.gained, self.n, Z)
        return fewest_gained(self.discordant, self.n, limit, Z)


def drop_p_by_limit(lost: int, gained: int, n: int, margin: float) -> float:
    return OrderAt95.of(gained, lost, n).p(margin)


def mcnemar_one_sided(lost: int, gained: int, n: int, margin: float) -> float:
    return float(binom.sf(lost - 1, lost + gained, 0.5))


def paired_sizes(times: int) -> None:
    levels = {".05": 0.05, ".025": 0.025, ".05/57": 0.05 / 57, ".0004": 0.0004}
    orders = {"limit at .95": drop_p_by_limit, "score": None, "McNemar": mcnemar_one_sided}
    sizes, power = [], []
    for n, margin, drops in (
        (75, 0.0, (0.10, 0.15)),
        (100, 0.02, (0.10, 0.15)),
        (200, 0.01, (0.10,)),
        (234, 0.02, (0.08, 0.10)),
    )[: 4 if times > 200 else 1]:
        gates = {
            (order, level): PairedGate(n, margin, error, p)
            for order, p in orders.items()
            for level, error in levels.items()
            if order != "McNemar" or not margin
        }
        discordances = np.linspace(max(margin, 0.01), 0.35, 160 if times > 200 else 20)
        for level in levels:
            found = [
                max(gates[order, level].fails(float(share), margin) for share in discordances)
                for order in orders
                if (order, level) in gates
            ]
            sizes.append((n, margin, level, *(f"{100 * size:.4f}" for size in found), *["-"] * (3 - len(found))))
        for drop in drops:
            cells = [
                [rate(gates[order, level].fails(drop + 0.05, drop)) for order in orders if (order, level) in gates]
                for level in levels
            ]
            power.append((n, margin, drop, *map(" / ".join, cells)))
    head = ("docs", "margin", "level", *orders)
    table("Greatest probability to fail at the margin over 160 discordances of 1 to 35 %, exact, %", head, sizes)
    head = ("docs", "margin", "drop", *levels)
    table(f"Power beside 5 % of flips, exact, %: {' / '.join(orders)}", head, power)


@cache
def wilson_bounds(successes: int, n: int, confidence: float) -> stats.Interval:
    """Return Wilson's score bounds, for comparison: their one-sided errors are not kept.

    Near 0 and 1 the lower bound of a high proportion is too high too often (Cai 2005, J. Statist. Plann. Inference 131,
    63-88).
    """
    found = binomtest(successes, n).proportion_ci(2 * confidence - 1, "wilson")
    return stats.Interval(float(found.low), float(found.high))


def floor_errors(times: int) -> None:
    rows = []
    for n in SIZES:
        for floor in (0.3, 0.5, 0.7, 0.9, 0.95):
            rng = np.random.default_rng(3)
            cells = []
            for bounds in (stats.exact_bounds, wilson_bounds):
                for truth in (floor, floor - 0.01, floor + 0.01):
                    passed, failed = binomial_rates(bounds, rng, n, truth, floor, times)
                    cells.append((passed, failed))
            (passed, failed), (below_passed, _), (_, above_failed), (wilson_passed, wilson_failed), *_ = cells
            gap = stats.floor_gap(n, floor, CONFIDENCE)
            seen = binomial_rates(stats.exact_bounds, rng, n, floor - gap, floor, times)[1]
            rates = (failed, passed, above_failed, below_passed, wilson_failed, wilson_passed)
            rows.append((f"{n:,}", floor, *map(rate, rates), f"{gap:.4f}", rate(seen)))
    head = ("n", "floor", "fail, edge", "pass, edge", "fail, .01 above", "pass, .01 below")
    head += ("Wilson: fail, edge", "pass, edge", "floor_gap", "fails at it")
    table(f"Wrong verdicts of floors on 0/1 scores, % of {times:,} evaluations", head, rows)


def binomial_rates(
    bounds: Callable[[int, int, float], stats.Interval], rng: Rng, n: int, truth: float, floor: float, times: int
) -> tuple[float, float]:
    right, counts = np.unique(rng.binomial(n, truth, times), return_counts=True)
    found = [bounds(int(k), n, CONFIDENCE) for k in right]
    passed = np.dot([interval.low >= floor for interval in found], counts) / times
    return float(passed), float(np.dot([interval.high < floor for interval in found], counts) / times)


def finite_errors(times: int) -> None:
    rows = []
    for total in SIZES:
        for share in (0.1, 0.5):
            for truth in (0.3, 0.7, 0.95):
                rng = np.random.default_rng(4)
                right, seen = round(truth * total), round(share * total)
                found, counts = np.unique(rng.hypergeometric(right, total - right, seen, times), return_counts=True)
                bounds = [stats.finite_bounds(int(k), seen, total, CONFIDENCE) for k in found]
                # Floors on the edge: the value itself, which it reaches, and the next one, which it does not.
                failed = np.dot([bound.high < right / total for bound in bounds], counts) / times
                passed = np.dot([bound.low >= (right + 1) / total for bound in bounds], counts) / times
                rows.append((f"{total:,}", f"{seen:,}", truth, rate(float(failed)), rate(float(passed))))
    table(
        f"Wrong verdicts for this data set from a part of it, % of {times:,} evaluations",
        ("total", "seen", "truth", "fail, reached", "pass, missed by one doc"),
        rows,
    )


#: Scores of docs in [0, 1], and differences of such scores, with their true means.
SCORES: dict[str, tuple[Callable[[Rng, int], Floats], float]] = {
    "beta(2, 2)": (lambda rng, n: rng.beta(2, 2, n), 0.5),
    "beta(.5, 5)": (lambda rng, n: rng.beta(0.5, 5, n), 0.5 / 5.5),
    "F1-like: 70 % 0, else uniform": (lambda rng, n: (rng.random(n) < 0.3) * rng.random(n), 0.15),
    "97 % 1, else uniform": (lambda rng, n: np.where(rng.random(n) < 0.97, 1.0, rng.random(n)), 0.985),
}
CHANGES: dict[str, tuple[Callable[[Rng, int], Floats], float]] = {
    "normal, sd .1": (lambda rng, n: rng.normal(-0.01, 0.1, n).clip(-1, 1), -0.01),
    "90 % unchanged, else uniform(-.6, .4)": (
        lambda rng, n: (rng.random(n) < 0.1) * rng.uniform(-0.6, 0.4, n),
        -0.01,
    ),
    "3 % lost, -uniform(0, 1)": (lambda rng, n: -1.0 * (rng.random(n) < 0.03) * rng.random(n), -0.015),
    "2 % lost, -1": (lambda rng, n: -1.0 * (rng.random(n) < 0.02), -0.02),
}


#: Scores before a change, which show how far docs are apart where no range is known.
BEFORE: dict[str, Callable[[Rng, int], Floats]] = {
    "uniform": lambda rng, n: rng.random(n),
    "97 % 1, else uniform": SCORES["97 % 1, else uniform"][0],
}


def real_errors(times: int) -> None:
    rows = []
    for n in (100, 1_221):
        for name, (draw, mean) in SCORES.items():
            rng = np.random.default_rng(5)
            samples = [draw(rng, n) for _ in range(times)]
            unknown = [stats.mean_bounds(sample, CONFIDENCE) for sample in samples]
            ones = np.ones(n)
            low = np.mean([tail(sample, ones, 0.0, mean) <= ALPHA for sample in samples])
            high = np.mean([tail(-sample, ones, -1.0, -mean) <= ALPHA for sample in samples])
            rows.append((f"{n:,}", name, *errors(unknown, mean), rate(float(high)), rate(float(low))))
    head = ("n", "scores", "support unknown: fail, edge", "pass, edge", "support known: fail, edge", "pass, edge")
    table(f"Wrong verdicts of floors on real-valued scores, % of {times:,} evaluations", head, rows)


def paired_real_errors(times: int) -> None:
    rows = []
    for n, name in [(100, name) for name in CHANGES] + [(1_221, name) for name in CHANGES if "3 %" not in name]:
        draw, mean = CHANGES[name]
        rng = np.random.default_rng(6)
        samples = [draw(rng, n) for _ in range(times)]
        zeros, ones = np.zeros(n), np.ones(n)
        flipped = np.mean([flip_p(Totals.of(sample), mean) <= ALPHA for sample in samples[:500]])
        cells, unknown = [], []
        for scores in BEFORE.values():
            before = [scores(rng, n) for _ in samples]
            unknown = [
                stats.paired_mean_bounds(old, old + sample, CONFIDENCE)
                for old, sample in zip(before, samples, strict=True)
            ]
            cells += errors(unknown, mean)
        low = np.mean([tail(sample, ones, -1.0, mean) <= ALPHA for sample in samples])
        high = np.mean([tail(-sample, ones, -1.0, -mean) <= ALPHA for sample in samples])
        known = [stats.paired_mean_bounds(zeros, sample, CONFIDENCE, support=(0, 1)) for sample in samples[:50]]
        finite = [bound for bound in unknown if np.isfinite(bound.high - bound.low)]
        widths = [float(np.mean([(bound.high - bound.low) / 2 for bound in bounds])) for bounds in (finite, known)]
        widths.insert(0, Z * float(np.mean([sample.std() for sample in samples])) / n**0.5)
        rates = (rate(float(flipped)), *cells, rate(float(high)), rate(float(low)))
        rows.append((f"{n:,}", name, *rates, *(f"{width:.4f}" for width in widths)))
    head = ["n", "differences", "sign flips alone (500): pass, edge"]
    for name in BEFORE:
        head += [f"support unknown, before {name}: fail, edge", "pass, edge"]
    head += ["support known: fail, edge", "pass, edge", "half width: 1.645 se", "unknown", "known"]
    table(f"Wrong verdicts of drops of real-valued scores, % of {times:,} comparisons", head, rows)


def errors(bounds: Sequence[stats.Interval], truth: float) -> tuple[str, str]:
    """The shares of fails and passes of a gate whose limit is the truth."""
    failed = float(np.mean([bound.high < truth for bound in bounds]))
    return rate(failed), rate(float(np.mean([bound.low >= truth for bound in bounds])))


class NextTokens:
    """A population of 2,000 docs of 1 to 12 scored positions, each a distribution over 300 tokens before and now.

    The logits now are those before plus noise, whose size differs between docs: log-normally, by a factor of
    exp(`spread`). `kept` tokens are known on both sides, and one of the others is drawn in each comparison.
    """

    def __init__(self, noise: float, spread: float, kept: int) -> None:
        rng = np.random.default_rng(31)
        docs, tokens = 2_000, 300
        of = np.repeat(np.arange(docs), rng.integers(1, 13, docs))
        logits = rng.normal(size=(len(of), tokens)) * rng.uniform(1, 4, (len(of), 1))
        sizes = noise * np.exp(spread * rng.normal(size=docs))
        moved = logits + rng.normal(size=logits.shape) * sizes[of, None]
        order = np.argsort(-logits, axis=1)
        p, q = (np.take_along_axis(_softmax(side), order, axis=1) for side in (logits, moved))
        old, new = (side[:, kept:].sum(axis=1, keepdims=True) for side in (p, q))
        terms = p * np.log(p / q)
        least = terms[:, :kept].sum(axis=1, keepdims=True) + old * np.log(old / new)
        self.kl, self.least = self._by_doc(of, terms.sum(axis=1)), self._by_doc(of, least[:, 0])
        ratio = (q[:, kept:] / new) / (p[:, kept:] / old)
        self._estimates = least + old * (ratio - 1 - np.log(ratio))
        # Row i lies between i and i + 1, so that one search serves all rows.
        shares = np.cumsum(p[:, kept:] / old, axis=1)
        self._shares = (shares / shares[:, -1:] + np.arange(len(of))[:, None]).ravel()
        self._of = of

    @staticmethod
    def _by_doc(of: Ints, values: Floats) -> Floats:
        return np.bincount(of, values) / np.bincount(of)

    def drawn(self, rng: Rng, docs: Ints) -> Floats:
        """The estimates of docs, with one token drawn at each of their positions, anew for a doc that comes twice."""
        counts = np.bincount(self._of)[docs]
        of = np.repeat(np.arange(len(docs)), counts)
        within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.searchsorted(self._of, docs)[of] + within
        places = np.searchsorted(self._shares, rows + rng.random(len(rows)))
        return self._by_doc(of, self._estimates.ravel()[places])


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def kl_errors(times: int) -> None:
    rows = []
    for noise, spread in ((0.1, 0.3), (0.1, 1.0), (1.0, 0.3)):
        for kept in (1, 4):
            population = NextTokens(noise, spread, kept)
            truth = float(population.kl.mean())
            rng = np.random.default_rng([32, len(rows)])
            for n in (100, 1_000):
                found: list[list[stats.Interval]] = [[], []]
                for number in range(times):
                    docs = rng.integers(0, len(population.kl), n)
                    seen = [population.drawn(rng, docs), *([population.kl[docs]] if number % 5 == 0 else [])]
                    for bounds, values in zip(found, seen, strict=False):
                        bounds.append(stats.mean_bounds(values, CONFIDENCE, least=0.0))
                widths = [float(np.mean([one.high - one.low for one in bounds])) for bounds in found]
                cells = *errors(found[0], truth), *errors(found[1], truth)
                shares = (rate(float(population.least.mean()) / truth), f"{widths[0] / widths[1]:.2f}")
                rows.append((f"{noise}, {spread}", kept, f"{n:,}", f"{truth:.4f}", *cells, *shares))
    head = ("noise of logits, spread", "kept", "docs", "true kl", "pass, edge", "fail, edge")
    head += ("whole vocabulary (a fifth): pass, edge", "fail, edge")
    head += ("lower bound, % of kl", "width of bounds, times that of the whole vocabulary")
    table(f"Wrong verdicts on kl from a few next tokens and one draw, % of {times:,} comparisons", head, rows)


def clustered_errors(times: int) -> None:
    rows = []
    for passages, biggest in ((20, 5), (50, 5), (50, 20), (300, 8)):
        rng = np.random.default_rng(7)
        found: dict[str, list[stats.Interval]] = {"ignored": [], "unknown": [], "support": [], "flips": []}
        for _ in range(times):
            sizes = rng.integers(1, biggest + 1, passages)
            clusters = np.repeat(np.arange(passages), sizes)
            # Half of each doc's probability depends on its passage: mean .6.
            chance = 0.5 * np.repeat(rng.beta(1.2, 0.8, passages), sizes) + 0.5 * 0.6
            right = (rng.random(len(clusters)) < chance).astype(float)
            names = clusters.tolist()
            found["ignored"].append(stats.exact_bounds(int(right.sum()), len(right), CONFIDENCE))
            found["unknown"].append(stats.mean_bounds(right, CONFIDENCE, clusters=names))
            found["support"].append(stats.mean_bounds(right, CONFIDENCE, clusters=names, support=(0, 1)))
            shift = np.repeat(rng.normal(0, 0.05, passages), sizes) + rng.normal(-0.01, 0.05, len(clusters))
            scores = rng.random(len(shift))
            flipped = stats.paired_mean_bounds(scores, scores + shift, CONFIDENCE, clusters=names)
            found["flips"].append(stats.Interval(flipped.low + 0.61, flipped.high + 0.61))
        rows.append((passages, f"1 to {biggest}", *(cell for kind in found.values() for cell in errors(kind, 0.6))))
    head = ("passages", "docs each", "dependence ignored: fail", "pass", "support unknown: fail", "pass")
    head += ("support known: fail", "pass", "paired, support unknown: fail", "pass")
    table(f"Wrong verdicts on the edge with docs in clusters, % of {times:,} evaluations", head, rows)


#: Docs, and the share of them that flips between two runs of an unchanged model.
NIGHTLY = ((300, 0.08), (1_221, 0.05), (14_042, 0.05))


def advised_margin(n: int, flipping: float) -> float:
    """Return the margin that the README advises for gates that run every night, rounded up to half a point."""
    return float(np.ceil(200 * 2.5 * (flipping / n) ** 0.5) / 200)


def night(rng: Rng, right: Ints, unsteady: int, chance: float) -> tuple[Ints, Ints]:
    """Return the docs lost and gained in one night, of docs that are right with a chance in every run.

    `right` of the `unsteady` docs were right in the baseline; the other docs never change.
    """
    return rng.binomial(right, 1 - chance), rng.binomial(unsteady - right, chance)


def nights(times: int) -> None:
    """Compare an unchanged model, or one that dropped by the margin, with one committed baseline every night."""
    rows = []
    for n, flipping in NIGHTLY:
        # A doc that is right with chance 1/2 flips in half of the comparisons.
        unsteady = round(2 * flipping * n)
        for margin in (0.0, 0.005, 0.01, 0.02, advised_margin(n, flipping)):
            gate, cells = paired_gate(n, margin), []
            for drop in (0.0, margin):
                rng = np.random.default_rng(13)
                right = rng.binomial(unsteady, 0.5, times)
                failed = np.stack(
                    [gate.failing(*night(rng, right, unsteady, 0.5 - drop * n / unsteady)) for _ in range(100)]
                )
                cells += [failed.mean(), failed[:30].any(axis=0).mean(), failed.any(axis=0).mean()]
            rows.append((f"{n:,}", f"{flipping:.0%}", f"{margin:g}", *(rate(float(cell)) for cell in cells)))
    head = ("docs", "flips", "allowed drop", "nothing changed: one night", "any of 30", "any of 100")
    head += ("drop of the margin: one night", "any of 30", "any of 100")
    table(f"Failed nights against one baseline, % of {times:,} runs of 100 nights", head, rows)


class Months:
    """Simulated months of 100 nights against one baseline run, on n docs.

    Of the docs, `flipping` differ between two runs of one model: twice as many are right with chance 1/2 in each run,
    where a share `fresh` of them is drawn anew and the others keep their answer of the night before. The other docs
    never change by chance. In night t ``drift * t`` of them are lost, and `drop` more after the tenth night. With
    `allowed`, as many are lost as bring the model's accuracy to that of the baseline less `allowed` docs.
    """

    def __init__(
        self,
        n: int,
        flipping: float,
        times: int,
        *,
        drift: float = 0.0,
        drop: float = 0.0,
        allowed: float | None = None,
        fresh: float = 1.0,
    ) -> None:
        rng, unsteady = np.random.default_rng(21), max(2, round(2 * flipping * n))
        steady_right, steady_wrong = np.arange(unsteady, n, 2), np.arange(unsteady + 1, n, 2)
        self.right = np.zeros((times, n), bool)
        self.right[:, steady_right] = True
        self.counted: list[dict[int, Ints]] = []
        self.lost, self.gained = np.zeros((times, 100), int), np.zeros((times, 100), int)
        for month in range(times):
            before = now = rng.random(unsteady) < 0.5
            self.right[month, :unsteady] = before
            luck = int(before.sum()) - unsteady // 2
            last, counts, counted = np.zeros(0, int), [], {}
            for index in range(100):
                now = np.where(rng.random(unsteady) < fresh, rng.random(unsteady) < 0.5, now)
                gone = round(drift * (index + 1) + drop * (index >= 10))
                if allowed is not None:
                    gone = int(np.floor(allowed - luck + 1e-9))
                moved = steady_right[:gone] if gone > 0 else steady_wrong[:-gone]
                flipped = np.concatenate([np.flatnonzero(now != before), moved])
                lost = int(self.right[month, flipped].sum())
                self.lost[month, index], self.gained[month, index] = lost, len(flipped) - lost
                tonight = [*counts, (lost, len(flipped) - lost)]
                if stats.flips_are_new(flipped.tolist(), last.tolist(), tonight):
                    last, counts, counted[index + 1] = flipped, tonight, flipped
            self.counted.append(counted)

    def together(self, margin: float) -> Ints:
        """Return the night on which all nights together fail, for each month; 101 if none does."""
        first = []
        for right, counted in zip(self.right, self.counted, strict=True):
            evidence = stats.drift_evidence(list(counted.values()), right, margin, ALPHA)
            failing = (at for at, value in zip(counted, evidence, strict=True) if value >= stats.drift_limit(ALPHA))
            first.append(next(failing, 101))
        return np.array(first)

    def alone(self, gate: PairedGate) -> Ints:
        """Return the first night that fails by itself."""
        failed = gate.failing(self.lost.ravel(), self.gained.ravel()).reshape(self.lost.shape)
        return np.where(failed.any(axis=1), failed.argmax(axis=1) + 1, 101)

    def beyond(self, loss: float) -> Ints:
        """Return the first night that lost more than `loss` docs, net of those gained."""
        failed = self.lost - self.gained > loss
        return np.where(failed.any(axis=1), failed.argmax(axis=1) + 1, 101)


def nights_together(times: int) -> None:
    """Compare the evidence of all nights with gates on single nights: false alarms, and the night of the first failure.

    A gate at 1 - .05 / 100 has the error of 100 nights together. The best limit for single nights is the least with
    which at most 5 % of months fail, both without a change and at the edge; no real gate knows it. At the edge the
    model's accuracy on the docs is that of the baseline less the allowed drop, whatever the luck of the baseline.
    """
    false_alarms, seen = [], []
    for n, flipping in ((500, 0.05), (500, 0.005), (2_000, 0.05), (2_000, 0.005), (14_042, 0.05), (14_042, 0.005)):
        good, drift = Months(n, flipping, times), Months(n, flipping, times, drift=0.0002 * n)
        for margin in (0.0, 0.01) if n > 500 else (0.0, 0.01, 0.02):
            gates = paired_gate(n, margin), PairedGate(n, margin, ALPHA / 100)
            edge, kept = (Months(n, flipping, times, allowed=margin * n, fresh=fresh) for fresh in (1.0, 0.5))
            sudden = Months(n, flipping, times, drop=(margin + 0.005) * n)
            best = float(max(np.quantile((one.lost - one.gained).max(axis=1), 0.95) for one in (good, edge)))
            label = (f"{n:,}", f"{flipping:.1%}", f"{margin:g}")
            firsts = [one.together(margin) for one in (good, edge, kept)]
            firsts += [one.alone(gate) for gate in gates for one in (good, edge)]
            false_alarms.append((*label, *(rate(float((first <= 100).mean())) for first in firsts)))
            for name, run in ((".0002 a night", drift), (f"{margin + 0.005:g} at once", sudden)):
                ways = (run.together(margin), run.beyond(best), *(run.alone(gate) for gate in reversed(gates)))
                seen.append((*label, name, *(cell for first in ways for cell in when(first))))
    head = ("docs", "flips", "allowed drop", "together: nothing changed", "at the edge", "half of the flips kept")
    head += ("single nights @ 0.95: nothing changed", "at the edge", "@ 0.9995: nothing changed", "at the edge")
    table(f"Months of 100 nights with a false alarm, % of {times:,}", head, false_alarms)
    head = ("docs", "flips", "allowed drop", "true drop", "together: seen, %", "night of 50 %", "80 %")
    head += ("best limit for single nights: seen, %", "50 %", "80 %", "@ 0.9995: seen, %", "50 %", "80 %")
    head += ("@ 0.95: seen, %", "50 %", "80 %")
    table(f"The night that sees a drop, of 100 (a sudden one begins after 10), {times:,} months", head, seen)


def when(first: Ints) -> tuple[str, str, str]:
    """Return the share of months with a failed night, and the nights by which 50 and 80 % of months have one."""
    nights = [int(np.sort(first)[int(np.ceil(share * len(first))) - 1]) for share in (0.5, 0.8)]
    return (rate(float((first <= 100).mean())), *("-" if night > 100 else str(night) for night in nights))


def ratchet(times: int) -> None:
    """Write the baseline anew after each night that beats it, although nothing ever changes."""
    rows = []
    for n, flipping in NIGHTLY:
        unsteady = round(2 * flipping * n)
        for margin in (0.0, 0.01, 0.02):
            gate, rng = paired_gate(n, margin), np.random.default_rng(14)
            kept = right = rng.binomial(unsteady, 0.5, times)
            lead, failed, failed_kept = 0.0, [], []
            for index in range(100):
                lost, gained = night(rng, right, unsteady, 0.5)
                if index >= 70:
                    failed.append(gate.failing(lost, gained).mean())
                    failed_kept.append(gate.failing(*night(rng, kept, unsteady, 0.5)).mean())
                right = np.maximum(right, right - lost + gained)
                if index == 69:
                    lead = float((right - unsteady / 2).mean() / n)
            cells = (f"{lead:.4f}", rate(float(np.mean(failed))), rate(float(np.mean(failed_kept))))
            rows.append((f"{n:,}", f"{flipping:.0%}", f"{margin:g}", *cells))
    head = ("docs", "flips", "allowed drop", "lead of the baseline after 70 nights", "fails a night, renewed", "kept")
    table(f"A baseline renewed whenever a night beats it, {times:,} runs of 100 nights", head, rows)


#: Runs of a calibrating session, and the chances to be right of docs that flip: of coins, and of all kinds.
CALIBRATING = 8
UNSTEADY: dict[str, Callable[[Rng, int], Floats]] = {
    "coins": lambda rng, count: np.full(count, 0.5),
    "mixed": lambda rng, count: rng.beta(0.5, 0.5, count),
}


def calibrated(right: NDArray[np.bool_], runs: NDArray[np.bool_], n: int) -> GoodBuild:
    """Return the good build of a baseline in which `right` unsteady docs of n are right, by further runs of it."""
    flips = SelfFlips.of([int(one) for one in right], [[int(one) for one in run] for run in runs])
    down, up, variances = float(np.mean(flips.down)), float(np.mean(flips.up)), flips.variances or (0.0, 0.0)
    return GoodBuild(len(runs) + 1, stats.SelfLoss(n, len(runs), down, up, *variances), flips.flips, n // 2)


def calibration(times: int) -> None:
    """Calibrate baselines, then count what gates say of the same build, and of damage on the margin and beyond it."""
    compared, plain = [], []
    for n, flipping in NIGHTLY[:2]:
        for kind, chances in UNSTEADY.items():
            # Two runs of a doc that is right with chance p differ with probability 2 p (1 - p), on average 1/2 or 1/4.
            unsteady = round(flipping * n / (0.5 if kind == "coins" else 0.25))
            for margin in (0.0, 0.01):
                compared.append(_calibrated_comparison(times, n, chances, unsteady, margin, (f"{n:,}", kind)))
            plain.append(_calibrated_threshold(times, n, chances, unsteady, (f"{n:,}", kind)))
    head = (
        "docs",
        "flips of",
        "allowed drop",
        "unchanged fails",
        "of 95 % of baselines at most",
        "in the stated range",
    )
    head += ("with excuse: unchanged fails", "drop of the margin passes", "fails", "with excuse")
    head += ("3 points more: fails", "with excuse", "fails at the stated visible drop")
    table(f"Gates against {times:,} baselines, each calibrated by {CALIBRATING} runs, %", head, compared)
    head = ("docs", "flips of", "fails", "stated", "stated by 90 % of sessions", "in the stated range")
    table("A plain threshold 1.08 standard deviations below the mean of a good build, % of good builds", head, plain)
    coins = GoodBuild(CALIBRATING, stats.SelfLoss(1_221, CALIBRATING - 1, 30.5, 30.5, 15.25, 15.25), 61.0, 1_148)
    print(f"\n{good_builds_line(parse_gate_text('acc >= 0.935'), coins, 1, whole=True)}")


def _calibrated_comparison(
    times: int, n: int, chances: Callable[[Rng, int], Floats], unsteady: int, margin: float, name: tuple[str, str]
) -> Sequence[object]:
    rng, gate, found = np.random.default_rng(15), paired_gate(n, margin), []
    condition = parse_gate_text(f"acc >= baseline - {margin} @ {CONFIDENCE}")
    for _ in range(times):
        p = chances(rng, unsteady)
        right, runs = rng.random(unsteady) < p, rng.random((CALIBRATING - 1, unsteady)) < p
        good = calibrated(right, runs, n)
        stated = good.failing(condition)
        assert stated is not None
        later = rng.random((400, unsteady)) < p
        lost, gained = (right & ~later).sum(axis=1), (~right & later).sum(axis=1)
        row = []
        for drop in (0.0, margin, margin + 0.03, good.visible_drop(ALPHA, margin)):
            down = lost + rng.binomial(n, drop, len(lost))
            failed = gate.failing(down, gained)
            kept = failed & (down - gained > good.loss.most)
            row += [failed.mean(), kept.mean()]
        # With 400 runs a share is known up to two standard errors.
        unsure = 2 * (row[1] * (1 - row[1]) / len(lost)) ** 0.5 + 1 / len(lost)
        found.append([*row, stated[1].low - unsure <= row[1] <= stated[1].high + unsure])
    cells = np.array(found, dtype=float)
    mean = cells.mean(axis=0)
    # Of runs against one baseline each, so that fewer errors are shared; an excuse does not change a pass.
    p = chances(rng, 100 * times * unsteady).reshape(-1, unsteady)
    before, after = rng.random(p.shape) < p, rng.random(p.shape) < p
    down = (before & ~after).sum(axis=1) + rng.binomial(n, margin, len(p))
    passed = gate.rates(down, (~before & after).sum(axis=1))[0]
    shown = [mean[0], np.quantile(cells[:, 0], 0.95), mean[8], mean[1], passed, *mean[2:6], mean[7]]
    return (*name, f"{margin:g}", *(rate(float(cell)) for cell in shown))


def _calibrated_threshold(
    times: int, n: int, chances: Callable[[Rng, int], Floats], unsteady: int, name: tuple[str, str]
) -> Sequence[object]:
    rng, truths, stated, covered = np.random.default_rng(16), [], [], 0
    for _ in range(times):
        p = chances(rng, unsteady)
        right, runs = rng.random(unsteady) < p, rng.random((CALIBRATING - 1, unsteady)) < p
        good = calibrated(right, runs, n)
        # Of the docs that never flip enough are right to make half of all docs right in the baseline.
        steady = good.right - int(right.sum())
        least = steady + int(np.ceil(p.sum() - 1.08 * (p * (1 - p)).sum() ** 0.5))
        truth = float(((rng.random((4_000, unsteady)) < p).sum(axis=1) + steady < least).mean())
        share, limits = good.failing(parse_gate_text(f"acc >= {least / n!r}")) or (0.0, stats.Interval(0.0, 0.0))
        truths.append(truth)
        stated.append(share)
        covered += limits.low <= truth <= limits.high
    low, high = np.quantile(stated, (0.05, 0.95))
    cells = (rate(float(np.mean(truths))), rate(float(np.mean(stated))), f"{rate(low)} to {rate(high)}")
    return (*name, *cells, rate(covered / times))


def part_errors(times: int) -> None:
    rows = []
    rare = ("10 of 200 .95, else 0", lambda rng, n: np.where(np.arange(n) < n // 20, 0.95, 0.0))
    for share in (0.5, 0.9, 0.97):
        for name, draw in (*((name, draw) for name, (draw, _) in SCORES.items()), rare):
            rng = np.random.default_rng(10)
            total, seen = 200, round(200 * share)
            whole = draw(rng, total)
            found: dict[str, list[stats.Interval]] = {"unknown": [], "known": [], "corrected": []}
            for _ in range(times):
                part = rng.permutation(whole)[:seen].tolist()
                for kind, known in (("unknown", None), ("known", (0.0, 1.0))):
                    metric = Metric(
                        "m", "number", AGGREGATIONS["mean"], True, declared_range=known and ScoreRange(*known)
                    )
                    sample = sample_of([Column(metric, part, None, known)], by_size=True)
                    assert sample is not None
                    estimate = estimate_of("dataset", Draw("random", seen, total), sample)
                    assert estimate is not None
                    found[kind].append(estimate.bounds(CONFIDENCE))
                mean, bounds = float(np.mean(part)), stats.mean_bounds(part, CONFIDENCE, support=(0, 1))
                ends = (mean + (end - mean) * (1 - share) ** 0.5 for end in (bounds.low, bounds.high))
                found["corrected"].append(stats.Interval(*ends))
            truth = float(whole.mean())
            cells = []
            for kind in found.values():
                cells += [rate(float(np.mean([bound.high < truth - 1e-12 for bound in kind])))]
                cells += [rate(float(np.mean([bound.low > truth + 1e-12 for bound in kind])))]
            rows.append((f"{share:.0%}", name, *cells))
    head = ("seen of 200", "scores", "range unknown: high bound wrong", "low", "range known: high", "low")
    head += ("known, with the finite population correction: high", "low")
    table(f"Wrong bounds for this data set from a random part of it, % of {times:,} evaluations", head, rows)


def tiny_task_errors(times: int) -> None:
    rows = []
    for sizes in ((2, 100), (5, 100), (10, 100), (10, 10, 200), (20, 200)):
        for name, (draw, mean) in SCORES.items():
            for known in (None, (0.0, 1.0)):
                rng = np.random.default_rng(11)
                metric = Metric("m", "number", AGGREGATIONS["mean"], True)
                found, undecided = [], 0
                for _ in range(times):
                    columns = [Column(metric, draw(rng, n).tolist(), None, known, str(n)) for n in sizes]
                    sample = sample_of(columns, by_size=False)
                    estimate = sample and estimate_of("population", Draw("all", sum(sizes), sum(sizes)), sample)
                    undecided += not estimate
                    found.append(estimate.bounds(CONFIDENCE) if estimate else stats.Interval(-np.inf, np.inf))
                which = "unknown" if known is None else "known"
                rows.append((" + ".join(map(str, sizes)), name, which, *errors(found, mean), rate(undecided / times)))
    head = ("docs per task", "scores", "range", "fail, edge", "pass, edge", "no bounds")
    table(f"Groups that average tasks, % of {times:,} evaluations", head, rows)


def band_errors(times: int) -> None:
    rows = []
    for n in (100, 1_221):
        for low, high in ((0.49, 0.51), (0.69, 0.71), (0.45, 0.55)):
            for truth in (low, (low + high) / 2, high):
                rng = np.random.default_rng(12)
                right, counts = np.unique(rng.binomial(n, truth, times), return_counts=True)
                metric = Metric("acc", "right", AGGREGATIONS["mean"], True)
                outcomes = []
                for k in right:
                    sample = sample_of([Column(metric, [1.0] * int(k) + [0.0] * (n - int(k)))], by_size=True)
                    assert sample is not None
                    estimate = estimate_of("population", Draw("all", n, n), sample)
                    assert estimate is not None
                    outcomes.append(decide(estimate, CONFIDENCE, [(">=", low), ("<=", high)]))
                failed = np.dot([outcome == "failed" for outcome in outcomes], counts) / times
                passed = np.dot([outcome == "passed" for outcome in outcomes], counts) / times
                rows.append((f"{n:,}", f"{low} to {high}", f"{truth:g}", rate(float(failed)), rate(float(passed))))
    head = ("n", "band", "truth", "fails", "passes")
    table(f"Gates with two bounds, % of {times:,} evaluations", head, rows)


def family_errors(times: int) -> None:
    keys = [(group, place) for group, sizes in MMLU.items() for place in range(len(sizes))]
    p_value = cache(lambda lost, gained, n: stats.drop_p(lost, gained, n, 0.0))
    rows = []
    cases: tuple[tuple[str, float, dict[tuple[str, int], float]], ...] = (
        ("nothing changed, 5 %", 0.05, {}),
        ("one subject of 234 docs drops by 10 points", 0.05, {("other", 6): 0.1}),
        ("STEM drops by 5 points", 0.05, {key: 0.05 for key in keys if key[0] == "stem"}),
    )
    for name, discordance, dropping in cases:
        rng = np.random.default_rng(8)
        counts: dict[object, tuple[Ints, Ints, int]] = {}
        for key in keys:
            n, drop = MMLU[key[0]][key[1]], dropping.get(key, 0.0)
            counts[key] = (*flips(rng, n, max(discordance, drop + 0.02), drop, times), n)
        for node in (*MMLU, "mmlu"):
            below = [counts[key] for key in keys if node in (key[0], "mmlu")]
            counts[node] = tuple(sum(part) for part in zip(*below, strict=True))  # type: ignore[assignment]
        wrong = dict.fromkeys(("each", "holm", "conditional", "holm over all"), 0)
        found = dict.fromkeys(wrong, 0)
        bad = {*dropping, *({"mmlu"} if dropping else ()), *(key[0] for key in dropping)}
        for i in range(times):
            p_values = {node: p_value(int(lost[i]), int(gained[i]), n) for node, (lost, gained, n) in counts.items()}
            leaves = {key: p_values[key] for key in keys}
            rejected = {
                "each": {key for key in keys if leaves[key] <= ALPHA},
                "holm": stats.holm(leaves, ALPHA),
                "conditional": stats.conditional_holm(leaves, ALPHA),
                "holm over all": stats.holm(p_values, ALPHA),
            }
            for kind, nodes in rejected.items():
                wrong[kind] += bool(nodes - bad)
                found[kind] += len(nodes & dropping.keys())
        rows.append((name, *(f"{rate(wrong[kind] / times)} / {found[kind] / times:.2f}" for kind in wrong)))
    head = (
        "truth",
        "each subject at .95",
        "Holm over subjects",
        "the same, conditional",
        "Holm over subjects and groups",
    )
    title = f"57 subjects, gate drop 0: % of {times:,} runs with a false alarm / dropping subjects found"
    table(title, head, rows)


def family_edge(times: int) -> None:
    """Count false alarms of families whose tasks all dropped by the margin, and of families without a change."""
    rows = []
    for n in (50, 100, 234):
        for margin in (0.0, 0.01, 0.02, 0.05):
            p_value = cache(lambda lost, gained, n=n, margin=margin: stats.drop_p(lost, gained, n, margin))
            for tasks in (3, 10, 57):
                cells = []
                for drop in (margin, 0.0):
                    rng = np.random.default_rng(15)
                    lost, gained = (
                        side.reshape(times, tasks) for side in flips(rng, n, 0.05 + drop, drop, times * tasks)
                    )
                    wrong = dict.fromkeys(("holm", "doubled", "conditional"), 0)
                    for some_lost, some_gained in zip(lost.tolist(), gained.tolist(), strict=True):
                        p_values = dict(enumerate(map(p_value, some_lost, some_gained)))
                        doubled = {key: 2 * p for key, p in p_values.items() if p <= 0.5}
                        wrong["holm"] += bool(stats.holm(p_values, ALPHA))
                        wrong["doubled"] += bool(stats.holm(doubled, ALPHA))
                        wrong["conditional"] += bool(stats.conditional_holm(p_values, ALPHA))
                    cells += [rate(count / times) for count in wrong.values()]
                rows.append((n, f"{margin:g}", tasks, *cells))
    head = ("docs per task", "margin", "tasks", "all at the edge: Holm", "conditional without a mend", "conditional")
    head += ("nothing changed: Holm", "without a mend", "conditional")
    table(f"Families with a false alarm, % of {times:,}", head, rows)


def family_power(times: int) -> None:
    """Count the harmed tasks that are found among 57, with a margin of .02 and usual flips of 5 %."""
    rows = []
    for n, drop, bad in (
        (100, 0.10, 1),
        (100, 0.15, 1),
        (234, 0.08, 1),
        (234, 0.10, 1),
        (234, 0.08, 8),
        (234, 0.08, 19),
    ):
        p_value = cache(lambda lost, gained, n=n: stats.drop_p(lost, gained, n, 0.02))
        rng = np.random.default_rng(16)
        harmed = [side.reshape(times, bad) for side in flips(rng, n, 0.05 + drop, drop, times * bad)]
        others = [side.reshape(times, 57 - bad) for side in flips(rng, n, 0.05, 0.0, times * (57 - bad))]
        found = dict.fromkeys(("holm", "conditional", "fdr"), 0)
        for lost, gained in zip(*(np.hstack(pair).tolist() for pair in zip(harmed, others, strict=True)), strict=True):
            p_values = dict(enumerate(map(p_value, lost, gained)))
            for kind, rejected in (
                ("holm", stats.holm(p_values, ALPHA)),
                ("conditional", stats.conditional_holm(p_values, ALPHA)),
                ("fdr", stats.benjamini_hochberg(p_values, ALPHA)),
            ):
                found[kind] += sum(key < bad for key in rejected)
        rows.append((n, f"{drop:g}", bad, *(f"{count / times:.2f}" for count in found.values())))
    head = ("docs per task", "drop", "harmed of 57", "Holm finds", "conditional Holm", "false discovery rate")
    table(f"Harmed tasks found, mean of {times:,} families", head, rows)


def early_stopping(times: int) -> None:
    rows = []
    for total in (1_221, 14_042):
        for name, limit, low, draw in sequential_cases(total):
            for scope in ("population", "data set"):
                used, verdicts = [], []
                for i in range(times):
                    test = stats.MeanTest(limit, ALPHA, low=low, total=total if scope == "data set" else None)
                    test.update(draw(np.random.default_rng(i)))
                    used.append(test.decided_after or total)
                    verdicts.append((test.above, test.below))
                passed, failed = np.mean(verdicts, axis=0)
                share = [f"{100 * float(q) / total:.1f}" for q in (np.mean(used), *np.quantile(used, (0.5, 0.9)))]
                rows.append((f"{total:,}", name, scope, *share, rate(passed), rate(failed)))
    head = ("docs", "case", "scope", "docs needed, mean %", "median %", "90th %", "passes", "fails")
    table(f"Early stopping, {times:,} runs each; the fixed test needs 100 %", head, rows)


Case = tuple[str, float, float, Callable[[Rng], Floats]]


def sequential_cases(total: int) -> list[Case]:
    def right(share: float) -> Callable[[Rng], Floats]:
        return lambda rng: (rng.random(total) < share).astype(float)

    def change(discordance: float, drop: float) -> Callable[[Rng], Floats]:
        chances = ((discordance + drop) / 2, 1 - discordance, (discordance - drop) / 2)
        return lambda rng: rng.choice([-1.0, 0.0, 1.0], total, p=chances)

    return [
        ("floor .35, truth .50: clear pass", 0.35, 0.0, right(0.5)),
        ("floor .35, truth .25: clear fail", 0.35, 0.0, right(0.25)),
        ("floor .35, truth .36: borderline", 0.35, 0.0, right(0.36)),
        ("drop .05, no change, 5 %: clear pass", -0.05, -1.0, change(0.05, 0.0)),
        ("drop .01, no change, 2 %", -0.01, -1.0, change(0.02, 0.0)),
        ("drop .01, truth .05, 10 %: clear fail", -0.01, -1.0, change(0.10, 0.05)),
        ("drop .01, truth .10, 15 %: clear fail", -0.01, -1.0, change(0.15, 0.10)),
        ("drop .01, truth .012, 5 %: borderline", -0.01, -1.0, change(0.05, 0.012)),
    ]


def early_errors(times: int) -> None:
    rows = []
    for total in SIZES if times >= 2_000 else SIZES[:2]:
        for name, limit, low, shares in (
            ("floor .35", 0.35, 0.0, (0.65, 0.35)),
            ("floor .90", 0.90, 0.0, (0.10, 0.90)),
            ("drop .01, 5 %", -0.01, -1.0, (0.03, 0.95, 0.02)),
        ):
            values = np.linspace(low, 1.0, len(shares))
            rng = np.random.default_rng(9)
            population = [ever(rng.choice(values, total, p=shares), limit, low, None) for _ in range(times)]
            counts = np.round(np.array(shares[1:]) * total).astype(int)
            whole = np.repeat(values, [total - counts.sum(), *counts])
            # The data set's mean is the limit, which it reaches; or misses by half a doc.
            reached, missed = whole.mean(), whole.mean() + 0.5 / total
            reaching = [ever(rng.permutation(whole), reached, low, total)[1] for _ in range(times)]
            missing = [ever(rng.permutation(whole), missed, low, total)[0] for _ in range(times)]
            above, below = np.mean(population, axis=0)
            cells = (float(below), float(above), float(np.mean(reaching)), float(np.mean(missing)))
            calibrated = ["-", "-"]
            if low == 0:
                crossings = [Crossing.of(p, total, threshold_for(p, total, ALPHA)) for p in (1 - limit, limit)]
                calibrated = [rate(crossing.reached) for crossing in crossings]
            rows.append((f"{total:,}", name, *map(rate, cells), *calibrated))
    head = ("docs", "gate", "population: fail, edge", "pass, edge", "data set: fail, reached", "pass, missed")
    head += ("calibrated, exact: fail, edge", "pass, edge")
    table(f"Wrong verdicts under a look after every doc, % of {times:,} runs", head, rows)


def ever(values: Floats, limit: float, low: float, total: int | None) -> tuple[bool, bool]:
    """Return two truth values: above, and below, is claimed at some time before the last doc."""
    test = stats.MeanTest(limit, ALPHA, low=low, total=total)
    test.update(values[:-1])
    return test.above, test.below


#: Cases of early stopping: name, docs, limit, lowest value, and the chances of a doc's values from lowest to 1.
EarlyCase = tuple[str, int, float, float, tuple[float, ...]]
EARLY: tuple[EarlyCase, ...] = (
    ("floor .35, truth .50", 1_221, 0.35, 0.0, (0.5, 0.5)),
    ("floor .35, truth .25", 1_221, 0.35, 0.0, (0.75, 0.25)),
    ("floor .90, truth .95", 1_221, 0.90, 0.0, (0.05, 0.95)),
    ("floor .35, truth .50", 14_042, 0.35, 0.0, (0.5, 0.5)),
    ("floor .90, truth .95", 14_042, 0.90, 0.0, (0.05, 0.95)),
    ("drop .02, no change, 5 %", 14_042, -0.02, -1.0, (0.025, 0.95, 0.025)),
    ("drop .02, no change, 2 %", 14_042, -0.02, -1.0, (0.01, 0.98, 0.01)),
    ("drop .02, truth .06, 10 %", 14_042, -0.02, -1.0, (0.08, 0.90, 0.02)),
    ("drop .01, no change, 5 %", 14_042, -0.01, -1.0, (0.025, 0.95, 0.025)),
    ("drop 0, truth .03, 6 %", 14_042, 0.0, -1.0, (0.045, 0.94, 0.015)),
)
EIGHT_STAKES = tuple(0.9 / 1.9**power for power in range(8))


def early_docs(times: int) -> None:
    rows = []
    for name, docs, limit, low, chances in EARLY:
        values = np.linspace(low, 1.0, len(chances))
        above = float(np.dot(values, chances)) > limit
        gains = [values - limit, limit - values][not above]
        null = limit if above else 1 - limit
        ville = -log(ALPHA / 2)
        ways = [(EIGHT_STAKES, ville), (STAKES, ville)]
        if low == 0:
            ways.append((STAKES, threshold_for(null, docs, ALPHA / 2)))
        used: list[list[int]] = [[] for _ in ways]
        for i in range(times):
            drawn = np.random.default_rng(i).choice(gains, docs, p=chances)
            for (stakes, threshold), found in zip(ways, used, strict=True):
                bets = np.array(stakes)[:, None] / -gains.min()
                capital = np.logaddexp.reduce(np.cumsum(np.log1p(bets * drawn), axis=1), axis=0) - log(len(stakes))
                reached = capital >= threshold
                found.append(int(reached.argmax()) + 1 if reached.any() else docs)
        means = [float(np.mean(found)) for found in used]
        limits = [log(1 / alpha) / information(chances, values, limit) for alpha in (ALPHA / 2, ALPHA)]
        saved = f"{100 * (1 - means[-1] / means[0]):.0f}"
        cells = [f"{mean:,.0f}" for mean in means] + ["-"] * (3 - len(means))
        rows.append((name, f"{docs:,}", *cells, saved, *(f"{limit:,.0f}" for limit in limits)))
    head = ("case", "docs", "eight stakes, Ville", "five stakes, Ville", "five, calibrated", "saved, %")
    table(f"Docs to a verdict at an error of .025, mean of {times:,} runs", (*head, "Wald .025", "Wald .05"), rows)


def information(chances: Sequence[float], values: Floats, limit: float) -> float:
    """Return the least Kullback-Leibler divergence of a doc's distribution from one with the mean `limit`.

    No test of error alpha needs fewer docs than ``log(1 / alpha)`` divided by it, on average (Wald 1945, Ann. Math.
    Statist. 16, 117-186). It is the greatest expected logarithm of one plus a bet on the distance from the limit.
    """
    gains = values - limit
    most, least = -0.999999 / gains.min(), -0.999999 / gains.max()

    def lost(bet: float) -> float:
        return -float(np.dot(chances, np.log1p(bet * gains)))

    return -float(minimize_scalar(lost, bounds=(least, most), method="bounded", options={"xatol": 1e-10}).fun)


def early_flips(times: int) -> None:
    """The error that Ville's bound leaves unused in comparisons, by the number of flips, which nobody knows."""
    rows = []
    for drop, docs in ((0.01, 300), (0.02, 300), (0.01, 1_221), (0.02, 1_221)):
        for above in (True, False):
            cells = []
            for discordance in (drop, 2 * drop, 0.2, 0.5, 1.0):
                rng = np.random.default_rng(10)
                chances = ((discordance + drop) / 2, 1 - discordance, (discordance - drop) / 2)
                wrong = 0
                for _ in range(times):
                    test = stats.MeanTest(-drop, ALPHA / 2, low=-1.0)
                    test.update(rng.choice([-1.0, 0.0, 1.0], docs, p=chances))
                    wrong += test.above if above else test.below
                cells.append(rate(wrong / times))
            rows.append((drop, f"{docs:,}", "pass" if above else "fail", *cells))
    head = ("drop", "docs", "wrong", "flips: as many as the drop", "twice", "20 %", "50 %", "all docs")
    table(f"Wrong early verdicts on drops at the edge, % of {times:,} runs (2.5 allowed)", head, rows)


def early_controls(times: int) -> None:
    rows = []
    for docs, before, floor in ((1_838, 0.68, 0.6), (1_838, 0.68, 0.65), (14_042, 0.48, 0.45), (1_221, 0.35, 0.25)):
        for discordance in (0.0, 0.05, 0.10, 2 * before * (1 - before)):
            used, wrong = ([], []), ([], [])
            for i in range(times):
                rng = np.random.default_rng(i)
                old = (rng.random(docs) < before).astype(float)
                # On average as many docs are gained as lost; the last case is a model that knows nothing of the other.
                chances = np.where(old == 1, discordance / (2 * before), discordance / (2 * (1 - before)))
                new = np.where(rng.random(docs) < chances, 1 - old, old)
                for controlled in (False, True):
                    mean, controls = (float(old.mean()), old) if controlled else (None, np.zeros(0))
                    test = stats.MeanTest(floor, ALPHA, total=docs, control=mean)
                    test.update(new, controls)
                    used[controlled].append(test.decided_after or docs)
                    # The data set misses this limit by half a doc.
                    edge = stats.MeanTest(float(new.mean()) + 0.5 / docs, ALPHA, total=docs, control=mean)
                    edge.update(new[:-1], controls[:-1])
                    wrong[controlled].append(edge.above)
            alone, beside = (float(np.mean(found)) for found in used)
            errors = [rate(float(np.mean(found))) for found in wrong]
            cells = (f"{alone:,.0f}", f"{beside:,.0f}", f"{alone / beside:.1f}", *errors)
            rows.append((f"{docs:,}", before, floor, f"{discordance:.0%}", *cells))
    head = ("docs", "baseline", "floor", "flips", "docs alone", "beside the baseline", "times fewer")
    table(
        f"Floors on the data set, with the baseline as control, {times:,} runs",
        (*head, "alone: pass, missed", "beside: pass, missed"),
        rows,
    )


def early_split(times: int) -> None:
    """The error of early looks and of the last doc together is exact, and so is the power: nothing is drawn."""
    del times
    rows = []
    for docs in SIZES[:2]:
        for floor in (0.35, 0.65, 0.9):
            least = int(binom.isf(ALPHA, docs, floor)) + 1
            # The fixed test passes in 80 % of runs at the first truth; the other one is three times as far.
            seen = brentq(lambda p, least=least, docs=docs: binom.sf(least - 1, docs, p) - 0.8, floor, 1)
            clear = min(floor + 3 * (seen - floor), (1 + floor) / 2)
            for split in (0.5, 0.35, 0.2, 0.1):
                threshold = threshold_for(floor, docs, ALPHA * split)
                crossing = Crossing.of(floor, docs, threshold)
                left = crossing.error_left(ALPHA)
                early, _, late = at_truth(floor, docs, threshold, left, floor)
                power = at_truth(floor, docs, threshold, left, seen)
                needed = at_truth(floor, docs, threshold, left, clear)[1]
                cells = (rate(early), rate(early + late), f"{left:.4f}", rate(power[0] + power[2]), f"{needed:.0f}")
                rows.append((f"{docs:,}", floor, split, *cells))
    head = ("docs", "floor", "split", "early error", "error with the last doc", "last doc judged at")
    table("The split of an error of 5 %, exact", (*head, "power (fixed test 80)", "docs, clear pass"), rows)


def at_truth(floor: float, docs: int, threshold: float, left: float, truth: float) -> tuple[float, float, float]:
    """Return the chance of an early pass, the mean number of docs, and the chance of a pass at the last doc alone."""
    passing = int(binom.isf(left, docs, floor)) + 1
    right, chances = np.arange(docs + 2), np.zeros(docs + 2)
    chances[0], early, needed = 1.0, 0.0, 0.0
    for seen in range(1, docs + 1):
        needed += chances.sum()
        following = chances * (1 - truth)
        following[1:] += chances[:-1] * truth
        reached = log_capital(floor, right[: seen + 1], np.array(seen)) >= threshold
        early += following[: seen + 1][reached].sum()
        following[: seen + 1][reached] = 0
        chances = following
    return float(early), float(needed), float(chances[passing:].sum())


class Sampled:
    """Docs whose answers are drawn: each is right with a chance of its own, from a beta distribution.

    Two answers of one model differ on the share `self_flips` of docs. A drop lowers the log-odds of every doc.
    """

    def __init__(self, accuracy: float, self_flips: float) -> None:
        spread = self_flips / 2 / (accuracy * (1 - accuracy))
        shape = spread / (1 - spread)
        chances = beta.ppf(MIDDLES, accuracy * shape, (1 - accuracy) * shape)
        self.before = np.clip(chances, 1e-12, 1 - 1e-12)
        self._odds = np.log(self.before) - np.log1p(-self.before)

    def after(self, shift: float) -> tuple[Floats, Floats]:
        """Return the chance of each doc to be right now, and when it is asked for again."""
        chance = np.asarray(1 / (1 + np.exp(shift - self._odds)))
        return chance, chance


class Rounded:
    """Docs whose margins, normal with variance 1, are computed with a normal error, also the second time."""

    def __init__(self, accuracy: float, self_flips: float) -> None:
        self._margins = ndtri(MIDDLES) + ndtri(accuracy)

        def excess(error: float) -> float:
            chance = ndtr(self._margins / error)
            return float((2 * chance * (1 - chance)).mean()) - self_flips

        self._error = brentq(excess, 1e-4, 10)
        self.before = self.after(0.0)[1]

    def after(self, shift: float) -> tuple[Floats, Floats]:
        """Return the chance of each doc to be right now, and when it is asked for again."""
        chance = ndtr((self._margins - shift) / self._error)
        return chance, chance


class RoundedNow(Rounded):
    """The same docs beside a baseline without this error, in whose precision they are asked for again."""

    def after(self, shift: float) -> tuple[Floats, Floats]:
        """Return the chance of each doc to be right now, and when it is asked for again."""
        return super().after(shift)[0], (self._margins > shift).astype(float)


class RoundedBefore(Rounded):
    """The same docs asked for again without the error of the baseline, as ``--llmeval-confirm`` does not do."""

    def __init__(self, accuracy: float, self_flips: float) -> None:
        super().__init__(accuracy, self_flips)
        self.before = super().after(0.0)[0]

    def after(self, shift: float) -> tuple[Floats, Floats]:
        """Return the chance of each doc to be right now, and when it is asked for again."""
        return super().after(shift)[0], (self._margins > shift).astype(float)


def triples(world: Sampled | Rounded, drop: float, *, lasting: bool) -> Floats:
    """Return the probability of (before, now, again), each wrong or right, as an array of 2 by 2 by 2.

    A `lasting` drop leaves a part of the docs without a chance; the other kind lies on all docs alike.
    """
    old = world.before
    if lasting:
        hit = drop / float(old.mean())
        parts = [(1 - hit, world.after(0.0)), (hit, (np.zeros_like(old), np.zeros_like(old)))]
    else:

        def excess(shift: float) -> float:
            return float((world.after(0.0)[0] - world.after(shift)[0]).mean()) - drop

        parts = [(1.0, world.after(brentq(excess, 0, 40) if drop else 0.0))]
    found = np.zeros((2, 2, 2))
    for share, (now, again) in parts:
        sides = [np.stack([1 - chance, chance]) for chance in (old, now, again)]
        found += share * np.einsum("ai,bi,ci->abc", *sides) / old.size
    return found


def confirmed_losses(times: int) -> None:
    """A failed gate's docs are asked again: all of them, as ``--llmeval-confirm`` does, or those that flipped only.

    The second answers need not lie beyond the margin, but show a loss at all; a failure needs both looks.
    """
    n, rows = 1_221, []
    again = paired_gate(n, 0.0)
    drops = ((0.0, False), (0.01, True), (0.02, True), (0.02, False), (0.05, True), (0.05, False))
    kinds = {
        "sampled": Sampled,
        "rounded": Rounded,
        "rounded, baseline exact, again exact": RoundedNow,
        "rounded, again exact": RoundedBefore,
    }
    for (kind, world), accuracy, self_flips, margin in product(
        kinds.items(), (0.7, 0.9), (0.005, 0.05, 0.15), (0.0, 0.01)
    ):
        docs, gate = world(accuracy, self_flips), paired_gate(n, margin)
        for drop, lasting in drops:
            if drop == 0.01 and margin != drop:
                continue
            rng = np.random.default_rng(31)
            chances = triples(docs, drop, lasting=lasting).ravel()
            counts = rng.multinomial(n, chances, times).reshape(times, 2, 2, 2)
            lost, gained = counts[:, 1, 0].sum(1), counts[:, 0, 1].sum(1)
            first = gate.failing(lost, gained)
            all_docs = again.failing(counts[:, 1, :, 0].sum(1), counts[:, 0, :, 1].sum(1))
            flipped = again.failing(counts[:, 1, 0, 0], counts[:, 0, 1, 1])
            lost_only = again.failing(counts[:, 1, 0, 0], gained)
            cells = [rate(gate.rates(lost, gained)[0]), rate(first.mean())]
            cells += [rate((first & second).mean()) for second in (all_docs, flipped, lost_only)]
            cells += [f"{asked.mean():,.0f}" for asked in (n * first, (lost + gained) * first)]
            name = "none" if not drop else f"{drop} {'lasting' if lasting else 'everywhere'}"
            rows.append((kind, accuracy, f"{self_flips:.1%}", margin, name, *cells))
    head = ("answers", "accuracy", "self-flips", "margin", "drop", "pass", "fail", "confirmed by all docs")
    head += ("by flipped docs only", "by lost docs only", "docs asked again per run, all", "flipped only")
    table(f"Gates whose failure is confirmed, {n:,} docs, % of {times:,} comparisons", head, rows)


def judged_errors(times: int) -> None:
    """Gates as users write them, through `pytest_llmeval.judge`: at their limit neither outcome may exceed 5 %."""
    rng = np.random.default_rng(23)
    rows = []

    def sides(n: int, lost: float, gained: float, passages: int = 1) -> dict[str, object]:
        """Return docs of which a share `lost` is right before only, a share `gained` now only, and half of the rest."""
        chance = np.repeat(rng.random(n // passages), passages)
        same = rng.random(n) < 0.5
        moved = chance < lost + gained
        return {
            "scores": np.where(moved, chance >= lost, same).astype(int),
            "baseline": np.where(moved, chance < lost, same).astype(int),
            "clusters": None if passages == 1 else np.repeat(np.arange(n // passages), passages).tolist(),
        }

    for gate, docs in (
        ("acc >= baseline - 0.02 @ 0.95", lambda: sides(300, 0.04, 0.02)),
        ("acc > baseline @ 0.95", lambda: sides(300, 0.03, 0.03)),
        # Right before: .08 + .5 (.92 - g), of which the drop .08 - g is a tenth for this g.
        ("acc >= baseline - 10% @ 0.95", lambda: sides(300, 0.08, 0.026 / 0.95)),
        ("acc >= baseline - 0.05 @ 0.95", lambda: sides(300, 0.08, 0.03, passages=5)),
        ("acc >= 0.5 @ 0.95", lambda: sides(300, 0.0, 0.0)),
    ):
        outcomes = [judge(gate, **docs()).outcome for _ in range(times)]  # type: ignore[arg-type]
        passages = " (passages of 5 docs)" if gate.endswith("0.05 @ 0.95") else ""
        rows.append(
            (f"{gate}{passages}", rate(outcomes.count("passed") / times), rate(outcomes.count("failed") / times))
        )
    table("Gates through judge, 300 docs, truth on the limit", ("gate", "passed", "failed"), rows)


def docs_needed(times: int) -> None:
    """The docs that the line of an inconclusive gate names, and the share of runs of that size that decide it."""
    rng = np.random.default_rng(29)
    rows = []
    for gate, right, lost in (
        ("acc >= 0.65 @ 0.95", 70, 0),
        ("acc >= 0.75 @ 0.95", 70, 0),
        ("acc >= baseline - 0.02 @ 0.95", 0, 4),
        ("acc >= baseline - 0.05 @ 0.95", 0, 2),
    ):
        before = None if right else [1] * 100
        now = [1] * right + [0] * (100 - right) if right else [0] * lost + [1] * (100 - lost)
        sentence = judge(gate, now, before).sentence
        found = re.search(r"about ([\d,]+) docs", sentence)
        if found is None:
            rows.append((gate, sentence.rpartition("; ")[2], ""))
            continue
        n, share = int(found[1].replace(",", "")), sum(now) / 100
        decided = 0
        for _ in range(times):
            drawn = (rng.random(n) < share).astype(int)
            decided += judge(gate, drawn, None if before is None else np.ones(n)).outcome != "inconclusive"
        rows.append((gate, f"{n:,}", rate(decided / times)))
    table("Docs that would decide a gate that 100 docs leave open", ("gate", "docs named", "decided"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few comparisons: whether it runs, not what it finds")
    parser.add_argument("studies", nargs="*", help="some of them, by the names of their functions; all by default")
    asked = parser.parse_args()
    many, some, few = (200, 40, 20) if asked.quick else (20_000, 2_000, 200)
    for study, times in (
        (floor_errors, many),
        (finite_errors, many),
        (paired_errors, many),
        (paired_power, many),
        (paired_sizes, many),
        (real_errors, some),
        (paired_real_errors, some),
        (kl_errors, some),
        (clustered_errors, some),
        (nights, some),
        (nights_together, few),
        (ratchet, some),
        (calibration, few // 2),
        (part_errors, some),
        (tiny_task_errors, some),
        (band_errors, many),
        (family_errors, some),
        (family_edge, some),
        (family_power, some),
        (early_stopping, few),
        (early_errors, some),
        (early_docs, few),
        (early_flips, some),
        (early_controls, few),
        (early_split, few),
        (confirmed_losses, many),
        (judged_errors, few),
        (docs_needed, few),
    ):
        if asked.studies and study.__name__ not in asked.studies:
            continue
        start = time.perf_counter()
        study(times)
        print(f"\n({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
