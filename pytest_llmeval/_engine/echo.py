"""Guesses how a text goes on from what it already says: answers repeat their question, their examples, themselves.

Prompt lookup decoding (Saxena 2023): a model that reads the guess beside the next token confirms several at once
where it would have written the same, and loses little where not.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_llmeval._engine.requests import TokenIds


#: So many last tokens are looked for, longest first.
GRAMS = (3, 2)


class Echo:
    """A growing sequence of ids."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids: list[int] = []
        self._next: dict[TokenIds, int] = {}
        for token in ids:
            self.add(token)

    def add(self, token: int) -> None:
        for n in GRAMS:
            if len(self._ids) >= n:
                self._next[tuple(self._ids[-n:])] = len(self._ids)
        self._ids.append(token)

    def guess(self, n: int) -> TokenIds:
        """The next `n` tokens as they came after the same last ones before; nothing if those are new."""
        for size in GRAMS:
            at = self._next.get(tuple(self._ids[-size:])) if len(self._ids) >= size else None
            if at is not None:
                period = len(self._ids) - at
                return tuple(self._ids[at + i % period] for i in range(n))
        return ()
