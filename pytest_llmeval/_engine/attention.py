"""Attention in a pass over a tree: masks, also for sliding windows, and products that skip most masked keys.

All tokens of a pass see the keys in the cache (`held`) and those of the shared tokens at the start of the pass: these
keys are attended to in one product without a mask. The keys of single documents are attended to in blocks. Both results
are merged by their log-sum-exp values, as in flash attention (Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from typing import TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from pytest_llmeval._engine.token_tree import Block
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import blocks


#: A block of new tokens and its part of a mask.
Masked: TypeAlias = tuple[Block, torch.Tensor]
#: The output of attention [1, heads, queries, width], and the log-sum-exp of its scores [1, heads, queries].
Attended: TypeAlias = tuple[torch.Tensor, torch.Tensor]

#: Arguments of attention, besides mask and scale, with which `_SharedParts` can compute it.
_PLAIN: Mapping[str, Any] = {"dropout_p": 0.0, "is_causal": False, "enable_gqa": False}


class CallMode(TorchFunctionMode):
    """A context in which `call` receives every call of a torch function in this thread, and may return its result."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        return func(*args, **keywords)


class BlockAttention(CallMode):
    """A context in which attention under one of `masks` is computed in parts, each over the keys that it can see.

    The masks have the shape [1, 1, new tokens, held and new tokens] and are those of `step`, possibly with windows.
    `size`: the largest number of tokens in a block. All other functions, and attention that does not use
    `torch.nn.functional.scaled_dot_product_attention`, are unchanged.
    """

    def __init__(self, masks: Sequence[torch.Tensor], step: Pass, size: int) -> None:
        super().__init__()
        self._masks = masks
        self._parts: list[_Parts | _SharedParts] = [
            _SharedParts.of(mask, step, size) or _Parts.of(mask, step, size) for mask in masks
        ]
        self._step, self._size = step, size

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            place = self._place(keywords.get("attn_mask"), *args)
            if place is not None:
                parts = self._parts[place]
                if isinstance(parts, _SharedParts) and not _is_plain(args, keywords):
                    parts = self._parts[place] = _Parts.of(self._masks[place], self._step, self._size)
                return parts.attend(args, keywords)
        return super().call(func, args, keywords)

    def _place(self, mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, *_: Any) -> int | None:
        """Return the index of the mask in `masks`, or None. Some models pass a view of it, so storage is compared."""
        for place, known in enumerate(self._masks):
            if (
                mask is not None
                and mask.data_ptr() == known.data_ptr()
                and mask.shape[2:] == known.shape[2:] == (query.shape[2], key.shape[2])
            ):
                return place
        return None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Attention of the new tokens in blocks, each over all keys that the block can see."""

    blocks: Sequence[Masked]

    @classmethod
    def of(cls, mask: torch.Tensor, step: Pass, size: int) -> _Parts:
        return cls(_masked(mask, blocks(step, size)))

    def attend(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> torch.Tensor:
        """Return attention as query, [1, heads, new, width]; key and value are [1, heads, held + new, width]."""
        query, key, value, *rest = args
        parts = [
            torch.nn.functional.scaled_dot_product_attention(
                query[:, :, block.start : block.end],
                _picked(key, block.keys, dim=2),
                _picked(value, block.keys, dim=2),
                *rest,
                **{**keywords, "attn_mask": mask},
            )
            for block, mask in self.blocks
        ]
        return torch.cat(parts, dim=2)


@dataclass(frozen=True, slots=True)
class _SharedParts:
    """Attention where every new token sees the `held` keys and the first `n_shared` form a path that `blocks` see."""

    held: int
    n_shared: int
    blocks: Sequence[Masked]

    @classmethod
    def of(cls, mask: torch.Tensor, step: Pass, size: int) -> _SharedParts | None:
        """Return None if fewer than `size` tokens are shared, or if a sliding window hides some of them."""
        deepest = max(range(len(step.depths)), key=step.depths.__getitem__)
        if step.held + step.n_shared < size or mask[0, 0, deepest, 0] != 0:
            return None
        return cls(step.held, step.n_shared, _masked(mask, blocks(step, size, behind_shared=True)))

    def attend(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> torch.Tensor:
        """Return the attention of a pass whose parts share a prefix, as `_Parts.attend` does."""
        query, key, value = args
        scale = keywords.get("scale")
        outputs = []
        if self.n_shared:
            first, own = query[:, :, : self.n_shared], slice(self.held, self.held + self.n_shared)
            along = flash(first, key[:, :, own], value[:, :, own], 0.0, True, scale=scale)
            outputs.append(self._with_shared(along, first, key, value, self.held, scale))
        if self.blocks:
            parts = [
                flash(
                    query[:, :, block.start : block.end],
                    _picked(key, block.keys, dim=2),
                    _picked(value, block.keys, dim=2),
                    attn_mask=mask,
                    scale=scale,
                )
                for block, mask in self.blocks
            ]
            outs, sums = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
            others, shared = query[:, :, self.n_shared :], self.held + self.n_shared
            outputs.append(self._with_shared((outs, sums), others, key, value, shared, scale))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)

    def _with_shared(
        self,
        own: Attended,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        shared: int,
        scale: float | None,
    ) -> torch.Tensor:
        """Return `own`, attention to the other keys, merged with attention to the first `shared` keys, if any."""
        if not shared:
            return own[0]
        found, total = flash(query, key[:, :, :shared], value[:, :, :shared], scale=scale)
        # `flash` returns float32 sums even if the model computes in half precision.
        weight = torch.sigmoid(total - own[1])[..., None]
        return torch.lerp(own[0].to(weight.dtype), found.to(weight.dtype), weight).to(found.dtype)


def flash(*args: Any, **kwargs: Any) -> Attended:
    """Return attention and its log-sum-exp by torch's own CPU kernel, whose public function omits the latter."""
    answer: Attended = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*args, **kwargs)
    return answer


