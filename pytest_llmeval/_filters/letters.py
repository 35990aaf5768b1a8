"""Finding which option of a multiple-choice question a written answer names."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class LetterFinder:
    """How texts of options are compared with an answer.

    `ignored` patterns are taken out of both, then case and punctuation if asked for. Raises re.error for a pattern
    that is none.
    """

    group_select: int
    ignore_case: bool
    ignore_punctuation: bool
    ignored: tuple[str, ...]

    def __post_init__(self) -> None:
        for pattern in self.ignored:
            re.compile(pattern)

    def for_choices(self, choices: Sequence[str]) -> Letters:
        """Ready for the options of one doc."""
        named = {self.cleaned(str(choice).strip()): f"({letter_of(i)})" for i, choice in enumerate(choices)}
        # Longest first: in an alternation an option would hide those that begin with it.
        texts = "|".join(sorted(map(re.escape, named), key=len, reverse=True))
        letters = "|".join(re.escape(letter_of(i)) for i in range(len(choices)))
        return Letters(self, named, re.compile(texts), re.compile(rf":[\s]*({letters})"))

    def cleaned(self, text: str) -> str:
        for pattern in self.ignored:
            text = re.sub(pattern, "", text)
        if self.ignore_case:
            text = text.lower()
        return text.translate(_punctuation()) if self.ignore_punctuation else text


@dataclass(frozen=True, slots=True)
class Letters:
    """The options of one doc: called with an answer, gives ``(A)`` or None."""

    finder: LetterFinder
    named: Mapping[str, str]
    texts: re.Pattern[str]
    after_colon: re.Pattern[str]

    def __call__(self, answer: str) -> str | None:
        text = self._selected(self.texts.findall(self.finder.cleaned(answer))).strip()
        if text:
            return self.named.get(text, text)
        letter = self._selected(self.after_colon.findall(answer))
        return f"({letter})" if letter else None

    def _selected(self, matches: list[str]) -> str:
        select = self.finder.group_select
        return matches[select] if -len(matches) <= select < len(matches) else ""


def letter_of(index: int) -> str:
    """A, B, C, ... for 0, 1, 2, ..."""
    return chr(ord("A") + index)


@lru_cache(maxsize=1)
def _punctuation() -> Mapping[int, None]:
    """A translation that deletes every character of a Unicode category P."""
    return dict.fromkeys(i for i in range(sys.maxunicode) if unicodedata.category(chr(i)).startswith("P"))
