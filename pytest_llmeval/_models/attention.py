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
    """While it is entered, attention under `mask` is computed block by block, each over the keys that it can see.

    The mask has the shape [1, 1, new tokens, held and new tokens]. Whatever else a model does stays as it is; so
    does attention of another form than `torch.nn.functional.scaled_dot_product_attention`.
    """

    def __init__(self, mask: torch.Tensor, blocks: Sequence[Block]) -> None:
        super().__init__()
        self._mask = mask
        self._blocks = [
            (block, _picked(mask[:, :, block.start : block.end], block.keys, dim=3).contiguous()) for block in blocks
        ]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and self._is_ours(keywords.get("attn_mask"), *args):
            query, key, value, *rest = args
            return self._attend(query, key, value, rest, {**keywords})
        return func(*args, **keywords)

    def _is_ours(self, mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, *_: Any) -> bool:
        """Whether this is attention of all new tokens under our mask, which some models hand on as a view of it."""
        return (
            mask is not None
            and mask.data_ptr() == self._mask.data_ptr()
            and mask.shape[2:] == self._mask.shape[2:] == (query.shape[2], key.shape[2])
        )

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, rest: Sequence[Any], keywords: dict[str, Any]
    ) -> torch.Tensor:
        """query [1, heads, new tokens, width], key and value [1, heads, held and new tokens, width]."""
        parts = []
        for block, mask in self._blocks:
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
