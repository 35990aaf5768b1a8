"""From responses to a doc's scores. Cases B07 c, B11, B13, B14, B17, B18, B25, B28 and B32 as whole docs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._task import FilterStep
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._task import Task


NAN, INF = math.nan, math.inf


def task(output_type: str, *metrics: str | MetricSpec, **fields: Any) -> Task:
    specs = tuple(MetricSpec(one) if isinstance(one, str) else one for one in metrics)
    resolved = resolve_metrics(specs, output_type, processed="process_results" in fields)
    return Task("t", Path("t.yaml"), output_type, None, None, metrics=resolved, **fields)


def doc(**fields: Any) -> RenderedDoc:
    given = {"data": {}, "text": "", "choices": None, "gold": (), "references": (), "target": None, **fields}
    return RenderedDoc(index=0, **given)


def choice_doc(gold: int | Sequence[int], *choices: str, **fields: Any) -> RenderedDoc:
    return doc(choices=choices, gold=(gold,) if isinstance(gold, int) else tuple(gold), **fields)


def lls(*values: float, greedy: bool = False) -> list[list[Loglikelihood]]:
    return [[Loglikelihood(value, greedy)] for value in values]


def items(result: DocResult, name: str = "none") -> Mapping[str, Any]:
    assert result.error is None, result.error
    return result.scores[name]


@pytest.mark.parametrize(
    ("values", "gold", "acc", "nonfinite"),
    [
        ((NAN, NAN, NAN, NAN), 0, 0.0, "NaN"),
        ((-3.2, NAN, -1.0), 1, 0.0, "NaN"),
        ((-INF, -2.0), 1, 1.0, ""),
        ((-INF, -INF), 0, 0.0, "-inf for every choice"),
        ((-1.0, INF), 1, 0.0, "inf"),
        ((-INF, INF), 1, 0.0, "inf"),
    ],
)
def test_nan_is_counted_and_never_right(values: tuple[float, ...], gold: int, acc: float, nonfinite: str) -> None:
    choices = [f"c{i}" for i in range(len(values))]
    result = score_doc(task("multiple_choice"), 3, choice_doc(gold, *choices), lls(*values, greedy=True))
    assert items(result) == {"acc": acc, "acc_norm": acc}
    assert (result.doc, result.correct, result.nonfinite) == (3, bool(acc), nonfinite)


def test_nan_of_the_unconditional_requests_is_counted_too() -> None:
    of_both = task("multiple_choice", "acc", "acc_mutual_info")
    result = score_doc(of_both, 0, choice_doc(0, "a", "b"), lls(-1.0, -2.0, NAN, -2.0))
    assert items(result) == {"acc": 1.0, "acc_mutual_info": 0.0}
    assert (result.correct, result.nonfinite) == (False, "NaN")


@pytest.mark.parametrize("output_type", ["loglikelihood", "loglikelihood_rolling"])
def test_nan_of_a_text_is_counted(output_type: str) -> None:
    answer = NAN if output_type == "loglikelihood_rolling" else Loglikelihood(NAN, True)
    result = score_doc(task(output_type), 0, doc(references=("a b",)), [[answer]])
    assert result.nonfinite == "NaN"
    assert result.correct is False
    kept = items(result)
    assert math.isnan(kept["perplexity"] if output_type == "loglikelihood" else kept["word_perplexity"][0])


@pytest.mark.parametrize(
    ("output_type", "metric"), [("loglikelihood", "perplexity"), ("loglikelihood_rolling", "bits_per_byte")]
)
def test_a_text_that_is_impossible_has_a_number_and_one_that_is_certain_beyond_all_has_none(
    output_type: str, metric: str
) -> None:
    for ll, nonfinite in ((-INF, ""), (INF, "inf")):
        answer = ll if output_type == "loglikelihood_rolling" else Loglikelihood(ll, False)
        result = score_doc(task(output_type, metric), 0, doc(references=("a",)), [[answer]])
        assert result.nonfinite == nonfinite
        assert items(result)[metric] in (ll, [ll, 1])


def test_mutual_information_uses_the_second_half() -> None:
    answers = lls(-1.0, -2.0, -3.0, -4.0, -0.5, -3.5, -2.0, -4.5)
    of_all = task("multiple_choice", "acc", "acc_norm", "acc_mutual_info")
    for gold in (1, [1, 3]):
        result = score_doc(of_all, 0, choice_doc(gold, "w", "x", "y", "z"), answers)
        assert items(result) == {"acc": 0.0, "acc_norm": 0.0, "acc_mutual_info": 1.0}


def test_lengths_are_those_of_the_choice() -> None:
    of_all = task("multiple_choice", "acc", "acc_norm", "acc_bytes")
    result = score_doc(of_all, 0, choice_doc(0, "ж", "zz"), lls(-3.0, -3.5))
    assert items(result) == {"acc": 1.0, "acc_norm": 0.0, "acc_bytes": 1.0}


@pytest.mark.parametrize(
    ("rendered", "reason"),
    [
        (choice_doc(0, "a", ""), "choice 1 is empty"),
        (doc(choices=("a", "b"), problem="doc 4: gold 7 is none of 2 choices"), "doc 4: gold 7 is none of 2 choices"),
        (choice_doc(0, "a", "b", "c"), "2 answers to 3 choices"),
        (choice_doc([], "a", "b"), "2 answers to 2 choices, of which 0 are right"),
    ],
)
def test_a_doc_that_cannot_be_scored_is_an_error_and_no_wrong_answer(rendered: RenderedDoc, reason: str) -> None:
    result = score_doc(task("multiple_choice"), 0, rendered, lls(-1.0, -2.0))
    assert reason in (result.error or "")
    assert result.scores == {}
    assert result.correct is None


def test_loglikelihood() -> None:
    result = score_doc(task("loglikelihood"), 0, doc(references=("x",)), [[Loglikelihood(-1.5, True)]])
    assert items(result) == {"perplexity": -1.5, "acc": 1}
    assert result.correct is True
    only = score_doc(task("loglikelihood", "acc"), 0, doc(references=("x",)), [[(-1.5, False)]])
    assert items(only) == {"acc": 0}
    assert only.correct is False


def test_rolling_divides_by_words_and_bytes() -> None:
    result = score_doc(task("loglikelihood_rolling"), 0, doc(references=("a b\n",)), [[-3.0]])
    assert items(result) == {"word_perplexity": [-3.0, 3], "byte_perplexity": [-3.0, 4], "bits_per_byte": [-3.0, 4]}
    assert result.correct is None


@pytest.mark.parametrize(
    ("references", "response", "right"),
    [
        (("[1, 2, 3]",), "[1, 2, 3]", 1.0),
        (("u", "v"), "v", 1.0),
        (("7",), "7", 1.0),
        (("7",), "07", 0.0),
    ],
)
def test_generations_against_references(references: tuple[str, ...], response: str, right: float) -> None:
    result = score_doc(task("generate_until"), 0, doc(references=references), [[Generation(response)]])
    assert items(result) == {"exact_match": right}
    assert result.correct is bool(right)


def test_choices_of_a_generating_task_are_its_references() -> None:
    result = score_doc(task("generate_until"), 0, choice_doc(1, "u", "v"), [["v"]])
    assert items(result) == {"exact_match": 1.0}


def test_a_generation_without_a_right_answer_is_an_error() -> None:
    result = score_doc(task("generate_until"), 7, doc(), [["v"]])
    assert result.error == "task t, doc 7: the doc has no right answer to compare with"


GSM8K_FILTERS = (
    Pipeline("strict-match", (filter_step("regex"), filter_step("take_first"))),
    Pipeline(
        "flexible-extract",
        (
            filter_step("regex", {"regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}),
            filter_step("take_first"),
        ),
    ),
)
GSM8K_METRIC = MetricSpec(
    "exact_match", options={"ignore_case": True, "regexes_to_ignore": [",", r"\$", "(?s).*#### ", r"\.$"]}
)


@pytest.mark.parametrize(
    ("response", "gold", "strict", "flexible"),
    [
        ("He made 70,000.\n#### 70,000", 70000, 1.0, 1.0),
        ("The total is $1,234.", 1234, 0.0, 1.0),
        ("The total is 72 clips, altogether.", 72, 0.0, 1.0),
        ("It costs 5 dollars", 5, 0.0, 1.0),
        ("#### -3", -3, 1.0, 1.0),
        ("#### 12 apples, not #### 13", 12, 1.0, 0.0),
        ("#### 29.00", 29, 0.0, 0.0),
        ("So the answer is 12. Hmm...", 12, 0.0, 0.0),
        ("答えは７２", 72, 0.0, 0.0),
    ],
)
def test_gsm8k(response: str, gold: int, strict: float, flexible: float) -> None:
    gsm8k = task("generate_until", GSM8K_METRIC, filters=GSM8K_FILTERS)
    result = score_doc(gsm8k, 0, doc(references=(f"48/2 = 24\n#### {gold}",)), [[response]])
    assert items(result, "strict-match") == {"exact_match": strict}
    assert items(result, "flexible-extract") == {"exact_match": flexible}
    assert result.correct is bool(strict)


@pytest.mark.parametrize("text", ["  padded \n", "stop\n\nmore", ""])
def test_a_generation_is_compared_as_the_model_gave_it(text: str) -> None:
    result = score_doc(task("generate_until"), 0, doc(references=(text,)), [[Generation(text)]])
    assert items(result) == {"exact_match": 1.0}


def test_repeats_go_through_the_filters_together() -> None:
    vote = Pipeline(
        "maj",
        (filter_step("regex", {"regex_pattern": r"(\d+)"}), filter_step("majority_vote"), filter_step("take_first")),
    )
    voting = task("generate_until", filters=(vote, Pipeline("first", (filter_step("take_first"),))), repeats=3)
    result = score_doc(voting, 0, doc(references=("4",)), [["so 4", "it is 4", "5"]])
    assert items(result, "maj") == {"exact_match": 1.0}
    assert items(result, "first") == {"exact_match": 0.0}


def test_pass_at_k_runs_what_the_filter_leaves() -> None:
    programs: list[str] = []

    def runner(program: str) -> bool:
        programs.append(program)
        return "x + 1" in program

    all_of_them = (Pipeline("none", (filter_step("take_first_k", {"k": 4}),)),)
    coding = task("generate_until", MetricSpec("pass_at_k", options={"k": [1, 2]}), filters=all_of_them, repeats=4)
    rendered = doc(text="def f(x):\n", references=("check(f)",))
    answers = [["    return x + 1", "    return 0", "", "    pass"]]
    result = score_doc(coding, 0, rendered, answers, code_runner=runner)
    assert items(result) == {"pass@1": 0.25, "pass@2": 0.5}
    assert programs[0] == "def f(x):\n    return x + 1\ncheck(f)"
    assert result.correct is None
    assert "set unsafe_code: true" in (score_doc(coding, 0, rendered, answers).error or "")
    few = score_doc(coding, 0, rendered, [["a"]], code_runner=runner)
    assert few.error == "task t, doc 0: filter take_first_k: k is 4, but the doc has 1 responses; raise repeats"


def test_one_program_that_passes_is_right() -> None:
    coding = task("generate_until", "pass_at_k")
    result = score_doc(coding, 0, doc(references=("t",)), [["c"]], code_runner=lambda program: True)
    assert items(result) == {"pass@1": 1.0}
    assert result.correct is True


def half(predictions: list[str], references: list[str]) -> dict[str, Any]:
    return {"half": 0.5, "right": predictions == references}


def test_the_judgement_is_the_first_score_that_is_0_or_1() -> None:
    judged = task("generate_until", MetricSpec("half", function=half))
    assert score_doc(judged, 0, doc(references=("a",)), [["a"]]).correct is True
    assert score_doc(judged, 0, doc(references=("b",)), [["a"]]).correct is False
    unjudged = task("generate_until", "bleu", MetricSpec("half", function=lambda predictions, references: 0.5))
    assert score_doc(unjudged, 0, doc(references=("b",)), [["a"]]).correct is None
    errors = MetricSpec("wrong", function=lambda predictions, references: 1, higher_is_better=False)
    assert score_doc(task("generate_until", errors), 0, doc(references=("b",)), [["a"]]).correct is False


def own_results(doc: dict[str, Any], results: list[Any]) -> dict[str, Any]:
    doc["q"] = "changed"
    values, greedy = zip(*results, strict=True)
    best = max(range(len(values)), key=values.__getitem__)
    return {"hit": best == doc["label"], "pair": (doc["label"], best), "all": {"greedy": greedy}}


def test_process_results_gets_doc_and_plain_answers() -> None:
    data = {"q": "x", "label": 1}
    taken = (MetricSpec("pair", aggregation=len), MetricSpec("all", aggregation=len))
    own = task("multiple_choice", "hit", *taken, process_results=own_results)
    result = score_doc(own, 0, choice_doc(1, "a", "b", data=data), lls(-2.0, -1.0))
    assert items(result) == {"hit": True, "pair": [1, 1], "all": {"greedy": [False, False]}}
    assert result.correct is True
    assert data == {"q": "x", "label": 1}


def test_process_results_of_nan_says_nothing() -> None:
    taken = (MetricSpec("pair", aggregation=len), MetricSpec("all", aggregation=len))
    own = task("multiple_choice", "hit", *taken, process_results=own_results)
    result = score_doc(own, 0, choice_doc(0, "a", "b", data={"label": 0}), lls(NAN, NAN))
    assert math.isnan(items(result)["hit"])
    assert (result.correct, result.nonfinite) == (False, "NaN")


def test_process_results_of_texts_gets_the_filtered_text() -> None:
    def own(doc: Mapping[str, Any], results: list[str]) -> dict[str, Any]:
        return {"text": results, "kind": type(results[0]).__name__}

    taken = (MetricSpec("text", aggregation=len), MetricSpec("kind", aggregation=len))
    by_text = task("generate_until", *taken, filters=GSM8K_FILTERS, process_results=own)
    result = score_doc(by_text, 0, doc(), [[Generation("#### 3")]])
    assert items(result, "strict-match") == {"text": ["3"], "kind": "str"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda doc, results: doc["nothing"], r"test_scores\.py:\d+: process_results: <lambda> raised KeyError"),
        (lambda doc, results: [1.0], r"process_results <lambda> must return a dict by metric, got \[1\.0\]"),
        (lambda doc, results: {"m": {1, 2}}, "metric m: a set is not a plain value"),
    ],
)
def test_process_results_that_fails_is_the_docs_error(function: Any, reason: str) -> None:
    result = score_doc(task("generate_until", process_results=function), 0, doc(), [["a"]])
    assert result.scores == {}
    with pytest.raises(ValueError, match=reason):
        raise ValueError(result.error)


def judged(name: str, item: Any, *metrics: MetricSpec) -> DocResult:
    """A doc for which the task's function gives one item."""

    def score(doc: Mapping[str, Any], results: list[str]) -> dict[str, Any]:
        return {name: item}

    return score_doc(task("generate_until", *metrics, process_results=score), 3, doc(), [["a"]])


