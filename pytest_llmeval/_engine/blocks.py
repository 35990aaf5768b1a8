"""Which keys the tokens of a pass can see at all, block by block: what lies outside need not be multiplied. Pure.

A pass of many documents is one row, in which a token sees its own document and what all share. Attention over the
whole row would compute mostly what the mask takes away again.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval._engine.tree import Pass


@dataclass(frozen=True, slots=True)
class Block:
    """New tokens `start` to `end` - 1 see no key outside of `keys`: runs of held and new tokens, counted together."""

    start: int
    end: int
    keys: tuple[tuple[int, int], ...]


def blocks(step: Pass, size: int, *, behind_trunk: bool = False) -> list[Block]:
    """The new tokens in order, in blocks of size / 2 to `size` that begin where most of the path can be left.

    `behind_trunk`: only those behind the trunk, and of their keys those that not all of them see.
    """
    first, known = (step.trunk, step.held + step.trunk) if behind_trunk else (0, 0)
    found = []
    for start, end in _cuts(step.depths, size, first):
        runs = _runs(step.held, _ancestors(step.ends, start), start, end)
        found.append(Block(start, end, tuple((max(known, a), b) for a, b in runs if b > known)))
    return found


def _cuts(depths: Sequence[int], size: int, start: int) -> Iterator[tuple[int, int]]:
    while len(depths) - start > size:
        # The last of the shallowest.
        end = min(range(start + size, start + max(1, size // 2) - 1, -1), key=lambda place: depths[place])
        yield start, end
        start = end
    if start < len(depths):
        yield start, len(depths)


def _ancestors(ends: Sequence[int], place: int) -> list[int]:
    return [j for j in range(place) if ends[j] > place]


def _runs(held: int, ancestors: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Held tokens, ancestors and the block itself as the fewest runs."""
    first, last = 0, held
    for place in ancestors:
        if held + place != last:
            yield first, last
            first = held + place
        last = held + place + 1
    if held + start != last:
        if last > first:
            yield first, last
        first = held + start
    yield first, held + end
