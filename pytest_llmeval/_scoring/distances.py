"""The metrics that measure a run's distance from its baseline: they have a value for two answers to a doc, not for one.

They are for compressed and otherwise changed models, whose accuracy may stay equal while many answers flip (Dutta,
Krishnan, Kwatra and Ramjee 2024, "Accuracy is not all you need", arXiv:2407.09141). No task file lists them: a gate
names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pytest_llmeval._scoring.aggregations import AGGREGATIONS
from pytest_llmeval._task import DocMean
from pytest_llmeval._task import Metric


_MEAN = AGGREGATIONS["mean"]
_NOT_NEGATIVE = DocMean(lambda items: [float(item) for item in items], floor=0.0, least=lambda items: 0.0)

DISTANCES: Mapping[str, Metric] = MappingProxyType(
    {
        # The share of docs whose score was 0 or 1 and is the other now.
        "flips": Metric("flips", "right", _MEAN, higher_is_better=False),
        # The mean over a doc's scored positions of KL(baseline || run), in nats.
        "kl": Metric("kl", "number", replace(_MEAN, doc_mean=_NOT_NEGATIVE), higher_is_better=False),
        # The share of a doc's scored positions with the same likeliest next token.
        "top1_agreement": Metric("top1_agreement", "share", _MEAN, higher_is_better=True),
    }
)