EM = MetricSpec("em", aggregation="mean")


@pytest.mark.parametrize(
    ("name", "item", "metric", "reason"),
    [
        ("em", "yes", EM, "'yes', and mean needs a number: return that"),
        ("em", None, EM, "None, and mean needs a number: return that"),
        ("em", (1, 0), EM, "[1, 0], and mean needs a number: return that"),
        (
            "f1",
            0.5,
            MetricSpec("f1"),
            "0.5, and f1 needs [right label, predicted label]: return that",
        ),
    ],
)
def test_a_score_that_its_aggregation_cannot_take(name: str, item: Any, metric: MetricSpec, reason: str) -> None:
    result = judged(name, item, metric)
    assert result.error == f"task t, doc 3: metric {name}: process_results score gave {reason}"
    assert result.scores == {}


def test_a_score_may_be_left_out_beside_others() -> None:
    result = judged("em", None, EM, MetricSpec("f1"))
    assert result.error is not None
    assert result.error.endswith("None, and mean needs a number: return that, or leave em out where a doc has none")


def test_a_score_that_no_list_names_needs_a_number() -> None:
    result = judged("said", "Lima")
    assert result.error == (
        "task t, doc 3: metric said: process_results score gave 'Lima', and mean needs a number: return that, leave it "
        "out, or list it in metric_list with an aggregation that takes it"
    )
    assert items(judged("said", 0.5)) == {"said": 0.5}


