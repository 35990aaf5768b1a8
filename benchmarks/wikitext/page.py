"""A WikiText page: its text with the tokenizer's marks undone, and what its perplexities are divided by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence


#: The steps of Megatron-LM's WikiText detokenizer (Shoeybi et al. 2019, arXiv:1909.08053), in its order. Published
#: perplexities rest on these very steps, so the second one stays as it is, though its slashes match nothing useful.
STEPS = [
    # possessives and contractions
    (re.escape("s '"), "s'"),
    (r"/' [0-9]/", r"/'[0-9]/"),
    # marks inside numbers and compounds
    (re.escape(" @-@ "), "-"),
    (re.escape(" @,@ "), ","),
    (re.escape(" @.@ "), "."),
    # blanks before punctuation
    (re.escape(" : "), ": "),
    (re.escape(" ; "), "; "),
    (re.escape(" . "), ". "),
    (re.escape(" ! "), "! "),
    (re.escape(" ? "), "? "),
    (re.escape(" , "), ", "),
    # blanks inside brackets and quotes
    (r"\(\s*([^\)]*?)\s*\)", r"(\1)"),
    (r"\[\s*([^\]]*?)\s*\]", r"[\1]"),
    (r"{\s*([^}]*?)\s*}", r"{\1}"),
    (r"\"\s*([^\"]*?)\s*\"", r'"\1"'),
    (r"'\s*([^']*?)\s*'", r"'\1'"),
    # headings, degrees, line ends, and the stand-in for a number
    (re.escape("= = = ="), "===="),
    (re.escape("= = ="), "==="),
    (re.escape("= ="), "=="),
    (re.escape(" ° "), "°"),
    (re.escape(" \n"), "\n"),
    (re.escape("\n "), "\n"),
    (re.escape(" N "), " 1 "),
    (re.escape(" 's"), "'s"),
]


def detokenized(doc: Mapping[str, str]) -> str:
    """The page as it would be typed: ``1 @,@ 000 people ( all )`` becomes ``1,000 people (all)``."""
    text = doc["page"]
    for pattern, replacement in STEPS:
        text = re.sub(pattern, replacement, text)
    return text


def perplexities(doc: Mapping[str, str], results: Sequence[float]) -> dict[str, tuple[float, int]]:
    """(log-likelihood, words or bytes of the page as published) for each metric."""
    (logprob,) = results
    words = len(re.split(r"\s+", doc["page"]))
    size = len(doc["page"].encode())
    return {
        "word_perplexity": (logprob, words),
        "byte_perplexity": (logprob, size),
        "bits_per_byte": (logprob, size),
    }
