"""From items to numbers and standard errors. Cases B07 b and c, B11 e to g, B33 h."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._scoring import bootstrap_stderr
from pytest_llmeval._scoring import count_bytes
from pytest_llmeval._scoring import count_words
from pytest_llmeval._scoring import pooled_stderr
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import stderr
from pytest_llmeval._scoring import unweighted_stderr
from pytest_llmeval._task import MetricSpec


NAN, INF = math.nan, math.inf


def total(name: str, items: Sequence[Any]) -> float:
    return AGGREGATIONS[name].function(items)


@pytest.mark.parametrize(
    ("name", "items", "value"),
    [
        ("mean", [1, 0, 1, 1], 0.75),
        ("mean", [0.5], 0.5),
        ("mean", [1.0, NAN], NAN),
        ("median", [0, 1], 0.5),
        ("median", [3, 1, 2], 2.0),
        ("median", [1.0, NAN, 2.0], NAN),
        ("nanmean", [1.0, NAN, 0.0], 0.5),
        ("nanmean", [NAN, NAN], NAN),
        ("perplexity", [-1, -3], math.exp(2)),
        ("perplexity", [-1, NAN], NAN),
        ("perplexity", [-1, -INF], INF),
        ("perplexity", [-800], INF),
        ("weighted_perplexity", [(-4, 2), (-6, 4)], 5.294490),
        ("weighted_perplexity", [(-4, 3), (-6, 7)], 2.718282),
        ("weighted_perplexity", [(-3, 3)], 2.718282),
        ("weighted_perplexity", [(-9000, 1)], INF),
        ("weighted_perplexity", [(0.0, 0)], NAN),
        ("bits_per_byte", [(-4, 3), (-6, 7)], 1.442695),
        ("f1", [(1, 1), (0, 1), (1, 0), (0, 0), (1, 1)], 2 / 3),
        ("f1", [(0, 0), (0, 0)], 0.0),
        ("f1", [(1, -1), (0, -1), (1, 1)], 2 / 3),
        ("matthews_corrcoef", [(1, 1), (0, 1), (1, 0), (0, 0), (1, 1)], 1 / 6),
        ("matthews_corrcoef", [("a", "a"), ("b", "b"), ("c", "c")], 1.0),
        ("matthews_corrcoef", [(1, 1), (0, 1)], 0.0),
        ("brier_score", [(0, [1.0, 0.0]), (1, [0.5, 0.5])], 0.25),
        ("brier_score", [(2, [0.0, 1.0, 0.0]), (0, [1.0, 0.0])], 1.0),
        ("brier_score", [(0, [NAN, NAN])], NAN),
        ("likelihood", [(0, [math.log(0.5), -9.0]), (1, [-9.0, -INF])], 0.25),
        ("bypass", [None], 999.0),
    ],
)
def test_values(name: str, items: list[Any], value: float) -> None:
    assert total(name, items) == pytest.approx(value, abs=1e-6, nan_ok=True)


def test_f1_of_more_than_two_labels_is_not_defined() -> None:
    with pytest.raises(ValueError, match="labels 0 and 1, but the data also has 2, x"):
        total("f1", [(0, 2), ("x", 1)])


QUESTIONS = [
    (True, {"idx": {"paragraph": 0, "question": 0}, "label": 1}),
    (True, {"idx": {"paragraph": 0, "question": 0}, "label": 0}),
    (False, {"idx": {"paragraph": 0, "question": 1}, "label": 0}),
    (True, {"idx": {"paragraph": 1, "question": 2}, "label": 1}),
]


def test_acc_all_asks_for_all_answers_of_a_question() -> None:
    assert total("acc_all", QUESTIONS) == pytest.approx(2 / 3)
    found = AGGREGATIONS["acc_all"].stderr
    assert found is not None
    assert found(QUESTIONS, 1000) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "words", "bytes_"),
    [("a b", 2, 3), ("c d e f", 4, 7), ("a b\n", 3, 4), ("", 1, 0), ("ж\u3000é", 2, 7), (" a ", 3, 3)],
)
def test_counts(text: str, words: int, bytes_: int) -> None:
    assert count_words(text) == words
    assert count_bytes(text) == bytes_


@pytest.mark.parametrize(
    ("answers", "items"),
    [
        ([(-1.5, True)], {"perplexity": -1.5, "acc": 1}),
        ([(-INF, False)], {"perplexity": -INF, "acc": 0}),
        ([(-3.0, True), (-1.0, False)], {"perplexity": -1.0, "acc": 1}),
        ([(NAN, True)], {"perplexity": NAN, "acc": 0}),
        ([(-1.0, True), (NAN, False)], {"perplexity": NAN, "acc": 0}),
    ],
)
def test_target_scores(answers: list[tuple[float, bool]], items: dict[str, Any]) -> None:
    found = {}
    for name in ("perplexity", "acc"):
        item = resolve(MetricSpec(name), "loglikelihood").item
        assert item is not None
        found[name] = item(answers)
    assert found == pytest.approx(items, nan_ok=True)


def error(name: str, items: Sequence[Any], draws: int = 1000, output_type: Any = "generate_until") -> float | None:
    options: Mapping[str, Any] = {}
    spec = MetricSpec("own", function=lambda items: items, aggregation=name, options=options)
    return stderr(resolve(spec, output_type), items, bootstrap_iters=draws)


def test_stderr_of_a_mean() -> None:
    assert error("mean", [1, 1, 1, 0]) == pytest.approx(0.25)
    assert error("mean", [1] * 4 + [0] * 12) == pytest.approx(0.111803, abs=1e-6)


@pytest.mark.parametrize("items", [[], [1.0]])
@pytest.mark.parametrize("name", ["mean", "median", "perplexity", "nanmean"])
def test_one_doc_has_no_error_bar(name: str, items: list[float]) -> None:
    assert error(name, items) is None


@pytest.mark.parametrize("items", [[1.0, NAN, 0.0], [-1.0, -INF, -2.0]])
@pytest.mark.parametrize("name", ["mean", "median", "perplexity"])
def test_what_is_not_finite_has_no_error_bar(name: str, items: list[float]) -> None:
    assert error(name, items) is None


def test_no_draws_mean_no_error_bars() -> None:
    assert error("mean", [1, 0], draws=0) is None
    assert error("perplexity", [-1.0, -2.0], draws=0) is None


def test_formulas_are_only_for_those_that_have_one() -> None:
    assert error("weighted_perplexity", [(-1.0, 2), (-2.0, 3)]) is None
    assert error("bits_per_byte", [(-1.0, 2), (-2.0, 3)]) is None
    assert error("brier_score", [(0, [1.0, 0.0]), (1, [0.2, 0.8])]) is None
    assert error("likelihood", [(0, [0.0]), (0, [math.log(0.5)])]) == pytest.approx(0.25)


def test_the_bootstrap_comes_close_to_the_formula_of_the_mean() -> None:
    items = [float(i % 3 == 0) for i in range(300)]
    drawn = bootstrap_stderr(lambda values: lambda rows: float(np.asarray(values)[rows].mean()), items, 1000)
    assert drawn == pytest.approx(error("mean", items), rel=0.05)


def test_the_error_bar_of_a_nanmean_leaves_nan_out() -> None:
    hits = [float(i % 2) for i in range(30)]
    with_nan = error("nanmean", [*hits, *[NAN] * 10])
    assert with_nan == pytest.approx(error("mean", hits), rel=0.25)
    assert error("nanmean", [1.0, NAN]) is None


def test_draws_do_not_depend_on_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [-0.1 * i for i in range(37)]
    whole = error("perplexity", items, draws=2000)
    monkeypatch.setattr("pytest_llmeval._scoring.standard_errors.BLOCK", 100)
    assert error("perplexity", items, draws=2000) == whole


def test_translations_are_drawn_at_most_100_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        "pytest_llmeval._scoring.standard_errors._draws", lambda docs, draws: seen.append(draws) or iter(())
    )
    assert error("bleu", [("a b c", "a b"), ("d", "e")]) is None
    assert error("perplexity", [-1.0, -2.0]) is None
    assert seen == [100, 1000]


def test_group_errors() -> None:
    assert pooled_stderr([0.25, 0.111803], [4, 16]) == pytest.approx(0.102062, abs=1e-6)
    assert unweighted_stderr([0.25, 0.111803]) == pytest.approx(0.136931, abs=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1))
def test_means_and_medians_lie_between_the_extremes(items: list[float]) -> None:
    for name in ("mean", "median", "nanmean"):
        assert min(items) - 1e-9 <= total(name, items) <= max(items) + 1e-9


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1), st.randoms())
def test_order_of_docs_does_not_matter(items: list[tuple[int, int]], random: Any) -> None:
    shuffled = random.sample(items, len(items))
    for name in ("f1", "matthews_corrcoef"):
        assert total(name, shuffled) == pytest.approx(total(name, items))
        assert -1 <= total(name, items) <= 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-50, 0), st.integers(1, 40)), min_size=1))
def test_perplexities_of_a_corpus_are_at_least_one_and_agree(items: list[tuple[float, int]]) -> None:
    assert total("weighted_perplexity", items) >= 1
    assert 2 ** total("bits_per_byte", items) == pytest.approx(total("weighted_perplexity", items))
