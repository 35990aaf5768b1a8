"""Forward passes over chunks of many texts at once, laid end to end as one row, through stock models. CPU only.

Nothing is padded but the attention of texts that grow side by side. Keys and values lie in tensors that are made once.
`torch.nn.functional.scaled_dot_product_attention`, which the model calls with the new tokens alone, is answered from
there: keys that a text shares with others are attended to in one product for all of them, and the results are merged
by the logarithms of the sums of their exponentials, as in flash attention (Dao et al. 2022). Only torch's kernel for
CPUs (`attention.flash`) returns those sums.
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


#: Most tokens of a chunk that attends side by side with others.
SHORT = 8
#: Texts of unlike lengths attend side by side as long as padding adds at most this share of their keys, or this number.
PADDED_SHARE, PADDED_KEYS = 0.25, 128


class KVCache:
    """Keys and values [slots, heads, places, width] of every layer, made when a layer first shows its shape."""

    def __init__(self, slots: int, places: int) -> None:
        self._shape = (slots, places)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tensors of a layer whose new keys and values are [heads, tokens, width]."""
        if index not in self._layers:
            slots, places = self._shape
            self._layers[index] = (
                # What is masked is still multiplied: it must be finite.
                key.new_zeros(slots, key.shape[0], places, key.shape[2]),
                value.new_zeros(slots, value.shape[0], places, value.shape[2]),
            )
        return self._layers[index]


@dataclass(slots=True, eq=False)
class KVSlot:
    """Keys and values of one sequence from position `start` on: the first `length` places of a slot of a cache."""

    cache: KVCache
    index: int
    start: int
    length: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """New ids to append to `slot`. Logits are wanted at the last `n_logits` of them.

    `prefixes` are the slots of what comes before `slot.start`; they are complete by the end of the pass.
    """

    slot: KVSlot
    prefixes: tuple[KVSlot, ...]
    ids: TokenIds
    n_logits: int


@dataclass(frozen=True, slots=True)
class PaddedGroup:
    """Short chunks in neighbouring slots, the `tokens` of a pass, that attend side by side.

    Each is padded to `width` queries and `keys` keys. `spread` holds the places of all queries in the pass, `gather`
    those of the real queries in the padded rows; both are None where no query is padded. `mask` hides later keys.
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
        """Attention by one product for all rows; arguments as in `_Part.attend`."""
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
    """Tokens of a pass, as a slice or places, that attend to places of a slot: all of them, or up to themselves."""

    tokens: slice | torch.Tensor
    cache: KVCache
    slot: int
    places: slice
    causal: bool

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None) -> Attended:
        """Attention of the tokens to keys and values [slots, heads, places, width]; query as in `_attend`."""
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

    `first` covers each token once; the results of `more` are merged into its results.
    """

    writes: list[tuple[KVCache, Any, Any, slice]] = field(default_factory=list)
    first: list[_Part | PaddedGroup] = field(default_factory=list)
    more: list[_Part] = field(default_factory=list)


class ChunkRunner:
    """Runs passes."""

    def __init__(self, model: Any, selective: SelectiveModel) -> None:
        self._model = model
        self._selective = selective

    @torch.no_grad()
    def run(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Return the wanted logits [all, vocabulary], chunk after chunk.

        New keys and values are in the caches afterwards; the caller adds them to the lengths of the slots. Short
        chunks in the slots of one cache go first and in the order of their slots.
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
    """Returns a layer's own new keys and values to it, and keeps them for its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: tuple[int, torch.Tensor, torch.Tensor]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer = (layer_idx, key_states, value_states)
        return key_states, value_states


class OneDNNLinear(CallMode):
    """While it is entered, linear layers in float32 on a CPU are computed by oneDNN.

    torch's own product took half again as long on 8 tokens and a seventh more on 512 (AMD EPYC, two cores). For texts,
    not for scores: it adds up in another order than lm_eval's products, and log-likelihoods of long continuations went
    1.1e-4 away from the recorded ones. The operator is part of torch, but not public: where it is absent, nothing
    changes.
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
    """While it is entered, attention of the new tokens under `mask` follows the plan."""

    def __init__(self, plan: _Plan, cache: _NewTokens, mask: torch.Tensor) -> None:
        super().__init__()
        self._plan = plan
        self._cache = cache
        self._mask = mask

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            mask, own = keywords.get("attn_mask"), self._mask
            # Some models hand on a view of the mask.
            if mask is not None and mask.data_ptr() == own.data_ptr() and mask.shape[2:] == own.shape[2:]:
                return self._attend(args[0], keywords.get("scale"))
        return super().call(func, args, keywords)

    def _attend(self, query: torch.Tensor, scale: float | None) -> torch.Tensor:
        """query [1, heads, tokens, width]; of a single token heads may be split as [key heads, heads of each]."""
        index, key, value = self._cache.layer
        n_heads, n_tokens, width = key.shape[1:]
        output = _attend(self._plan, index, query.reshape(n_heads, -1, n_tokens, width), key[0], value[0], scale)
        return output.reshape(*query.shape[:-1], value.shape[-1])


def _attend(
    plan: _Plan, index: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """query [key heads, heads of each, tokens, width], key and value [key heads, tokens, width]; output as query."""
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
    """Chunks with their first place, in neighbouring slots of a cache, while padding to one length costs little."""
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
    # Queries beyond a chunk's own repeat its last one.
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
