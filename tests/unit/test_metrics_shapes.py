"""What a function of a task may give for a doc, by the aggregation that takes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._scoring import metric_of
from pytest_llmeval._scoring import misfit
from pytest_llmeval._scoring import resolve
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


NUMBER = "a number"
LENGTHS = "[log-likelihood, length], two numbers"
LABELS = "[right label, predicted label]"
TEXTS = "[reference or list of references, prediction], all texts"
CHOICES = "[index of the right choice, [a number for each choice]]"
LABELLED = "[prediction, doc with idx.paragraph, idx.question and label]"

DOC = {"idx": {"paragraph": 0, "question": 1}, "label": 1}

#: Aggregation -> what it needs, items that are so, items that are not.
CASES: dict[str, tuple[str, list[Any], list[Any]]] = {
    "mean": (NUMBER, [1, 0.5, True, math.nan, -math.inf], ["1", "", None, [1], [], {}]),
    "median": (NUMBER, [1], [[1, 2]]),
    "nanmean": (NUMBER, [math.nan], [None]),
    "perplexity": (NUMBER, [-2.5], [[-2.5, 3]]),
    "weighted_perplexity": (LENGTHS, [[-2.5, 3], (-2.5, 3)], [-2.5, [-2.5], [-2.5, 3, 4], [-2.5, "3"], ["", ""]]),
    "bits_per_byte": (LENGTHS, [[-2.5, 3]], [None]),
    "f1": (LABELS, [[1, 0], [1, -1]], [1, [1], [1, 0, 1], [[1], 0], "10"]),
    "matthews_corrcoef": (LABELS, [["yes", "no"], ["yes", None]], ["yes", [{}, "no"]]),
    "brier_score": (CHOICES, [[1, [0.25, 0.75]]], [0.5, [1, 0.75], [2, [0.25, 0.75]], ["1", [0.5, 0.5]], [0, ["a"]]]),
    "likelihood": (CHOICES, [[0, [-1.0, -math.inf]]], [[-1, [-1.0]], [0, []]]),
    "bleu": (TEXTS, [["a", "b"], [["a", "c"], "b"]], [0.5, ["a"], ["a", 1], ["a", ["b"]], [[], "b"], [None, "b"]]),
    "chrf": (TEXTS, [["", ""]], ["ab"]),
    "chrf++": (TEXTS, [["a", "b"]], [1]),
    "ter": (TEXTS, [["a", "b"]], [1]),
    "acc_all": (LABELLED, [[True, DOC]], [True, [True, {}], [True, {"idx": 3, "label": 1}], [True, [1]]]),
}


@pytest.mark.parametrize(("aggregation", "case"), CASES.items(), ids=CASES)
def test_what_an_aggregation_takes(aggregation: str, case: tuple[str, list[Any], list[Any]]) -> None:
    needed, fitting, others = case
    metric = resolve(MetricSpec("m", aggregation=aggregation), "generate_until", processed=True)
    assert [misfit(metric, item) for item in fitting] == [None] * len(fitting)
    assert [misfit(metric, item) for item in others] == [needed] * len(others)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS.keys() - {"bypass"}))
def test_what_fits_can_be_aggregated(aggregation: str) -> None:
    _, fitting, _ = CASES[aggregation]
    metric = resolve(MetricSpec("m", aggregation=aggregation), "generate_until", processed=True)
    assert all(isinstance(metric.aggregation([item]), float) for item in fitting)


@pytest.mark.parametrize("item", [None, "text", [1, 2, 3], {"a": 1}])
def test_what_takes_anything(item: Any) -> None:
    def own(items: Sequence[Any]) -> float:
        return 0.0

    for spec in (MetricSpec("m", aggregation=own), MetricSpec("bypass"), MetricSpec("m", aggregation="bypass")):
        assert misfit(resolve(spec, "generate_until", processed=True), item) is None


def test_a_number_that_no_list_names_is_averaged() -> None:
    unlisted = metric_of(Task("t", Path("t.yaml"), "generate_until", None, None, process_results=max), "f1")
    assert misfit(unlisted, 0.5) is None
    assert misfit(unlisted, [1, 0]) == NUMBER
    assert misfit(resolve(MetricSpec("f1"), "generate_until", processed=True), 0.5) == LABELS
