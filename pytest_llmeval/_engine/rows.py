"""Forward passes over tokens of many texts at once, laid end to end as one row, through stock models.

Nothing is padded but the attention of texts that grow side by side. Keys and values lie in tensors that are made once.
`torch.nn.functional.scaled_dot_product_attention`, which the model calls with the new tokens alone, is answered from
there: what a text shares with others is attended to in one product for all of them, and put together with the rest
by the logarithms of the sums of their exponentials, as in flash attention (Dao et al. 2022).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch
import transformers

from pytest_llmeval._engine.attention import flash
from pytest_llmeval._engine.overrides import OneDNNLinear
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.selective import SelectiveModel


#: Runs of up to so many tokens attend side by side.
SHORT = 8
#: Texts of unlike lengths attend side by side as long as that adds no more than this share of their keys, or so many.
PADDED_SHARE, PADDED_KEYS = 0.25, 128

Attend = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class Store:
    """Keys and values [slots, heads, places, width] of every layer, made when a layer first shows its shape."""

    def __init__(self, slots: int, places: int) -> None:
        self._shape = (slots, places)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensors of a layer whose new keys and values are [heads, tokens, width]."""
        if index not in self._layers:
            slots, places = self._shape
            self._layers[index] = (
                # What is masked is still multiplied: it must be finite.
                key.new_zeros(slots, key.shape[0], places, key.shape[2]),
                value.new_zeros(slots, value.shape[0], places, value.shape[2]),
            )
        return self._layers[index]


@dataclass(slots=True, eq=False)
class Segment:
    """What is held of a sequence from position `start` on: the first `length` places of one slot of a store."""

    store: Store
    slot: int
    start: int
    length: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """New ids behind what `segment` holds, which goes on from the segments `above`.

    Those are whole by the end of the pass. Logits are wanted of the last `asked` ids.
    """

    segment: Segment
    above: tuple[Segment, ...]
    ids: TokenIds
    asked: int


@dataclass(frozen=True, slots=True)
class _Beside:
    """Short runs in neighbouring slots, tokens `start` to `end` - 1 of a pass, that attend side by side."""

    store: Store
    slots: slice
    start: int
    end: int
    keys: int
    width: int
    spread: torch.Tensor | None
    gather: torch.Tensor | None
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens of a pass, as a slice or places, that attend to places of a slot: all of them, or up to themselves."""

    tokens: slice | torch.Tensor
    store: Store
    slot: int
    places: slice
    causal: bool


@dataclass(slots=True)
class _Plan:
    """How the tokens of a pass write their keys and values, and what they attend to."""

    writes: list[tuple[Store, Any, Any, slice]] = field(default_factory=list)
    beside: list[_Beside] = field(default_factory=list)
    first: list[_Part] = field(default_factory=list)
    more: list[_Part] = field(default_factory=list)


class RowRunner:
    """Runs passes."""

    def __init__(self, model: Any, selective: SelectiveModel) -> None:
        self._model = model
        self._selective = selective
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        # The name was changed in transformers 5.24.
        self._cache_name = "cache" if "cache" in self._accepted else "past_key_values"

    @torch.no_grad()
    def run(self, runs: Sequence[Run]) -> torch.Tensor:
        """Logits [all asked, vocabulary], run after run. New tokens are in the store; segments stay as long as before.

        Short runs in the slots of one store go first and in the order of their slots.
        """
        device = self._model.device
        ids = [token for run in runs for token in run.ids]
        depths = [run.segment.start + run.segment.length + i for run in runs for i in range(len(run.ids))]
        ends = [0]
        for run in runs:
            ends.append(ends[-1] + len(run.ids))
        wanted = torch.tensor(
            [place for run, end in zip(runs, ends[1:], strict=True) for place in range(end - run.asked, end)],
            dtype=torch.long,
            device=device,
        )
        mask = torch.zeros(1, 1, len(ids), len(ids), dtype=self._model.dtype, device=device)
        cache = _NewTokens()
        keywords = {
            "input_ids": torch.tensor([ids], device=device),
            "attention_mask": mask,
            "position_ids": torch.tensor([depths], device=device),
            self._cache_name: cache,
            "use_cache": True,
        }
        if "cache_position" in self._accepted:
            keywords["cache_position"] = torch.arange(len(ids), device=device)
        with _RowAttention(_plan(runs, self._model.dtype, device), cache, mask):
            return self._selective.logits(keywords, wanted)


class _NewTokens(transformers.DynamicCache):
    """Hands a layer its own new keys and values back, and keeps them for its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: tuple[int, torch.Tensor, torch.Tensor]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer = (layer_idx, key_states, value_states)
        return key_states, value_states


