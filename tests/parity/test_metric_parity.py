"""Items, aggregates and standard errors equal lm_eval's own functions on random inputs, where those are right."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._scoring import stderr
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


pytest.importorskip("lm_eval")

from lm_eval.api import metrics as theirs
from lm_eval.api import registry
from lm_eval.api.group import Group as TheirGroup
from lm_eval.api.task import ConfigurableTask


pytestmark = pytest.mark.filterwarnings("ignore")

CHOICE_METRICS = [
    "acc",
    "acc_norm",
    "acc_bytes",
    "acc_mutual_info",
    "f1",
    "mcc",
    "exact_match",
    "brier_score",
    "likelihood",
]


def their_items(
    output_type: str,
    metrics: Mapping[str, Mapping[str, Any]],
    results: Sequence[Any],
    target: Any,
    choices: list[str] | None = None,
) -> dict[str, Any]:
    """`process_results` of lm_eval's task class, given what it asks of a task."""
    stand_in = SimpleNamespace(
        config=SimpleNamespace(process_results=None, doc_to_choice=choices),
        OUTPUT_TYPE=output_type,
        _metric_fn_list={name: registry.get_metric(name) for name in metrics},
        _metric_fn_kwargs=metrics,
        _aggregation_list={},
        _higher_is_better={},
        multiple_input=0,
        multiple_target=len(target) if isinstance(target, list) else 0,
        doc_to_choice=lambda doc: choices,
        doc_to_target=lambda doc: target,
        doc_to_text=lambda doc: "",
        count_words=ConfigurableTask.count_words,
        count_bytes=ConfigurableTask.count_bytes,
    )
    found: dict[str, Any] = ConfigurableTask.process_results(stand_in, {}, results)
    return found


def our_items(
    output_type: str,
    metrics: Mapping[str, Mapping[str, Any]],
    results: Sequence[Any],
    references: Sequence[str] = (),
    choices: Sequence[str] | None = None,
    gold: Sequence[int] = (),
) -> Mapping[str, Any]:
    specs = tuple(MetricSpec(name, options=options) for name, options in metrics.items())
    task = Task("t", Path("t.yaml"), output_type, None, None, metrics=resolve_metrics(specs, output_type))
    doc = RenderedDoc(0, {}, "", None if choices is None else tuple(choices), tuple(gold), tuple(references), None)
    result = score_doc(task, 0, doc, [[one] for one in results])
    assert result.error is None, result.error
    return result.scores["none"]


def flat(item: Any) -> list[float]:
    return (
        [number for one in item for number in flat(one)]
        if isinstance(item, list | tuple | np.ndarray)
        else [float(item)]
    )


LL = st.one_of(st.floats(-60, -0.001), st.sampled_from([-math.inf, -1.0, -2.0]))


@st.composite
def answered(draw: st.DrawFn) -> tuple[list[str], list[tuple[float, bool]], list[tuple[float, bool]], int]:
    """Choices, conditional and unconditional answers, gold; at least one choice is possible."""
    choices = draw(st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=5, unique=True))
    answers = [(draw(LL), draw(st.booleans())) for _ in choices]
    answers[draw(st.integers(0, len(choices) - 1))] = (-3.0, True)
    unconditional = [(draw(st.floats(-60, -0.001)), draw(st.booleans())) for _ in choices]
    return choices, answers, unconditional, draw(st.integers(0, len(choices) - 1))


@settings(deadline=None)
@given(answered(), st.booleans())
def test_choice_items(case: tuple[Any, ...], mutual_information: bool) -> None:
    choices, answers, unconditional, gold = case
    names = [name for name in CHOICE_METRICS if mutual_information or name != "acc_mutual_info"]
    metrics: dict[str, Mapping[str, Any]] = {name: {} for name in names}
    results = answers + unconditional if mutual_information else answers
    with np.errstate(invalid="ignore"):
        expected = their_items("multiple_choice", metrics, results, gold, choices)
    found = our_items("multiple_choice", metrics, results, choices=choices, gold=[gold])
    assert list(found) == names
    for name in names:
        assert flat(found[name]) == pytest.approx(flat(expected[name]), abs=1e-12), name


@settings(deadline=None)
@given(answered(), st.data())
def test_items_with_several_right_choices(case: tuple[Any, ...], data: st.DataObject) -> None:
    choices, answers, _, _ = case
    gold = sorted(data.draw(st.sets(st.integers(0, len(choices) - 1), min_size=1)))
    metrics: dict[str, Mapping[str, Any]] = {name: {} for name in ("acc", "acc_norm", "acc_bytes", "exact_match")}
    expected = their_items("multiple_choice", metrics, answers, gold, choices)
    assert our_items("multiple_choice", metrics, answers, choices=choices, gold=gold) == expected


