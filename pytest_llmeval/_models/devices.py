"""Where a model runs, and what running out of memory looks like there."""

from __future__ import annotations

import gc
import os

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.arguments import ModelArgs


#: Rows, and tokens with padding, of a forward pass. A processor gains nothing from more than keeps it busy.
ROWS = {"cpu": 64, "mps": 64}
TOKENS = {"cpu": 2048, "mps": 4096}
ACCELERATOR_ROWS = 256
ACCELERATOR_TOKENS = 16384
#: Positions whose logits are held at once: with 150,000 words in the vocabulary 4,096 take 2.5 GB in float32.
SCORED = {"cpu": 2048, "mps": 2048}
ACCELERATOR_SCORED = 4096

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "Failed to allocate")


def choose_device(name: str | None) -> torch.device:
    """The named device, or the best one there is. Raises ModelError for one that this machine lacks."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"model argument device={name}: this machine cannot use it: {reason}") from None
    return device


def budget_for(device: torch.device, args: ModelArgs) -> Budget:
    """What a forward pass may hold there, unless the user says."""
    kind = device.type
    return Budget(
        tokens=args.max_batch_tokens or TOKENS.get(kind, ACCELERATOR_TOKENS),
        scored=SCORED.get(kind, ACCELERATOR_SCORED),
        rows=args.batch_size or ROWS.get(kind, ACCELERATOR_ROWS),
    )


def share_processors(device: torch.device) -> None:
    """Gives each worker of a parallel pytest its part of the processors: all of them together want all of them.

    An OMP_NUM_THREADS of the user's stays in force.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if device.type == "cpu" and workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        share = max(1, (os.cpu_count() or 1) // workers)
        torch.set_num_threads(min(torch.get_num_threads(), share))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch says that memory ran out; on a processor it has no class of its own."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def free_memory() -> None:
    """Gives back what nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
