"""Filters leave of random answers what lm_eval's leave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._scoring import filter_step
from pytest_llmeval._task import Pipeline


pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.filters import build_filter_ensemble


pytestmark = pytest.mark.filterwarnings("ignore")

Steps = list[tuple[str, dict[str, Any]]]


def theirs(steps: Steps, answers: list[Any], doc: dict[str, Any]) -> Any:
    instance = Instance(request_type="generate_until", doc=doc, arguments=("", {}), idx=0)
    instance.resps = answers
    build_filter_ensemble("f", [[name, options] for name, options in steps]).apply([instance])
    return instance.filtered_resps["f"]


def ours(steps: Steps, answers: list[Any], doc: dict[str, Any]) -> Any:
    return Pipeline("f", tuple(filter_step(name, options) for name, options in steps))(answers, doc)


#: Patterns that lm_eval's own tasks use.
PATTERNS = [
    r"#### (\-?[0-9\.\,]+)",
    r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
    r"(\([A-Z]\))",
    r"((?<=The answer is )(.*)(?=.)|(?<=the answer is )(.*)(?=.)|(?<=The answer: )(.*)(?=.))",
    r"The answer is (\-?[0-9\.\,]*[0-9]+)",
    r"\b(Yes|No|yes|no)\b",
    r"([A-E]).*",
    r"answer is \(?([ABCDEFGHIJ])\)?",
    r"^\s*([A-D])",
    r"^(.*?)\s*$",
    r"(?<= )([\" \[\(<{}>\)\]]+)|([\" \[\(<{}>\)\]]+)",
    r"(((?<=[answer is ])[A-D])|([A-D]\n)|([A-D]\.)|( [A-D] )|(^[A-D]$)|(\[[A-D]\])|([A-D]))",
    r"(-?[0-9]+([ .,][0-9.,]+)?)",
    r"(?i)\\boxed{(.*?)}",
    r"\w+",
    r"x{e}|(a)?(b)?",
]

WORDS = st.sampled_from(
    [
        "The answer is ",
        "the answer is ",
        "#### ",
        "(A)",
        "B",
        "yes",
        "No",
        "-3",
        "1,234.",
        "$5",
        "\n",
        " ",
        ":",
        "ж",
        "हिन्दी",
    ]
)
ANSWERS = st.lists(st.one_of(st.lists(WORDS, max_size=6).map("".join), st.text(max_size=20)), min_size=1, max_size=4)


@settings(deadline=None)
@given(ANSWERS, st.sampled_from(PATTERNS), st.sampled_from([0, -1]), st.sampled_from(["[invalid]", ""]))
def test_regex(answers: list[Any], pattern: str, group_select: int, fallback: str) -> None:
    options = {"regex_pattern": pattern, "group_select": group_select, "fallback": fallback}
    steps: Steps = [("regex", options)]
    assert ours(steps, answers, {}) == theirs(steps, answers, {})


# lm_eval builds its table of punctuation for every doc, half a second each.
FEW = settings(max_examples=12, deadline=None)

CHOICES = st.lists(st.text(alphabet="ab C.(жx", min_size=1, max_size=4), min_size=1, max_size=5)


@FEW
@given(
    st.lists(st.text(alphabet="ab C.:(жx)AB\n", max_size=14), min_size=1, max_size=3),
    CHOICES,
    st.sampled_from([0, -1]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, ["b"], [r"\s+", "a"]]),
)
def test_multi_choice_regex(
    answers: list[str], choices: list[str], group_select: int, case: bool, punctuation: bool, ignored: list[str] | None
) -> None:
    options = {"regex_pattern": r"(\([A-Z]\))", "group_select": group_select, "ignore_case": case}
    options |= {"ignore_punctuation": punctuation, "regexes_to_ignore": ignored}
    steps: Steps = [("multi_choice_regex", options), ("take_first", {})]
    doc = {"choices": choices}
    assert ours(steps, answers, doc) == theirs(steps, answers, doc)


PIPELINES: list[Steps] = [
    [("take_first", {})],
    [("take_first_k", {"k": 1})],
    [("majority_vote", {})],
    [("majority_vote", {}), ("take_first", {})],
    [("lowercase", {}), ("take_first", {})],
    [("uppercase", {})],
    [("remove_whitespace", {})],
    [("regex", {"regex_pattern": r"(\d+)"}), ("majority_vote", {}), ("take_first", {})],
    [
        ("regex", {"regex_pattern": "(ж|a)"}),
        ("map", {"mapping_dict": {"a": 1}, "default_value": -1}),
        ("take_first", {}),
    ],
    [("map", {"mapping_dict": {"B": "x"}})],
    [("regex_pos", {})],
    [("regex_pos", {"fallback": ["none"]}), ("take_first", {})],
]


@settings(deadline=None)
@given(ANSWERS, st.sampled_from(PIPELINES))
def test_pipelines(answers: list[str], steps: Steps) -> None:
    assert ours(steps, answers, {}) == theirs(steps, answers, {})


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(alphabet="ab", max_size=3), st.text(alphabet="NV'", max_size=3)), max_size=3))
def test_tags(tagged: list[tuple[str, str]]) -> None:
    steps: Steps = [("regex_pos", {})]
    for answer in (str(tagged), tagged):
        assert list(ours(steps, [answer], {})) == list(theirs(steps, [answer], {}))


def test_a_custom_filter() -> None:
    def build(resps: list[list[str]], docs: list[dict[str, Any]]) -> list[list[str]]:
        return [[doc["prompt"] + one for one in answers] for answers, doc in zip(resps, docs, strict=True)]

    doc = {"prompt": "> "}
    spec = Pipeline("f", (filter_step("custom", {}, build),))
    assert spec(["a", "b"], doc) == theirs([("custom", {"filter_fn": build})], ["a", "b"], doc) == ["> a", "> b"]
