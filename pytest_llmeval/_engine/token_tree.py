"""Requests as a tree of token ids, and the forward passes that compute each of its tokens once. No tensors.

Sequences with a common prefix share a path: task prefix, document, choices. Each token of the tree belongs to the first
sequence, in sorted order, that contains it. The sorted sequences, each without its common prefix with the previous one,
are the tree in preorder. So a pass is a set of flat lists, and a subtree is a range of sequences.

A pass over many documents is one row, in which a token sees its own document and the shared tokens. Most scores of
attention over the whole row would be masked: `blocks` returns the keys that the tokens can see at all.
"""

from __future__ import annotations

from bisect import bisect_left
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import common_length
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest


class Asked(NamedTuple):
    """A target token to score after the token at `place`, an index in a sequence of a tree or in the ids of a pass."""

    place: int
    target: int
    question: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The size limits of passes in tokens. `pack`: of a pass over several subtrees; `longest`: of any pass."""

    pack: int
    longest: int

    def after_running_out(self, tokens: int) -> Limits:
        """Return limits that halve a pass of `tokens` tokens that did not fit into memory."""
        half = max(1, tokens // 2)
        return Limits(min(self.pack, half), half)


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass over new tokens after `held` tokens that are in the cache.

    New token i has position `depths[i]` and sees all held tokens, itself and its ancestors: token j is one
    if ``j < i < ends[j]``. The first `n_path` new tokens are a path after the held ones; later passes may continue it.
    """

    held: int
    ids: tuple[int, ...]
    depths: tuple[int, ...]
    ends: tuple[int, ...]
    n_path: int
    asked: tuple[Asked, ...]

    @property
    def n_shared(self) -> int:
        """The length of the path at the start of the new tokens that all later new tokens see."""
        n = len(self.ids)
        return next((i for i, end in enumerate(self.ends) if end < n), n)


class _Part(NamedTuple):
    """Sequences first to last - 1, whose first `shared` tokens are equal, without the first `held` of them."""

    first: int
    last: int
    held: int


class _Pack(NamedTuple):
    """Parts that are read in one pass; all but the first start where the sequences leave their common path."""

    parts: tuple[_Part, ...]


