"""The item of a generated text, from its comparison with the right texts."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeAlias

from pytest_llmeval._functions import accepts
from pytest_llmeval._functions import call
from pytest_llmeval._functions import name_of
from pytest_llmeval._scoring.aggregations import require_sacrebleu
from pytest_llmeval._task import DocFunction
from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


#: (prediction, references) -> item by metric. A prediction is a text, or a list where a filter leaves several.
TextScore: TypeAlias = Callable[[Any, Sequence[str]], Mapping[str, Any]]

#: (prediction, reference) -> whether they agree.
Agreement: TypeAlias = Callable[[str, str], bool]

#: A number as models write it: sign, digits with or without thousands commas, fraction, exponent.
_NUMBER = re.compile(r"[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][+\-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Ignored:
    """The parts that are removed from both texts before they are compared, in this order; options of `exact_match`."""

    regexes: tuple[re.Pattern[str], ...] = ()
    case: bool = False
    punctuation: bool = False
    numbers: bool = False

    def __call__(self, text: str) -> str:
        for pattern in self.regexes:
            text = pattern.sub("", text)
        if self.case:
            text = text.lower()
        if self.punctuation:
            text = text.translate(_NO_PUNCTUATION)
        return text.translate(_NO_DIGITS) if self.numbers else text


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NO_DIGITS = str.maketrans("", "", string.digits)


def exact_match(
    *,
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> TextScore:
    """Return a function whose item is 1 if the prediction equals a reference, both without the parts to ignore."""
    patterns = _patterns("exact_match", regexes_to_ignore)
    ignored = Ignored(patterns, ignore_case, ignore_punctuation, ignore_numbers)
    return _agreeing("exact_match", lambda prediction, reference: ignored(prediction) == ignored(reference), patterns)


def numeric_match(*, rel_tol: float = 1e-5, regexes_to_ignore: Sequence[str] | None = None) -> TextScore:
    """Return a function whose item is 1 if prediction and a reference are numbers that agree to within `rel_tol`.

    They may differ by at most `rel_tol` times the reference. A number may have thousands commas, white space around
    it and digits of any script; a text that is not a number, or not a finite one, never matches. Raises ValueError for
    a `rel_tol` outside of [0, 1).
    """
    if not 0 <= rel_tol < 1:
        raise ValueError(f"metric numeric_match: rel_tol must be at least 0 and below 1, got {rel_tol!r}")
    patterns = _patterns("numeric_match", regexes_to_ignore)
    ignored = Ignored(patterns)

    def agree(prediction: str, reference: str) -> bool:
        given, wanted = number_in(ignored(prediction)), number_in(ignored(reference))
        return given is not None and wanted is not None and abs(given - wanted) <= rel_tol * abs(wanted)

    return _agreeing("numeric_match", agree, patterns)


def number_in(text: str) -> float | None:
    """Return the finite number that a whole text spells, or None."""
    text = text.strip()
    if not text or not _NUMBER.fullmatch(text):
        return None
    try:
        value = float(text.replace(",", "").replace("−", "-"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def paired(name: str) -> TextScore:
    """Return a function whose item is [reference(s), prediction], for an aggregation defined in the task file."""
    return lambda prediction, references: {name: [_alone(references), prediction]}


def translated(name: str) -> TextScore:
    """Return a function whose item is [reference(s), prediction], for a score of the whole corpus.

    Raises ValueError if sacrebleu is not installed. The function raises it for a doc without exactly one answer.
    """
    require_sacrebleu(name)

    def score(prediction: Any, references: Sequence[str]) -> Mapping[str, Any]:
        text = prediction[0] if isinstance(prediction, list) and len(prediction) == 1 else prediction
        if not isinstance(text, str):
            raise ValueError(f"metric {name} needs one text, but the filter returned {prediction!r:.80}")
        return {name: [_alone(references), text]}

    return score


def _alone(references: Sequence[str]) -> str | list[str]:
    return references[0] if len(references) == 1 else list(references)


def of_function(
    function: DocFunction, name: str, options: Mapping[str, Any], higher_is_better: bool | None
) -> TextScore:
    """Return a function whose items are those of a ``!function`` metric.

    The metric is called with ``predictions=``, ``references=`` and its options, else with the list [reference,
    prediction] and its options. The best score over several references is used. A returned dict has the items of
    several metrics. Raises ValueError if it takes neither form.
    """
    ask = _caller(function, options)
    best = min if higher_is_better is False else max

    def score(prediction: Any, references: Sequence[str]) -> Mapping[str, Any]:
        found = [_items(name, ask(prediction, reference)) for reference in references]
        return found[0] if len(found) == 1 else {key: best(_numbers(name, key, found)) for key in found[0]}

    return score


def _caller(function: DocFunction, options: Mapping[str, Any]) -> Callable[[Any, str], Any]:
    if accepts(function, predictions=[], references=[], **options):
        return lambda prediction, reference: call(
            function, "metric", predictions=[prediction], references=[reference], **options
        )
    if accepts(function, [], **options):
        return lambda prediction, reference: call(function, "metric", [reference, prediction], **options)
    given = "".join(f", {option}=..." for option in options)
    raise ValueError(
        f"metric {name_of(function)} must take (predictions=[...], references=[...]{given}) or "
        f"([reference, prediction]{given})"
    )


def _items(name: str, value: Any) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {name: value}


def _numbers(name: str, key: str, found: Sequence[Mapping[str, Any]]) -> list[float]:
    try:
        return [float(items[key]) for items in found]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"metric {name}: the doc has several references, so {key} must be a number for each") from None


def _agreeing(name: str, agree: Agreement, patterns: Sequence[re.Pattern[str]]) -> TextScore:
    """Return a function whose item is the share of the predictions (usually one) that agree with any reference."""

    def share(prediction: Any, references: Sequence[str]) -> float:
        given = prediction if isinstance(prediction, list) else [prediction]
        # None, which a filter such as `map` may return, is not an answer.
        right = [one is not None and any(agree(str(one), reference) for reference in references) for one in given]
        return sum(right) / len(right) if right else 0.0

    def score(prediction: Any, references: Sequence[str]) -> Mapping[str, Any]:
        if not patterns:
            return {name: share(prediction, references)}
        try:
            return {name: limited(lambda: share(prediction, references))}
        except TimeLimitError as error:
            raise ValueError(f"metric {name}: regexes_to_ignore was {error}") from error

    return score


def _patterns(metric: str, patterns: Sequence[str] | None) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(pattern) for pattern in patterns or ())
    except re.error as error:
        raise ValueError(f"metric {metric}: {error.pattern!r} is not a regex: {error.msg}") from error
