"""Attention over the rows of a tree, without most of what their masks take away.

What all tokens of a pass see, held keys and the trunk that the pass begins with, is attended to in one product without
a mask; what is a document's own in blocks. Both are put together by the logarithms of the sums of their exponentials,
as in flash attention (Dao et al. 2022).

Attention masks of a pass over a tree, also for layers that look back a window of tokens and no further.
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

from pytest_llmeval._engine.overrides import CallMode
from pytest_llmeval._engine.token_tree import Block
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import blocks


#: A block of new tokens, and its part of a mask.
Masked: TypeAlias = tuple[Block, torch.Tensor]
#: Attention, and the logarithms of the sums of exponentials that it divides by.
Attended: TypeAlias = tuple[torch.Tensor, torch.Tensor]

#: What attention may be told besides mask and scale, if it is to be answered in parts of our own.
_PLAIN: Mapping[str, Any] = {"dropout_p": 0.0, "is_causal": False, "enable_gqa": False}


class BlockAttention(CallMode):
    """While it is entered, attention under one of `masks` is computed in parts, each over the keys it can see.

    The masks have the shape [1, 1, new tokens, held and new tokens] and are those of `step`, maybe with windows.
    `size`: most tokens of a block. Whatever else a model does stays as it is; so does attention of another form
    than `torch.nn.functional.scaled_dot_product_attention`.
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
        """Which of our masks this is, for attention of all new tokens; some models hand on a view of it."""
        for place, ours in enumerate(self._masks):
            if (
                mask is not None
                and mask.data_ptr() == ours.data_ptr()
                and mask.shape[2:] == ours.shape[2:] == (query.shape[2], key.shape[2])
            ):
                return place
        return None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Blocks of all new tokens, each over all keys that it can see."""

    blocks: Sequence[Masked]

    @classmethod
    def of(cls, mask: torch.Tensor, step: Pass, size: int) -> _Parts:
        return cls(_masked(mask, blocks(step, size)))

    def attend(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> torch.Tensor:
        """query [1, heads, new tokens, width], key and value [1, heads, held and new tokens, width]."""
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
    """The first `trunk` new tokens are a path that all others see, as all see `held` keys; `blocks` are the others."""

    held: int
    trunk: int
    blocks: Sequence[Masked]

    @classmethod
    def of(cls, mask: torch.Tensor, step: Pass, size: int) -> _SharedParts | None:
        """None where too little is shared for a product of its own, or a window ends within it."""
        deepest = max(range(len(step.depths)), key=step.depths.__getitem__)
        if step.held + step.trunk < size or mask[0, 0, deepest, 0] != 0:
            return None
        return cls(step.held, step.trunk, _masked(mask, blocks(step, size, behind_trunk=True)))

    def attend(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> torch.Tensor:
        """As `_Parts.attend`."""
        query, key, value = args
        scale = keywords.get("scale")
        outputs = []
        if self.trunk:
            first, own = query[:, :, : self.trunk], slice(self.held, self.held + self.trunk)
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
            others, shared = query[:, :, self.trunk :], self.held + self.trunk
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
        """Attention to keys of a part's own, put together with that to the first `shared` ones, if there are any."""
        if not shared:
            return own[0]
        found, total = flash(query, key[:, :, :shared], value[:, :, :shared], scale=scale)
        # Sums are float32 for half precision too.
        weight = torch.sigmoid(total - own[1])[..., None]
        return torch.lerp(own[0].to(weight.dtype), found.to(weight.dtype), weight).to(found.dtype)


def flash(*args: Any, **kwargs: Any) -> Attended:
    """Attention on a processor as torch itself computes it, with the sums that its public form keeps to itself."""
    answer: Attended = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*args, **kwargs)
    return answer


def _is_plain(args: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether `flash` takes this: nothing unusual is asked, and all heads are of one width."""
    told = {name: value for name, value in keywords.items() if name not in ("attn_mask", "scale")}
    return (
        len(args) == 3
        and all(name in _PLAIN and _PLAIN[name] == value for name, value in told.items())
        and args[0].shape[1] == args[1].shape[1]
        and args[0].shape[3] == args[2].shape[3]
    )


def _masked(mask: torch.Tensor, parts: Sequence[Block]) -> list[Masked]:
    return [(part, _picked(mask[:, :, part.start : part.end], part.keys, dim=3).contiguous()) for part in parts]


def _picked(tensor: torch.Tensor, runs: Sequence[tuple[int, int]], dim: int) -> torch.Tensor:
    """These runs of a dimension, without a copy if there is only one."""
    parts = [tensor.narrow(dim, start, end - start) for start, end in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


#: How configs of transformers call the kinds of layers that are known here.
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Windows:
    """How far back the layers of a model look, as its config says.

    `kinds` are the names under which a model takes a mask for each kind of layer; without any, it takes one for all,
    which is `size` tokens wide. `size` None: there is no window.
    """

    size: int | None = None
    kinds: tuple[str, ...] = ()

    def masks(self, step: Pass, dtype: torch.dtype, device: torch.device) -> torch.Tensor | Mapping[str, torch.Tensor]:
        """What the model's `attention_mask` should be."""
        if not self.kinds:
            return tree_mask(step, dtype, device, self.size)
        return {kind: tree_mask(step, dtype, device, self.size if kind == SLIDING else None) for kind in self.kinds}


NO_WINDOWS = Windows()


def windows_of(model: Any) -> Windows:
    """What a model's config says; no windows where they are of a kind that is not known here."""
    config = model.config.get_text_config()
    size = getattr(config, "sliding_window", None)
    kinds = tuple(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if not isinstance(size, int) or not {FULL, SLIDING}.issuperset(kinds):
        return NO_WINDOWS
    # A model that is told its kinds of layers is asked for none of the others.
    return Windows(size, kinds) if SLIDING in kinds or not kinds else NO_WINDOWS


@contextmanager
def narrowed(model: Any, size: int) -> Iterator[None]:
    """Lets a model look back so few tokens, to see on short sequences what its windows do."""
    config = model.config.get_text_config()
    usual, config.sliding_window = config.sliding_window, size
    try:
        yield
    finally:
        config.sliding_window = usual


def tree_mask(step: Pass, dtype: torch.dtype, device: torch.device, window: int | None = None) -> torch.Tensor:
    """What is added to attention scores [1, 1, new tokens, held and new tokens]: 0 where seen, else the least value.

    With a window a token sees itself and window - 1 tokens before it on its path.
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
