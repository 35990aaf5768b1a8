"""What answers cost: the tokens that a model read, and the most memory that was taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Usage:
    """Counts over the life of one loaded model."""

    def __init__(self) -> None:
        #: Positions of all forward passes, padding included: with the tree, each distinct token once.
        self.tokens = 0

    @contextmanager
    def counting(self, model: Any) -> Iterator[None]:
        """Counts what the model reads meanwhile; it is left as it was, for it may be the user's."""
        handle = model.register_forward_pre_hook(self._count, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _count(self, _: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        ids = keywords.get("input_ids", args[0] if args else None)
        if ids is not None:
            self.tokens += ids.numel()


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that was allocated on an accelerator, or that this process held; 0 where no one can say."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    if sys.platform == "win32":
        return 0
    import resource

    # Kilobytes but on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
