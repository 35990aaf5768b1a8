"""BLEU, chrF, chrF++ and TER over a whole corpus, by sacrebleu. Items are (reference or references, prediction)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from pytest_llmeval._metrics.standard_errors import Drawn


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
