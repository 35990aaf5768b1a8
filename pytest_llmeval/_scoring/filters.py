"""The filters of lm-evaluation-harness's format: steps from a doc's responses to the answers that are scored.

A pipeline begins with a list of one answer per repeat. A step maps the list to a new list; the step `take_first` maps
it to a single answer.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pytest_llmeval._functions import accepts
from pytest_llmeval._functions import call
from pytest_llmeval._functions import check_options
from pytest_llmeval._functions import name_of
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import FilterFunction
from pytest_llmeval._task import FilterStep
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import take_first
from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


#: lm_eval's default pattern, and the text for no match.
GSM8K_ANSWER = r"#### (\-?[0-9\.\,]+)"
INVALID = "[invalid]"

_TAGGED_TOKEN = re.compile(r"\('([^']*)', '([^']*)'\)")


def filter_step(name: str, options: Mapping[str, Any] = NOTHING, function: DocFunction | None = None) -> FilterStep:
    """Return one function of a pipeline, ready to be called.

    `function` is that of a ``!function``, or of the step `custom`. Raises ValueError with the reason if the name, one
    of the options, or the pattern is wrong.
    """
    return FilterStep(name, _ready(name, options, function), options, function)


def responses_used(pipeline: Pipeline, repeats: int) -> int:
    """Return the number of a doc's responses that can affect its score under a pipeline."""
    used = repeats
    for step in pipeline.steps:
        left = responses_left(step, used)
        if left is None or (step.name in _FILTERS and _FILTERS[step.name].combines):
            return used
        used = min(used, left)
    return used


def responses_left(step: FilterStep, responses: int) -> int | None:
    """Return the number of answers after a step that is given `responses` of them; None if a function decides it."""
    return None if step.function is not None else _FILTERS[step.name].left(step.options, responses)


def _ready(name: str, options: Mapping[str, Any], function: DocFunction | None) -> FilterFunction:
    if function is not None and name != "custom":
        return _filter_object(function, options)
    if name not in FILTER_NAMES:
        raise ValueError(f"unknown filter {name!r}; known: {', '.join(sorted(FILTER_NAMES))}")
    if name == "custom":
        if function is None:
            raise ValueError("filter custom: filter_fn must be a !function, called as filter_fn(responses, docs)")
        check_options("filter custom", lambda: None, options)
        # Its function takes lists for several docs; it is called with those for one doc.
        return lambda answers, doc: _only(call(function, "filter_fn", [list(answers)], [doc]), function)
    make = _FILTERS[name].make
    check_options(f"filter {name}", make, options)
    try:
        return make(**options)
    except re.error as error:
        raise ValueError(f"filter {name}: {error.pattern!r} is not a regex: {error.msg}") from error


def _regex(*, regex_pattern: str = GSM8K_ANSWER, group_select: int = 0, fallback: str = INVALID) -> FilterFunction:
    """Select match number `group_select` of all matches, stripped: its first non-empty group, or all of it."""
    find = _finder(re.compile(regex_pattern), group_select)

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        found = (find(answer) for answer in answers)
        return [fallback if match is None else match for match in found]

    return step


def _regex_pos(*, regex_pattern: str = "", group_select: int = 0, fallback: Any = None) -> FilterFunction:
    """Select the tags of (token, tag) pairs, in a list or in a text; the pattern is not used, as in lm_eval."""
    none_found = ["invalid"] if fallback is None else fallback

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        return [tags(answer) or none_found for answer in answers]

    def tags(answer: Any) -> list[Any]:
        pairs = _TAGGED_TOKEN.findall(answer) if isinstance(answer, str) else answer
        if not isinstance(pairs, list | tuple):
            return []
        return [pair[1] for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]

    return step


def _multi_choice_regex(
    *,
    regex_pattern: str = GSM8K_ANSWER,
    group_select: int = 0,
    fallback: str = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Sequence[str] | None = None,
) -> FilterFunction:
    """Find the letter of an option, ``(A)``: by the pattern, else by the option's text, else by a letter after a colon.

    Patterns to ignore are removed from options and answers, then case and punctuation if requested.
    """
    ignored = [re.compile(pattern) for pattern in regexes_to_ignore or ()]
    find = _finder(re.compile(regex_pattern), group_select)

    def cleaned(text: str) -> str:
        for pattern in ignored:
            text = pattern.sub("", text)
        text = text.lower() if ignore_case else text
        return text.translate(_punctuation()) if ignore_punctuation else text

    def selected(matches: list[str]) -> str:
        return matches[group_select] if -len(matches) <= group_select < len(matches) else ""

    def letter_finder(choices: Sequence[Any]) -> Callable[[str], str | None]:
        letters = [chr(ord("A") + i) for i in range(len(choices))]
        named = {cleaned(str(choice).strip()): f"({letter})" for choice, letter in zip(choices, letters, strict=True)}
        # Longest first: in an alternation an option would hide those that begin with it.
        texts = re.compile("|".join(sorted(map(re.escape, named), key=len, reverse=True)))
        after_colon = re.compile(rf":[\s]*({'|'.join(map(re.escape, letters))})")

        def letter_in(answer: str) -> str | None:
            text = selected(texts.findall(cleaned(answer))).strip()
            if text:
                return named.get(text, text)
            letter = selected(after_colon.findall(answer))
            return f"({letter})" if letter else None

        return letter_in

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        if "choices" not in doc:
            raise ValueError("filter multi_choice_regex needs a column 'choices' in the doc")
        letter_in = letter_finder(doc["choices"])
        return [find(answer) or _timed(letter_in, answer) or fallback for answer in answers]

    return step


