"""The metrics of lm-evaluation-harness's format: what is kept of a doc, and how all docs become one number.

`resolve` makes a `Metric` of an entry of `metric_list`. What a doc contributes to it, its item, comes from
`choice_scores` or `target_scores` for loglikelihoods, from `generation_score` for a generated text.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from pytest_llmeval._scoring.aggregations import Item
from pytest_llmeval._scoring.choice import CHOICE_METRICS
from pytest_llmeval._scoring.choice import PICKED_BY
from pytest_llmeval._scoring.choice import ROLLING_METRICS
from pytest_llmeval._scoring.choice import Answered
from pytest_llmeval._scoring.choice import choice_scores
from pytest_llmeval._scoring.choice import margin
from pytest_llmeval._scoring.choice import pick
from pytest_llmeval._scoring.choice import target_scores
from pytest_llmeval._scoring.means import DOC_MEANS
from pytest_llmeval._scoring.means import DocMean
from pytest_llmeval._scoring.means import doc_mean
from pytest_llmeval._scoring.means import misfit
from pytest_llmeval._scoring.metric import AGGREGATION_NAMES
from pytest_llmeval._scoring.metric import METRIC_NAMES
from pytest_llmeval._scoring.metric import Metric
from pytest_llmeval._scoring.metric import aggregation_name
from pytest_llmeval._scoring.metric import default_metrics
from pytest_llmeval._scoring.metric import metrics_of
from pytest_llmeval._scoring.metric import resolve
from pytest_llmeval._scoring.metric import stderr
from pytest_llmeval._scoring.metric import unlisted
from pytest_llmeval._scoring.passk import CodeRunner
from pytest_llmeval._scoring.passk import pass_at_k
from pytest_llmeval._scoring.standard_errors import pooled_stderr
from pytest_llmeval._scoring.standard_errors import unweighted_stderr


__all__ = [
    "AGGREGATION_NAMES",
    "CHOICE_METRICS",
    "DOC_MEANS",
    "METRIC_NAMES",
    "PICKED_BY",
    "ROLLING_METRICS",
    "Answered",
    "CodeRunner",
    "DocMean",
    "Item",
    "Metric",
    "aggregation_name",
    "choice_scores",
    "default_metrics",
    "doc_mean",
    "generation_score",
    "margin",
    "metrics_of",
    "misfit",
    "pass_at_k",
    "pick",
    "pooled_stderr",
    "resolve",
    "stderr",
    "target_scores",
    "unlisted",
    "unweighted_stderr",
]


def generation_score(metric: Metric, prediction: Any, references: Sequence[str]) -> Mapping[str, Item]:
    """The items of a generated text, by metric name; a user's function may give several.

    `prediction` is a text, or a list where the filter leaves several. Of several references the best counts.
    Raises ValueError where the metric cannot score such a prediction, TaskFileError where its function fails.
    """
    if metric.score is None:
        raise ValueError(f"metric {metric.name} does not score a text by itself")
    return metric.score(prediction, references)
