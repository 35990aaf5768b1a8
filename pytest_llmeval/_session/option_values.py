"""The types of the values that users give to options, each with a description of valid texts for messages."""

from __future__ import annotations

from pytest_llmeval._models import DTYPES
from pytest_llmeval._settings import Shard
from pytest_llmeval._settings import ValueType
from pytest_llmeval._settings import one_of
from pytest_llmeval._settings import whole_number


def _limit(text: str) -> int | float:
    number = float(text)
    if not 0 < number < float("inf") or (number >= 1 and number != int(number)):
        raise ValueError(text)
    return int(number) if number >= 1 else number


def _sample_seed(text: str) -> int:
    method, _, seed = text.partition(":")
    if method != "random":
        raise ValueError(text)
    return whole_number().convert(seed)


def _confidence(text: str) -> float:
    number = float(text)
    if not 0.5 <= number <= 1:
        raise ValueError(text)
    return number


def _split(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise ValueError(text)
    return number


def _shard(text: str) -> Shard:
    number, of = (whole_number(1).convert(part) for part in text.split("/"))
    if number > of:
        raise ValueError(text)
    return Shard(number, of)


def _noise(text: str) -> tuple[int, str | None]:
    docs, colon, dtype = text.partition(":")
    return whole_number(1).convert(docs), one_of(*NOISE_DTYPES).convert(dtype) if colon else None


NOISE_DTYPES = tuple(name for name in DTYPES if name != "auto")

LIMIT = ValueType("a number of docs (10) or a share below 1 (0.1)", _limit)
SAMPLE = ValueType("random:SEED with a whole number, e.g. random:7", _sample_seed)
CONFIDENCE = ValueType("a number from 0.5 to 1", _confidence)
SPLIT = ValueType("a number between 0 and 1, e.g. 0.2", _split)
SHARD = ValueType("I/N, part I from 1 to N of N parts, e.g. 2/8", _shard)
RUNS = whole_number(2)
TOPK = whole_number(1)
NOISE = ValueType(f"N or N:DTYPE, e.g. 64 or 64:bfloat16 (dtypes: {', '.join(NOISE_DTYPES)})", _noise)
