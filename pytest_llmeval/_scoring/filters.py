"""Finding which option of a multiple-choice question a written answer names.

What is done to the answers of one doc before they are judged (`filter_list`).

The filters and their options are lm-evaluation-harness's. A pipeline begins with one answer per repeat; a step
maps the list to a new one, and `take_first` makes a single answer of it.
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
from pytest_llmeval._task import FilterStep
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import Step
from pytest_llmeval._task import take_first
from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


@dataclass(frozen=True, slots=True)
class LetterFinder:
    """How texts of options are compared with an answer.

    `ignored` patterns are taken out of both, then case and punctuation if asked for. Raises re.error for a pattern
    that is none.
    """

    group_select: int
    ignore_case: bool
    ignore_punctuation: bool
    ignored: tuple[str, ...]

    def __post_init__(self) -> None:
        for pattern in self.ignored:
            re.compile(pattern)

    def for_choices(self, choices: Sequence[str]) -> Letters:
        """Ready for the options of one doc."""
        named = {self.cleaned(str(choice).strip()): f"({letter_of(i)})" for i, choice in enumerate(choices)}
        # Longest first: in an alternation an option would hide those that begin with it.
        texts = "|".join(sorted(map(re.escape, named), key=len, reverse=True))
        letters = "|".join(re.escape(letter_of(i)) for i in range(len(choices)))
        return Letters(self, named, re.compile(texts), re.compile(rf":[\s]*({letters})"))

    def cleaned(self, text: str) -> str:
        for pattern in self.ignored:
            text = re.sub(pattern, "", text)
        if self.ignore_case:
            text = text.lower()
        return text.translate(_punctuation()) if self.ignore_punctuation else text


@dataclass(frozen=True, slots=True)
class Letters:
    """The options of one doc: called with an answer, gives ``(A)`` or None."""

    finder: LetterFinder
    named: Mapping[str, str]
    texts: re.Pattern[str]
    after_colon: re.Pattern[str]

    def __call__(self, answer: str) -> str | None:
        text = self._selected(self.texts.findall(self.finder.cleaned(answer))).strip()
        if text:
            return self.named.get(text, text)
        letter = self._selected(self.after_colon.findall(answer))
        return f"({letter})" if letter else None

    def _selected(self, matches: list[str]) -> str:
        select = self.finder.group_select
        return matches[select] if -len(matches) <= select < len(matches) else ""


def letter_of(index: int) -> str:
    """A, B, C, ... for 0, 1, 2, ..."""
    return chr(ord("A") + index)


@lru_cache(maxsize=1)
def _punctuation() -> Mapping[int, None]:
    """A translation that deletes every character of a Unicode category P."""
    return dict.fromkeys(i for i in range(sys.maxunicode) if unicodedata.category(chr(i)).startswith("P"))


#: The format's default pattern, and what stands for no match.
GSM8K_ANSWER = r"#### (\-?[0-9\.\,]+)"
INVALID = "[invalid]"

_TAGGED_TOKEN = re.compile(r"\('([^']*)', '([^']*)'\)")


def filter_step(name: str, options: Mapping[str, Any] = NOTHING, function: DocFunction | None = None) -> FilterStep:
    """One function of a pipeline, made ready; `function` is that of a ``!function`` or of the step `custom`.

    Raises ValueError with the reason if the name, one of the options, or the pattern is wrong.
    """
    return FilterStep(name, _ready(name, options, function), options, function)


def responses_used(pipeline: Pipeline, repeats: int) -> int:
    """How many of a doc's responses can decide its score under a pipeline."""
    used = repeats
    for step in pipeline.steps:
        if step.function is not None or step.name == "majority_vote":
            return used
        if step.name == "take_first":
            return 1
        if step.name == "take_first_k":
            used = min(used, step.options["k"])
    return used


def _ready(name: str, options: Mapping[str, Any], function: DocFunction | None) -> Step:
    if function is not None and name != "custom":
        return _filter_object(function, options)
    if name not in FILTER_NAMES:
        raise ValueError(f"unknown filter {name!r}; known: {', '.join(sorted(FILTER_NAMES))}")
    if name == "custom":
        if function is None:
            raise ValueError("filter custom: filter_fn must be a !function, called as filter_fn(responses, docs)")
        check_options("filter custom", _no_options, options)
        # Its function works on lists of docs; it is called with one doc alone.
        return lambda answers, doc: _only(call(function, "filter_fn", [list(answers)], [doc]), function)
    check_options(f"filter {name}", _FILTERS[name], options)
    try:
        return _FILTERS[name](**options)
    except re.error as error:
        raise ValueError(f"filter {name}: {error.pattern!r} is no regex: {error.msg}") from error


