"""How many tokens fit into the memory that is free: what bounds a budget besides speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


#: The part of free memory that is planned with: the rest is for what an allocator wastes, and for other processes.
SHARE = 0.5
#: Copies of a token's hidden state, and of the inner state of one layer, that are alive at once.
HIDDEN_COPIES, INNER_COPIES = 8, 3

_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def fitting_tokens(model: Any, *, scored: float) -> int | None:
    """How many tokens may be in memory at once, keys and values kept; None where no one can say what is free.

    `scored`: the share of them whose logits are wanted.
    """
    free = free_bytes(model.device)
    return None if free is None else max(1, int(SHARE * free / bytes_per_token(model, scored)))


def bytes_per_token(model: Any, scored: float) -> float:
    """What one token takes: its keys and values in every layer, states of the layer at work, and a share of logits."""
    config, width = model.config.get_text_config(), int(model.dtype.itemsize)
    hidden = int(getattr(config, "hidden_size", 0))
    heads = int(getattr(config, "num_attention_heads", 0) or 1)
    size = int(getattr(config, "head_dim", None) or hidden // heads)
    kept = 2 * int(getattr(config, "num_hidden_layers", 0)) * _key_heads(config, heads) * size
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    # Logits are there as the model gives them, and in float32 for the softmax.
    logits = scored * int(config.vocab_size) * (width + 2 * 4)
    return (kept + HIDDEN_COPIES * hidden + INNER_COPIES * inner) * width + logits


def _key_heads(config: Any, heads: int) -> int:
    return int(getattr(config, "num_key_value_heads", None) or heads)


def free_bytes(device: torch.device) -> int | None:
    """What a device, or this process on a processor, may still take; None if that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    known = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(known, default=None)


def _free_of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _free_of_group() -> int | None:
    """What a container leaves, by its control group (version 2)."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None
