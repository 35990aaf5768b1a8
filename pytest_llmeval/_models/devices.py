"""Where a model runs, and what running out of memory looks like there."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from typing import Any

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.tree import Limits
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.memory import fitting_tokens


#: What a batch that is scored may hold. A processor is fastest on few tokens: 512 took 0.6 of the time of 4,096
#: (SmolLM2-135M, two cores). On an accelerator 4,096 scored positions of 150,000 words are 2.5 GB of float32 logits.
SCORING = {
    "cpu": Budget(tokens=512, scored=2048, rows=64),
    "mps": Budget(tokens=4096, scored=2048, rows=64),
}
ACCELERATOR_SCORING = Budget(tokens=16384, scored=4096, rows=256)
#: What a batch that is written may come to hold: after its prompts have been read every step is one token a row.
WRITING = {
    "cpu": Budget(tokens=16384, scored=2048, rows=32),
    "mps": Budget(tokens=32768, scored=2048, rows=64),
}
ACCELERATOR_WRITING = Budget(tokens=131072, scored=4096, rows=256)
#: Tokens of one pass over a tree. On a processor 1,024 took 0.87 to 0.94 of the time of 512 where a prompt has some 270
#: tokens of its own, and the same elsewhere (SmolLM2-135M, two cores). The values for other devices follow their
#: budgets; they have not been measured.
CPU_PASSES = Limits(pack=1024, longest=2048)
MPS_PASSES = Limits(pack=1024, longest=2048)
ACCELERATOR_PASSES = Limits(pack=4096, longest=8192)

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


def scoring_budget(model: Any, args: ModelArgs) -> Budget:
    """What a batch that is scored may hold: what is fast, if it fits into free memory, unless the user says."""
    return _as_asked(SCORING.get(model.device.type, ACCELERATOR_SCORING), args, fitting_tokens(model, scored=1))


def writing_budget(model: Any, args: ModelArgs) -> Budget:
    """The same for a batch that is written; of its tokens, one a row needs logits."""
    return _as_asked(WRITING.get(model.device.type, ACCELERATOR_WRITING), args, fitting_tokens(model, scored=0.01))


def _as_asked(usual: Budget, args: ModelArgs, fitting: int | None) -> Budget:
    tokens = args.max_batch_tokens or min(usual.tokens, fitting or usual.tokens)
    return replace(usual, tokens=tokens, rows=args.batch_size or usual.rows)


def pass_limits(model: Any, args: ModelArgs) -> Limits:
    """What a pass over a tree may hold: what is fast, if it fits into free memory, unless the user says."""
    usual = {"cpu": CPU_PASSES, "mps": MPS_PASSES}.get(model.device.type, ACCELERATOR_PASSES)
    most = args.max_batch_tokens or fitting_tokens(model, scored=1)
    return usual if most is None else Limits(min(usual.pack, most), args.max_batch_tokens or min(usual.longest, most))


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
