"""What an entry of `metric_list` means, and what is refused."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import with_asked
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


@pytest.mark.parametrize(
    ("output_type", "names"),
    [
        ("loglikelihood", ["perplexity", "acc"]),
        ("loglikelihood_rolling", ["word_perplexity", "byte_perplexity", "bits_per_byte"]),
        ("multiple_choice", ["acc", "acc_norm"]),
        ("generate_until", ["exact_match"]),
    ],
)
def test_defaults(output_type: str, names: list[str]) -> None:
    metrics = resolve_metrics((), output_type)
    assert [(metric.name, metric.listed) for metric in metrics] == [(name, False) for name in names]


@pytest.mark.parametrize(
    ("name", "output_type", "kind", "higher_is_better"),
    [
        ("acc", "multiple_choice", "right", True),
        ("acc_mutual_info", "multiple_choice", "right", True),
        ("brier_score", "multiple_choice", "choices", False),
        ("mcc", "multiple_choice", "labels", True),
        ("norm_correct_prob", "multiple_choice", "share", True),
        ("perplexity", "loglikelihood", "number", False),
        ("bits_per_byte", "loglikelihood_rolling", "lengths", False),
        ("numeric_match", "generate_until", "right", True),
        ("ter", "generate_until", "texts", False),
    ],
)
def test_known_metrics(name: str, output_type: str, kind: str, higher_is_better: bool) -> None:
    metric = resolve(MetricSpec(name), output_type)
    assert (metric.name, metric.kind, metric.higher_is_better) == (name, kind, higher_is_better)
    assert resolve(MetricSpec(name, higher_is_better=not higher_is_better), output_type).higher_is_better is not (
        higher_is_better
    )


@pytest.mark.parametrize(
    ("spec", "output_type", "reason"),
    [
        (
            MetricSpec("accuracy"),
            "multiple_choice",
            "unknown metric 'accuracy'; for multiple_choice there are acc, acc_b",
        ),
        (
            MetricSpec("acc_norm"),
            "loglikelihood",
            "'acc_norm' is for multiple_choice; for loglikelihood there are acc,",
        ),
        (MetricSpec("acc_all"), "loglikelihood", "'acc_all' is for process_results; for loglikelihood"),
        (
            MetricSpec("acc"),
            "generate_until",
            "keeps the texts of each doc, but aggregation mean needs a number per doc",
        ),
        (MetricSpec("f1"), "generate_until", "keeps the texts of each doc, but aggregation f1 needs the right and the"),
        (MetricSpec("f1", aggregation="mean"), "multiple_choice", "aggregation mean needs a number per doc"),
        (MetricSpec("acc", aggregation="bleu"), "multiple_choice", "aggregation bleu needs the texts of each doc"),
        (
            MetricSpec("acc", aggregation="average"),
            "multiple_choice",
            "unknown aggregation 'average'; known: acc_all, ",
        ),
        (MetricSpec("exact_match", options={"ignorecase": True}), "generate_until", "unknown option 'ignorecase'; its"),
        (
            MetricSpec("exact_match", options={"ignore_case": "yes"}),
            "generate_until",
            "ignore_case must be true or false",
        ),
        (MetricSpec("exact_match", options={"regexes_to_ignore": ","}), "generate_until", "must be a list of texts"),
        (
            MetricSpec("exact_match", options={"regexes_to_ignore": ["("]}),
            "generate_until",
            r"'\(' is not a regex: missing",
        ),
        (
            MetricSpec("numeric_match", options={"rel_tol": -1}),
            "generate_until",
            "rel_tol must be at least 0 and below 1",
        ),
        (
            MetricSpec("bleu", options={"tokenize": "zh"}),
            "generate_until",
            "unknown option 'tokenize'; its options: none",
        ),
        (
            MetricSpec("own", function=len),
            "multiple_choice",
            "!function metric scores generated texts; a multiple_choice",
        ),
    ],
)
def test_what_is_refused(spec: MetricSpec, output_type: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        resolve(spec, output_type)


def test_options_mean_nothing_where_no_text_is_compared() -> None:
    resolve(MetricSpec("acc", options={"ignore_case": True, "weight_by_size": True}), "multiple_choice")


@pytest.mark.parametrize("aggregation", [None, "mean"])
def test_likelihood_is_a_mean_under_either_name(aggregation: str | None) -> None:
    metric = resolve(MetricSpec("likelihood", aggregation=aggregation), "multiple_choice")
    assert metric.aggregation([[0, [0.0, -1.0]]]) == 1.0


def last(items: Sequence[Any]) -> Any:
    return items[-1]


def test_an_aggregation_of_the_task() -> None:
    metric = resolve(MetricSpec("f1", aggregation=last, options={"average": "macro"}), "multiple_choice")
    assert metric.aggregation([1, "2.5"]) == 2.5
    assert metric.aggregation.stderr is None
    with pytest.raises(ValueError, match=r"aggregation last must return a number, got \[1\]"):
        metric.aggregation([[1]])
    with pytest.raises(TaskFileError, match=r"test_metrics_resolve\.py:\d+: aggregation: last raised IndexError"):
        metric.aggregation([])


def test_a_number_of_process_results_needs_no_known_name() -> None:
    metric = resolve(MetricSpec("em", higher_is_better=True), "multiple_choice", processed=True)
    assert (metric.kind, metric.aggregation([1.0, 0.0]), metric.higher_is_better) == ("any", 0.5, True)
    assert resolve(MetricSpec("acc_all"), "loglikelihood", processed=True).aggregation is not metric.aggregation


def test_a_loglikelihood_metric_scores_no_text() -> None:
    assert resolve(MetricSpec("acc"), "multiple_choice").score is None


def test_sacrebleu_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return found(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"metric ter needs sacrebleu: pip install 'pytest-llmeval-harness\[transl"):
        resolve(MetricSpec("ter"), "generate_until")


def test_names() -> None:
    assert {"acc", "exact_match", "pass@k", "pass_at_k", "numeric_match", "chrf++"} <= METRICS.keys()
    assert {"mean", "matthews_corrcoef", "bypass", "nanmean"} <= AGGREGATIONS.keys()


@pytest.mark.parametrize(
    ("own", "names"), [({}, ["acc", "norm_correct_prob"]), ({"process_results": max}, ["acc"])], ids=["lls", "own"]
)
def test_a_metric_is_added_where_no_function_scores(own: dict[str, Any], names: list[str]) -> None:
    metrics = resolve_metrics([MetricSpec("acc")], "multiple_choice", processed=bool(own))
    task = Task("t", Path("t.yaml"), "multiple_choice", None, None, metrics=metrics, **own)
    assert [metric.name for metric in with_asked(task, ["norm_correct_prob", "acc", "acc_norm"]).metrics] == names