class Tree:
    """The token tree of requests. `questions` are their target tokens, not in the order of the requests."""

    def __init__(self, requests: Sequence[TokenRequest]) -> None:
        rows = sorted(plan_rows(requests), key=lambda row: row.input_ids)
        self._ids = [row.input_ids for row in rows]
        self._shared = [common_length(before, ids) for before, ids in zip([(), *self._ids], self._ids, strict=False)]
        self._own = [0, *accumulate(len(ids) - n for ids, n in zip(self._ids, self._shared, strict=True))]
        self.questions: list[Question] = []
        self._asked: list[list[Asked]] = [[] for _ in rows]
        # (depth, sequence): the path from this depth on belongs to this sequence.
        owners: list[tuple[int, int]] = []
        for i, row in enumerate(rows):
            while owners and owners[-1][0] >= self._shared[i]:
                owners.pop()
            owners.append((self._shared[i], i))
            for question in row.questions:
                for place, target in zip(question.positions, question.targets, strict=True):
                    _, owner = owners[bisect_right(owners, place, key=lambda own: own[0]) - 1]
                    self._asked[owner].append(Asked(place, target, len(self.questions)))
                self.questions.append(question)
        for asked in self._asked:
            asked.sort()

    @property
    def n_tokens(self) -> int:
        """The number of distinct tokens of the tree, which is what its passes compute."""
        return self._own[-1]

    def passes(self, limits: Limits, cached: TokenIds = ()) -> Iterator[Pass]:
        """Yield the passes in order. `cached`: the path of ids that the cache contains at the start.

        For each pass, the cache contains the `held` tokens of the previous pass and the path at its start.
        """
        waiting: list[_Part | _Pack] = [_Part(0, len(self._ids), self._known(cached))] if self._ids else []
        while waiting:
            part = waiting.pop()
            if isinstance(part, _Pack):
                yield self._write(part.parts, len(self._ids[part.parts[0].first]))
                continue
            size, fork = self._size(part), self._fork(part)
            if size <= limits.pack:
                waiting.append(_Pack((part,)))
            elif fork - part.held > limits.longest - limits.pack:
                # The path before the fork leaves no space for a pack after it.
                end = min(fork, part.held + limits.longest)
                yield self._write((part._replace(last=part.first + 1),), end)
                if end < len(self._ids[part.first]):
                    waiting.append(part._replace(held=end))
            elif part.last - part.first == 1:
                waiting.append(_Pack((part,)))
            else:
                waiting += reversed(self._divide(part, fork, limits.pack))

    def _known(self, cached: TokenIds) -> int:
        """Return the length of the cached prefix that all sequences share, up to the first position that is scored."""
        known = min(common_length(cached, self._ids[0]), self._fork(_Part(0, len(self._ids), 0)))
        asked = self._asked[0][0].place if self._asked[0] else known
        return min(known, asked)

    def _size(self, part: _Part) -> int:
        return len(self._ids[part.first]) - part.held + self._own[part.last] - self._own[part.first + 1]

    def _fork(self, part: _Part) -> int:
        """Return the depth at which the sequences of a part diverge, or one ends."""
        return min(self._shared[part.first + 1 : part.last], default=len(self._ids[part.first]))

    def _divide(self, part: _Part, fork: int, pack: int) -> list[_Part | _Pack]:
        """Return the subtrees after a fork: small ones packed, large ones separately.

        The subtree with the path to the fork comes first, so that the others find that path in the cache.
        """
        borders = [i for i in range(part.first + 1, part.last) if self._shared[i] == fork]
        starts = [part.first, *borders]
        parts = [_Part(a, b, fork) for a, b in zip(starts, [*borders, part.last], strict=True)]
        large = [child for child in parts if self._size(child) > pack]
        packs = self._pack([child for child in parts if self._size(child) <= pack], pack)
        before: list[_Part | _Pack] = []
        if large and large[0].first == part.first:
            before = [large.pop(0)._replace(held=part.held)]
        elif packs:
            first, *others = packs[0].parts
            packs[0] = _Pack((first._replace(held=part.held), *others))
        return [*before, *packs, *large]

    def _pack(self, parts: Sequence[_Part], pack: int) -> list[_Pack]:
        """Return consecutive parts in as few packs as possible, of about equal size."""
        total = sum(self._size(part) for part in parts)
        room = total / max(1, -(-total // pack))
        packs: list[_Pack] = []
        held = total_held = 0
        group: list[_Part] = []
        for part in parts:
            size = self._size(part)
            if group and (held + size > pack or total_held >= room * (len(packs) + 1)):
                packs.append(_Pack(tuple(group)))
                group, held = [], 0
            group.append(part)
            held, total_held = held + size, total_held + size
        return [*packs, _Pack(tuple(group))] if group else packs

    def _write(self, parts: Sequence[_Part], end: int) -> Pass:
        """Return the pass over these parts; the first sequence is read only up to `end`."""
        start = parts[0].held
        ids: list[int] = []
        depths: list[int] = []
        ends: list[int] = []
        path: list[int] = []
        found: list[Asked] = []
        for part in parts:
            for i in range(part.first, part.last):
                begin = part.held if i == part.first else self._shared[i]
                stop = end if not ids else len(self._ids[i])
                for place in path[begin - start :]:
                    ends[place] = len(ids)
                offset = len(ids) - begin
                path[begin - start :] = range(len(ids), len(ids) + stop - begin)
                ids += self._ids[i][begin:stop]
                depths += range(begin, stop)
                ends += [0] * (stop - begin)
                asked = self._asked[i]
                own = asked[bisect_left(asked, (begin,)) : bisect_left(asked, (stop,))]
                found += (one._replace(place=one.place + offset) for one in own)
        for place in path:
            ends[place] = len(ids)
        return Pass(start, tuple(ids), tuple(depths), tuple(ends), end - start, tuple(found))


@dataclass(frozen=True, slots=True)
class Block:
    """New tokens `start` to `end` - 1, and `keys`: all that they can see, as slices of the held and new tokens."""

    start: int
    end: int
    keys: tuple[tuple[int, int], ...]


def blocks(step: Pass, size: int, *, behind_shared: bool = False) -> list[Block]:
    """Return the new tokens in blocks of size / 2 to `size`, cut where a token has the fewest ancestors.

    `behind_shared`: only the tokens after the shared ones, and only the keys that not all of these see.
    """
    first, known = (step.n_shared, step.held + step.n_shared) if behind_shared else (0, 0)
    found = []
    for start, end in _cuts(step.depths, size, first):
        ancestors = [place for place in range(start) if step.ends[place] > start]
        runs = _runs(step.held, ancestors, start, end)
        found.append(Block(start, end, tuple((max(known, a), b) for a, b in runs if b > known)))
    return found


def _cuts(depths: Sequence[int], size: int, start: int) -> Iterator[tuple[int, int]]:
    while len(depths) - start > size:
        # The last token of the least depth.
        end = min(range(start + size, start + max(1, size // 2) - 1, -1), key=lambda place: depths[place])
        yield start, end
        start = end
    if start < len(depths):
        yield start, len(depths)


def _runs(held: int, ancestors: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the held tokens, ancestors and the block itself as the fewest slices (start, end)."""
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
