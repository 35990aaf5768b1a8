"""Scores of multiple-choice docs. Cases B11, B13 and B14 with their exact values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._output_types import NO_CHOICE
from pytest_llmeval._output_types import Answered
from pytest_llmeval._output_types import pick
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import probabilities
from pytest_llmeval._scoring import resolve
from pytest_llmeval._task import MetricSpec


NAN, INF = math.nan, math.inf

CHOICE_METRICS = [name for name, one in METRICS.items() if "multiple_choice" in one.keeps and name != "bypass"]


def scores(
    lls: Sequence[float],
    choices: Sequence[str],
    gold: Sequence[int],
    *metrics: str,
    greedy: Sequence[bool] = (),
    unconditional: Sequence[float] = (),
) -> dict[str, Any]:
    answered = Answered(lls, greedy or [False] * len(lls), choices, gold, unconditional)
    found = {}
    for name in metrics:
        item = resolve(MetricSpec(name), "multiple_choice").item
        assert item is not None
        found[name] = item(answered)
    return found


@pytest.mark.parametrize(
    ("lls", "picked"),
    [
        ([-1.0, -2.0], 0),
        ([-2.0, -1.0], 1),
        ([-1.0, -1.0], 0),
        ([-INF, -2.0], 1),
        ([NAN, -1.0], NO_CHOICE),
        ([-1.0, NAN], NO_CHOICE),
        ([NAN, NAN, NAN, NAN], NO_CHOICE),
        ([-INF, -INF], NO_CHOICE),
        ([-1.0, INF], NO_CHOICE),
        ([0.0], 0),
    ],
)
def test_pick(lls: list[float], picked: int) -> None:
    assert pick(lls) == picked


@pytest.mark.parametrize(
    ("lls", "gold", "right", "usable"),
    [
        ([NAN, NAN, NAN, NAN], 0, 0.0, False),
        ([-3.2, NAN, -1.0], 1, 0.0, False),
        ([-INF, -2.0], 1, 1.0, True),
        ([-INF, -INF], 0, 0.0, False),
    ],
)
def test_nan_is_never_a_prediction(lls: list[float], gold: int, right: float, usable: bool) -> None:
    choices = [f"c{i}" for i in range(len(lls))]
    greedy = [True] * len(lls)
    found = scores(lls, choices, [gold], "acc", "acc_norm", "acc_bytes", "exact_match", greedy=greedy)
    assert found == {"acc": right, "acc_norm": right, "acc_bytes": right, "exact_match": int(right)}
    assert Answered(lls, greedy, choices, [gold]).usable is usable


def test_metrics_of_a_doc_without_a_prediction_say_so() -> None:
    found = scores([-1.0, NAN], ["a", "b"], [0], "f1", "mcc", "brier_score", "likelihood")
    assert found["f1"] == found["mcc"] == [0, NO_CHOICE]
    assert found["brier_score"][0] == 0
    assert all(map(math.isnan, found["brier_score"][1]))
    assert math.isnan(found["likelihood"][1][1])


@pytest.mark.parametrize(
    ("choices", "lls", "gold", "acc", "acc_norm", "acc_bytes"),
    [
        (["ж", "zz"], [-3.0, -3.5], 0, 1.0, 0.0, 1.0),
        (["e\u0301", "ab"], [-2.0, -2.5], 0, 1.0, 1.0, 1.0),
        (["\u00e9", "ab"], [-2.0, -2.5], 0, 1.0, 0.0, 1.0),
        (["a", "bbb"], [-1.0, -2.2], 1, 0.0, 1.0, 1.0),
    ],
)
def test_lengths(
    choices: list[str], lls: list[float], gold: int, acc: float, acc_norm: float, acc_bytes: float
) -> None:
    found = scores(lls, choices, [gold], "acc", "acc_norm", "acc_bytes")
    assert found == {"acc": acc, "acc_norm": acc_norm, "acc_bytes": acc_bytes}


def test_a_lone_surrogate_has_a_length() -> None:
    assert scores([-1.0, -4.0], ["a", "\ud800"], [0], "acc_bytes") == {"acc_bytes": 1.0}


def test_an_empty_choice_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="choice 1 is empty"):
        scores([-1.0, -2.0], ["a", ""], [0], "acc")


CONDITIONAL = [-1.0, -2.0, -3.0, -4.0]
UNCONDITIONAL = [-0.5, -3.5, -2.0, -4.5]


@pytest.mark.parametrize("gold", [[1], [1, 3]])
def test_mutual_information_leaves_the_other_metrics_alone(gold: list[int]) -> None:
    choices = ["w", "x", "y", "z"]
    with_it = scores(CONDITIONAL, choices, gold, "acc", "acc_norm", "acc_mutual_info", unconditional=UNCONDITIONAL)
    assert with_it == {"acc": 0.0, "acc_norm": 0.0, "acc_mutual_info": 1.0}
    assert scores(CONDITIONAL, choices, gold, "acc", "acc_norm") == {"acc": 0.0, "acc_norm": 0.0}


@pytest.mark.parametrize(
    ("lls", "unconditional", "right", "usable"),
    [
        ([-1.0, -2.0], [NAN, -3.0], 0.0, False),
        ([-1.0, -2.0], [-1.0, -INF], 1.0, True),
        ([-1.0, -INF], [-1.0, -INF], 0.0, True),
        ([-INF, -2.0], [-INF, -2.0], 1.0, True),
    ],
)
def test_mutual_information_of_the_impossible(
    lls: list[float], unconditional: list[float], right: float, usable: bool
) -> None:
    answered = Answered(lls, [False, False], ["a", "b"], [1], unconditional)
    found = scores(lls, ["a", "b"], [1], "acc_mutual_info", unconditional=unconditional)
    assert found == {"acc_mutual_info": right}
    assert answered.usable is usable


def test_any_of_several_right_choices_is_right() -> None:
    names = ("acc", "acc_norm", "exact_match", "f1", "brier_score", "likelihood")
    found = scores([-1.0, -9.0, -2.0], ["a", "b", "c"], [1, 2], *names, greedy=[False, False, True])
    assert (found["acc"], found["acc_norm"], found["exact_match"]) == (0.0, 0.0, 1)
    assert found["f1"] == [1, 0]
    assert found["brier_score"][0] == 2
    assert found["likelihood"] == [2, [-1.0, -9.0, -2.0]]
    assert scores([-5.0, -9.0, -2.0], ["a", "b", "c"], [1, 2], "acc", "f1") == {"acc": 1.0, "f1": [2, 2]}


def test_exact_match_is_what_greedy_decoding_writes() -> None:
    assert scores([-1.0, -2.0], ["a", "b"], [1], "exact_match", greedy=[True, False]) == {"exact_match": 0}
    assert scores([-1.0, -2.0], ["a", "b"], [1], "exact_match", greedy=[True, True]) == {"exact_match": 1}


def test_probabilities() -> None:
    assert probabilities([math.log(1), math.log(3)]) == pytest.approx([0.25, 0.75])
    assert probabilities([-5000.0, -5000.0]) == [0.5, 0.5]
    assert probabilities([-INF, -3.0]) == [0.0, 1.0]


LLS = st.lists(st.floats(-100, -0.01), min_size=2, max_size=5)


@settings(deadline=None)
@given(LLS, st.data())
def test_acc_norm_depends_on_the_order_of_rates_alone(lls: list[float], data: st.DataObject) -> None:
    choices = [data.draw(st.text(min_size=1, max_size=8)) for _ in lls]
    gold = data.draw(st.integers(0, len(lls) - 1))
    found = scores(lls, choices, [gold], "acc_norm")
    doubled = [ll * 2 for ll in lls]
    assert scores(doubled, choices, [gold], "acc_norm") == found
    same_lengths = ["x" * len(choice) for choice in choices]
    assert scores(lls, same_lengths, [gold], "acc_norm") == found
    assert scores([ll * 2 for ll in lls], [choice * 2 for choice in choices], [gold], "acc_norm") == found
    if len({len(choice) for choice in choices}) == 1:
        assert found["acc_norm"] == scores(lls, choices, [gold], "acc")["acc"]


@settings(deadline=None)
@given(LLS, st.data())
def test_exactly_one_choice_is_right_when_each_is_gold_in_turn(lls: list[float], data: st.DataObject) -> None:
    choices = [data.draw(st.text(min_size=1, max_size=8)) for _ in lls]
    for metric in ("acc", "acc_norm", "acc_bytes"):
        assert sum(scores(lls, choices, [gold], metric)[metric] for gold in range(len(lls))) == 1.0


@settings(deadline=None)
@given(LLS)
def test_probabilities_sum_to_one_and_keep_the_order(lls: list[float]) -> None:
    found = probabilities(lls)
    assert sum(found) == pytest.approx(1)
    assert pick(found) == pick(lls)


@settings(deadline=None)
@given(LLS, st.data())
def test_items_are_plain(lls: list[float], data: st.DataObject) -> None:
    choices = [f"c{i}" for i in range(len(lls))]
    found = scores(lls, choices, [0], *CHOICE_METRICS, unconditional=lls)
    for item in found.values():
        assert type(item) in (int, float, list)


@pytest.mark.parametrize(
    ("lls", "gold", "share"),
    [
        ([math.log(0.1), math.log(0.3)], [0], 0.25),
        ([math.log(0.1), math.log(0.1), math.log(0.2)], [1, 2], 0.75),
        ([-1000.0, -1000.0], [1], 0.5),
        ([-2.0, -INF], [0], 1.0),
        ([-2.0, -INF], [1], 0.0),
        ([-3.0, -3.0, -3.0], [0, 1, 2, 2], 1.0),
    ],
)
def test_share_of_the_right_choices(lls: list[float], gold: list[int], share: float) -> None:
    found = scores(lls, ["a", "b", "c"][: len(lls)], gold, "norm_correct_prob")
    assert found == {"norm_correct_prob": pytest.approx(share, abs=1e-12)}


@pytest.mark.parametrize("lls", [[NAN, -1.0], [-INF, -INF]])
def test_there_is_no_share_without_a_prediction(lls: list[float]) -> None:
    assert math.isnan(scores(lls, ["a", "b"], [1], "norm_correct_prob")["norm_correct_prob"])
