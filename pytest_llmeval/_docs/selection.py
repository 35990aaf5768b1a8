"""Which docs of a task a run asks for."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

from pytest_llmeval._errors import SettingError
from pytest_llmeval._settings import Settings


def select(n: int, settings: Settings) -> Sequence[int]:
    """Which of `n` docs (counted after `process_docs`) this run asks for, ascending.

    `settings.limit` is a count, or below 1 a share of which the ceiling is taken, exactly: 0.07 of 100 is 7. With
    `sample_seed` as many docs are drawn at random; a larger sample by the same seed holds the smaller one.
    """
    if settings.limit is None:
        return range(n)
    count = min(n, _count(n, settings.limit))
    if settings.sample_seed is None:
        return range(count)
    order = list(range(n))
    random.Random(settings.sample_seed).shuffle(order)  # noqa: S311 - a sample, no secret
    return sorted(order[:count])


def _count(n: int, limit: int | float) -> int:
    if not 0 < limit < math.inf or (limit >= 1 and limit != int(limit)):
        raise SettingError(f"limit: expected a number of docs (10) or a share below 1 (0.1), got {limit!r}")
    if limit >= 1:
        return int(limit)
    # By way of its shortest decimal: the float nearest to 0.07 is larger than 7/100, and its ceiling would be 8.
    return math.ceil(Fraction(repr(limit)) * n)