def _is_plain(args: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Return True if `flash` supports the arguments: default options, and equal head counts and widths."""
    others = {name: value for name, value in keywords.items() if name not in ("attn_mask", "scale")}
    return (
        len(args) == 3
        and all(name in _PLAIN and _PLAIN[name] == value for name, value in others.items())
        and args[0].shape[1] == args[1].shape[1]
        and args[0].shape[3] == args[2].shape[3]
    )


def _masked(mask: torch.Tensor, parts: Sequence[Block]) -> list[Masked]:
    return [(part, _picked(mask[:, :, part.start : part.end], part.keys, dim=3).contiguous()) for part in parts]


def _picked(tensor: torch.Tensor, runs: Sequence[tuple[int, int]], dim: int) -> torch.Tensor:
    """Return the slices (start, end) of a dimension, concatenated; a single slice is not copied."""
    parts = [tensor.narrow(dim, start, end - start) for start, end in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


#: The layer types in configs of transformers whose masks are known here.
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Windows:
    """The sliding windows of a model's layers according to its config.

    `kinds`: the layer types, if the model takes a mask for each of them, by name; if empty, it takes one mask for all
    layers, with a window of `size` tokens. `size` None: there is no window.
    """

    size: int | None = None
    kinds: tuple[str, ...] = ()

    def masks(self, step: Pass, dtype: torch.dtype, device: torch.device) -> torch.Tensor | Mapping[str, torch.Tensor]:
        """Return the model's `attention_mask` for a pass: one mask, or a mask for each layer type, by name."""
        if not self.kinds:
            return tree_mask(step, dtype, device, self.size)
        return {kind: tree_mask(step, dtype, device, self.size if kind == SLIDING else None) for kind in self.kinds}


NO_WINDOWS = Windows()


def windows_of(model: Any) -> Windows:
    """Return the windows in a model's config; `NO_WINDOWS` if it has layer types that are not known here."""
    config = model.config.get_text_config()
    size = getattr(config, "sliding_window", None)
    kinds = tuple(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if not isinstance(size, int) or not {FULL, SLIDING}.issuperset(kinds):
        return NO_WINDOWS
    # A model that lists its layer types has no window if none of them is a sliding one.
    return Windows(size, kinds) if SLIDING in kinds or not kinds else NO_WINDOWS


@contextmanager
def narrowed(model: Any, size: int) -> Iterator[None]:
    """Set the sliding window of a model to `size` tokens meanwhile, so that short sequences test its windows."""
    config = model.config.get_text_config()
    usual, config.sliding_window = config.sliding_window, size
    try:
        yield
    finally:
        config.sliding_window = usual


def tree_mask(step: Pass, dtype: torch.dtype, device: torch.device, window: int | None = None) -> torch.Tensor:
    """Return an additive mask [1, 1, new tokens, held and new tokens]: 0 where seen, else the least finite number.

    With a window, a token sees itself and the window - 1 tokens before it on its path.
    """
    n = len(step.ids)
    place = torch.arange(n, device=device)
    ends = torch.tensor(step.ends, device=device)
    seen = (place <= place[:, None]) & (place[:, None] < ends)
    seen = torch.cat([seen.new_ones(n, step.held), seen], dim=1)
    if window is not None:
        depths = torch.tensor(step.depths, device=device)
        seen &= torch.cat([torch.arange(step.held, device=device), depths]) > depths[:, None] - window
    mask = torch.zeros(1, 1, n, step.held + n, dtype=dtype, device=device)
    return mask.masked_fill_(~seen, torch.finfo(dtype).min)