class _RowAttention(OneDNNLinear):
    """While it is entered, attention of the new tokens under `mask` goes by the plan."""

    def __init__(self, plan: _Plan, cache: _NewTokens, mask: torch.Tensor) -> None:
        super().__init__()
        self._plan = plan
        self._cache = cache
        self._mask = mask

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention and self._is_ours(keywords.get("attn_mask")):
            return self._attend(args[0], keywords.get("scale"))
        return super().call(func, args, keywords)

    def _is_ours(self, mask: torch.Tensor | None) -> bool:
        """Whether this is attention under our mask, which some models hand on as a view of it."""
        return mask is not None and mask.data_ptr() == self._mask.data_ptr() and mask.shape[2:] == self._mask.shape[2:]

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
    for store, slots, places, tokens in plan.writes:
        for held, new in zip(store.layer(index, key, value), (key, value), strict=True):
            if isinstance(slots, int):
                held[slots, :, places] = new[:, tokens]
            else:
                held[slots, :, places] = new[:, tokens].transpose(0, 1)
    output = torch.zeros_like(query)
    sums = torch.zeros(query.shape[:3], dtype=torch.float32, device=query.device)
    for group in plan.beside:
        found, total = _attend_beside(group, query, *group.store.layer(index, key, value), scale)
        output[:, :, group.start : group.end], sums[:, :, group.start : group.end] = found, total
    for part in plan.first:
        found, total = _attend_part(part, query, *part.store.layer(index, key, value), scale)
        output[:, :, part.tokens], sums[:, :, part.tokens] = found, total
    for part in plan.more:
        found, total = _attend_part(part, query, *part.store.layer(index, key, value), scale)
        before = sums[:, :, part.tokens]
        after = torch.logaddexp(before, total)
        mixed = output[:, :, part.tokens] * (before - after).exp()[..., None] + found * (total - after).exp()[..., None]
        output[:, :, part.tokens], sums[:, :, part.tokens] = mixed.to(output.dtype), after
    return output