@pytest.mark.parametrize(
    ("metric", "item", "kept"),
    [
        (MetricSpec("word_perplexity"), (-2.5, 3), [-2.5, 3]),
        (MetricSpec("bleu"), (["a", "b"], "a"), [["a", "b"], "a"]),
        (MetricSpec("mcc"), ("yes", "no"), ["yes", "no"]),
        (MetricSpec("em", aggregation=len), "yes", "yes"),
        (MetricSpec("em", aggregation=len), None, None),
        (MetricSpec("em", aggregation=len), {"answer": [1, "a"]}, {"answer": [1, "a"]}),
        (MetricSpec("em", aggregation="bypass"), None, None),
        (EM, -INF, -INF),
    ],
)
def test_a_score_that_its_aggregation_takes(metric: MetricSpec, item: Any, kept: Any) -> None:
    assert items(judged(metric.name, item, metric)) == {metric.name: kept}


def test_process_results_may_leave_out_some_metrics_of_the_list_and_not_all() -> None:
    listed = (EM, MetricSpec("f1", aggregation="mean"))
    assert items(judged("em", 1, *listed)) == {"em": 1}
    assert judged("acc", 1, *listed).error == (
        "task t, doc 3: process_results score gave {'acc': 1}, which has no score for a metric of metric_list (em, "
        "f1): return at least one of these"
    )
    empty = task("generate_until", EM, process_results=lambda doc, results: {})
    assert (score_doc(empty, 0, doc(), [["a"]]).error or "").startswith(
        "task t, doc 0: process_results <lambda> gave {}, which has no score"
    )