@lru_cache(maxsize=1)
def _punctuation() -> Mapping[int, None]:
    """Return a translation that deletes every character of a Unicode category P."""
    return dict.fromkeys(i for i in range(sys.maxunicode) if unicodedata.category(chr(i)).startswith("P"))


def _map(*, mapping_dict: Mapping[Any, Any] = MappingProxyType({}), default_value: Any = None) -> FilterFunction:
    def value_of(answer: Any) -> Any:
        try:
            return mapping_dict.get(answer, default_value)
        except TypeError:  # a list, which is never a key
            return default_value

    return lambda answers, doc: [value_of(answer) for answer in answers]


def _on_texts(change: Callable[[str], str]) -> Callable[[], FilterFunction]:
    return lambda: lambda answers, doc: [change(answer) if isinstance(answer, str) else answer for answer in answers]


def _take_first_k(*, k: int) -> FilterFunction:
    if k < 1:
        raise ValueError(f"filter take_first_k: k must be at least 1, got {k}")

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        if len(answers) < k:
            raise ValueError(f"filter take_first_k: k is {k}, but the doc has {len(answers)} responses; raise repeats")
        return list(answers[:k])

    return step


def _filter_object(function: DocFunction, options: Mapping[str, Any]) -> FilterFunction:
    """Return the step of a ``!function`` that returns an object with the method ``apply(responses, docs)``."""
    if not accepts(function, **options):
        given = ", ".join(options) or "none"
        raise ValueError(f"filter {name_of(function)} does not take these options: {given}")
    made = call(function, "filter", **options)
    if not callable(getattr(made, "apply", None)):
        raise ValueError(f"filter {name_of(function)}: the object it returns has no method apply(responses, docs)")
    return lambda answers, doc: _only(call(made.apply, "filter", [list(answers)], [doc]), function)


def _only(results: Any, function: DocFunction) -> Any:
    """Return the result for the one doc that a user's filter was given."""
    found = list(results) if isinstance(results, Iterable) else []
    if len(found) != 1:
        raise ValueError(f"filter {name_of(function)} gave {len(found)} results for 1 doc")
    return list(found[0]) if isinstance(found[0], Iterator) else found[0]


def _finder(pattern: re.Pattern[str], group_select: int) -> Callable[[Any], str | None]:
    """Return a function from an answer to the selected match, None if there is none or its groups are all empty."""

    def find(answer: Any) -> str | None:
        matches = _timed(pattern.findall, answer) if isinstance(answer, str) else []
        if not -len(matches) <= group_select < len(matches):
            return None
        match = matches[group_select]
        if isinstance(match, tuple):
            match = next((group for group in match if group), None)
        return None if match is None else str(match).strip()

    return find


def _timed(search: Callable[[str], Any], answer: Any) -> Any:
    text = answer if isinstance(answer, str) else ""
    try:
        return limited(lambda: search(text))
    except TimeLimitError as error:
        raise ValueError(f"a filter's regex on an answer of {len(text):,} characters was {error}") from error


@dataclass(frozen=True, slots=True)
class _Filter:
    """The facts of one filter: `make` returns its step from its options.

    `left`: the number of answers after the step, given its options and the number before it. `combines`: every answer
    before the step affects those after it, although these may be fewer.
    """

    make: Callable[..., FilterFunction]
    left: Callable[[Mapping[str, Any], int], int] = lambda options, responses: responses
    combines: bool = False


_FILTERS: Mapping[str, _Filter] = MappingProxyType(
    {
        "lowercase": _Filter(_on_texts(str.lower)),
        "majority_vote": _Filter(
            # `max` keeps the first of equals: a tie goes to the answer that came first.
            lambda: lambda answers, doc: [max(answers, key=answers.count)],
            left=lambda options, responses: 1,
            combines=True,
        ),
        "map": _Filter(_map),
        "multi_choice_regex": _Filter(_multi_choice_regex),
        "regex": _Filter(_regex),
        "regex_pos": _Filter(_regex_pos),
        "remove_whitespace": _Filter(_on_texts(str.strip)),
        "take_first": _Filter(lambda: take_first, left=lambda options, responses: 1),
        "take_first_k": _Filter(_take_first_k, left=lambda options, responses: int(options["k"])),
        "uppercase": _Filter(_on_texts(str.upper)),
    }
)

FILTER_NAMES: frozenset[str] = frozenset({"custom", *_FILTERS})
