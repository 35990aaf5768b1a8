"""Filters: what is left of an answer. Cases B25 (extraction), B26, B32 e and f."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._scoring import FILTER_NAMES
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._scoring import filters
from pytest_llmeval._scoring import responses_used
from pytest_llmeval._task import TAKE_FIRST
from pytest_llmeval._task import Pipeline


def steps(*named: str | tuple[str, dict[str, Any]]) -> Pipeline:
    """A pipeline of filter names, or (name, options)."""
    pairs = [(one, {}) if isinstance(one, str) else one for one in named]
    return Pipeline("f", tuple(filter_step(name, options) for name, options in pairs))


def extract(response: Any, **options: Any) -> Any:
    return steps(("regex", options), "take_first")([response], {})


@pytest.mark.parametrize(
    ("pattern", "group_select", "response", "result"),
    [
        ("(?i)answer is (yes)|answer is (no)", 0, "Answer is no", "no"),
        ("x(foo)?(bar)?", 0, "x", "[invalid]"),
        (r"#### (\d+)", 1, "#### 42", "[invalid]"),
        (r"#### (\d+)", -2, "#### 42", "[invalid]"),
        (r"\d+", -1, "3 then 7", "7"),
        (r"\d+", 1, "3 then 7", "7"),
        ("Answer: (.*)", 0, "Reason\nAnswer: 4 \nBye", "4"),
        ("(?s)<ans>(.*?)</ans>", 0, "<ans>\n4\n</ans>", "4"),
        ("<ans>(.*?)</ans>", 0, "<ans>\n4\n</ans>", "[invalid]"),
        (r"^Answer: (\d+)", 0, "Hi\nAnswer: 4", "[invalid]"),
        (r"(?m)^Answer: (\d+)", 0, "Hi\nAnswer: 4", "4"),
        (r"(\d+)", 0, "", "[invalid]"),
        (r"(\d+)", 0, None, "[invalid]"),
        (r"(\d+)", 0, 42, "[invalid]"),
        (r"\b(\w+)\b", 0, "हिन्दी", "ह"),
        (r"a{e}", 0, "an a{e}", "a{e}"),
    ],
)
def test_regex(pattern: str, group_select: int, response: Any, result: str) -> None:
    assert extract(response, regex_pattern=pattern, group_select=group_select) == result


def test_regex_has_the_defaults_of_the_format() -> None:
    assert extract("so #### -1,234.5 it is") == "-1,234.5"
    assert extract("none") == "[invalid]"
    assert extract("none", fallback="?") == "?"


STRICT = {"regex_pattern": r"#### (\-?[0-9\.\,]+)"}
FLEXIBLE = {"regex_pattern": "(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1}


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        ("He made 70,000.\n#### 70,000", "70,000", "70,000"),
        ("The total is $1,234.", "[invalid]", "$1,234."),
        ("The total is 72 clips, altogether.", "[invalid]", "72"),
        ("It costs 5 dollars", "[invalid]", "5"),
        ("#### -3", "-3", "-3"),
        ("#### 12 apples, not #### 13", "12", "13"),
        ("#### 29.00", "29.00", "29.00"),
        ("So the answer is 12. Hmm...", "[invalid]", "..."),
        ("答えは７２", "[invalid]", "[invalid]"),
    ],
)
def test_gsm8k_extraction(response: str, strict: str, flexible: str) -> None:
    assert extract(response, **STRICT) == strict
    assert extract(response, **FLEXIBLE) == flexible


def test_a_vote_is_taken_after_the_extraction() -> None:
    pipeline = steps(("regex", {"regex_pattern": r"(\d+)"}), "majority_vote", "take_first")
    assert pipeline(["so 4", "it is 4", "5"], {}) == "4"


@pytest.mark.parametrize(
    ("answers", "winner"),
    [(["5", "4"], "5"), (["4", "5", "5", "4"], "4"), (["1", "2", "2"], "2"), ([["a"], ["a"]], ["a"])],
)
def test_in_a_tied_vote_the_answer_that_came_first_wins(answers: list[Any], winner: Any) -> None:
    assert steps("majority_vote")(answers, {}) == [winner]


@pytest.mark.parametrize(
    ("pipeline", "answers", "result"),
    [
        (steps("take_first"), ["a", "b"], "a"),
        (steps(("take_first_k", {"k": 2})), ["a", "b", "c"], ["a", "b"]),
        (steps("lowercase"), ["ÀB", None], ["àb", None]),
        (steps("uppercase"), ["straße"], ["STRASSE"]),
        (steps("remove_whitespace", "take_first"), ["\n a b\t"], "a b"),
        (steps(("map", {"mapping_dict": {"A": 0}})), ["A", "B"], [0, None]),
        (steps(("map", {"mapping_dict": {"A": 0}, "default_value": -1}), "take_first"), ["B"], -1),
        (steps("take_first", ("map", {"mapping_dict": {"AB": 1}}), "take_first"), ["AB"], 1),
        (steps("regex_pos"), ["[('a', 'NOUN'), ('b', 'ADV')]"], [["NOUN", "ADV"]]),
        (steps(("regex_pos", {"regex_pattern": "unused"})), ["no tags", [("a", "VERB")]], [["invalid"], ["VERB"]]),
        (steps(("regex_pos", {"fallback": ["?"]})), ["", None, 5, [1, ("a",)]], [["?"]] * 4),
        (steps(("map", {"mapping_dict": {"A": 0}, "default_value": -1})), [["A"], None], [-1, -1]),
        (TAKE_FIRST, [(-1.5, True)], (-1.5, True)),
    ],
)
def test_pipelines(pipeline: Pipeline, answers: list[Any], result: Any) -> None:
    assert pipeline(answers, {}) == result


LETTERS = {"regex_pattern": r"(\([A-Z]\))", "ignore_case": True, "ignore_punctuation": True}


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("The answer is (B).", "(B)"),
        ("it is GUILTY of romance!", "(B)"),
        ("guilty", "(A)"),
        ("I say: C", "(C)"),
        ("I say D", "[invalid]"),
        (None, "[invalid]"),
    ],
)
def test_multi_choice_regex(answer: Any, letter: str) -> None:
    doc = {"choices": ["Guilty", "Guilty of Romance", "x-y", "z"]}
    assert steps(("multi_choice_regex", LETTERS), "take_first")([answer], doc) == letter


def test_multi_choice_regex_takes_out_what_is_to_be_ignored() -> None:
    options = {"regex_pattern": "nothing", "regexes_to_ignore": [r"\b(The|A) ", "[0-9]"], "group_select": -1}
    doc = {"choices": ["The dog7", "A cat"]}
    answers = ["first the cat, then 5 dog", "neither"]
    assert steps(("multi_choice_regex", options))(answers, doc) == ["(A)", "[invalid]"]


def test_multi_choice_regex_reads_choices_that_are_numbers() -> None:
    options = {"regex_pattern": "nothing"}
    assert steps(("multi_choice_regex", options))(["it is 42"], {"choices": [7, 42]}) == ["(B)"]


def test_multi_choice_regex_needs_choices() -> None:
    with pytest.raises(ValueError, match="needs a column 'choices'"):
        steps("multi_choice_regex")(["a"], {})


def shout(responses: Sequence[Sequence[str]], docs: Sequence[Any]) -> list[list[str]]:
    return [[doc["p"] + one.upper() for one in answers] for answers, doc in zip(responses, docs, strict=True)]


def test_a_custom_filter_sees_one_doc_with_all_its_responses() -> None:
    spec = Pipeline("f", (filter_step("custom", {}, shout), filter_step("take_first")))
    assert spec(["a", "b"], {"p": "> "}) == "> A"


def test_a_custom_filter_that_fails_is_an_error_of_the_task() -> None:
    with pytest.raises(TaskFileError, match=r"test_filters\.py:\d+: filter_fn: shout raised KeyError: 'p'"):
        Pipeline("f", (filter_step("custom", {}, shout),))(["a"], {})


class Suffix:
    def __init__(self, suffix: str = "!") -> None:
        self.suffix = suffix

    def apply(self, responses: Sequence[Sequence[str]], docs: Sequence[Any]) -> Any:
        return ((one + self.suffix for one in answers) for answers in responses)


def test_a_filter_class_of_the_task() -> None:
    spec = Pipeline("f", (filter_step("utils.Suffix", {"suffix": "?"}, Suffix), filter_step("take_first")))
    assert spec(["a", "b"], {}) == "a?"


@pytest.mark.parametrize("result", [[], None])
def test_a_custom_filter_must_keep_the_doc(result: Any) -> None:
    def lost(responses: Any, docs: Any) -> Any:
        return result

    with pytest.raises(ValueError, match="lost gave 0 results for 1 doc"):
        Pipeline("f", (filter_step("custom", {}, lost),))(["a"], {})


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (("regexp",), "unknown filter 'regexp'; known: custom, lowercase, majority_vote, map, "),
        (("regex", {"pattern": "x"}), "unknown option 'pattern'; its options: regex_pattern, group_select"),
        (("lowercase", {"x": 1}), "unknown option 'x'; its options: none"),
        (("regex", {"regex_pattern": "("}), r"'\(' is not a regex: missing \), unterminated subpattern"),
        (("regex", {"group_select": "1"}), "group_select must be a whole number, got '1'"),
        (("regex", {"group_select": True}), "group_select must be a whole number, got True"),
        (("regex", {"regex_pattern": 3}), "regex_pattern must be a text, got 3"),
        (("map", {"mapping_dict": ["a"]}), "mapping_dict must be a mapping"),
        (("take_first_k",), "needs the option 'k'"),
        (("take_first_k", {"k": 0}), "k must be at least 1"),
        (("custom", {"filter_fn": "utils.f"}), "filter_fn must be a !function"),
        (("custom", {"x": 1}, shout), "unknown option 'x'"),
        (("multi_choice_regex", {"regexes_to_ignore": ["["]}), r"'\[' is not a regex"),
        (("multi_choice_regex", {"regexes_to_ignore": ","}), "regexes_to_ignore must be a list of texts"),
        (("multi_choice_regex", {"ignore_case": "yes"}), "ignore_case must be true or false"),
        (("utils.Suffix", {"prefix": "?"}, Suffix), "Suffix does not take these options: prefix"),
        (("utils.dict", {}, dict), "has no method apply"),
    ],
)
def test_what_cannot_be_applied_is_refused(step: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        filter_step(*step)


def test_what_can_be_applied() -> None:
    for name in FILTER_NAMES - {"custom", "take_first_k"}:
        filter_step(name)
    filter_step("custom", {}, shout)
    filter_step("take_first_k", {"k": 3})


def test_take_first_k_needs_k_responses() -> None:
    with pytest.raises(ValueError, match="k is 3, but the doc has 2 responses; raise repeats"):
        steps(("take_first_k", {"k": 3}))(["a", "b"], {})


@pytest.mark.parametrize(
    ("pipeline", "used"),
    [
        (TAKE_FIRST, 1),
        (steps("lowercase", "take_first"), 1),
        (steps("lowercase"), 5),
        (steps("majority_vote", "take_first"), 5),
        (steps(("take_first_k", {"k": 3}), "majority_vote", "take_first"), 3),
        (steps(("take_first_k", {"k": 3})), 3),
        (Pipeline("f", (filter_step("custom", {}, shout), filter_step("take_first"))), 5),
    ],
)
def test_responses_used(pipeline: Pipeline, used: int) -> None:
    assert responses_used(pipeline, 5) == used


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no processor-time signal")
@pytest.mark.parametrize("name", ["regex", "multi_choice_regex"])
def test_a_pattern_without_end_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = filters.limited
    monkeypatch.setattr(filters, "limited", lambda call: limited(call, 0.05))
    with pytest.raises(ValueError, match=r"regex on an answer of 61 characters was stopped after 0\.05 s"):
        steps((name, {"regex_pattern": "(a+)+$"}))(["a" * 60 + "b"], {"choices": ["x"]})


TEXT_FILTERS = [
    steps("regex"),
    steps(("regex", FLEXIBLE)),
    steps(("multi_choice_regex", LETTERS)),
    steps("regex_pos"),
    steps("lowercase"),
    steps("uppercase"),
    steps("remove_whitespace"),
    steps("map"),
    steps("majority_vote"),
]


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4), st.lists(st.text(), max_size=4))
def test_no_filter_fails_on_any_text(answers: list[str], choices: list[str]) -> None:
    for pipeline in TEXT_FILTERS:
        found = pipeline(answers, {"choices": choices})
        assert len(found) in (len(answers), 1)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_the_winner_has_the_most_votes_and_came_first_among_those(answers: list[str]) -> None:
    (winner,) = steps("majority_vote")(answers, {})
    most = max(answers.count(one) for one in answers)
    assert winner == next(one for one in answers if answers.count(one) == most)


@settings(deadline=None)
@given(st.text(), st.sampled_from([STRICT["regex_pattern"], r"\d+", "(a)|(b)", "x*", "(?i)the (.*?) end"]))
def test_a_regex_finds_what_re_finds(answer: str, pattern: str) -> None:
    found = extract(answer, regex_pattern=pattern, fallback="nothing found")
    assert (found == "nothing found") == (
        not any(any(m) if isinstance(m, tuple) else True for m in re.findall(pattern, answer)[:1])
    )