@pytest.mark.parametrize("given", [None, "right", [1, 2], {"half": "x"}])
def test_what_a_metric_function_gives_must_fit_too(given: Any) -> None:
    def half(predictions: list[str], references: list[str]) -> Any:
        return given

    shown = "'x'" if isinstance(given, dict) else repr(given)
    result = score_doc(task("generate_until", MetricSpec("half", function=half)), 0, doc(references=("a",)), [["a"]])
    assert result.error == (
        f"task t, doc 0: metric half: its function gave {shown}, and mean needs a number: return that, or name an "
        "aggregation for it"
    )
    owned = task("generate_until", MetricSpec("half", function=half, aggregation=len))
    assert score_doc(owned, 0, doc(references=("a",)), [["a"]]).error is None


def test_a_score_outside_of_the_range_that_the_task_names() -> None:
    def scored(value: float) -> DocResult:
        f1 = MetricSpec("f1", aggregation="mean")
        own = task("generate_until", f1, process_results=lambda doc, results: {"f1": value})
        metric = replace(own.metrics[0], declared_range=ScoreRange(0, 1))
        return score_doc(replace(own, metrics=(metric,)), 3, doc(), [["a"]])

    assert items(scored(1)) == {"f1": 1}
    assert scored(1.5).error == "task t, doc 3: metric f1: 1.5 is outside of metadata.ranges, [0, 1]"
    assert scored(-0.1).error == "task t, doc 3: metric f1: -0.1 is outside of metadata.ranges, [0, 1]"


