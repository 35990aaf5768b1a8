"""What prompts begin with in common, as stems that are read once for all of them. Pure planning, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.tree import common_length


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
