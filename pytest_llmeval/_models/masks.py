"""Attention masks of a pass over a tree, also for layers that look back a window of tokens and no further."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from pytest_llmeval._engine.tree import Pass


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