@pytest.mark.parametrize("steps", [(filter_step("regex"),), (filter_step("regex"), filter_step("take_first"))])
def test_a_text_filter_leaves_nothing_of_a_loglikelihood(steps: tuple[FilterStep, ...]) -> None:
    odd = task("multiple_choice", filters=(Pipeline("odd", steps),))
    result = score_doc(odd, 0, choice_doc(0, "a"), lls(-1.0))
    assert "instead of (log-probability, is_greedy); end the pipeline with take_first" in (result.error or "")


@pytest.mark.parametrize(
    ("output_type", "response", "expected"),
    [
        ("loglikelihood", None, r"the model answered None, expected \(logprob of 0 or less, is_greedy\)"),
        ("loglikelihood", ("-1.0", False), r"the model answered \('-1\.0', False\), expected"),
        ("loglikelihood", (1.5, False), r"the model answered \(1\.5, False\), expected"),
        ("loglikelihood", (-1.5, False, 1), r"the model answered \(-1\.5, False, 1\), expected"),
        ("loglikelihood_rolling", 5.0, "the model answered 5.0, expected a logprob of 0 or less"),
        ("loglikelihood_rolling", b"-1", "the model answered b'-1', expected a logprob"),
        ("loglikelihood", (-1.0,), r"the model answered \(-1\.0,\), expected"),
        ("loglikelihood_rolling", "many", "the model answered 'many', expected a logprob"),
        ("generate_until", None, "the model answered None, expected a text"),
        ("generate_until", ["a"], r"the model answered \['a'\], expected a text"),
    ],
)
def test_a_model_that_answers_something_else(output_type: str, response: Any, expected: str) -> None:
    result = score_doc(task(output_type), 0, doc(references=("x",)), [[response]])
    with pytest.raises(ValueError, match=expected):
        raise ValueError(result.error)


