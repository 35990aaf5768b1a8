"""Attention over the rows of a tree, without most of what their masks take away."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_llmeval._engine.blocks import Block


class BlockAttention(TorchFunctionMode):
    """While it is entered, attention under one of `masks` is computed block by block, each over the keys it can see.

    The masks have the shape [1, 1, new tokens, held and new tokens]. Whatever else a model does stays as it is; so
    does attention of another form than `torch.nn.functional.scaled_dot_product_attention`.
    """

    def __init__(self, masks: Sequence[torch.Tensor], blocks: Sequence[Block]) -> None:
        super().__init__()
        self._masks = masks
        self._blocks = [
            [(block, _picked(mask[:, :, block.start : block.end], block.keys, dim=3).contiguous()) for block in blocks]
            for mask in masks
        ]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            place = self._place(keywords.get("attn_mask"), *args)
            if place is not None:
                query, key, value, *rest = args
                return self._attend(self._blocks[place], query, key, value, rest, {**keywords})
        return func(*args, **keywords)

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

    def _attend(
        self,
        blocks: Sequence[tuple[Block, torch.Tensor]],
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        rest: Sequence[Any],
        keywords: dict[str, Any],
    ) -> torch.Tensor:
        """query [1, heads, new tokens, width], key and value [1, heads, held and new tokens, width]."""
        parts = []
        for block, mask in blocks:
            keywords["attn_mask"] = mask
            parts.append(
                torch.nn.functional.scaled_dot_product_attention(
                    query[:, :, block.start : block.end],
                    _picked(key, block.keys, dim=2),
                    _picked(value, block.keys, dim=2),
                    *rest,
                    **keywords,
                )
            )
        return torch.cat(parts, dim=2)


def _picked(tensor: torch.Tensor, runs: Sequence[tuple[int, int]], dim: int) -> torch.Tensor:
    """These runs of a dimension, without a copy if there is only one."""
    parts = [tensor.narrow(dim, start, end - start) for start, end in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