def _attend_beside(
    group: _Beside, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One product for all rows of a group; every row is padded to `width` queries and `keys` keys."""
    heads, each, _, size = query.shape
    new = query[:, :, group.start : group.end] if group.spread is None else query[:, :, group.spread]
    rows = new.shape[2] // group.width
    folded = new.reshape(heads, each, rows, group.width, size).permute(2, 0, 1, 3, 4).reshape(rows, heads, -1, size)
    seen = keys[group.slots, :, : group.keys], values[group.slots, :, : group.keys]
    mask = None if group.mask is None else group.mask.repeat(1, 1, each, 1)
    found, total = flash(folded, *seen, 0.0, False, attn_mask=mask, scale=scale)
    found = found.reshape(rows, heads, each, group.width, -1).permute(1, 2, 0, 3, 4).flatten(2, 3)
    total = total.reshape(rows, heads, each, group.width).permute(1, 2, 0, 3).flatten(2, 3)
    return (found, total) if group.gather is None else (found[:, :, group.gather], total[:, :, group.gather])


def _attend_part(
    part: _Part, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    new = query[:, :, part.tokens]
    heads, each, n, size = new.shape
    seen = keys[part.slot, :, part.places], values[part.slot, :, part.places]
    if part.causal:
        wide = (tensor[:, None].expand(heads, each, *tensor.shape[1:]) for tensor in seen)
        return flash(new, *wide, 0.0, True, scale=scale)
    found, total = flash(new.reshape(1, heads, each * n, size), *(t[None] for t in seen), 0.0, False, scale=scale)
    return found.reshape(heads, each, n, -1), total.reshape(heads, each, n)


def _plan(runs: Sequence[Run], dtype: torch.dtype, device: torch.device) -> _Plan:
    plan = _Plan()
    short: list[tuple[int, Run]] = []
    below: dict[Segment, list[int]] = {}
    start = 0
    for run in runs:
        end, segment = start + len(run.ids), run.segment
        if len(run.ids) <= SHORT:
            short.append((start, run))
        else:
            held, tokens = segment.length, slice(start, end)
            fresh = slice(held, held + len(run.ids))
            plan.writes.append((segment.store, segment.slot, fresh, tokens))
            plan.first.append(_Part(tokens, segment.store, segment.slot, fresh, causal=True))
            if held:
                plan.more.append(_Part(tokens, segment.store, segment.slot, slice(0, held), causal=False))
        for above in run.above:
            below.setdefault(above, []).extend(range(start, end))
        start = end
    for group in _neighbours(short):
        plan.writes.append(_write(group, device))
        plan.beside.append(_beside(group, dtype, device))
    for above, places in below.items():
        known = slice(0, above.length + _growth(above, runs))
        plan.more.append(_Part(_as_slice(places, device), above.store, above.slot, known, causal=False))
    return plan


def _growth(segment: Segment, runs: Sequence[Run]) -> int:
    return sum(len(run.ids) for run in runs if run.segment is segment)


def _neighbours(short: Sequence[tuple[int, Run]]) -> Iterator[list[tuple[int, Run]]]:
    """Runs in neighbouring slots of one store, as long as padding them to one length costs little."""
    group: list[tuple[int, Run]] = []
    longest = total = 0
    for start, run in short:
        keys = run.segment.length + len(run.ids)
        wider, more = max(longest, keys), total + keys
        if group and not (
            _follows(*group[-1], start, run) and wider * (len(group) + 1) <= more * (1 + PADDED_SHARE) + PADDED_KEYS
        ):
            yield group
            group, wider, more = [], keys, keys
        group.append((start, run))
        longest, total = wider, more
    if group:
        yield group


def _follows(start: int, run: Run, next_start: int, next_run: Run) -> bool:
    """Whether the second run is next to the first in its pass and in its store."""
    before, after = run.segment, next_run.segment
    return start + len(run.ids) == next_start and before.store is after.store and before.slot + 1 == after.slot


def _write(group: Sequence[tuple[int, Run]], device: torch.device) -> tuple[Store, Any, Any, slice]:
    slots = [run.segment.slot for _, run in group for _ in run.ids]
    places = [run.segment.length + i for _, run in group for i in range(len(run.ids))]
    tokens = slice(group[0][0], group[0][0] + len(slots))
    store = group[0][1].segment.store
    return store, torch.tensor(slots, device=device), torch.tensor(places, device=device), tokens


def _beside(group: Sequence[tuple[int, Run]], dtype: torch.dtype, device: torch.device) -> _Beside:
    first = group[0][1].segment
    runs = [run for _, run in group]
    width = max(len(run.ids) for run in runs)
    # Queries beyond a run's own are its last one again.
    own = [[min(i, len(run.ids) - 1) for i in range(width)] for run in runs]
    seen = torch.tensor(
        [[run.segment.length + i + 1 for i in places] for run, places in zip(runs, own, strict=True)], device=device
    )
    keys = int(seen.max())
    mask = None
    if int(seen.min()) < keys:
        mask = torch.zeros(len(runs), 1, width, keys, dtype=dtype, device=device)
        mask.masked_fill_(torch.arange(keys, device=device) >= seen[:, None, :, None], -torch.inf)
    spread = gather = None
    if any(len(run.ids) < width for run in runs):
        spread = torch.tensor(
            [start + i for (start, _), places in zip(group, own, strict=True) for i in places], device=device
        )
        gather = torch.tensor([row * width + i for row, run in enumerate(runs) for i in range(len(run.ids))])
        gather = gather.to(device)
    start = group[0][0]
    end = start + sum(len(run.ids) for run in runs)
    slots = slice(first.slot, first.slot + len(runs))
    return _Beside(first.store, slots, start, end, keys, width, spread, gather, mask)


def _as_slice(places: list[int], device: torch.device) -> slice | torch.Tensor:
    if places[-1] - places[0] + 1 == len(places):
        return slice(places[0], places[-1] + 1)
    return torch.tensor(places, device=device)
