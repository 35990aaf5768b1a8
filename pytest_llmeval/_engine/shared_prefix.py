"""What prompts begin with in common, as stems that are read once for all of them. Pure planning, no tensors.

Guesses how a text goes on from what it already says: answers repeat their question, their examples, themselves.

Prompt lookup decoding (Saxena 2023): a model that reads the guess beside the next token confirms several at once
where it would have written the same, and loses little where not.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.token_tree import common_length


@dataclass(frozen=True, slots=True, eq=False)
class Stem:
    """Tokens that several sequences hold at positions `start` to `end` - 1, behind those of `parent`."""

    ids: TokenIds
    start: int
    parent: Stem | None

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    @property
    def path(self) -> tuple[Stem, ...]:
        """The stems from the first token on, this one last."""
        above = () if self.parent is None else self.parent.path
        return (*above, self)


def plan_stems(sequences: Sequence[TokenIds], least: int) -> list[tuple[int, Stem | None]]:
    """The place of each sequence and the longest stem that it goes on from, neighbours next to each other.

    A stem has at least `least` tokens, and every sequence, which may equal others, keeps one token of its own.
    """
    order = sorted(range(len(sequences)), key=lambda place: sequences[place])
    ids = [sequences[place] for place in order]
    shared = [0] + [min(common_length(a, b), len(a) - 1, len(b) - 1) for a, b in pairwise(ids)]
    planned: list[tuple[int, Stem | None]] = []
    waiting: list[tuple[int, int, Stem | None]] = [(0, len(ids), None)] if ids else []
    while waiting:
        first, last, stem = waiting.pop()
        if last - first == 1:
            planned.append((order[first], stem))
            continue
        fork = min(shared[first + 1 : last])
        start = stem.end if stem else 0
        if fork - start >= least:
            stem = Stem(ids[first][start:fork], start, stem)
        borders = [first, *(i for i in range(first + 1, last) if shared[i] == fork), last]
        waiting += [(a, b, stem) for a, b in reversed(list(pairwise(borders)))]
    return planned


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
