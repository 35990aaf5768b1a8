"""Attention in parts: what the masks of a tree say, whatever its shape, the size of blocks, and how models ask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine import attention
from pytest_llmeval._engine.attention import BlockAttention
from pytest_llmeval._engine.attention import tree_mask
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import Tree


attend = torch.nn.functional.scaled_dot_product_attention

texts = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)
asked = st.builds(
    lambda start, pairs: [TokenRequest((5,) * start + context, ending) for context, ending in pairs],
    st.integers(0, 30),
    st.lists(st.tuples(texts, texts), min_size=1, max_size=12),
)


def tensors(step: Pass, heads: int = 2, width: int = 4) -> list[torch.Tensor]:
    pick = torch.Generator().manual_seed(len(step.ids))
    n, keys = len(step.ids), step.held + len(step.ids)
    return [torch.randn(1, heads, length, width, dtype=torch.float64, generator=pick) for length in (n, keys, keys)]


def in_parts(step: Pass, mask: torch.Tensor, size: int, *args: Any, **keywords: Any) -> torch.Tensor:
    with BlockAttention([mask], step, size):
        found: torch.Tensor = attend(*args, attn_mask=mask, **keywords)
    return found


@given(
    requests=asked,
    pack=st.integers(3, 40),
    size=st.integers(1, 20),
    window=st.one_of(st.none(), st.integers(1, 40)),
    scale=st.sampled_from([None, 0.3]),
)
@settings(deadline=None)
def test_parts_are_as_good_as_the_whole(
    requests: list[TokenRequest], pack: int, size: int, window: int | None, scale: float | None
) -> None:
    for step in Tree(requests).passes(Limits(pack, pack + 10)):
        mask = tree_mask(step, torch.float64, torch.device("cpu"), window)
        expected = attend(*tensors(step), attn_mask=mask, scale=scale)
        torch.testing.assert_close(in_parts(step, mask, size, *tensors(step), scale=scale), expected)


def test_what_is_shared_is_attended_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three docs of two tokens behind a path of 20: the path attends along itself, all docs to it, each to its own."""
    (step,) = Tree([TokenRequest((9,) * 20 + (doc, doc), (0,)) for doc in range(3)]).passes(Limits(40, 40))
    mask = tree_mask(step, torch.float64, torch.device("cpu"))
    sizes = []

    def noted(query: torch.Tensor, key: torch.Tensor, *args: Any, **keywords: Any) -> attention.Attended:
        sizes.append((query.shape[2], key.shape[2]))
        return flash(query, key, *args, **keywords)

    flash = attention.flash
    monkeypatch.setattr(attention, "flash", noted)
    in_parts(step, mask, 2, *tensors(step))
    assert sizes == [(20, 20), (2, 2), (2, 2), (2, 2), (6, 20)]


@pytest.mark.parametrize("keywords", [{"dropout_p": 0.0, "is_causal": False}, {"enable_gqa": True}])
def test_other_ways_to_ask(keywords: dict[str, Any]) -> None:
    (step,) = Tree([TokenRequest((9,) * 20 + (doc, doc), (0,)) for doc in range(3)]).passes(Limits(40, 40))
    mask = tree_mask(step, torch.float64, torch.device("cpu"))
    expected = attend(*tensors(step), attn_mask=mask)
    torch.testing.assert_close(in_parts(step, mask, 4, *tensors(step), **keywords), expected)


def test_values_of_another_width() -> None:
    (step,) = Tree([TokenRequest((9,) * 20 + (doc, doc), (0,)) for doc in range(3)]).passes(Limits(40, 40))
    mask = tree_mask(step, torch.float64, torch.device("cpu"))
    query, key, value = tensors(step)
    expected = attend(query, key, value[..., :3], attn_mask=mask)
    torch.testing.assert_close(in_parts(step, mask, 4, query, key, value[..., :3]), expected)


def test_attention_under_another_mask_is_left_alone() -> None:
    (step,) = Tree([TokenRequest((9,) * 20, (0,))]).passes(Limits(40, 40))
    ours, other = (tree_mask(step, torch.float64, torch.device("cpu")) for _ in range(2))
    other[..., 0] = -1.0
    with BlockAttention([ours], step, 4):
        found = attend(*tensors(step), attn_mask=other)
    torch.testing.assert_close(found, attend(*tensors(step), attn_mask=other))
