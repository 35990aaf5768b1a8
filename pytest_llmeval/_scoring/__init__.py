"""The scores of docs and the values of tasks and groups, from the responses of a model.

filters          the filters of lm_eval's format: from responses to the answers that are scored
text, choice     the item of a doc, from a generated text or from loglikelihoods
passk            the item of a doc whose answers are programs
items            the kinds of items
metric           the table of metrics, and the resolution of an entry of `metric_list`
aggregations     the table of aggregations: from the items of all docs to a value
standard_errors  the standard errors of values
doc_scores       the scores of one doc
summary          the summary of a task or group
"""

from __future__ import annotations

from pytest_llmeval._scoring.aggregations import AGGREGATIONS
from pytest_llmeval._scoring.choice import count_bytes
from pytest_llmeval._scoring.choice import count_words
from pytest_llmeval._scoring.choice import probabilities
from pytest_llmeval._scoring.distances import DISTANCES
from pytest_llmeval._scoring.doc_scores import choice_values
from pytest_llmeval._scoring.doc_scores import pick_of
from pytest_llmeval._scoring.doc_scores import score_doc
from pytest_llmeval._scoring.filters import FILTER_NAMES
from pytest_llmeval._scoring.filters import filter_step
from pytest_llmeval._scoring.filters import responses_left
from pytest_llmeval._scoring.filters import responses_used
from pytest_llmeval._scoring.items import ITEM_KINDS
from pytest_llmeval._scoring.items import misfit
from pytest_llmeval._scoring.metric import METRICS
from pytest_llmeval._scoring.metric import metric_of
from pytest_llmeval._scoring.metric import resolve
from pytest_llmeval._scoring.metric import resolve_metrics
from pytest_llmeval._scoring.metric import stderr
from pytest_llmeval._scoring.metric import with_asked
from pytest_llmeval._scoring.passk import CodeRunner
from pytest_llmeval._scoring.passk import PassAtK
from pytest_llmeval._scoring.passk import pass_at_k
from pytest_llmeval._scoring.standard_errors import bootstrap_stderr
from pytest_llmeval._scoring.standard_errors import pooled_stderr
from pytest_llmeval._scoring.standard_errors import unweighted_stderr
from pytest_llmeval._scoring.summary import summarize_group
from pytest_llmeval._scoring.summary import summarize_task
from pytest_llmeval._scoring.text import number_in


__all__ = [
    "AGGREGATIONS",
    "DISTANCES",
    "FILTER_NAMES",
    "ITEM_KINDS",
    "METRICS",
    "CodeRunner",
    "PassAtK",
    "bootstrap_stderr",
    "choice_values",
    "count_bytes",
    "count_words",
    "filter_step",
    "metric_of",
    "misfit",
    "number_in",
    "pass_at_k",
    "pick_of",
    "pooled_stderr",
    "probabilities",
    "resolve",
    "resolve_metrics",
    "responses_left",
    "responses_used",
    "score_doc",
    "stderr",
    "summarize_group",
    "summarize_task",
    "unweighted_stderr",
    "with_asked",
]
