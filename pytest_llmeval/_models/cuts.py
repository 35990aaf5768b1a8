"""Cuts: positions that split a text into parts whose token ids, encoded separately, equal those in the whole text.

A cut is between an ASCII letter or digit and the line break after it. A tokenizer of the `tokenizers` library splits a
text into pieces by rules and encodes each piece separately. The prompts of a task mostly contain the same lines: with
cuts, lines that several prompts share are encoded once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any


#: Alternatives in the splitting patterns of GPT-2, GPT-3.5, GPT-4o and similar tokenizers. None of them matches a
#: letter or digit with the line break after it, or looks ahead of a letter or digit, so a piece ends at every cut.
ENDS_LINES = frozenset(
    [
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        "'(?i:[sdmt]|ll|ve|re)",
        r" ?\p{L}+",
        r" ?\p{N}+",
        r"\p{N}",
        r"\p{N}{1,2}",
        r"\p{N}{1,3}",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def cuts_are_exact(tokenizer: Any) -> bool:
    """Return True if the rules of a tokenizer encode the parts between cuts as in any whole text.

    Return False for tokenizers whose rules are not known here, and for those that mark the start of a text
    (SentencePiece).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not getattr(tokenizer, "is_fast", False) or backend is None or backend.pre_tokenizer is None:
        return False
    normalizing = list(_steps(backend.normalizer, "normalizers"))
    splitting = list(_steps(backend.pre_tokenizer, "pretokenizers"))
    return (
        # These compose characters, but never across a line break.
        all(step["type"] in ("NFC", "NFKC") for step in normalizing)
        and all(map(_is_local, splitting))
        and any(map(_ends_lines, splitting))
        and not any(_may_span_a_cut(token) for token in backend.get_added_tokens_decoder().values())
    )


def last_cut(text: str) -> int:
    """Return the index of the last cut of a text, 0 if there is none."""
    place = len(text)
    while (place := text.rfind("\n", 0, place)) > 0:
        if _is_cut(text, place):
            return place
    return 0


def parts(text: str) -> list[str]:
    """Return the parts of a text between its cuts."""
    found: list[str] = []
    start, place = 0, text.find("\n")
    while place >= 0:
        if _is_cut(text, place):
            found.append(text[start:place])
            start = place
        place = text.find("\n", place + 1)
    return [*found, text[start:]]


def _is_cut(text: str, line_break: int) -> bool:
    before = text[line_break - 1 : line_break]
    return before.isalnum() and before.isascii()


def _steps(component: Any, inner: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer or pre-tokenizer as serialized by the library, with sequences flattened."""
    waiting = [] if component is None else [json.loads(component.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = [*step[inner], *waiting]
        else:
            yield step


def _is_local(step: Mapping[str, Any]) -> bool:
    """Return True if the effect of a step on one side of a cut does not depend on the other side."""
    if step["type"] == "ByteLevel":
        return not step["add_prefix_space"]
    return step["type"] in ("Digits", "WhitespaceSplit") or _ends_lines(step)


def _ends_lines(step: Mapping[str, Any]) -> bool:
    """Return True if a step ends a piece at every cut."""
    kind = step["type"]
    if kind == "ByteLevel":
        return bool(step["use_regex"] and not step["add_prefix_space"])
    if kind != "Split" or step["behavior"] != "Isolated" or step["invert"]:
        return bool(kind == "WhitespaceSplit")
    return ENDS_LINES.issuperset(_alternatives(str(step["pattern"].get("Regex", ""))))


def _alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression: the texts between its outermost bars."""
    found, depth = [""], 0
    for part in re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return found


def _may_span_a_cut(token: Any) -> bool:
    """Return True if an added token, which is matched before the rules apply, may contain both sides of a cut."""
    text = str(token.content)
    return "\n" in text or (bool(token.rstrip) and text[-1:].isalnum())
