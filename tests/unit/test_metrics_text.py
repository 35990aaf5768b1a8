"""Scores of generated texts. Cases B17 and B25 (scores) and B18."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._scoring import number_in
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import text
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import MetricSpec


def score(
    name: str, prediction: Any, references: Sequence[str], options: Mapping[str, Any] = NOTHING, **spec: Any
) -> Mapping[str, Any]:
    metric = resolve(MetricSpec(name, options=options, **spec), "generate_until")
    assert metric.score is not None
    return metric.score(prediction, references)


GSM8K = {"ignore_case": True, "ignore_punctuation": False, "regexes_to_ignore": [",", r"\$", "(?s).*#### ", r"\.$"]}


@pytest.mark.parametrize(
    ("extracted", "gold", "right"),
    [
        ("70,000", 70000, 1.0),
        ("$1,234.", 1234, 1.0),
        ("[invalid]", 72, 0.0),
        ("72", 72, 1.0),
        ("5", 5, 1.0),
        ("-3", -3, 1.0),
        ("12", 12, 1.0),
        ("13", 12, 0.0),
        ("29.00", 29, 0.0),
        ("...", 12, 0.0),
    ],
)
def test_gsm8k(extracted: str, gold: int, right: float) -> None:
    assert score("exact_match", extracted, [f"He has 5 dogs.\n#### {gold}"], GSM8K) == {"exact_match": right}


@pytest.mark.parametrize(
    ("prediction", "references", "options", "right"),
    [
        ("a", ["a"], {}, 1.0),
        ("a", ["A"], {}, 0.0),
        ("a ", ["a"], {}, 0.0),
        ("[1, 2, 3]", ["[1, 2, 3]"], {}, 1.0),
        ("v", ["u", "v"], {}, 1.0),
        ("w", ["u", "v"], {}, 0.0),
        ("07", ["7"], {}, 0.0),
        ("ÀB", ["àb"], {"ignore_case": True}, 1.0),
        ("the-end!", ["theend"], {"ignore_punctuation": True}, 1.0),
        ("the。end", ["theend"], {"ignore_punctuation": True}, 0.0),
        ("a1b2", ["ab"], {"ignore_numbers": True}, 1.0),
        ("ab", ["b"], {"regexes_to_ignore": ["^a"]}, 1.0),
        ("The X", ["x"], {"regexes_to_ignore": ["^The "], "ignore_case": True}, 1.0),
        ("the X", ["x"], {"regexes_to_ignore": ["^The "], "ignore_case": True}, 0.0),
        (None, ["None"], {}, 0.0),
        (3, ["3"], {}, 1.0),
        (["a", "b", "a", "c"], ["a"], {}, 0.5),
        (["a", "b", "a", "c"], ["a", "b"], {}, 0.75),
        ([], ["a"], {}, 0.0),
    ],
)
def test_exact_match(prediction: Any, references: list[str], options: dict[str, Any], right: float) -> None:
    assert score("exact_match", prediction, references, options) == {"exact_match": right}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", 72.0),
        (" 1,234.50\n", 1234.5),
        ("-1e3", -1000.0),
        ("−5", -5.0),
        ("29.", 29.0),
        (".5", 0.5),
        ("７２", 72.0),
        ("1,2", None),
        ("", None),
        ("-", None),
        (".", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("72 apples", None),
        ("1/2", None),
        ("²", None),
    ],
)
def test_number_in(text: str, number: float | None) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize(
    ("prediction", "reference", "options", "right"),
    [
        ("29.00", "29", {}, 1.0),
        ("1,000.009", "1000", {}, 1.0),
        ("1,000.011", "1000", {}, 0.0),
        ("1010", "1000", {"rel_tol": 0.01}, 1.0),
        ("990", "1000", {"rel_tol": 0.009}, 0.0),
        ("0", "0.0", {}, 1.0),
        ("1e-9", "0", {}, 0.0),
        ("[invalid]", "72", {}, 0.0),
        ("[invalid]", "[invalid]", {}, 0.0),
        ("$5", "5", {"regexes_to_ignore": [r"\$"]}, 1.0),
        (None, "5", {}, 0.0),
    ],
)
def test_numeric_match(prediction: Any, reference: str, options: dict[str, Any], right: float) -> None:
    assert score("numeric_match", prediction, [reference], options) == {"numeric_match": right}


def closeness(predictions: list[str], references: list[str], scale: float = 1.0) -> float:
    assert predictions == ["z"]
    return {"u": 0.5, "v": 0.25}[references[0]] * scale


def test_of_several_references_the_best_score_counts() -> None:
    assert score("closeness", "z", ["u", "v"], function=closeness) == {"closeness": 0.5}
    assert score("closeness", "z", ["v", "u"], function=closeness) == {"closeness": 0.5}
    assert score("closeness", "z", ["v"], {"scale": 2.0}, function=closeness) == {"closeness": 0.5}


def test_the_best_score_is_the_lowest_where_lower_is_better() -> None:
    assert score("closeness", "z", ["u", "v"], function=closeness, higher_is_better=False) == {"closeness": 0.25}


def in_pairs(items: list[str]) -> list[str]:
    return items


def test_a_function_of_one_list_is_given_reference_and_prediction() -> None:
    assert score("in_pairs", "z", ["u"], function=in_pairs) == {"in_pairs": ["u", "z"]}


def two_metrics(references: list[str], predictions: list[str], **options: Any) -> dict[str, float]:
    return {"same": float(references == predictions), "length": float(len(predictions[0]))}


def test_a_dict_gives_several_metrics() -> None:
    assert score("two_metrics", "u", ["u"], function=two_metrics) == {"same": 1.0, "length": 1.0}
    assert score("two_metrics", "u", ["v", "u"], function=two_metrics) == {"same": 1.0, "length": 1.0}


def broken(predictions: list[str], references: list[str]) -> float:
    return len(None)  # type: ignore[arg-type]


def test_a_type_error_of_the_function_is_not_taken_for_a_wrong_call() -> None:
    with pytest.raises(TaskFileError, match=r"test_metrics_text\.py:\d+: metric: broken raised TypeError: object of"):
        score("broken", "z", ["u"], function=broken)


def test_a_function_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"metric in_pairs must take .*references=\[\.\.\.\], k=\.\.\.\)"):
        score("in_pairs", "z", ["u"], {"k": 1}, function=in_pairs)


def test_what_is_no_number_has_no_best() -> None:
    with pytest.raises(ValueError, match="several references, so in_pairs must be a number for each"):
        score("in_pairs", "z", ["u", "v"], function=in_pairs)


@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
def test_translations_are_kept_for_the_whole_corpus(name: str) -> None:
    assert score(name, "pred", ["ref"]) == {name: ["ref", "pred"]}
    assert score(name, ["pred"], ["r1", "r2"]) == {name: [["r1", "r2"], "pred"]}
    with pytest.raises(ValueError, match=r"needs one text, but the filter returned \['a', 'b'\]"):
        score(name, ["a", "b"], ["ref"])


def test_pairs_are_kept_for_an_aggregation_of_the_task() -> None:
    assert score("acc", ["NOUN"], ["NOUN"], {"ignore_case": True}, aggregation=len) == {"acc": ["NOUN", ["NOUN"]]}
    assert score("bypass", "x", ["y"]) == {"bypass": None}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no processor-time signal")
def test_a_pattern_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = text.limited
    monkeypatch.setattr(text, "limited", lambda call: limited(call, 0.05))
    with pytest.raises(ValueError, match=r"metric exact_match: regexes_to_ignore was stopped after 0\.05 s"):
        score("exact_match", "a" * 60 + "b", ["a"], {"regexes_to_ignore": ["(a+)+$"]})


@settings(deadline=None)
@given(st.text(), st.text())
def test_exact_match_is_symmetric_and_of_itself_right(one: str, other: str) -> None:
    for options in ({}, GSM8K, {"ignore_punctuation": True, "ignore_numbers": True}):
        assert score("exact_match", one, [one], options) == {"exact_match": 1.0}
        assert score("exact_match", one, [other], options) == score("exact_match", other, [one], options)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_matches_itself_however_written(number: float) -> None:
    for written in (repr(number), f" {number!r} "):
        assert score("numeric_match", written, [repr(number)]) == {"numeric_match": 1.0}
    if abs(number) < 1e15:
        assert number_in(f"{number:,.3f}") == pytest.approx(number, abs=1e-3, rel=1e-12)