@settings(deadline=None)
@given(st.floats(-100, 0), st.booleans(), st.text(max_size=30))
def test_items_of_texts(ll: float, greedy: bool, text: str) -> None:
    metrics: dict[str, Mapping[str, Any]] = {"perplexity": {}, "acc": {}}
    expected = their_items("loglikelihood", metrics, [(ll, greedy)], text)
    assert our_items("loglikelihood", metrics, [(ll, greedy)], [text]) == expected
    rolling: dict[str, Mapping[str, Any]] = {"word_perplexity": {}, "byte_perplexity": {}, "bits_per_byte": {}}
    counts = their_items("loglikelihood_rolling", rolling, [ll], text)
    assert our_items("loglikelihood_rolling", rolling, [ll], [text]) == {
        name: list(one) for name, one in counts.items()
    }


# numpy, which lm_eval compares texts with, drops trailing NULs and cuts what grows by lowering its case.
TEXTS = st.text(alphabet=st.sampled_from(list("aB1,.$# \n!ж−")), max_size=8)


@settings(deadline=None)
@given(
    TEXTS,
    st.lists(TEXTS, min_size=1, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "ignore_case": st.booleans(),
            "ignore_punctuation": st.booleans(),
            "ignore_numbers": st.booleans(),
            "regexes_to_ignore": st.sampled_from([[","], [",", r"\$", "(?s).*#### ", r"\.$"], [r"^\s+", r"\s+$"]]),
        },
    ),
)
def test_exact_match(prediction: str, references: list[str], options: dict[str, Any]) -> None:
    metrics = {"exact_match": options}
    assert our_items("generate_until", metrics, [prediction], references) == their_items(
        "generate_until", metrics, [prediction], references
    )
    assert our_items("generate_until", metrics, [prediction], references[:1]) == their_items(
        "generate_until", metrics, [prediction], references[0]
    )


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
def test_translation_items(name: str) -> None:
    expected = their_items("generate_until", {name: {}}, ["a b"], "a c")
    assert our_items("generate_until", {name: {}}, ["a b"], ["a c"]) == expected == {name: ["a c", "a b"]}


NUMBERS = st.lists(st.floats(-20, 0), min_size=2, max_size=40)
LABELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40)
MORE_LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40)
LENGTHS = st.lists(st.tuples(st.floats(-200, 0), st.integers(1, 90)), min_size=2, max_size=40)


@st.composite
def probabilities(draw: st.DrawFn) -> list[tuple[int, list[float]]]:
    n = draw(st.integers(2, 5))
    row = st.lists(st.floats(0, 1), min_size=n, max_size=n)
    return draw(st.lists(st.tuples(st.integers(0, n - 1), row), min_size=2, max_size=20))


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("mean", NUMBERS),
        ("nanmean", NUMBERS),
        ("perplexity", NUMBERS),
        ("weighted_perplexity", LENGTHS),
        ("bits_per_byte", LENGTHS),
        ("f1", LABELS),
        ("matthews_corrcoef", MORE_LABELS),
        ("brier_score", probabilities()),
    ],
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_aggregations(name: str, items: st.SearchStrategy[Any], data: st.DataObject) -> None:
    drawn = data.draw(items)
    expected = float(registry.get_aggregation(name)(drawn))
    assert AGGREGATIONS[name].function(drawn) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(lambda items: len(items) % 2 == 1))
def test_median_of_an_odd_number(items: list[int]) -> None:
    assert AGGREGATIONS["median"].function(items) == theirs.median(items)


def sentences(seed: int, n: int) -> list[list[str]]:
    rnd = random.Random(seed)
    words = ["the", "a", "dog", "cat", "runs", "sees", ".", ",", "red", "3"]

    def one() -> str:
        return " ".join(rnd.choices(words, k=rnd.randint(1, 9)))

    return [[reference, rnd.choice([reference, one()])] for reference in (one() for _ in range(n))]


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
@pytest.mark.parametrize("seed", [0, 1])
def test_corpus_scores(name: str, seed: int) -> None:
    items = sentences(seed, 25)
    assert AGGREGATIONS[name].function(items) == pytest.approx(registry.get_aggregation(name)(items), abs=1e-9)
    several = [[[reference, f"{reference} again"], prediction] for reference, prediction in items]
    assert AGGREGATIONS[name].function(several) == pytest.approx(registry.get_aggregation(name)(several), abs=1e-9)


