"""BLEU, chrF, chrF++ and TER over a whole corpus, by sacrebleu. Items are (reference or references, prediction).

Scores of one generated text against the texts that are right.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from typing import TypeAlias

import numpy as np

from pytest_llmeval._functions import accepts
from pytest_llmeval._functions import call
from pytest_llmeval._functions import name_of
from pytest_llmeval._scoring.standard_errors import Drawn
from pytest_llmeval._task import DocFunction
from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


#: Class of sacrebleu, and its settings, of each metric.
SCORERS: dict[str, tuple[str, dict[str, int]]] = {
    "bleu": ("BLEU", {}),
    "chrf": ("CHRF", {}),
    "chrf++": ("CHRF", {"word_order": 2}),
    "ter": ("TER", {}),
}


def corpus_score(name: str, items: Sequence[tuple[Any, Any]]) -> float:
    """The score of all docs together, 0 to 100 (TER may exceed it). Raises ValueError without sacrebleu."""
    predictions, references = _streams(items)
    return float(_scorer(name).corpus_score(predictions, references).score)


def resample(name: str, items: Sequence[tuple[Any, Any]]) -> Callable[[Drawn], float]:
    """Scores of drawn docs. Matches are counted once per doc; a draw only adds them up, as sacrebleu's own does."""
    scorer = _scorer(name)
    predictions, references = _streams(items)
    counts = np.array(scorer._extract_corpus_statistics(predictions, references))
    return lambda drawn: float(scorer._compute_score_from_stats(counts[drawn].sum(axis=0).tolist()).score)


def require_sacrebleu(name: str) -> None:
    """Raises ValueError that says how to install sacrebleu if it is not there."""
    try:
        import sacrebleu.metrics  # noqa: F401 - an optional dependency, needed only by these metrics
    except ImportError:
        raise ValueError(f"metric {name} needs sacrebleu: pip install 'pytest-llmeval-harness[translation]'") from None


def _scorer(name: str) -> Any:
    require_sacrebleu(name)
    import sacrebleu.metrics

    class_name, settings = SCORERS[name]
    return getattr(sacrebleu.metrics, class_name)(**settings)


def _streams(items: Sequence[tuple[Any, Any]]) -> tuple[list[str], list[tuple[str | None, ...]]]:
    """sacrebleu's shape: the predictions, and for each j the j-th references, None where a doc has fewer."""
    references = [[given] if isinstance(given, str) else list(given) for given, _ in items]
    return [prediction for _, prediction in items], list(zip_longest(*references))


#: (prediction, references) -> item by metric. A prediction is a text, or a list where a filter leaves several.
TextScore: TypeAlias = Callable[[Any, Sequence[str]], Mapping[str, Any]]

#: (prediction, reference) -> whether they agree.
Agreement: TypeAlias = Callable[[str, str], bool]

#: A number as models write it: sign, digits with or without thousands commas, fraction, exponent.
_NUMBER = re.compile(r"[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][+\-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Ignored:
    """What is taken out of both texts before they are compared, in this order; the options of `exact_match`."""

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
    """1 where the prediction equals a reference, once what is to be ignored is taken out of both."""
    patterns = _patterns("exact_match", regexes_to_ignore)
    ignored = Ignored(patterns, ignore_case, ignore_punctuation, ignore_numbers)
    return _agreeing("exact_match", lambda prediction, reference: ignored(prediction) == ignored(reference), patterns)


def numeric_match(*, rel_tol: float = 1e-5, regexes_to_ignore: Sequence[str] | None = None) -> TextScore:
    """1 where prediction and a reference are numbers that differ by at most `rel_tol` times the reference.

    A number may have thousands commas, white space around it and digits of any script; what is no number, or not
    finite, never matches.
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
    """The finite number that a whole text spells, or None."""
    text = text.strip()
    if not text or not _NUMBER.fullmatch(text):
        return None
    try:
        value = float(text.replace(",", "").replace("−", "-"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def paired(name: str) -> TextScore:
    """Keeps [reference, prediction], or [[references], prediction] of several, for an aggregation of the task's own."""
    return lambda prediction, references: {name: [_alone(references), prediction]}


def translated(name: str) -> TextScore:
    """Keeps [reference, prediction] or [[references], prediction] for a score of the whole corpus.

    Raises ValueError if sacrebleu is not installed, and for a doc with other than one answer.
    """
    require_sacrebleu(name)

    def score(prediction: Any, references: Sequence[str]) -> Mapping[str, Any]:
        text = prediction[0] if isinstance(prediction, list) and len(prediction) == 1 else prediction
        if not isinstance(text, str):
            raise ValueError(f"metric {name} needs one text, the filter leaves {prediction!r:.80}")
        return {name: [_alone(references), text]}

    return score


def _alone(references: Sequence[str]) -> str | list[str]:
    return references[0] if len(references) == 1 else list(references)


def of_function(
    function: DocFunction, name: str, options: Mapping[str, Any], higher_is_better: bool | None
) -> TextScore:
    """A ``!function`` metric: called with ``predictions=`` and ``references=`` and its options, else with one list.

    Of several references the best score counts. A returned dict holds the items of several metrics. Raises
    ValueError if the function takes neither form.
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
    """1.0 if the prediction agrees with any reference; of several predictions the share that do."""

    def share(prediction: Any, references: Sequence[str]) -> float:
        given = prediction if isinstance(prediction, list) else [prediction]
        # Nothing, which a filter such as `map` may leave, is no answer.
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
        raise ValueError(f"metric {metric}: {error.pattern!r} is no regex: {error.msg}") from error
