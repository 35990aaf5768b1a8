"""The schedule of continuous batching: the tokens and texts that the next pass reads.

A common prefix of prompts is read once, as a `SharedPrefix`. When a text is finished, a waiting one gets its slot of
the KV cache. `PromptLookup` guesses further tokens, which are read together with the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from itertools import pairwise

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.batches import common_length
from pytest_llmeval._engine.chunks import SHORT
from pytest_llmeval._engine.chunks import Chunk
from pytest_llmeval._engine.chunks import KVCache
from pytest_llmeval._engine.chunks import KVSlot
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import samples
from pytest_llmeval._engine.texts import Text


#: The number of tokens in a pass that costs little more than one token, since reading the weights dominates.
SPARE = 16
#: The most guessed tokens of a text in one pass.
MOST_GUESSED = SHORT - 1
#: The lengths of the n-grams that are looked up for a guess, in this order.
GRAMS = (3, 2)


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrefix:
    """Tokens that several prompts share at positions `start` to `end` - 1, after those of `parent`."""

    ids: TokenIds
    start: int
    parent: SharedPrefix | None

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    @property
    def path(self) -> tuple[SharedPrefix, ...]:
        """The chain of prefixes from the first token to this prefix, which is last."""
        above = () if self.parent is None else self.parent.path
        return (*above, self)


def plan_shared_prefixes(prompts: Sequence[TokenIds], least: int) -> list[tuple[int, SharedPrefix | None]]:
    """Return the index of each prompt and its longest shared prefix, in sorted order of the prompts.

    A prefix adds at least `least` tokens to its parent; at least one token of every prompt is not in a prefix.
    """
    order = sorted(range(len(prompts)), key=lambda place: prompts[place])
    ids = [prompts[place] for place in order]
    shared = [0] + [min(common_length(a, b), len(a) - 1, len(b) - 1) for a, b in pairwise(ids)]
    planned: list[tuple[int, SharedPrefix | None]] = []
    waiting: list[tuple[int, int, SharedPrefix | None]] = [(0, len(ids), None)] if ids else []
    while waiting:
        first, last, prefix = waiting.pop()
        if last - first == 1:
            planned.append((order[first], prefix))
            continue
        fork = min(shared[first + 1 : last])
        start = prefix.end if prefix else 0
        if fork - start >= least:
            prefix = SharedPrefix(ids[first][start:fork], start, prefix)
        borders = [first, *(i for i in range(first + 1, last) if shared[i] == fork), last]
        waiting += [(a, b, prefix) for a, b in reversed(list(pairwise(borders)))]
    return planned


class PromptLookup:
    """Guesses the next tokens of a growing text: those that followed an earlier occurrence of its last tokens.

    Prompt lookup decoding (Saxena 2023): answers repeat their question, their examples and themselves. The model reads
    the guess together with the next token; it confirms several tokens in one pass if it would have written them, and
    little time is lost otherwise.
    """

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
        """Return up to `n` tokens that followed an earlier occurrence of the last tokens; empty if there is none."""
        for size in GRAMS:
            at = self._next.get(tuple(self._ids[-size:])) if len(self._ids) >= size else None
            if at is not None:
                period = len(self._ids) - at
                return tuple(self._ids[at + i % period] for i in range(n))
        return ()


@dataclass(slots=True, eq=False)
class ScheduledText:
    """A text, and the shared prefix that its prompt begins with."""

    text: Text
    prefix: SharedPrefix | None
    lookup: PromptLookup | None = None

    @property
    def start(self) -> int:
        return self.prefix.end if self.prefix else 0

    @property
    def path(self) -> tuple[SharedPrefix, ...]:
        return self.prefix.path if self.prefix else ()

    @property
    def is_over(self) -> bool:
        return self.text.reason is not None or len(self.text.ids) == self.text.prompt.kwargs.max_gen_toks

    def pending(self, slot: KVSlot) -> TokenIds:
        """Return the known tokens that are not in the slot yet."""
        prompt, fed = self.text.prompt.ids, slot.start + slot.length
        return (*prompt[fed:], *self.text.ids[max(0, fed - len(prompt)) :])

    def guess(self, most: int) -> TokenIds:
        """Return at most `most` guessed tokens; none for a sampled text, where guesses are seldom right."""
        room = self.text.prompt.kwargs.max_gen_toks - len(self.text.ids) - 1
        if samples(self.text.prompt.kwargs) or room < 1:
            return ()
        if self.lookup is None:
            self.lookup = PromptLookup(self.text.whole)
        return self.lookup.guess(min(most, room))

    def note(self, token: int, eos_ids: frozenset[int], is_stopped: IsStopped) -> None:
        self.text.note(token, eos_ids, is_stopped)
        if self.lookup is not None:
            self.lookup.add(token)


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """One chunk of a pass. The first `n_known` ids are known, the others are guesses.

    `row` is the text that the chunk belongs to; None for a chunk of a shared prefix.
    """

    chunk: Chunk
    row: ScheduledText | None
    n_known: int


class Scheduler:
    """The texts of one call: `waiting` ones, and `live` ones with their slots and the slots of their prefixes."""

    def __init__(self, rows: Sequence[ScheduledText], budget: Budget) -> None:
        places = max((row.text.prompt.length - row.start for row in rows), default=1)
        longest = max((row.start for row in rows), default=0)
        self.n_slots = max(1, min(len(rows), budget.rows, (budget.tokens - longest) // places))
        self.waiting = deque(rows)
        self.live: dict[ScheduledText, KVSlot] = {}
        self._cache = KVCache(self.n_slots, places)
        self._prefixes: dict[SharedPrefix, KVSlot] = {}
        self._room = budget.tokens - self.n_slots * places

    def admit(self) -> None:
        """Give free slots to waiting texts, in their order, while there is space for their prefixes too."""
        taken = {slot.index for slot in self.live.values()}
        free = [index for index in range(self.n_slots) if index not in taken]
        while free and self.waiting:
            row = self.waiting[0]
            missing = [prefix for prefix in row.path if prefix not in self._prefixes]
            more = sum(len(prefix.ids) for prefix in missing)
            if self.live and missing and sum(len(prefix.ids) for prefix in self._prefixes) + more > self._room:
                return
            self._prefixes |= {prefix: KVSlot(KVCache(1, len(prefix.ids)), 0, prefix.start) for prefix in missing}
            self.live[self.waiting.popleft()] = KVSlot(self._cache, free.pop(0), row.start)

    def leave(self, row: ScheduledText) -> None:
        """Free the slot of a text, and the prefixes that neither a live text nor the next waiting text needs."""
        del self.live[row]
        needed = {prefix for other in (*self.live, *islice(self.waiting, 1)) for prefix in other.path}
        self._prefixes = {prefix: slot for prefix, slot in self._prefixes.items() if prefix in needed}

    def plan(self, pack: int) -> list[ScheduledChunk]:
        """Return the chunks of the next pass, about `pack` tokens together.

        Short chunks come first, in slot order; parts of prompts follow.
        """
        pending = {row: row.pending(slot) for row, slot in self.live.items()}
        unread = {prefix for prefix, slot in self._prefixes.items() if slot.length < len(prefix.ids)}
        growing = [row for row, ids in pending.items() if len(ids) == 1 and unread.isdisjoint(row.path)]
        most = min(MOST_GUESSED, max(1, SPARE // max(1, len(growing))), pack - 1)
        steps = [self._step(row, (*pending[row], *row.guess(most)), 1) for row in growing]
        room = max(pack - sum(len(step.chunk.ids) for step in steps), not steps)
        steps += self._read({row: ids for row, ids in pending.items() if row not in growing}, room)
        return sorted(
            steps,
            key=lambda step: (
                len(step.chunk.ids) > SHORT,
                step.chunk.slot.cache is not self._cache,
                step.chunk.slot.index,
            ),
        )

    def _read(self, pending: Mapping[ScheduledText, TokenIds], room: int) -> Iterator[ScheduledChunk]:
        """Yield the chunks that read pending prompts, in order, shared prefixes first, up to `room` tokens."""
        fresh: set[SharedPrefix] = set()
        for row, ids in pending.items():
            for prefix in row.path:
                if prefix not in fresh and room > 0:
                    fresh.add(prefix)
                    slot = self._prefixes[prefix]
                    piece = prefix.ids[slot.length : slot.length + room]
                    room -= len(piece)
                    if piece:
                        yield ScheduledChunk(Chunk(slot, self._slots(prefix.path[:-1]), piece, 0), None, len(piece))
            if room < 1:
                return
            piece = ids[:room]
            room -= len(piece)
            yield self._step(row, piece, len(piece), ends=len(piece) == len(ids))

    def _step(self, row: ScheduledText, ids: TokenIds, n_known: int, *, ends: bool = True) -> ScheduledChunk:
        """Return a chunk of a text. `ends`: no id stays pending, so logits are computed from the last known id on."""
        n_logits = len(ids) - n_known + 1 if ends else 0
        return ScheduledChunk(Chunk(self.live[row], self._slots(row.path), ids, n_logits), row, n_known)

    def _slots(self, prefixes: Sequence[SharedPrefix]) -> tuple[KVSlot, ...]:
        return tuple(self._prefixes[prefix] for prefix in prefixes)