def _no_options() -> None:
    """The signature of what takes no option."""


def _regex(*, regex_pattern: str = GSM8K_ANSWER, group_select: int = 0, fallback: str = INVALID) -> Step:
    """The match number `group_select` of all matches, stripped: its first non-empty group, or all of it."""
    find = _finder(re.compile(regex_pattern), group_select)

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        found = (find(answer) for answer in answers)
        return [fallback if match is None else match for match in found]

    return step


def _regex_pos(*, regex_pattern: str = "", group_select: int = 0, fallback: Any = None) -> Step:
    """The tags of a list of (token, tag) pairs, as texts; the pattern is accepted and unused, as in the format."""
    none_found = ["invalid"] if fallback is None else fallback

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        return [_tags(answer) or none_found for answer in answers]

    return step


def _tags(answer: Any) -> list[Any]:
    """The second of each pair, in a list of pairs or in the text of one."""
    pairs = _TAGGED_TOKEN.findall(answer) if isinstance(answer, str) else answer
    if not isinstance(pairs, list | tuple):
        return []
    return [pair[1] for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]


def _multi_choice_regex(
    *,
    regex_pattern: str = GSM8K_ANSWER,
    group_select: int = 0,
    fallback: str = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Sequence[str] | None = None,
) -> Step:
    """The letter of an option, ``(A)``: by the pattern, else by the option's text, else by a letter after a colon."""
    letters = LetterFinder(group_select, ignore_case, ignore_punctuation, tuple(regexes_to_ignore or ()))
    find = _finder(re.compile(regex_pattern), group_select)

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        if "choices" not in doc:
            raise ValueError("filter multi_choice_regex needs a column 'choices' in the doc")
        options = letters.for_choices(doc["choices"])
        return [find(answer) or _timed(options, answer) or fallback for answer in answers]

    return step


def _map(*, mapping_dict: Mapping[Any, Any] = MappingProxyType({}), default_value: Any = None) -> Step:
    def value_of(answer: Any) -> Any:
        try:
            return mapping_dict.get(answer, default_value)
        except TypeError:  # a list, which is nobody's key
            return default_value

    return lambda answers, doc: [value_of(answer) for answer in answers]


def _on_texts(change: Callable[[str], str]) -> Callable[[], Step]:
    def factory() -> Step:
        return lambda answers, doc: [change(a) if isinstance(a, str) else a for a in answers]

    return factory


def _take_first_k(*, k: int) -> Step:
    if k < 1:
        raise ValueError(f"filter take_first_k: k must be at least 1, got {k}")

    def step(answers: Sequence[Any], doc: DocData) -> list[Any]:
        if len(answers) < k:
            raise ValueError(f"filter take_first_k: k is {k}, but the doc has {len(answers)} responses; raise repeats")
        return list(answers[:k])

    return step


def _majority_vote() -> Step:
    # `max` keeps the first of equals: a tie goes to the answer that came first.
    return lambda answers, doc: [max(answers, key=answers.count)]


def _filter_object(function: DocFunction, options: Mapping[str, Any]) -> Step:
    """A ``!function`` that makes an object with the method ``apply(responses, docs)``, as the format has it."""
    if not accepts(function, **options):
        given = ", ".join(options) or "none"
        raise ValueError(f"filter {name_of(function)} does not take these options: {given}")
    made = call(function, "filter", **options)
    if not callable(getattr(made, "apply", None)):
        raise ValueError(f"filter {name_of(function)}: what it makes has no method apply(responses, docs)")
    return lambda answers, doc: _only(call(made.apply, "filter", [list(answers)], [doc]), function)


def _only(results: Any, function: DocFunction) -> Any:
    """The result for the one doc that a user's filter was given."""
    found = list(results) if isinstance(results, Iterable) else []
    if len(found) != 1:
        raise ValueError(f"filter {name_of(function)} gave {len(found)} results for 1 doc")
    return list(found[0]) if isinstance(found[0], Iterator) else found[0]


def _finder(pattern: re.Pattern[str], group_select: int) -> Callable[[Any], str | None]:
    """(answer) -> the selected match, or None if there is none or all its groups are empty."""

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


_FILTERS: Mapping[str, Callable[..., Step]] = MappingProxyType(
    {
        "lowercase": _on_texts(str.lower),
        "majority_vote": _majority_vote,
        "map": _map,
        "multi_choice_regex": _multi_choice_regex,
        "regex": _regex,
        "regex_pos": _regex_pos,
        "remove_whitespace": _on_texts(str.strip),
        "take_first": lambda: take_first,
        "take_first_k": _take_first_k,
        "uppercase": _on_texts(str.upper),
    }
)

FILTER_NAMES: frozenset[str] = frozenset({"custom", *_FILTERS})
