"""Judging: on which side of a bound a number is, what never passes, and the sentence that says why."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import holds
from pytest_llmeval._verdicts import judge


def gate(entry: Any) -> Gate:
    return parse_gate(entry, path=Path("t.yaml"), line=1)


def value(number: float, *, metric: str = "acc", filter: str = "none", n: int = 135, **more: Any) -> MetricValue:
    return MetricValue(metric, filter, number, more.get("stderr", 0.0431), more.get("higher", True), n)


def summary(*values: MetricValue, n: int = 135, n_total: int = 135, **more: Any) -> Summary:
    return Summary("mmlu_anatomy", "anatomy", 1.0, 5, n, n_total, values, **more)


@pytest.mark.parametrize(
    ("operator", "bound", "number", "held"),
    [
        (">=", 0.35, 0.35, True),
        (">=", 0.35, 0.3499, False),
        (">", 0.35, 0.35, False),
        (">", 0.35, 0.3501, True),
        ("<=", 20, 20.0, True),
        ("<=", 20, 20.001, False),
        ("<", 20, 20.0, False),
        ("<", 20, 19.999, True),
        # Rounding decides nothing: 0.52 - 0.05 is 0.47000000000000003, 7 of 20 hits may sum to 0.35000000000000003.
        (">=", 0.52 - 0.05, 0.47, True),
        (">", 0.47, 0.52 - 0.05, False),
        ("<=", 0.35, 0.35000000000000003, True),
        (">=", 0.0, -1e-15, True),
        # One doc of a million does.
        (">=", 0.5, 499_999 / 1_000_000, False),
        (">=", -1e300, -math.inf, False),
        ("<=", 1e300, math.inf, False),
    ],
)
def test_bounds(operator: Any, bound: float, number: float, held: bool) -> None:
    assert holds(Bound(operator, bound), number) is held


@pytest.mark.parametrize("operator", [">=", ">", "<=", "<"])
def test_nan_meets_no_bound(operator: Any) -> None:
    assert holds(Bound(operator, 0.5), math.nan) is False


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_exactly_one_side_is_met(number: float, bound: float) -> None:
    sides = [holds(Bound(operator, bound), number) for operator in (">=", "<")]  # type: ignore[arg-type]
    assert sum(sides) == 1
    assert holds(Bound(">=", bound), number) or not holds(Bound(">", bound), number)


def test_a_floor_that_is_reached() -> None:
    verdict = judge(gate("acc >= 0.35"), summary(value(0.4740740740740741)))
    assert verdict == Verdict(
        "passed",
        "mmlu_anatomy: acc 0.4741 +- 0.0431 over 135 docs, required >= 0.35",
        {"acc": 0.4740740740740741, "docs": 135, "docs_total": 135, "acc_stderr": 0.0431, "min": 0.35},
    )


@pytest.mark.parametrize(
    ("entry", "outcome", "required"),
    [
        ("acc >= 0.35", "passed", ">= 0.35"),
        ("acc > 0.4", "failed", "> 0.4"),
        ("acc <= 0.4", "passed", "<= 0.4"),
        ("acc < 0", "failed", "< 0"),
        ({"metric": "acc", "min": 0.3, "max": 0.5}, "passed", ">= 0.3 and <= 0.5"),
        ({"metric": "acc", "min": 0.3, "max": 0.39}, "failed", ">= 0.3 and <= 0.39"),
        ({"metric": "acc", "min": 0.41, "max": 0.5}, "failed", ">= 0.41 and <= 0.5"),
        ("acc >= 1e-07", "passed", ">= 1e-07"),
    ],
)
def test_floors_ceilings_and_ranges(entry: Any, outcome: str, required: str) -> None:
    verdict = judge(gate(entry), summary(value(0.4, stderr=None)))
    assert verdict.outcome == outcome
    assert verdict.sentence == f"mmlu_anatomy: acc 0.4000 over 135 docs, required {required}"
    assert "acc_stderr" not in verdict.numbers


def test_the_direction_is_that_of_the_bound_not_of_the_metric() -> None:
    perplexity = summary(value(12.0, metric="perplexity", higher=False, stderr=0.5))
    assert judge(gate("perplexity <= 10.5"), perplexity).outcome == "failed"
    assert judge(gate("perplexity <= 12"), perplexity).sentence.endswith(
        "perplexity 12.0000 +- 0.5000 over 135 docs, required <= 12"
    )
    assert judge(gate("perplexity <= 12.5"), perplexity).outcome == "passed"


@pytest.mark.parametrize(
    ("number", "entry", "shown"),
    [
        # Four decimals would show the value on the bound, or beyond it.
        (0.34996, "acc >= 0.35", "0.34996"),
        (0.349999996, "acc >= 0.35", "0.349999996"),
        (0.35, "acc >= 0.35", "0.3500"),
        (0.35000000000000003, "acc > 0.35", "0.3500"),
        (0.12344, "acc >= 0.123435", "0.12344"),
        (0.5, "acc >= 0.35", "0.5000"),
    ],
)
def test_the_value_is_shown_on_the_side_of_the_bound_that_it_is_on(number: float, entry: str, shown: str) -> None:
    assert f": acc {shown} +- " in judge(gate(entry), summary(value(number))).sentence


def test_filters_are_named_where_they_matter() -> None:
    both = summary(value(0.1, metric="em", filter="strict"), value(0.2, metric="em", filter="loose"))
    assert judge(gate("em,loose >= 0.15"), both).sentence.startswith("mmlu_anatomy: em,loose 0.2000 ")
    assert judge(gate("em,strict >= 0.15"), both).outcome == "failed"
    assert judge(gate("em >= 0.15"), both) == Verdict(
        "failed",
        "mmlu_anatomy: em has several filters and the gate names none (there are: em,strict, em,loose)",
    )


def test_a_part_of_the_docs_is_judged_and_said() -> None:
    limited = summary(value(0.4, n=100), n=100, n_total=1221)
    verdict = judge(gate("acc >= 0.35"), limited)
    assert verdict.outcome == "passed"
    assert verdict.sentence == "mmlu_anatomy: acc 0.4000 +- 0.0431 on 100 of 1,221 docs, required >= 0.35"
    assert (verdict.numbers["docs"], verdict.numbers["docs_total"]) == (100, 1221)


def test_docs_without_a_score_are_said() -> None:
    verdict = judge(gate("em >= 0.35"), summary(value(0.4, metric="em", n=100), n=135))
    assert verdict.outcome == "passed"
    assert verdict.sentence == (
        "mmlu_anatomy: em 0.4000 +- 0.0431 on 100 of 135 docs (35 docs without a score), required >= 0.35"
    )


def test_one_doc_and_many_tasks() -> None:
    one = summary(value(1.0, n=1, stderr=None), n=1, n_total=1)
    assert " over 1 doc, " in judge(gate("acc >= 0.35"), one).sentence
    group = Summary("mmlu", "mmlu", 2, 5, 14042, 14042, (value(0.4, n=14042),), tasks=("a", "b", "c"))
    assert " over 14,042 docs in 3 tasks, " in judge(gate("acc >= 0.35"), group).sentence


NOTHING_PASSES = {
    "no docs": ("no docs were evaluated", summary(n=0, n_total=0)),
    "no docs but a value": ("no docs were evaluated", summary(value(1.0, n=0), n=0)),
    "another metric": ("there is no metric acc (there are: f1,none)", summary(value(1.0, metric="f1"))),
    "no metric": ("there is no metric acc (there are: none)", summary()),
    "a NaN value": ("acc is NaN, not a finite number", summary(value(math.nan))),
    "an infinite value": ("acc is inf, not a finite number", summary(value(math.inf))),
    "a value below all": ("acc is -inf, not a finite number", summary(value(-math.inf))),
    "a value of which is known why": (
        "acc is NaN: doc[3] has NaN",
        summary(replace(value(math.nan), why="is NaN: doc[3] has NaN")),
    ),
    "a metric of no doc": ("no doc has a score for acc", summary(value(1.0, n=0))),
    "NaN from the model": (
        "3 docs got no usable number from the model (NaN)",
        summary(value(1.0), nonfinite=3, nonfinite_values=("NaN",)),
    ),
    "impossible choices and NaN from the model": (
        "3 docs got no usable number from the model (-inf for every choice, NaN)",
        summary(value(1.0), nonfinite=3, nonfinite_values=("-inf for every choice", "NaN")),
    ),
    "all docs in error": ("3 docs could not be evaluated", summary(n=0, errors=3)),
    "a doc in error": ("1 doc could not be evaluated", summary(value(1.0), errors=1)),
    "a doc in error of which is known why": (
        "1 doc could not be evaluated: task t, doc 4: no gold",
        summary(value(1.0), errors=1, first_error="task t, doc 4: no gold"),
    ),
    "docs in error of which one is known why": (
        "2 docs could not be evaluated, the first: task t, doc 4: no gold",
        summary(value(1.0), errors=2, first_error="task t, doc 4: no gold"),
    ),
}


@pytest.mark.parametrize("entry", ["acc >= 0.35", "acc >= -100", "acc <= 1e308"])
@pytest.mark.parametrize(("reason", "numbers"), NOTHING_PASSES.values(), ids=NOTHING_PASSES)
def test_lack_of_data_never_passes(reason: str, numbers: Summary, entry: str) -> None:
    verdict = judge(gate(entry), numbers)
    assert verdict.outcome == "failed"
    assert verdict.sentence.startswith("mmlu_anatomy: ")
    assert verdict.sentence.endswith(reason)


@pytest.mark.parametrize("entry", ["acc >= 0.35", "acc <= 0.9"])
def test_missing_results_never_pass(entry: str) -> None:
    missing = "incomplete: mmlu_anatomy: 3 of 135 docs have a result"
    verdict = judge(gate(entry), summary(value(0.5, n=3), n=3), missing=missing)
    assert verdict.outcome == "failed"
    assert verdict.sentence.endswith(f"; {missing}")


def test_no_numbers_at_all() -> None:
    assert judge(gate("f1,x >= 0.35"), None) == Verdict("failed", "f1,x >= 0.35: no docs were evaluated")
    assert judge(gate("acc >= 0.35"), None, missing="the data set is gone").sentence == (
        "acc >= 0.35: the data set is gone"
    )


def test_numbers_are_in_the_sentence_even_if_they_do_not_count() -> None:
    verdict = judge(gate("acc >= 0.35"), summary(value(0.5), nonfinite=2, nonfinite_values=("NaN",)))
    assert verdict.sentence == (
        "mmlu_anatomy: acc 0.5000 +- 0.0431 over 135 docs, required >= 0.35; "
        "2 docs got no usable number from the model (NaN)"
    )


@given(
    st.floats(),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.one_of(st.none(), st.just("incomplete")),
    st.sampled_from(["acc >= 0.35", "acc <= 0.35", "acc > -1e9", {"metric": "acc", "min": 0, "max": 1}]),
)
def test_a_pass_needs_a_number_over_every_doc(
    number: float, docs: int, nonfinite: int, errors: int, missing: str | None, entry: Any
) -> None:
    numbers = summary(value(number, n=docs), n=docs, n_total=3, nonfinite=nonfinite, errors=errors)
    verdict = judge(gate(entry), numbers, missing=missing)
    sound = math.isfinite(number) and docs and not nonfinite and not errors and missing is None
    met = all(holds(bound, number) for bound in gate(entry).bounds)
    assert (verdict.outcome == "passed") == bool(sound and met)
    assert "\n" not in verdict.sentence
