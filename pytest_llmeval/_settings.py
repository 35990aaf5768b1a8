"""The settings of a run as one frozen value, and the types of the values that users write."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from typing import Generic
from typing import TypeVar

from pytest_llmeval._errors import SettingError
from pytest_llmeval._task import NOTHING


#: The default seed for few-shot draws in lm_eval (--seed 0,1234,1234,1234).
FEWSHOT_SEED = 1234


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `of` parts of an evaluation, by its number from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    `limit`: a number of docs (int), or a share of each task's docs (float below 1). `sample_seed`: with a limit, the
    seed for a random sample of docs instead of the first ones. `num_fewshot`: None means the task's value. `gen_kwargs`
    override a task's `generation_kwargs` key by key. `keep_keys`: results contain their doc's key and pick, for a
    baseline. `identify`: compute the fingerprints of models, which may read all their weights. `early_stop`: docs are
    run in the random order of `stop_seed`, as many as the gates need; gates that set no confidence are proven at
    `stop_confidence`, others may spend the share `stop_split` of their error on early looks. `family`: the gates that
    share an error, ``rule`` for those of one rule, ``checkpoint`` for those with one metric and condition on a model,
    ``session`` for these on all models. `noise_docs`: the number of docs per compared task to rescore in forward passes
    of other sizes, and in `noise_dtype` if that is set. `calibration_runs`: the number of times that every doc is
    answered for a baseline, 0 if it is not calibrated. `baseline_topk`: the number of likeliest next tokens that the
    baseline keeps at each scored position; 0 for none. `confirm`: ask for the docs of a failing comparison again.
    `shard`: the part of the docs that is answered here.
    """

    data_dir: Path | None = None
    limit: int | float | None = None
    sample_seed: int | None = None
    num_fewshot: int | None = None
    fewshot_seed: int = FEWSHOT_SEED
    chat_template: bool = False
    fewshot_multiturn: bool = False
    system: str | None = None
    gen_kwargs: Mapping[str, Any] = NOTHING
    allow_code: bool = False
    strict: bool = False
    bootstrap_iters: int = 1000
    keep_samples: bool = False
    keep_keys: bool = False
    identify: bool = False
    early_stop: bool = False
    stop_seed: int = 0
    stop_confidence: float = 0.95
    stop_split: float = 0.5
    family: str = "checkpoint"
    baseline_topk: int = 0
    noise_docs: int = 0
    noise_dtype: str | None = None
    calibration_runs: int = 0
    shard: Shard | None = None
    confirm: bool = False


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """A type of value that users give as a text, in an option, an ini key, or after ``key=``.

    `expected` describes valid texts in messages. `convert` returns the value of a text; it raises ValueError, KeyError
    or SyntaxError for an invalid one.
    """

    expected: str
    convert: Callable[[str], T]

    def read(self, text: str, origin: str) -> T:
        """Return the value of a text. Raises SettingError, whose message begins with `origin`."""
        try:
            return self.convert(text)
        except (KeyError, SyntaxError, ValueError):
            raise SettingError(f"{origin}: expected {self.expected}, got {text!r}") from None


def whole_number(minimum: int = 0) -> ValueType[int]:
    """Return the type of whole numbers from `minimum`, written in decimal digits."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < minimum:
            raise ValueError(text)
        return int(text)

    return ValueType(f"a whole number from {minimum}", convert)


def one_of(*words: str) -> ValueType[str]:
    """Return the type of texts that are one of `words`."""
    *others, last = words
    return ValueType(f"{', '.join(others)} or {last}", dict(zip(words, words, strict=True)).__getitem__)


def matching(pattern: str, expected: str) -> ValueType[str]:
    """Return the type of texts that match a regular expression from start to end."""

    def convert(text: str) -> str:
        if not re.fullmatch(pattern, text, re.DOTALL):
            raise ValueError(text)
        return text

    return ValueType(expected, convert)


_TRUTH = MappingProxyType({"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False})

TEXT = matching(".+", "a text")
FLAG = ValueType("true or false", lambda text: _TRUTH[text.lower()])


def parse_pairs(text: str, origin: str) -> dict[str, str]:
    """Return ``a=1,b=x`` as texts by key; commas inside brackets or quotes do not split. Raises SettingError."""
    pairs: dict[str, str] = {}
    for part in _split_outside_brackets(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"{origin}: expected key=value pairs joined by commas, got {part!r}")
        if key.strip() in pairs:
            raise SettingError(f"{origin}: {key.strip()!r} is given twice")
        pairs[key.strip()] = value.strip()
    return pairs


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, quote, start = [], 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part.strip()]
