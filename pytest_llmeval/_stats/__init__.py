"""Statistics of gates: bounds, p-values, families of hypotheses, power, and tests that may stop early.

Every bound is one-sided and has an error of at most ``1 - confidence`` (`Interval`). A floor passes if the lower bound
reaches its limit, fails if the upper bound lies below it, and is otherwise inconclusive.

| scores | bounds | p-values |
|---|---|---|
| 0/1, one model | `exact_bounds` (`finite_bounds` for one data set) | |
| 0/1, two models | `paired_bounds` | `drop_p`, `mcnemar_p` |
| real, one model | `mean_bounds` | |
| real, two models | `paired_mean_bounds` | `difference_p` |

numpy and scipy are imported by the first call.

proportions, means, gaffke  bounds on one proportion, and on the mean of real-valued scores
paired, tango               bounds and p-values of two models on 0/1 scores
signflip, clusters          the same for real-valued scores; docs that share a passage
families, power             multiple testing; what a gate would detect, and on how few docs it cannot pass
selfflips                   the docs that an unchanged build loses and gains by itself
divergence                  KL divergence from a few probabilities of two next-token distributions
sequential, crossing        tests that are valid after every doc, and their exact error on 0/1 scores
drift                       evidence over many runs on the same docs
"""

from __future__ import annotations

from pytest_llmeval._stats.clusters import net_moves
from pytest_llmeval._stats.clusters import standard_error
from pytest_llmeval._stats.crossing import Crossing
from pytest_llmeval._stats.crossing import threshold_for
from pytest_llmeval._stats.divergence import Divergence
from pytest_llmeval._stats.divergence import Known
from pytest_llmeval._stats.divergence import divergence
from pytest_llmeval._stats.drift import HORIZON
from pytest_llmeval._stats.drift import drift_evidence
from pytest_llmeval._stats.drift import drift_limit
from pytest_llmeval._stats.drift import drift_luck
from pytest_llmeval._stats.drift import flips_are_new
from pytest_llmeval._stats.families import benjamini_hochberg
from pytest_llmeval._stats.families import conditional_holm
from pytest_llmeval._stats.families import holm
from pytest_llmeval._stats.interval import Interval
from pytest_llmeval._stats.means import assumed_support
from pytest_llmeval._stats.means import mean_bounds
from pytest_llmeval._stats.paired import drop_fails
from pytest_llmeval._stats.paired import drop_p
from pytest_llmeval._stats.paired import mcnemar_p
from pytest_llmeval._stats.paired import paired_bounds
from pytest_llmeval._stats.power import detectable_drop
from pytest_llmeval._stats.power import docs_to_pass
from pytest_llmeval._stats.power import docs_to_pass_floor
from pytest_llmeval._stats.power import failing_outcomes
from pytest_llmeval._stats.power import floor_gap
from pytest_llmeval._stats.proportions import exact_bounds
from pytest_llmeval._stats.proportions import finite_bounds
from pytest_llmeval._stats.selfflips import Fails
from pytest_llmeval._stats.selfflips import SelfLoss
from pytest_llmeval._stats.sequential import MeanTest
from pytest_llmeval._stats.signflip import assumed_change
from pytest_llmeval._stats.signflip import difference_p
from pytest_llmeval._stats.signflip import paired_mean_bounds


__all__ = [
    "HORIZON",
    "Crossing",
    "Divergence",
    "Fails",
    "Interval",
    "Known",
    "MeanTest",
    "SelfLoss",
    "assumed_change",
    "assumed_support",
    "benjamini_hochberg",
    "conditional_holm",
    "detectable_drop",
    "difference_p",
    "divergence",
    "docs_to_pass",
    "docs_to_pass_floor",
    "drift_evidence",
    "drift_limit",
    "drift_luck",
    "drop_fails",
    "drop_p",
    "exact_bounds",
    "failing_outcomes",
    "finite_bounds",
    "flips_are_new",
    "floor_gap",
    "holm",
    "mcnemar_p",
    "mean_bounds",
    "net_moves",
    "paired_bounds",
    "paired_mean_bounds",
    "standard_error",
    "threshold_for",
]
