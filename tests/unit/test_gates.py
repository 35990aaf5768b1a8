"""Gate expressions: what they mean, and what each wrong one says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._errors import SettingError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._gates import Bound
from pytest_llmeval._gates import Change
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import check_gate
from pytest_llmeval._gates import gate_ids
from pytest_llmeval._gates import gates_for
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._task import Field
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._task import Task


PATH = Path("bench/t.yaml")


def parse(entry: Any) -> Gate:
    return parse_gate(entry, path=PATH, line=7)


def essence(gate: Gate) -> tuple[object, ...]:
    return gate.metric, gate.filter, gate.name, *((bound.operator, bound.value) for bound in gate.bounds)


def task(
    output_type: str = "multiple_choice",
    *,
    name: str = "t",
    filters: tuple[str, ...] = ("none",),
    metrics: tuple[MetricSpec, ...] = (),
    **more: Any,
) -> Task:
    text = Field("doc_to_text", text="{{q}}")
    pipelines = tuple(Pipeline(one, ()) for one in filters)
    resolved = resolve_metrics(metrics, output_type, processed="process_results" in more)
    return Task(name, PATH, output_type, text, text, filters=pipelines, metrics=resolved, **more)


def score(*arguments: object) -> float:
    return 1.0


def scored(*ends: float, name: str = "t", metric: str = "points") -> Task:
    """A task whose function gives points, of which it tells the range if there is one."""
    own = (MetricSpec(metric, aggregation="mean", higher_is_better=True),)
    found = task("generate_until", name=name, metrics=own, process_results=score)
    return replace(found, metrics=(replace(found.metrics[0], declared_range=ScoreRange(*ends) if ends else None),))


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("acc >= 0.35", ("acc", None, None, (">=", 0.35))),
        ("acc_norm>0.3", ("acc_norm", None, None, (">", 0.3))),
        ("  perplexity   <=  20 ", ("perplexity", None, None, ("<=", 20.0))),
        ("ter < -1.5e2", ("ter", None, None, ("<", -150.0))),
        ("exact_match,strict-match >= .1", ("exact_match", "strict-match", None, (">=", 0.1))),
        ("exact_match, get the answer >= 1", ("exact_match", "get the answer", None, (">=", 1.0))),
        ("pass@1 >= 0.2", ("pass@1", None, None, (">=", 0.2))),
        ("chrf++ >= 30", ("chrf++", None, None, (">=", 30.0))),
        ("acc >= 0.35 as never below", ("acc", None, "never below", (">=", 0.35))),
        ({"metric": "acc", "min": 0.35}, ("acc", None, None, (">=", 0.35))),
        ({"metric": "acc", "max": 1}, ("acc", None, None, ("<=", 1.0))),
        (
            {"metric": "f1", "filter": "x", "min": 0, "max": 1, "name": "n"},
            ("f1", "x", "n", (">=", 0.0), ("<=", 1.0)),
        ),
        ({"metric": "f1,x", "min": 0.5}, ("f1", "x", None, (">=", 0.5))),
        ({"metric": "f1,x", "filter": "x", "min": 0.5}, ("f1", "x", None, (">=", 0.5))),
        # PyYAML reads 1e-3 as a text.
        ({"metric": "acc", "min": "1e-3"}, ("acc", None, None, (">=", 0.001))),
    ],
)
def test_entries(entry: str | Mapping[str, Any], meant: tuple[object, ...]) -> None:
    assert essence(parse(entry)) == meant


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("acc", "is not a comparison; expected METRIC >= NUMBER"),
        ("", "is not a comparison"),
        (">= 0.3", "is not a comparison"),
        ("acc >=", "is not a comparison"),
        ("acc == 1", "'==' is not an operator of gates; use one of >=, >, <=, <"),
        ("acc => 1", "'=>' is not an operator of gates"),
        ("acc = 1", "'=' is not an operator"),
        ("acc != 1", "'!=' is not an operator"),
        (", >= 1", "expected METRIC or METRIC,FILTER"),
        ("acc, >= 1", "expected METRIC or METRIC,FILTER"),
        ("acc >= nan", "expected a finite number, got 'nan'"),
        ("acc >= inf", "expected a finite number, got 'inf'"),
        ("acc <= -Infinity", "expected a finite number"),
        ("acc >= 1e999", "got '1e999': no value can be compared with it"),
        ("acc >= 1_0", "expected a finite number, got '1_0'"),
        ("acc >= ０.３", "expected a finite number"),
        ("acc >= 35%", "got '35%'; did you mean 0.35?"),
        ("acc >= 0,35", "got '0,35'; did you mean 0.35?"),
        ("acc >= high", "got 'high'"),
        ("acc >= 0.3 dataset", "dataset needs a confidence: add one, e.g. @ 0.95 dataset"),
        ("acc >= 0.3 as", "as needs a name: write one after it, or omit it"),
        ("acc > 0.3 < 0.5", "has several comparisons: write one gate for each"),
        ("0.3 <= acc <= 0.5", "has several comparisons: write one gate for each"),
        ("acc >= 0.3 as x]", "name: expected a text without brackets, got 'x]'"),
        (
            "acc >= 0.3 as t as u",
            "name: expected one name, as the last thing ('acc >= 0.35 @ 0.95 as NAME'), got 't as u'",
        ),
        # The gate would have no confidence, one bound, and be on all docs.
        ("acc >= 0.3 as sure @ 0.95", "as the last thing ('acc >= 0.35 @ 0.95 as NAME'), got 'sure @ 0.95'"),
        ("acc >= 0.3 as low <= 0.9", "got 'low <= 0.9'"),
        ("acc stays right as two on 3, 17", "got 'two on 3, 17'"),
        ("acc stays right on 3 as a as b", "got 'a as b'"),
        ("acc >= baseline - -0.02", "expected a number of 0 or more, got '-0.02': the sign is already given"),
        ("acc >= baseline - nan", "expected a finite number, got 'nan'"),
        ("acc >= baseline * 0.9", "expected a finite number, got 'baseline * 0.9'"),
        ("acc >= baselin - 0.02", "expected a finite number, got 'baselin - 0.02'"),
        (
            "acc >= 0.3 @ 95",
            "confidence: expected a number from 0.5 to below 1, such as 0.95, got '95'; did you mean 0.95",
        ),
        ("acc >= 0.3 @ 0.4", "confidence: expected a number from 0.5 to below 1"),
        ("acc >= 0.3 @ 1", "confidence: expected a number from 0.5 to below 1"),
        ("acc >= 0.3 @ 0.9999999999", "is too close to 1: its error must be at least 1e-09"),
        ("acc >= 0.3 @ 0.95 world", "scope: expected population or dataset, got 'world'"),
        ("acc >= 0.3 @", "expected NUMBER or baseline - NUMBER, then perhaps @ CONFIDENCE"),
        ({"metric": "acc", "max_drop": -0.01}, "max_drop: expected a number of 0 or more, got -0.01"),
        ({"metric": "acc", "max_drop": "-5%"}, "max_drop: expected a number of 0 or more, got '-5%'"),
        ({"metric": "acc", "max_drop": float("nan")}, "expected a finite number, got nan"),
        ({"metric": "acc", "max_drop": 0.1, "max_rise": 0.1}, "max_drop and max_rise are two gates"),
        ({"metric": "acc", "max_drop": 0.1, "min": 0.1}, "has several conditions"),
        ({"metric": "acc", "min": 0.3, "confidence": "high"}, "expected a finite number, got 'high'"),
        ({"metric": "acc", "min": 0.3, "scope": "dataset"}, "scope needs a confidence"),
        ({"metric": "acc", "must_stay_right": [1, -2]}, "must_stay_right: expected all or a list of doc numbers"),
        ({"metric": "acc", "must_stay_right": []}, "must_stay_right: expected all or a list of doc numbers"),
        ({"metric": "acc", "must_stay_right": "all", "confidence": 0.9}, "takes no confidence"),
        ({"metric": "acc", "baseline": "main"}, "unknown key 'baseline'"),
        ({"acc": 0.5}, "unknown key 'acc'; expected {metric: acc, min: 0.35}"),
        ({True: 0.5}, "unknown key True"),
        ({"min": 0.3}, "needs the name of a metric"),
        ({"metric": 3, "min": 0.3}, "needs the name of a metric"),
        ({}, "needs the name of a metric"),
        ({"metric": "acc"}, "needs min or max"),
        ({"metric": "acc", "min": True}, "expected a finite number, got True"),
        ({"metric": "acc", "min": None}, "expected a finite number, got None"),
        ({"metric": "acc", "min": "x"}, "expected a finite number, got 'x'"),
        ({"metric": "acc", "min": [0.3]}, "expected a finite number, got [0.3]"),
        ({"metric": "acc", "min": float("nan")}, "expected a finite number, got nan"),
        ({"metric": "acc", "max": float("-inf")}, "expected a finite number, got -inf"),
        ({"metric": "acc", "min": 10**400}, "no value can be compared with it"),
        ({"metric": "acc", "min": 0.9, "max": 0.1}, "min is above max: no value can pass"),
        ({"metric": "acc", "filter": 3, "min": 0}, "filter: expected the name of one filter, got 3"),
        ({"metric": "acc,a", "filter": "b", "min": 0}, "filter: expected the name of one filter, got 'b'"),
        ({"metric": "acc", "min": 0, "name": ""}, "name: expected a text without brackets"),
        ({"metric": "acc", "min": 0, "name": "a\nb"}, "name: expected a text without brackets"),
        (0.35, "expected a text such as 'acc >= 0.35' or a mapping"),
        (None, "expected a text such as"),
        (["acc", 0.3], "expected a text such as"),
    ],
)
def test_wrong_entries_name_place_value_and_mend(entry: Any, message: str) -> None:
    with pytest.raises(TaskFileError) as caught:
        parse(entry)
    assert str(caught.value).startswith("bench/t.yaml:7: metadata.gates: ")
    assert message in str(caught.value)
    assert caught.value.line == 7


@pytest.mark.parametrize(
    ("entry", "change", "confidence", "scope"),
    [
        ("acc >= baseline", Change(">=", Fraction(0)), None, "population"),
        ("acc > baseline", Change(">", Fraction(0)), None, "population"),
        ("acc >= baseline - 0.02", Change(">=", Fraction(-1, 50)), None, "population"),
        ("acc>=baseline-.02@.9", Change(">=", Fraction(-1, 50)), 0.9, "population"),
        ("acc >= baseline + 0.01 @ 0.95", Change(">=", Fraction(1, 100)), 0.95, "population"),
        ("acc >= baseline - 5 % @ 0.95 dataset", Change(">=", Fraction(-1, 20), relative=True), 0.95, "dataset"),
        ("perplexity <= baseline + 1e-3", Change("<=", Fraction(1, 1000)), None, "population"),
        ({"metric": "acc", "max_drop": 0.01}, Change(">=", Fraction(-1, 100), word="max_drop"), None, "population"),
        (
            {"metric": "acc", "max_drop": "5%", "confidence": 0.95, "scope": "dataset"},
            Change(">=", Fraction(-1, 20), relative=True, word="max_drop"),
            0.95,
            "dataset",
        ),
        ({"metric": "ppl", "max_rise": 1}, Change("<=", Fraction(1), word="max_rise"), None, "population"),
        ({"metric": "acc", "min_gain": 0.1}, Change(">=", Fraction(1, 10), word="min_gain"), None, "population"),
    ],
)
def test_comparisons(entry: Any, change: Change, confidence: float | None, scope: str) -> None:
    gate = parse(entry)
    assert (gate.change, gate.confidence, gate.scope, gate.bounds) == (change, confidence, scope, ())
    assert gate.compares


@pytest.mark.parametrize(
    ("entry", "docs"),
    [
        ("acc stays right", "all"),
        ("acc stays right on all", "all"),
        ("acc stays right on 3, 17 as the two", (3, 17)),
        ({"metric": "acc", "must_stay_right": "all"}, "all"),
        ({"metric": "acc", "must_stay_right": [3, 17, 3]}, (3, 17)),
    ],
)
def test_docs_that_must_stay_right(entry: Any, docs: object) -> None:
    assert parse(entry).must_stay_right == docs
    assert parse("acc stays right on 3, 17 as the two").name == "the two"


@given(st.decimals(0, 1, allow_nan=False, places=6))
def test_a_tolerance_is_the_decimal_that_was_written(size: Decimal) -> None:
    assert parse(f"acc >= baseline - {size:f}").change == Change(">=", -Fraction(size))
    assert parse({"metric": "acc", "max_drop": float(size)}).change == Change(">=", -Fraction(size), word="max_drop")


def test_an_error_shows_a_mapping_as_it_stands_in_yaml() -> None:
    with pytest.raises(TaskFileError, match=r"'\{metric: acc, min: True\}': expected"):
        parse({"metric": "acc", "min": True})


def test_a_name_may_hold_what_only_looks_like_more() -> None:
    assert parse("acc >= 0.3 as basic on task 3").name == "basic on task 3"
    assert parse({"metric": "acc", "min": 0.3, "name": "good as gold"}).name == "good as gold"


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([">=", ">", "<=", "<"]))
def test_every_finite_number_is_read_back(number: float, operator: Any) -> None:
    assert parse(f"acc {operator} {number!r}").bounds == (Bound(operator, number),)


@given(st.text())
def test_any_text_is_a_gate_or_a_task_file_error(text: str) -> None:
    with contextlib.suppress(TaskFileError):
        gate = parse(text)
        assert bool(gate.bounds) is not gate.compares


@pytest.mark.parametrize(
    ("line", "selector", "meant"),
    [
        ("mmlu.acc >= 0.25", "mmlu", ("acc", None, None, (">=", 0.25))),
        ("  tag:stem.acc >= 0.3", "tag:stem", ("acc", None, None, (">=", 0.3))),
        ("my-task.v1.2.acc > 0", "my-task.v1.2", ("acc", None, None, (">", 0.0))),
        ("gsm8k.exact_match,v1.0 match >= 0.1", "gsm8k", ("exact_match", "v1.0 match", None, (">=", 0.1))),
        ("mmlu_*.acc_norm <= .9 as top", "mmlu_*", ("acc_norm", None, "top", ("<=", 0.9))),
        ("openllm::arc.acc >= 0.2", "openllm::arc", ("acc", None, None, (">=", 0.2))),
    ],
)
def test_rules(line: str, selector: str, meant: tuple[object, ...]) -> None:
    rule = parse_rule(line)
    assert (rule.selector, essence(rule.gate)) == (selector, meant)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("acc >= 0.3", "'acc >= 0.3': names no task; expected TASK.METRIC >= NUMBER"),
        (".acc >= 0.3", "names no task"),
        ("mmlu. >= 0.3", "names no task"),
        ("mmlu.acc", "is not a comparison"),
        ("mmlu.acc >= NaN", "expected a finite number"),
        ("mmlu_anatomy.acc >= baseline - -2", "the distance from the baseline: expected a number of 0 or more"),
        ("tag:stem.acc >= 0.3 @ 95%", "expected a finite number, got '95%'; did you mean 0.95?"),
    ],
)
def test_wrong_rules_name_the_setting(line: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_rule(line, origin="--llmeval-fail-on")
    assert str(caught.value).startswith("--llmeval-fail-on: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("anatomy", {"anatomy"}),
        ("mmlu", {"mmlu"}),
        ("*", {"anatomy", "sums", "mmlu"}),
        ("[as]*", {"anatomy", "sums"}),
        ("tag:stem", {"anatomy"}),
        ("tag:s*", {"anatomy", "sums"}),
        ("ANATOMY", set()),
        ("tag:mmlu", set()),
    ],
)
def test_what_a_rule_selects(selector: str, selected: set[str]) -> None:
    owners = [task(name="anatomy", tags=("stem",)), task(name="sums", tags=("small",)), Group("mmlu", PATH, ())]
    rule = parse_rule(f"{selector}.acc >= 0.3")
    assert {owner.name for owner in owners if rule.selects(owner)} == selected


def test_a_name_with_brackets_selects_itself() -> None:
    assert parse_rule("t[1].acc >= 0.3").selects(task(name="t[1]"))


@pytest.mark.parametrize(
    ("entry", "owner"),
    [
        ("acc >= 0.3", task()),
        ("acc_norm >= 0.3", task()),
        ("acc,none >= 0.3", task()),
        ("perplexity <= 20", task("loglikelihood")),
        ("word_perplexity <= 20", task("loglikelihood_rolling")),
        ("exact_match,strict >= 0.1", task("generate_until", filters=("strict", "loose"))),
        ("pass@1 >= 0.1", task("generate_until", metrics=(MetricSpec("pass@k", options={"k": [1, 10]}),))),
        # The task's own functions may give any name, and any range.
        ("em >= 40", task("generate_until", process_results=score)),
        ("own >= 40", task("generate_until", metrics=(MetricSpec("score", function=score),))),
        ("acc >= 40", task(metrics=(MetricSpec("acc", aggregation=score),))),
        ("mcc >= -0.5", task(metrics=(MetricSpec("mcc"),))),
        ("bleu >= 20", task("generate_until", metrics=(MetricSpec("bleu"),))),
        ("points >= 40", scored()),
        ("points >= 5", scored(0, 5)),
        ("points >= baseline - 4.9", scored(0, 5)),
        ("acc >= 1", task()),
        ("acc > 0", task()),
        # Twice as much may still be a proportion.
        ("acc >= baseline + 100%", task()),
        ("brier_score <= 2", task(metrics=(MetricSpec("brier_score"),))),
        ("norm_correct_prob >= baseline - 0.01 @ 0.95", task(metrics=(MetricSpec("norm_correct_prob"),))),
        ("perplexity >= 1", task("loglikelihood")),
        ("perplexity <= 0.5", task("loglikelihood", metrics=(MetricSpec("perplexity"),), process_results=score)),
    ],
)
def test_gates_that_can_be_meant(entry: str, owner: Task) -> None:
    check_gate(parse(entry), owner)


@pytest.mark.parametrize(
    ("entry", "owner", "message"),
    [
        (
            "exact_match >= 0.3",
            task(),
            "task 't' has no metric 'exact_match' (it has: acc, acc_norm)",
        ),
        ("acc_nrom >= 0.3", task(), "; did you mean 'acc_norm'?"),
        ("acc,strict >= 0.3", task(), "task 't' has no filter 'strict' (it has: none)"),
        (
            "exact_match >= 0.3",
            task("generate_until", filters=("strict", "loose")),
            "task 't' has the filters strict, loose; name the one meant, e.g. 'exact_match,strict'",
        ),
        ("pass@k >= 0.3", task("generate_until", metrics=(MetricSpec("pass@k"),)), "(it has: pass@1)"),
        ("acc >= 35", task(), "acc lies between 0 and 1, and the bound is 35; did you mean 0.35?"),
        ("acc_norm <= -0.1", task(), "acc_norm lies between 0 and 1, and the bound is -0.1"),
        ("acc >= 3500", task(), "the bound is 3500"),
        ("exact_match >= 10", task("generate_until"), "did you mean 0.1?"),
        ("f1 >= 50", task(metrics=(MetricSpec("f1"),)), "did you mean 0.5?"),
        ("acc > 1", task(), "acc lies between 0 and 1: it is never > 1; did you mean >= 1?"),
        ("acc < 0", task(), "acc lies between 0 and 1: it is never < 0; did you mean <= 0?"),
        ("f1 >= 1.5", scored(0, 1, metric="f1"), "f1 lies between 0 and 1, and the bound is 1.5"),
        ("points >= 6", scored(0, 5), "points lies between 0 and 5, and the bound is 6"),
        ("points <= -1", scored(-0.5, 5), "points lies between -0.5 and 5, and the bound is -1"),
        ("points >= baseline - 5", scored(0, 5), "points lies between 0 and 5: a difference of 5 decides nothing"),
        ("points >= baseline - 100%", scored(0, 5), "a difference of 100% decides nothing"),
        ("brier_score <= 3", task(metrics=(MetricSpec("brier_score"),)), "brier_score lies between 0 and 2"),
        ("norm_correct_prob >= 40", task(metrics=(MetricSpec("norm_correct_prob"),)), "did you mean 0.4?"),
        (
            "norm_correct_prob stays right",
            task(metrics=(MetricSpec("norm_correct_prob"),)),
            "does not show whether a doc is right or wrong",
        ),
        ("perplexity <= 0.5", task("loglikelihood"), "perplexity is 1 or more, and the bound is 0.5"),
        ("perplexity < 1", task("loglikelihood"), "perplexity is 1 or more: it is never < 1; did you mean <= 1?"),
        ("bits_per_byte <= -0.1", task("loglikelihood_rolling"), "bits_per_byte is 0 or more, and the bound is -0.1"),
        ({"metric": "acc", "min": 0.2, "max": 90}, task(), "did you mean 0.9?"),
        ({"metric": "acc", "max_drop": 2}, task(), "a difference of 2 decides nothing; did you mean 0.02?"),
        ("acc >= baseline - 100%", task(), "a difference of 100% decides nothing"),
        (
            {"metric": "perplexity", "max_drop": 1},
            task("loglikelihood"),
            "perplexity is better when lower, so max_drop limits no loss: write max_rise or <= baseline",
        ),
        ("perplexity >= baseline - 1", task("loglikelihood"), "so >= baseline limits no loss"),
        ({"metric": "acc", "max_rise": 0.1}, task(), "acc is better when higher, so max_rise limits no loss"),
        (
            {"metric": "own", "min_gain": 1},
            task("generate_until", metrics=(MetricSpec("own", function=score),)),
            "the direction in which own is better is unknown: set higher_is_better",
        ),
        ("f1 >= 0.5 @ 0.95", task(metrics=(MetricSpec("f1"), MetricSpec("acc"))), "(metrics that have them: acc)"),
        ("acc >= 0.5 @ 0.95", task(metrics=(MetricSpec("acc", aggregation="median"),)), "acc is not a mean over docs"),
        ("acc >= 0.5 @ 0.95", task(metrics=(MetricSpec("acc", aggregation=score),)), "acc is not a mean over docs"),
        (
            "brier_score stays right",
            task(metrics=(MetricSpec("brier_score"),)),
            "does not show whether a doc is right or wrong",
        ),
    ],
)
def test_gates_that_cannot_be_meant(entry: str, owner: Task, message: str) -> None:
    with pytest.raises(TaskFileError) as caught:
        check_gate(parse(entry), owner)
    assert str(caught.value).startswith("bench/t.yaml:7: metadata.gates: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("*.acc >= 0.3", ["choices"]),
        ("tag:mine.exact_match,loose >= 0.3", ["texts"]),
        ("*.exact_match,none >= 0.3", []),
        ("*.acuracy >= 0.3", []),
    ],
)
def test_a_glob_is_for_what_has_its_metric(rule: str, meant: list[str]) -> None:
    owners = [
        task(name="choices", tags=("mine",)),
        task("generate_until", name="texts", tags=("mine",), filters=("loose", "tight")),
        Group("group", PATH, ()),
    ]
    assert [owner.name for owner in owners if gates_for(owner, [parse_rule(rule)])] == meant


def test_a_glob_goes_by_the_metrics_that_are_listed() -> None:
    """A function of the task may return others too: a gate on one by a glob would fail wherever it does not."""
    listing = task("generate_until", metrics=(MetricSpec("f1"),), process_results=score)
    meant = {
        rule: len(gates_for(listing, [parse_rule(rule)])) for rule in ("*.f1 >= 1", "*.acc >= 0.3", "t.acc >= 0.3")
    }
    assert meant == {"*.f1 >= 1": 1, "*.acc >= 0.3": 0, "t.acc >= 0.3": 1}


def test_a_name_is_meant_whatever_it_has() -> None:
    with pytest.raises(SettingError, match=r"task 'texts' has no metric 'acc'"):
        gates_for(task("generate_until", name="texts"), [parse_rule("texts.acc >= 0.3")])


def test_a_rule_that_cannot_be_meant_is_a_setting_error() -> None:
    rule = parse_rule("t.acc >= 35")
    with pytest.raises(SettingError, match=r"ini llmeval_gates: 't\.acc >= 35': acc lies between 0 and 1"):
        gates_for(task(), [rule])


LEAVES = (
    task(name="a"),
    task("generate_until", name="b", filters=("strict", "loose")),
    task("generate_until", name="c", filters=("loose", "last")),
)


def group(*metrics: GroupMetric, **more: Any) -> Group:
    return Group("g", PATH, ("a", "b", "c"), metrics=metrics, **more)


def test_group_gates_need_an_aggregated_metric() -> None:
    with pytest.raises(TaskFileError, match=r"group 'g' has no metric 'acc' \(it has: none; name some in aggregate_"):
        check_gate(parse("acc >= 0.3"), group(), LEAVES)
    with pytest.raises(TaskFileError, match=r"group 'g' has no metric 'acc_norm' \(it has: acc\)"):
        check_gate(parse("acc_norm >= 0.3"), group(GroupMetric("acc")), LEAVES)


def test_group_gates_know_the_filters_of_the_tasks_that_have_the_metric() -> None:
    both = group(GroupMetric("acc"), GroupMetric("exact_match"))
    check_gate(parse("acc >= 0.3"), both, LEAVES)
    check_gate(parse("exact_match,last >= 0.3"), both, LEAVES)
    with pytest.raises(TaskFileError, match="group 'g' has the filters strict, loose, last; name the one meant"):
        check_gate(parse("exact_match >= 0.3"), both, LEAVES)
    with pytest.raises(TaskFileError, match=r"group 'g' has no filter 'none' \(it has: strict, loose, last\)"):
        check_gate(parse("exact_match,none >= 0.3"), both, LEAVES)


def test_filters_that_the_group_names_are_the_ones_it_has() -> None:
    one = group(GroupMetric("exact_match", filters=("loose",)))
    check_gate(parse("exact_match >= 0.3"), one, LEAVES)
    with pytest.raises(TaskFileError, match=r"has no filter 'strict' \(it has: loose\)"):
        check_gate(parse("exact_match,strict >= 0.3"), one, LEAVES)


def test_group_gates_are_proportions_only_if_nobody_aggregates_otherwise() -> None:
    with pytest.raises(TaskFileError, match=r"did you mean 0\.35\?"):
        check_gate(parse("acc >= 35"), group(GroupMetric("acc")), LEAVES)
    check_gate(parse("acc >= 35"), group(GroupMetric("acc", aggregation=score)), LEAVES)
    percent = task(name="d", metrics=(MetricSpec("acc", aggregation=score),))
    check_gate(parse("acc >= 35"), group(GroupMetric("acc")), (*LEAVES, percent))


def test_the_range_of_a_group_is_that_of_its_tasks() -> None:
    points = group(GroupMetric("points"))
    leaves = (scored(0, 5, name="a"), scored(2, 10, name="b"))
    check_gate(parse("points >= 10"), points, leaves)
    with pytest.raises(TaskFileError, match="points lies between 0 and 10, and the bound is 11"):
        check_gate(parse("points >= 11"), points, leaves)
    check_gate(parse("points >= 11"), points, (*leaves, scored(name="c")))


def test_a_bound_just_above_a_proportion_is_no_percentage() -> None:
    with pytest.raises(TaskFileError, match=r"and the bound is 1\.9$"):
        check_gate(parse("acc >= 1.9"), task())


@pytest.mark.parametrize(
    ("entries", "filters", "ids"),
    [
        (["acc >= 0.3", "acc_norm >= 0.3"], ["none"], ("acc", "acc_norm")),
        (["acc,none >= 0.3"], ["none"], ("acc",)),
        (["em,strict >= 0.1", "em,loose >= 0.2"], ["strict", "loose"], ("em,strict", "em,loose")),
        (["acc >= 0.3", "acc >= 0.4 as hope", "acc <= 0.9 as top"], ["none"], ("acc", "hope", "top")),
        ([], ["none"], ()),
        (["acc >= 0.3", "acc >= baseline - 0.1"], ["none"], ("acc", "acc.drop")),
        (["acc >= 0.3 @ 0.9", "acc stays right"], ["none"], ("acc", "acc.drop")),
        (["em,a >= baseline", "em,b > baseline", "em,b > baseline as x"], ["a", "b"], ("em,a.drop", "em,b.drop", "x")),
    ],
)
def test_ids(entries: list[str], filters: list[str], ids: tuple[str, ...]) -> None:
    assert gate_ids([parse(entry) for entry in entries], filters, "task 't'") == ids


def test_equal_ids_ask_for_a_name() -> None:
    gates = [parse("acc >= 0.3"), parse("acc <= 0.9")]
    with pytest.raises(TaskFileError) as caught:
        gate_ids(gates, ["none"], "task 't'")
    assert str(caught.value) == (
        "bench/t.yaml:7: metadata.gates: 'acc <= 0.9': 2 gates of task 't' would be called gate[acc] ('acc >= 0.3' and "
        "'acc <= 0.9'): give one a name, 'acc >= 0.35 as NAME' or {metric: acc, min: 0.35, name: NAME}"
    )


def test_min_gain_is_read_in_the_direction_of_its_metric() -> None:
    entry = {"metric": "perplexity", "min_gain": 0.5}
    (gate,) = gates_for(task("loglikelihood", gates=((entry, 3),)))
    assert gate.change == Change("<=", Fraction(-1, 2), word="min_gain")
    (gate,) = gates_for(task(gates=(({"metric": "acc", "min_gain": 0.5}, 3),)))
    assert gate.change == Change(">=", Fraction(1, 2), word="min_gain")


def test_gates_that_ask_the_same_are_a_family() -> None:
    """However and wherever they are written; only `rule` tells the places apart."""
    rules = [parse_rule("*.acc >= baseline - 0.02 @ 0.95"), parse_rule("*.acc_norm >= 0.3")]
    first, second = (gates_for(task(name=name), rules) for name in ("a", "b"))
    assert first[0].family == second[0].family == "acc >= baseline - 0.02 @ 0.95"
    assert first[0].rule == second[0].rule == "ini llmeval_gates: *.acc >= baseline - 0.02 @ 0.95"
    assert (first[1].family, second[1].family) == ("", "")
    entries = (
        ("acc > baseline - 0.020 @ 0.95 as one", 3),
        ({"metric": "acc", "max_drop": 0.02, "confidence": 0.95, "name": "two"}, 4),
        ("acc,none >= baseline - 2e-2 @ .95 as three", 5),
    )
    own = gates_for(task(gates=entries))
    assert {gate.family for gate in own} == {first[0].family}
    assert len({gate.rule for gate in own}) == 3


@pytest.mark.parametrize(
    "other",
    [
        "acc >= 0.3 @ 0.9",
        "acc >= 0.31 @ 0.95",
        "acc <= 0.3 @ 0.95",
        "acc >= baseline - 0.3 @ 0.95",
        "acc >= 0.3 @ 0.95 dataset",
        "acc >= 0.3 @ 0.95 fdr",
        "acc_norm >= 0.3 @ 0.95",
    ],
)
def test_another_condition_is_another_family(other: str) -> None:
    first, second = gates_for(task(gates=(("acc >= 0.3 @ 0.95 as one", 3), (f"{other} as two", 4))))
    assert first.family != second.family != ""


def test_included_gates_stand_on_one_line(tmp_path: Path) -> None:
    included = [gates_for(task(name=name, gates=(("acc >= 0.3 @ 0.95", 1),), gates_path=tmp_path)) for name in "ab"]
    assert included[0][0].rule == included[1][0].rule


@pytest.mark.parametrize(
    "text", ["acc >= 0.3 @ 0.95 fdr", "acc >= 0.3 @ 0.95 dataset fdr", "acc >= 0.3 @ 0.95 fdr dataset"]
)
def test_the_false_discovery_rate_is_a_word(text: str) -> None:
    gate = parse(text)
    assert (gate.fdr, gate.scope) == (True, "dataset" if "dataset" in text else "population")
    entry = {"metric": "acc", "min": 0.3, "confidence": 0.95, "scope": gate.scope, "fdr": True}
    assert parse(entry).condition == gate.condition
    assert not parse(entry | {"fdr": False}).fdr


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("acc >= 0.3 fdr", "fdr needs a confidence: add one, e.g. @ 0.95 fdr"),
        ("acc >= 0.3 @ 0.95 fdr fdr", "then perhaps one scope and fdr, got 'fdr fdr'"),
        ("acc >= 0.3 @ 0.95 dataset population", "one scope and fdr, got 'dataset population'"),
        ("acc >= 0.3 @ 0.95 dfr", "scope: expected population or dataset, got 'dfr'"),
        ({"metric": "acc", "min": 0.3, "fdr": True}, "fdr needs a confidence: add one, e.g. confidence: 0.95"),
        ({"metric": "acc", "min": 0.3, "confidence": 0.95, "fdr": 0.1}, "fdr: expected true or false, got 0.1"),
        ({"metric": "acc", "must_stay_right": "all", "fdr": True}, "fdr needs a confidence"),
    ],
)
def test_where_the_false_discovery_rate_means_nothing(entry: object, message: str) -> None:
    with pytest.raises(TaskFileError, match=re.escape(message)):
        parse(entry)


def test_confidence_and_docs_of_groups() -> None:
    plain = group(GroupMetric("acc"), GroupMetric("perplexity"), GroupMetric("exact_match", aggregation=score))
    words = task("loglikelihood", name="w")
    check_gate(parse("acc >= 0.3 @ 0.95"), plain, LEAVES)
    for metric in ("perplexity", "exact_match,last"):
        with pytest.raises(TaskFileError, match="not a mean over the docs of its tasks"):
            check_gate(parse(f"{metric} >= 1 @ 0.95"), plain, (*LEAVES, words))
    check_gate(parse("acc stays right"), plain, LEAVES)
    with pytest.raises(TaskFileError, match="doc numbers belong to one task"):
        check_gate(parse("acc stays right on 3"), plain, LEAVES)


def test_gates_of_a_file_come_before_those_of_rules() -> None:
    rules = [parse_rule("t.acc >= 0.4 as ours"), parse_rule("other.acc >= 0.9"), parse_rule("t.acc_norm > 0.1")]
    found = gates_for(task(gates=(("acc >= 0.3", 3),)), rules)
    assert [gate.id for gate in found] == ["acc", "ours", "acc_norm"]
    with pytest.raises(SettingError, match=r"2 gates of task 't' would be called gate\[acc\]"):
        gates_for(task(gates=(("acc >= 0.3", 3),)), [parse_rule("t.acc >= 0.4")])


def test_ids_of_a_group_show_filters_where_it_reports_several() -> None:
    owner = group(GroupMetric("exact_match"), gates=(("exact_match,loose >= 0.3", 9),))
    assert [gate.id for gate in gates_for(owner, (), LEAVES)] == ["exact_match,loose"]


class TestDistances:
    """Gates on the distance from the baseline, whose metrics belong to no task."""

    def gates(self, owner: Task, *lines: str) -> tuple[Gate, ...]:
        return gates_for(owner, [parse_rule(line) for line in lines])

    def test_flips_are_those_of_the_first_filter_unless_one_is_named(self) -> None:
        owner = task("generate_until", filters=("strict", "loose"))
        first, named = self.gates(owner, "t.flips <= 0.1", "t.flips,loose <= 0.1 as loose")
        assert (first.filter, named.filter) == (None, "loose")
        assert first.distance
        assert first.needs_baseline
        assert not (first.needs_next_tokens)
        assert not (first.compares)
        with pytest.raises(SettingError, match="task 't' has no filter 'last'"):
            self.gates(owner, "t.flips,last <= 0.1")

    def test_next_tokens_have_no_filter(self) -> None:
        (gate,) = self.gates(task(), "t.kl <= 0.1 @ 0.95")
        assert gate.id == "kl"
        assert gate.needs_next_tokens
        with pytest.raises(SettingError, match="kl is measured before any filter: omit 'none'"):
            self.gates(task(), "t.kl,none <= 0.1")

    def test_a_metric_of_the_task_keeps_its_name(self) -> None:
        (gate,) = self.gates(scored(metric="kl"), "t.kl >= 3")
        assert not gate.distance

    def test_flips_need_scores_of_0_and_1(self) -> None:
        with pytest.raises(SettingError, match="flips: no score is 0 or 1 for every doc of task 't'"):
            self.gates(task("loglikelihood_rolling"), "t.flips <= 0.1")