def test_a_probability_of_1_may_be_off_by_rounding() -> None:
    result = score_doc(task("loglikelihood_rolling"), 0, doc(references=("x",)), [[1e-6]])
    assert result.error is None


def test_process_results_of_choices_needs_no_gold() -> None:
    own = task("multiple_choice", process_results=lambda doc, results: {"n": len(results)})
    result = score_doc(own, 0, choice_doc([], "a", "b"), lls(-1.0, -2.0))
    assert items(result) == {"n": 2}
    assert result.nonfinite == ""


@pytest.mark.parametrize(
    ("values", "correct", "tied"),
    [
        ((-1.0, -1.0, -2.0), True, True),
        ((-1.0, -2.0, -2.0), True, False),
        ((-2.0, -1.0, -1.0), False, True),
        ((-1.0,), True, False),
        ((-math.inf, -math.inf), False, False),  # of which none is taken
        ((math.nan, math.nan), False, False),
    ],
)
def test_docs_whose_likeliest_choices_are_equal_are_told(values: tuple[float, ...], correct: bool, tied: bool) -> None:
    result = score_doc(task("multiple_choice"), 0, choice_doc(0, *"abc"[: len(values)]), lls(*values))
    assert (result.correct, result.tied) == (correct, tied)


def test_choices_that_a_function_judges_are_not_said_to_be_tied() -> None:
    own = task("multiple_choice", process_results=lambda doc, results: {"n": len(results)})
    assert not score_doc(own, 0, choice_doc(0, "a", "b"), lls(-1.0, -1.0)).tied


def test_truncations_and_length_ends_are_counted() -> None:
    cut = [[Loglikelihood(-1.0, False, truncated=True)], [Loglikelihood(-2.0, False)]]
    assert score_doc(task("multiple_choice"), 0, choice_doc(0, "a", "b"), cut).truncated == 1
    long = [[Generation("a", "length", truncated=True), Generation("a", "length"), Generation("b", "eos"), "c"]]
    result = score_doc(task("generate_until", repeats=4), 0, doc(references=("a",)), long)
    assert (result.truncated, result.cut_off) == (1, 2)


def test_a_sample_holds_responses_and_filtered_responses() -> None:
    gsm8k = task("generate_until", GSM8K_METRIC, filters=GSM8K_FILTERS)
    result = score_doc(gsm8k, 0, doc(references=("4",), target=("4", 4)), [[Generation("#### 4")]])
    assert result.sample == {
        "target": ["4", 4],
        "resps": [["#### 4"]],
        "filtered_resps": {"strict-match": ["4"], "flexible-extract": ["4"]},
    }
    chosen = score_doc(task("multiple_choice"), 0, choice_doc(0, "a", "b"), lls(-1.0, -2.0))
    assert chosen.sample is not None
    assert chosen.sample["filtered_resps"] == {"none": [[-1.0, False], [-2.0, False]]}
    assert score_doc(gsm8k, 0, doc(references=("4",)), [["4"]], keep_sample=False).sample is None


def test_a_result_survives_json() -> None:
    every = task("multiple_choice", "acc", "f1", "brier_score", "likelihood", "exact_match")
    result = score_doc(every, 5, choice_doc(0, "a", "b"), lls(-1.0, -2.0))
    assert DocResult.from_list(json.loads(json.dumps(result.to_list()))) == result