def their_stderr(name: str, items: Sequence[Any], draws: int) -> float:
    """As their `_compute_task_aggregations` asks for it, without worker processes."""
    if name in ("bleu", "chrf", "chrf++", "ter"):
        draws = min(draws, 100)
    function = theirs.stderr_for_metric(registry.get_aggregation(name), draws)
    assert function is not None
    return float(function(items))


def our_stderr(name: str, items: Sequence[Any], draws: int) -> float | None:
    spec = MetricSpec("own", function=lambda items: items, aggregation=name)
    return stderr(resolve(spec, "generate_until"), items, bootstrap_iters=draws)


RND = random.Random(7)
STDERR_ITEMS: dict[str, list[Any]] = {
    "mean": [RND.random() for _ in range(50)],
    "nanmean": [RND.random() for _ in range(50)],
    "perplexity": [-5 * RND.random() for _ in range(50)],
    "f1": [(RND.randint(0, 1), RND.randint(0, 1)) for _ in range(50)],
    "matthews_corrcoef": [(RND.randint(0, 2), RND.randint(0, 2)) for _ in range(50)],
    "bleu": sentences(3, 12),
    "chrf": sentences(4, 12),
    "chrf++": sentences(5, 12),
    "ter": sentences(6, 12),
}


@pytest.mark.parametrize("name", STDERR_ITEMS)
def test_standard_errors_are_those_of_the_same_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    items = STDERR_ITEMS[name]
    draws = 1000 if name in ("mean", "nanmean", "perplexity") else 120
    assert our_stderr(name, items, draws) == pytest.approx(their_stderr(name, items, draws), rel=1e-9)


def test_draws_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    items = STDERR_ITEMS["perplexity"]
    assert our_stderr("perplexity", items, 2500) == pytest.approx(their_stderr("perplexity", items, 2500), rel=1e-9)


@pytest.mark.parametrize("name", sorted(AGGREGATIONS))
def test_a_formula_is_there_exactly_where_they_have_one(name: str) -> None:
    ours_only = {"acc_all": True, "likelihood": True}
    expected = ours_only.get(name) or theirs.stderr_for_metric(registry.get_aggregation(name), 1000) is not None
    assert (AGGREGATIONS[name].stderr is not None) is expected


def test_acc_all() -> None:
    rnd = random.Random(1)
    items = [
        (rnd.random() < 0.7, {"idx": {"paragraph": i // 12, "question": i // 3}, "label": rnd.randint(0, 1)})
        for i in range(60)
    ]
    assert AGGREGATIONS["acc_all"].function(items) == pytest.approx(theirs.acc_all(items))
    found = AGGREGATIONS["acc_all"].stderr
    assert found is not None
    assert found(items, 1000) == pytest.approx(theirs.acc_all_stderr(items))


MEMBER = st.tuples(st.floats(0, 1), st.one_of(st.none(), st.floats(0, 0.3)), st.integers(2, 300))


@settings(deadline=None)
@given(st.lists(MEMBER, min_size=1, max_size=6), st.booleans())
def test_groups(members: list[tuple[float, float | None, int]], weighted: bool) -> None:
    names = [f"t{i}" for i in range(len(members))]
    their_metrics = {
        name: {"acc,none": value, "acc_stderr,none": "N/A" if error is None else error, "sample_len": n}
        for name, (value, error, n) in zip(names, members, strict=True)
    }
    config = SimpleNamespace(metric="acc", filter_list=None, weight_by_size=weighted)
    their_group = TheirGroup("g", aggregate_metric_list=[config])
    their_group.get_all_tasks = lambda: [SimpleNamespace(task_name=name) for name in names]
    expected = their_group.aggregate(their_metrics)
    ours = [
        (
            Task(name, Path("t.yaml"), "multiple_choice", None, None),
            Summary(name, name, None, 0, n, n, (MetricValue("acc", "none", value, error, True, n),)),
        )
        for name, (value, error, n) in zip(names, members, strict=True)
    ]
    group = Group("g", Path("g.yaml"), (), metrics=(GroupMetric("acc", weight_by_size=weighted),))
    (found,) = summarize_group(group, ours).values
    assert found.value == pytest.approx(expected["acc,none"], abs=1e-12)
    error = expected["acc_stderr,none"]
    assert found.stderr == (None if error == "N/A" else pytest.approx(error, abs=1e-12))
