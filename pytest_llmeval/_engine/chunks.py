"""Forward passes over chunks of many texts, concatenated as one row, through unmodified models. CPU only.

Only the attention of short chunks is padded. Keys and values are stored in preallocated tensors. The model calls
`torch.nn.functional.scaled_dot_product_attention` with the new tokens alone; the call is intercepted and computed over
the stored keys too. Keys that several texts share are attended to in one product for all of them, and the results are
merged by their log-sum-exp values, as in flash attention (Dao et al. 2022). Only torch's kernel for CPUs
(`attention.flash`) returns those.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch
import transformers

from pytest_llmeval._engine.attention import Attended
from pytest_llmeval._engine.attention import CallMode
from pytest_llmeval._engine.attention import flash
from pytest_llmeval._engine.causal_model import SelectiveModel
from pytest_llmeval._engine.requests import TokenIds


#: The longest chunk, in tokens, whose attention is computed in one batch with that of other chunks.
SHORT = 8
#: Attention of texts of unequal lengths is batched while padding adds at most this share of their keys, or this number.
PADDED_SHARE, PADDED_KEYS = 0.25, 128


class KVCache:
    """Keys and values [slots, heads, places, width] of every layer, allocated when the layer is first called."""

    def __init__(self, slots: int, places: int) -> None:
        self._shape = (slots, places)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of a layer; its new ones, `key` and `value`, are [heads, tokens, width]."""
        if index not in self._layers:
            slots, places = self._shape
            self._layers[index] = (
                # Masked values are still multiplied (by 0), so they must be finite.
                key.new_zeros(slots, key.shape[0], places, key.shape[2]),
                value.new_zeros(slots, value.shape[0], places, value.shape[2]),
            )
        return self._layers[index]


@dataclass(slots=True, eq=False)
class KVSlot:
    """The cached keys and values of one sequence from position `start`: the first `length` places of its slot."""

    cache: KVCache
    index: int
    start: int
    length: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """New ids to append to `slot`. Logits are wanted at the last `n_logits` of them.

    `prefixes` are the slots of the tokens before `slot.start`; they are complete by the end of the pass.
    """

    slot: KVSlot
    prefixes: tuple[KVSlot, ...]
    ids: TokenIds
    n_logits: int


@dataclass(frozen=True, slots=True)
class PaddedGroup:
    """Short chunks in consecutive slots, the `tokens` of a pass, whose attention is computed in one batch.

    Each is padded to `width` queries and `keys` keys. `spread` [rows * width] holds the index in the pass of every
    padded query, `gather` the real ones among these; both are None without padding. `mask` hides later keys.
    """

    tokens: slice
    cache: KVCache
    slots: slice
    keys: int
    width: int
    spread: torch.Tensor | None
    gather: torch.Tensor | None
    mask: torch.Tensor | None

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None) -> Attended:
        """Return attention, computed in one product for all rows; arguments as in `_Part.attend`."""
        heads, each, _, size = query.shape
        new = query[:, :, self.tokens] if self.spread is None else query[:, :, self.spread]
        rows = new.shape[2] // self.width
        folded = new.reshape(heads, each, rows, self.width, size).permute(2, 0, 1, 3, 4).reshape(rows, heads, -1, size)
        seen = keys[self.slots, :, : self.keys], values[self.slots, :, : self.keys]
        mask = None if self.mask is None else self.mask.repeat(1, 1, each, 1)
        found, total = flash(folded, *seen, 0.0, False, attn_mask=mask, scale=scale)
        found = found.reshape(rows, heads, each, self.width, -1).permute(1, 2, 0, 3, 4).flatten(2, 3)
        total = total.reshape(rows, heads, each, self.width).permute(1, 2, 0, 3).flatten(2, 3)
        return (found, total) if self.gather is None else (found[:, :, self.gather], total[:, :, self.gather])


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens of a pass (a slice or indices) that attend to `places` of a slot; `causal`: up to their own place."""

    tokens: slice | torch.Tensor
    cache: KVCache
    slot: int
    places: slice
    causal: bool

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None) -> Attended:
        """Return attention to keys and values [slots, heads, places, width]; query as in `_attend`."""
        new = query[:, :, self.tokens]
        heads, each, n, size = new.shape
        seen = keys[self.slot, :, self.places], values[self.slot, :, self.places]
        if self.causal:
            wide = (tensor[:, None].expand(heads, each, *tensor.shape[1:]) for tensor in seen)
            return flash(new, *wide, 0.0, True, scale=scale)
        found, total = flash(new.reshape(1, heads, each * n, size), *(t[None] for t in seen), 0.0, False, scale=scale)
        return found.reshape(heads, each, n, -1), total.reshape(heads, each, n)


@dataclass(slots=True)
class _Plan:
    """The places where a pass writes keys and values, and the parts of its attention.

    The parts in `first` contain each token once; the results of `more` are merged into theirs.
    """

    writes: list[tuple[KVCache, Any, Any, slice]] = field(default_factory=list)
    first: list[_Part | PaddedGroup] = field(default_factory=list)
    more: list[_Part] = field(default_factory=list)


class ChunkRunner:
    """Runs forward passes over chunks through one model."""

    def __init__(self, model: Any, selective: SelectiveModel) -> None:
        self._model = model
        self._selective = selective

    @torch.no_grad()
    def run(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Return the wanted logits of all chunks, concatenated: [sum of n_logits, vocabulary].

        New keys and values are stored in the caches; the caller increases `length` of the slots. Short chunks in the
        slots of one cache must come first and in the order of their slots.
        """
        device = self._model.device
        ids: list[int] = []
        depths: list[int] = []
        wanted: list[int] = []
        for chunk in chunks:
            first = chunk.slot.start + chunk.slot.length
            ids += chunk.ids
            depths += range(first, first + len(chunk.ids))
            wanted += range(len(ids) - chunk.n_logits, len(ids))
        mask = torch.zeros(1, 1, len(ids), len(ids), dtype=self._model.dtype, device=device)
        cache = _NewTokens()
        places = torch.tensor(wanted, dtype=torch.long, device=device)
        with _ChunkAttention(_plan(chunks, self._model.dtype, device), cache, mask):
            return self._selective.row_logits(ids, depths, 0, mask, cache, places)


