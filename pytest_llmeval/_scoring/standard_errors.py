"""Standard errors: of a mean, of any statistic by the bootstrap, and of a group's score.

The bootstrap draws exactly what lm-evaluation-harness draws: chunks of at most 1,000 draws, chunk i from
``random.Random(i).choices``. numpy's Mersenne Twister in the same state gives the same numbers, much faster.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


#: Indices of the docs of one draw, with replacement.
DrawnDocs: TypeAlias = NDArray[np.intp]

#: Items -> a function that gives the statistic of a draw.
Resample: TypeAlias = Callable[[Sequence[Any]], Callable[[DrawnDocs], float]]

CHUNK = 1000

#: The largest number of indices in memory at a time, which limits them to 8 MB.
BLOCK = 1_000_000


def mean_stderr(items: Sequence[float], draws: int = 0) -> float:
    """Return the standard error of the mean: sample standard deviation over sqrt(n). `draws` is not used."""
    return _sample_stddev([float(item) for item in items]) / math.sqrt(len(items))


def bootstrap_stderr(resample: Resample, items: Sequence[Any], draws: int, most_draws: int | None = None) -> float:
    """Return the standard deviation of a statistic over resamples of the docs with replacement (Efron 1979)."""
    draws = draws if most_draws is None else min(draws, most_draws)
    statistic = resample(items)
    with np.errstate(all="ignore"):
        return _sample_stddev([statistic(drawn) for drawn in _draws(len(items), draws)])


def _draws(docs: int, draws: int) -> Iterator[DrawnDocs]:
    chunk, rows = min(CHUNK, draws), max(1, BLOCK // docs)
    for seed in range(draws // chunk):
        generator = _twister(seed)
        for first in range(0, chunk, rows):
            block = generator.random_sample((min(rows, chunk - first), docs))
            yield from (block * float(docs)).astype(np.intp)


def _twister(seed: int) -> np.random.RandomState:
    """Return numpy's generator in the state of ``random.Random(seed)``: the same uniform numbers in the same order."""
    *words, position = random.Random(seed).getstate()[1]  # noqa: S311 - a bootstrap, no secret
    generator = np.random.RandomState(0)
    generator.set_state({"bit_generator": "MT19937", "state": {"key": np.array(words, np.uint32), "pos": position}})
    return generator


def _sample_stddev(values: Sequence[float]) -> float:
    """Return the deviation with n - 1; NaN for a single value, and where a value is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def pooled_stderr(stderrs: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the standard error of a mean weighted by size, from the pooled variance of its parts."""
    within = sum((size - 1) * stderr**2 * size for stderr, size in zip(stderrs, sizes, strict=True))
    return math.sqrt(within / (sum(sizes) - len(sizes)) / sum(sizes))


def unweighted_stderr(stderrs: Sequence[float]) -> float:
    """Return the standard error of the plain mean of independent scores."""
    return math.sqrt(sum(stderr**2 for stderr in stderrs)) / len(stderrs)
