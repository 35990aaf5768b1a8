"""Numbers of tasks and groups. Cases B07 b, B11, B30, B32 c and g, B33 g and h."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import Task


def task(output_type: str = "multiple_choice", *metrics: str | MetricSpec, name: str = "t", **fields: Any) -> Task:
    specs = tuple(MetricSpec(one) if isinstance(one, str) else one for one in metrics)
    resolved = resolve_metrics(specs, output_type, processed="process_results" in fields)
    return Task(name, Path(f"{name}.yaml"), output_type, None, None, metrics=resolved, **fields)


def results(**columns: Sequence[Any]) -> list[DocResult]:
    """Docs with one filter "none"; a None in a column leaves that metric out of the doc."""
    rows = zip(*columns.values(), strict=True)
    kept = ({name: item for name, item in zip(columns, row, strict=True) if item is not None} for row in rows)
    return [DocResult(index, {"none": scores}) for index, scores in enumerate(kept)]


def summarize(task: Task, docs: Sequence[DocResult], bootstrap_iters: int = 1000) -> Summary:
    return summarize_task(task, docs, n_total=100, num_fewshot=5, bootstrap_iters=bootstrap_iters)


def only(summary: Summary) -> MetricValue:
    (value,) = summary.values
    return value


def of_hits(name: str, hits: Sequence[int], metric: str = "acc") -> tuple[Task, Summary]:
    own = task("multiple_choice", metric, name=name)
    return own, summarize(own, results(**{metric: hits}))


T1 = of_hits("t1", [1, 1, 1, 0])
T2 = of_hits("t2", [1] * 4 + [0] * 12)


def test_a_task() -> None:
    own = task("multiple_choice", "acc", "acc_norm", version=1.0, alias="T")
    docs = results(acc=[1.0, 0.0, 1.0, 1.0, 0.0], acc_norm=[1.0, 1.0, 1.0, 1.0, 1.0])
    summary = summarize(own, docs)
    acc = MetricValue("acc", "none", 0.6, pytest.approx(math.sqrt(0.6 * 0.4 / 4)), True, 5)
    assert summary == Summary(
        name="t",
        display_name="T",
        version=1.0,
        num_fewshot=5,
        n=5,
        n_total=100,
        values=(acc, MetricValue("acc_norm", "none", 1.0, 0.0, True, 5)),
    )


def test_perplexities_are_those_of_the_whole_corpus() -> None:
    docs = results(
        word_perplexity=[[-4, 2], [-6, 4]], byte_perplexity=[[-4, 3], [-6, 7]], bits_per_byte=[[-4, 3], [-6, 7]]
    )
    found = {value.metric: value for value in summarize(task("loglikelihood_rolling"), docs).values}
    assert found["word_perplexity"].value == pytest.approx(5.294490, abs=1e-6)
    assert found["byte_perplexity"].value == pytest.approx(2.718282, abs=1e-6)
    assert found["bits_per_byte"].value == pytest.approx(1.442695, abs=1e-6)
    assert {value.stderr for value in found.values()} == {None}
    assert {value.higher_is_better for value in found.values()} == {False}


def test_the_mean_of_pass_at_k_is_taken_over_docs() -> None:
    coding = task("generate_until", MetricSpec("pass_at_k", options={"k": 2}))
    value = only(summarize(coding, results(**{"pass@2": [0.5, 1.0]})))
    assert (value.metric, value.value, value.higher_is_better, value.stderr) == ("pass@2", 0.75, True, 0.25)


@pytest.mark.parametrize("bootstrap_iters", [0, 1, 1000])
@pytest.mark.parametrize("aggregation", ["mean", "median", "perplexity"])
def test_one_doc_has_no_error_bar(aggregation: str, bootstrap_iters: int) -> None:
    own = task("loglikelihood", MetricSpec("perplexity", aggregation=aggregation))
    assert only(summarize(own, results(perplexity=[-1.0]), bootstrap_iters)).stderr is None


def test_the_median_of_two_lies_between_them() -> None:
    own = task("multiple_choice", MetricSpec("acc", aggregation="median"))
    assert only(summarize(own, results(acc=[0.0, 1.0]))).value == 0.5


@pytest.mark.parametrize(
    ("lls", "value", "why"),
    [
        ([-1.0, math.nan], math.nan, "is NaN: doc[1] has NaN"),
        ([-1.0, -math.inf, -math.inf], math.inf, "is inf: doc[1] has -inf"),
        ([-800.0], math.inf, None),
        ([-1.0], math.e, None),
    ],
)
def test_what_is_not_finite_stays_so(lls: list[float], value: float, why: str | None) -> None:
    summary = summarize(task("loglikelihood", "perplexity"), results(perplexity=lls))
    found = only(summary)
    assert found.value == pytest.approx(value, nan_ok=True)
    assert (found.stderr, found.why) == (None, why)
    assert summary.notes == (() if why is None else (f"perplexity,none {why}",))


def test_what_the_model_gave_is_told_once() -> None:
    docs = [DocResult(0, {"none": {"perplexity": math.nan}}, nonfinite="NaN")]
    summary = summarize(task("loglikelihood", "perplexity"), docs)
    assert only(summary).why is None
    assert summary.notes == ("docs without a usable loglikelihood (NaN), none of them right: 1",)


def test_what_the_model_gave_is_told_by_its_name() -> None:
    given = ["NaN", "inf", "NaN", "", "-inf for every choice"]
    docs = [DocResult(doc, {"none": {"acc": 0.0}}, nonfinite=name) for doc, name in enumerate(given)]
    summary = summarize(task("multiple_choice", "acc"), docs)
    assert (summary.nonfinite, summary.nonfinite_values) == (4, ("NaN", "inf", "-inf for every choice"))
    assert summary.notes == (
        "docs without a usable loglikelihood (NaN), none of them right: 2",
        "docs without a usable loglikelihood (inf), none of them right: 1",
        "docs without a usable loglikelihood (-inf for every choice), none of them right: 1",
    )


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("no gold", "task t, doc 1: no gold"),
        ("task t, doc 1: no gold", "task t, doc 1: no gold"),
        ("t.py:3: doc_to_text: f raised E: two\n  lines", "task t, doc 1: t.py:3: doc_to_text: f raised E: two lines"),
        ("x" * 999, f"task t, doc 1: {'x' * 400}..."),
    ],
)
def test_the_first_error_is_kept_in_one_line(error: str, told: str) -> None:
    docs = [DocResult(0, {"none": {"acc": 1.0}}), DocResult(1, {}, error=error), DocResult(2, {}, error="another")]
    assert summarize(task("multiple_choice", "acc"), docs).first_error == told
    assert summarize(task("multiple_choice", "acc"), docs[:1]).first_error is None


def test_docs_with_an_error_are_counted_and_left_out() -> None:
    docs = [
        DocResult(0, {"none": {"acc": 1.0}}),
        DocResult(1, {}, error="no gold"),
        DocResult(2, {"none": {"acc": 0.0}}, nonfinite="NaN", truncated=4),
        DocResult(3, {"none": {"acc": 1.0}}, cut_off=2, tied=True),
    ]
    summary = summarize(task("multiple_choice", "acc"), docs)
    assert only(summary).value == pytest.approx(2 / 3)
    assert (summary.n, summary.errors, summary.nonfinite, summary.truncated, summary.cut_off) == (3, 1, 1, 4, 2)
    assert summary.notes == (
        "docs without a usable loglikelihood (NaN), none of them right: 1",
        "docs that could not be evaluated, left out of the values: 1",
        "requests whose context was cut on the left to fit the model: 4",
        "answers that ended at their length limit: 2",
        "docs with tied top choices, of which the first is counted: 1",
    )


def test_no_docs_have_no_values() -> None:
    summary = summarize(task("multiple_choice", "acc"), [DocResult(0, {}, error="no gold")])
    assert (summary.values, summary.n, summary.errors) == ((), 0, 1)


def test_filters_come_one_after_the_other() -> None:
    filters = tuple(Pipeline(name, (filter_step("take_first"),)) for name in ("strict", "flexible"))
    docs = [DocResult(0, {"flexible": {"exact_match": 1.0}, "strict": {"exact_match": 0.0, "bleu": ["a", "b"]}})]
    summary = summarize(task("generate_until", "exact_match", "bleu", filters=filters), docs)
    assert [value.key for value in summary.values] == ["exact_match,strict", "bleu,strict", "exact_match,flexible"]


def test_process_results_may_leave_a_metric_out_and_add_others() -> None:
    own = task("generate_until", MetricSpec("em", higher_is_better=True), process_results=len)
    summary = summarize(own, results(em=[1.0, None, 0.0], extra=[1, 2, 3], f1=[[1, 1], [0, 1], [0, 0]]))
    em, extra, f1 = summary.values
    assert (em.value, em.n, em.higher_is_better) == (0.5, 2, True)
    assert (extra.value, extra.n, extra.higher_is_better) == (2.0, 3, None)
    assert math.isnan(f1.value)
    assert summary.notes[0].startswith("f1,none cannot be computed: ")
    assert summary.notes[1:] == ("process_results gave no score for em (1 of 3 docs)",)


def test_what_process_results_leaves_out_is_told() -> None:
    listed = [MetricSpec(f"m{i}", aggregation="mean") for i in range(8)]
    own = task("generate_until", *listed, process_results=len)
    summary = summarize(own, results(m0=[1, 1], m1=[1, None]))
    assert summary.notes == (
        "process_results gave no score for m1 (1 of 2 docs), m2 (any doc), m3 (any doc), m4 (any doc), m5 (any doc) "
        "and 2 more",
    )
    assert summarize(own, []).notes == ()


def own_total(items: Sequence[float]) -> float:
    return sum(items)


def two(predictions: list[str], references: list[str]) -> dict[str, float]:
    return {}


def other(predictions: list[str], references: list[str]) -> dict[str, float]:
    return {}


def test_keys_of_a_returned_dict_follow_the_rules_of_their_metric() -> None:
    summing = MetricSpec("two", function=two, aggregation=own_total, higher_is_better=False)
    docs = results(left=[1.0, 2.0], right=[3.0, 4.0])
    summary = summarize(task("generate_until", "exact_match", summing), docs)
    assert [(value.value, value.higher_is_better) for value in summary.values] == [(3.0, False), (7.0, False)]
    same = MetricSpec("other", function=other, aggregation=own_total, higher_is_better=False)
    assert summarize(task("generate_until", summing, same), docs).values[0].value == 3.0


def test_keys_that_may_follow_two_rules_follow_none() -> None:
    summing = MetricSpec("two", function=two, aggregation=own_total)
    meaning = MetricSpec("other", function=other, aggregation="mean")
    summary = summarize(task("generate_until", summing, meaning), results(left=[1.0, 2.0]))
    assert math.isnan(only(summary).value)
    reason = "it may come from any of the metrics two, other, which are aggregated differently"
    assert summary.notes == (f"left,none cannot be computed: {reason}",)


def test_an_aggregation_that_fails_is_nan_with_a_note() -> None:
    def fails(items: Sequence[float]) -> float:
        return items[99]

    summary = summarize(task("multiple_choice", MetricSpec("acc", aggregation=fails)), results(acc=[1.0]))
    assert math.isnan(only(summary).value)
    assert "aggregation: fails raised IndexError" in summary.notes[0]
    assert summary.notes[0] == f"acc,none {only(summary).why}"


MAJORITY = Pipeline("maj", (filter_step("majority_vote"), filter_step("take_first")))


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({}, ()),
        (
            {"repeats": 3, "generation_kwargs": {"do_sample": True}},
            ("filter none scores 1 of 3 responses; the others are not used",),
        ),
        ({"repeats": 3, "generation_kwargs": {"do_sample": True}, "filters": (MAJORITY,)}, ()),
        (
            {"repeats": 3, "filters": (MAJORITY,)},
            ("the 3 repeats of a doc are equal: decoding is greedy; set do_sample: true",),
        ),
    ],
)
def test_repeats_in_vain_are_told(fields: dict[str, Any], notes: tuple[str, ...]) -> None:
    name = fields.get("filters", (Pipeline("none", ()),))[0].name
    docs = [DocResult(0, {name: {"exact_match": 1.0}})]
    assert summarize(task("generate_until", "exact_match", **fields), docs).notes == notes


def group(*metrics: GroupMetric, **fields: Any) -> Group:
    return Group("g", Path("g.yaml"), (), metrics=metrics, **fields)


def test_errors_of_the_tasks_of_the_case() -> None:
    assert only(T1[1]).stderr == pytest.approx(0.25)
    assert only(T2[1]).stderr == pytest.approx(0.111803, abs=1e-6)


def test_weighted_by_size() -> None:
    value = only(summarize_group(group(GroupMetric("acc")), [T1, T2]))
    assert (value.key, value.n, value.higher_is_better) == ("acc,none", 20, True)
    assert value.value == pytest.approx(0.35)
    assert value.stderr == pytest.approx(0.102062, abs=1e-6)


def test_not_weighted() -> None:
    value = only(summarize_group(group(GroupMetric("acc", weight_by_size=False)), [T1, T2]))
    assert value.value == pytest.approx(0.5)
    assert value.stderr == pytest.approx(0.136931, abs=1e-6)


def test_a_task_reached_twice_counts_once() -> None:
    shared, rest = of_hits("shared", [0] * 100), of_hits("other", [1] * 200)
    summary = summarize_group(group(GroupMetric("acc"), version=2, alias="G"), [shared, shared, rest])
    assert only(summary).value == pytest.approx(0.666667, abs=1e-6)
    assert only(summary).n == summary.n == 300
    assert summary.tasks == ("shared", "other")
    assert (summary.name, summary.display_name, summary.version, summary.n_total) == ("g", "G", 2, 200)


def test_a_metric_that_a_task_lacks_is_told_with_the_docs_it_rests_on() -> None:
    t3 = of_hits("t3", [1, 1], metric="acc_norm")
    summary = summarize_group(group(GroupMetric("acc")), [T1, T2, t3])
    assert only(summary).value == pytest.approx(0.35)
    assert (only(summary).n, summary.n) == (20, 22)
    assert summary.notes == ("metric acc,none is missing in t3; the value is that of 20 docs",)
    nothing = summarize_group(group(GroupMetric("f1")), [T1])
    assert nothing.values == ()
    assert nothing.notes == ("metric f1,none is missing in t1; it has no value",)


def test_members_are_averaged_as_leaves() -> None:
    value = only(summarize_group(group(GroupMetric("acc", weight_by_size=False)), [T1, T2, of_hits("t4", [0, 0])]))
    assert value.value == pytest.approx((0.75 + 0.25 + 0) / 3)


def summary_with(name: str, *values: MetricValue, **counts: Any) -> tuple[Task, Summary]:
    n = values[0].n if values else 0
    return task(name=name), Summary(name, name, None, counts.pop("num_fewshot", 0), n, n, values, **counts)


def test_every_filter_has_a_value_unless_some_are_named() -> None:
    one = summary_with(
        "a", MetricValue("em", "strict", 0.5, 0.1, True, 4), MetricValue("em", "flexible", 1.0, None, True, 4)
    )
    both = summarize_group(group(GroupMetric("em")), [one])
    assert [value.key for value in both.values] == ["em,flexible", "em,strict"]
    named = summarize_group(group(GroupMetric("em", filters=("strict",))), [one])
    assert [value.key for value in named.values] == ["em,strict"]


def test_what_the_members_do_not_agree_on_is_left_open() -> None:
    members = [
        summary_with(
            "a",
            MetricValue("m", "none", 0.5, None, True, 4),
            num_fewshot=5,
            nonfinite=1,
            nonfinite_values=("NaN",),
            errors=2,
            first_error="task a, doc 3: no gold",
        ),
        summary_with("b", MetricValue("m", "none", math.nan, 0.1, False, 4), num_fewshot=0, truncated=3, cut_off=4),
    ]
    summary = summarize_group(group(GroupMetric("m")), members)
    assert math.isnan(only(summary).value)
    assert (only(summary).stderr, only(summary).higher_is_better, summary.num_fewshot) == (None, None, None)
    assert (summary.nonfinite, summary.errors, summary.truncated, summary.cut_off) == (1, 2, 3, 4)
    assert (summary.nonfinite_values, summary.first_error) == (("NaN",), "task a, doc 3: no gold")
    assert only(summary).why == "is NaN: in b it is NaN"
    assert summary.notes == ("m,none is NaN: in b it is NaN",)


def test_a_group_says_which_doc_made_its_number_infinite() -> None:
    lls = {"fine": [-1.0, -2.0], "odd": [-1.0, -math.inf]}
    tasks = [task("loglikelihood", "perplexity", name=name) for name in lls]
    members = [(own, summarize(own, results(perplexity=lls[own.name]))) for own in tasks]
    summary = summarize_group(group(GroupMetric("perplexity")), members)
    assert only(summary).value == math.inf
    assert only(summary).why == "is inf: in odd it is inf: doc[1] has -inf"


def test_a_group_without_metrics_has_no_values() -> None:
    assert summarize_group(group(), [T1]).values == ()


def test_an_aggregation_of_the_group() -> None:
    def largest(scores: list[float], sizes: list[int], weight_by_size: bool) -> float:
        return max(scores) if sizes == [4, 16] and weight_by_size else -1.0

    value = only(summarize_group(group(GroupMetric("acc", aggregation=largest)), [T1, T2]))
    assert (value.value, value.stderr) == (0.75, None)


def test_an_aggregation_of_the_group_that_fails_is_nan_with_a_note() -> None:
    def fails(*args: Any) -> float:
        raise RuntimeError("no")

    summary = summarize_group(group(GroupMetric("acc", aggregation=fails)), [T1])
    assert math.isnan(only(summary).value)
    assert "aggregate_metric_list: fails raised RuntimeError: no" in summary.notes[0]


MEMBERS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 500)), min_size=1, max_size=6)


@settings(deadline=None)
@given(MEMBERS, st.booleans())
def test_a_group_lies_between_its_members(members: list[tuple[float, int]], weighted: bool) -> None:
    summaries = [
        summary_with(f"t{i}", MetricValue("acc", "none", value, None, True, n)) for i, (value, n) in enumerate(members)
    ]
    found = only(summarize_group(group(GroupMetric("acc", weight_by_size=weighted)), summaries)).value
    assert min(value for value, _ in members) - 1e-9 <= found <= max(value for value, _ in members) + 1e-9


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=5))
def test_a_weighted_group_is_the_mean_over_all_docs(hits: list[list[int]]) -> None:
    members = [of_hits(f"t{i}", column) for i, column in enumerate(hits)]
    found = only(summarize_group(group(GroupMetric("acc")), members)).value
    assert found == pytest.approx(sum(map(sum, hits)) / sum(map(len, hits)))