class _NewTokens(transformers.DynamicCache):
    """A cache that returns only the new keys and values to a layer, and keeps them for the intercepted attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: tuple[int, torch.Tensor, torch.Tensor]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer = (layer_idx, key_states, value_states)
        return key_states, value_states


class OneDNNLinear(CallMode):
    """A context in which linear layers in float32 on a CPU are computed by oneDNN.

    torch's own product took 1.5 times as long on 8 tokens and a seventh longer on 512 (AMD EPYC, two cores). Only for
    generation: it sums in another order than lm_eval's products, and log-likelihoods of long continuations differed by
    1.1e-4 from the recorded ones. The operator is part of torch, but not public: without it nothing changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_there = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.linear and self._is_there and not keywords:
            tokens, weight = args[:2]
            is_float = tokens.dtype == weight.dtype == torch.float32
            if is_float and tokens.device.type == "cpu" and weight.is_contiguous():
                bias = args[2] if len(args) > 2 else None
                return torch.ops.mkldnn._linear_pointwise(tokens, weight, bias, "none", [], "")
        return super().call(func, args, keywords)


class _ChunkAttention(OneDNNLinear):
    """A context manager, inside of which the plan computes the attention of the new tokens, under `mask`."""

    def __init__(self, plan: _Plan, cache: _NewTokens, mask: torch.Tensor) -> None:
        super().__init__()
        self._plan = plan
        self._cache = cache
        self._mask = mask

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            mask, own = keywords.get("attn_mask"), self._mask
            # Some models pass a view of the mask.
            if mask is not None and mask.data_ptr() == own.data_ptr() and mask.shape[2:] == own.shape[2:]:
                return self._attend(args[0], keywords.get("scale"))
        return super().call(func, args, keywords)

    def _attend(self, query: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Return attention as `query`, [1, heads, tokens, width]; for one token the heads may have two dimensions."""
        index, key, value = self._cache.layer
        n_heads, n_tokens, width = key.shape[1:]
        output = _attend(self._plan, index, query.reshape(n_heads, -1, n_tokens, width), key[0], value[0], scale)
        return output.reshape(*query.shape[:-1], value.shape[-1])


def _attend(
    plan: _Plan, index: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Return attention as `query`, [key heads, heads each, tokens, width]; key, value: [key heads, tokens, width]."""
    for cache, slots, places, tokens in plan.writes:
        for held, new in zip(cache.layer(index, key, value), (key, value), strict=True):
            if isinstance(slots, int):
                held[slots, :, places] = new[:, tokens]
            else:
                held[slots, :, places] = new[:, tokens].transpose(0, 1)
    output = torch.zeros_like(query)
    sums = torch.zeros(query.shape[:3], dtype=torch.float32, device=query.device)
    for part in plan.first:
        found, total = part.attend(query, *part.cache.layer(index, key, value), scale)
        output[:, :, part.tokens], sums[:, :, part.tokens] = found, total
    for part in plan.more:
        found, total = part.attend(query, *part.cache.layer(index, key, value), scale)
        before = sums[:, :, part.tokens]
        after = torch.logaddexp(before, total)
        mixed = output[:, :, part.tokens] * (before - after).exp()[..., None] + found * (total - after).exp()[..., None]
        output[:, :, part.tokens], sums[:, :, part.tokens] = mixed.to(output.dtype), after
    return output


def _plan(chunks: Sequence[Chunk], dtype: torch.dtype, device: torch.device) -> _Plan:
    plan = _Plan()
    short: list[tuple[int, Chunk]] = []
    below: dict[KVSlot, list[int]] = {}
    growth: dict[KVSlot, int] = {}
    start = 0
    for chunk in chunks:
        slot, n = chunk.slot, len(chunk.ids)
        end, held = start + n, slot.length
        growth[slot] = growth.get(slot, 0) + n
        if n <= SHORT:
            short.append((start, chunk))
        else:
            tokens, fresh = slice(start, end), slice(held, held + n)
            plan.writes.append((slot.cache, slot.index, fresh, tokens))
            plan.first.append(_Part(tokens, slot.cache, slot.index, fresh, causal=True))
            if held:
                plan.more.append(_Part(tokens, slot.cache, slot.index, slice(0, held), causal=False))
        for prefix in chunk.prefixes:
            below.setdefault(prefix, []).extend(range(start, end))
        start = end
    for group in _neighbours(short):
        rows = [chunk.slot.index for _, chunk in group for _ in chunk.ids]
        places = [chunk.slot.length + i for _, chunk in group for i in range(len(chunk.ids))]
        padded = _padded_group(group, dtype, device)
        at = torch.tensor(rows, device=device), torch.tensor(places, device=device)
        plan.writes.append((padded.cache, *at, padded.tokens))
        plan.first.append(padded)
    for prefix, below_it in below.items():
        known = slice(0, prefix.length + growth.get(prefix, 0))
        one_run = below_it[-1] - below_it[0] + 1 == len(below_it)
        seen = slice(below_it[0], below_it[-1] + 1) if one_run else torch.tensor(below_it, device=device)
        plan.more.append(_Part(seen, prefix.cache, prefix.index, known, causal=False))
    return plan


def _neighbours(short: Sequence[tuple[int, Chunk]]) -> Iterator[list[tuple[int, Chunk]]]:
    """Yield groups of (start in the pass, chunk) in consecutive slots whose padding to one length costs little."""
    group: list[tuple[int, Chunk]] = []
    longest = total = 0
    for start, chunk in short:
        slot = chunk.slot
        keys = slot.length + len(chunk.ids)
        wider, more = max(longest, keys), total + keys
        if group:
            last_start, last = group[-1]
            follows = last_start + len(last.ids) == start
            follows &= last.slot.cache is slot.cache and last.slot.index + 1 == slot.index
            if not (follows and wider * (len(group) + 1) <= more * (1 + PADDED_SHARE) + PADDED_KEYS):
                yield group
                group, wider, more = [], keys, keys
        group.append((start, chunk))
        longest, total = wider, more
    if group:
        yield group


def _padded_group(group: Sequence[tuple[int, Chunk]], dtype: torch.dtype, device: torch.device) -> PaddedGroup:
    first = group[0][1].slot
    chunks = [chunk for _, chunk in group]
    width = max(len(chunk.ids) for chunk in chunks)
    # Padding repeats the last query of a chunk.
    own = [[min(i, len(chunk.ids) - 1) for i in range(width)] for chunk in chunks]
    seen = torch.tensor(
        [[chunk.slot.length + i + 1 for i in places] for chunk, places in zip(chunks, own, strict=True)], device=device
    )
    keys = int(seen.max())
    mask = None
    if int(seen.min()) < keys:
        mask = torch.zeros(len(chunks), 1, width, keys, dtype=dtype, device=device)
        mask.masked_fill_(torch.arange(keys, device=device) >= seen[:, None, :, None], -torch.inf)
    spread = gather = None
    if any(len(chunk.ids) < width for chunk in chunks):
        spread = torch.tensor(
            [start + i for (start, _), places in zip(group, own, strict=True) for i in places], device=device
        )
        gather = torch.tensor([row * width + i for row, chunk in enumerate(chunks) for i in range(len(chunk.ids))])
        gather = gather.to(device)
    start = group[0][0]
    tokens = slice(start, start + sum(len(chunk.ids) for chunk in chunks))
    slots = slice(first.index, first.index + len(chunks))
    return PaddedGroup(tokens, first.cache, slots, keys, width, spread, gather, mask)
