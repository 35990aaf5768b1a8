"""Items of one doc whose text itself is scored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any


def count_words(text: str) -> int:
    """Pieces between runs of white space; an empty piece at an end counts, as in lm-evaluation-harness."""
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def target_scores(answers: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """loglikelihood: of the text that is best scored, its log probability and whether greedy decoding writes it."""
    likeliest = max(ll for ll, _ in answers) if not any(math.isnan(ll) for ll, _ in answers) else math.nan
    greedy = any(is_greedy for _, is_greedy in answers) and not math.isnan(likeliest)
    return {"perplexity": likeliest, "acc": int(greedy)}


#: loglikelihood_rolling: what a metric divides the log probability of a text by.
ROLLING_METRICS: Mapping[str, Callable[[str], int]] = MappingProxyType(
    {"word_perplexity": count_words, "byte_perplexity": count_bytes, "bits_per_byte": count_bytes}
)
