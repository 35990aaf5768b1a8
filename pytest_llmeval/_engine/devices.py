"""The device that a model runs on: size limits of passes, handling of exhausted memory, and usage."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TypeVar

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._errors import ModelError


#: The share of free memory that passes may use: the rest is for the overhead of allocators and for other processes.
SHARE = 0.5
#: The number of copies of a token's hidden state, and of the inner state of one layer, that exist at once.
HIDDEN_COPIES, INNER_COPIES = 8, 3

_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")

Answer = TypeVar("Answer")


def fitting_tokens(model: Any, *, scored: float) -> int | None:
    """Return the number of tokens that fit into free memory with keys and values; None if free memory is unknown.

    `scored`: the share of tokens whose logits are computed.
    """
    free = free_bytes(model.device)
    return None if free is None else max(1, int(SHARE * free / bytes_per_token(model, scored)))


def bytes_per_token(model: Any, scored: float) -> float:
    """Return the bytes of one token: keys and values of every layer, states of one layer, and a share of logits."""
    config, width = model.config.get_text_config(), int(model.dtype.itemsize)
    hidden = int(getattr(config, "hidden_size", 0))
    heads = int(getattr(config, "num_attention_heads", 0) or 1)
    size = int(getattr(config, "head_dim", None) or hidden // heads)
    key_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    kept = 2 * int(getattr(config, "num_hidden_layers", 0)) * key_heads * size
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    # Logits exist twice: in the model's dtype, and in float32 for the softmax.
    logits = scored * int(config.vocab_size) * (width + 2 * 4)
    return (kept + HIDDEN_COPIES * hidden + INNER_COPIES * inner) * width + logits


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that can still be allocated on a device, or by this process on a CPU; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    known: list[int] = []
    with suppress(OSError):
        lines = _MEMINFO.read_text().splitlines()
        known += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    # A container may have less memory than its machine (control groups, version 2).
    with suppress(OSError):
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit.isdigit() and used.isdigit():
            known.append(max(0, int(limit) - int(used)))
    return min(known, default=None)


#: Size limits of a scoring batch. A CPU is fastest with small batches: 512 tokens took 0.6 of the time of 4,096
#: (SmolLM2-135M, two cores). On an accelerator 4,096 scored positions of 150,000 words are 2.5 GB of float32 logits.
SCORING = {
    "cpu": Budget(tokens=512, scored=2048, rows=64),
    "mps": Budget(tokens=4096, scored=2048, rows=64),
}
ACCELERATOR_SCORING = Budget(tokens=16384, scored=4096, rows=256)
#: Size limits of a generation batch at its full length: after the prompts each step reads one token per row.
WRITING = {
    "cpu": Budget(tokens=16384, scored=2048, rows=32),
    "mps": Budget(tokens=32768, scored=2048, rows=64),
}
ACCELERATOR_WRITING = Budget(tokens=131072, scored=4096, rows=256)
#: Tokens of one pass over a tree. On a CPU 1,024 took 0.87 to 0.94 of the time of 512 if a prompt has about 270
#: tokens that others do not share, else the same time (SmolLM2-135M, two cores). The values for other devices equal
#: those of their batches; they have not been measured.
CPU_PASSES = Limits(pack=1024, longest=2048)
MPS_PASSES = Limits(pack=1024, longest=2048)
ACCELERATOR_PASSES = Limits(pack=4096, longest=8192)

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "Failed to allocate")


def choose_device(name: str | None, seat: int | None = None) -> torch.device:
    """Return the named device, or by default the fastest kind available. Raises ModelError if it is not available.

    Of several GPUs, unless one is named by its number, the process in seat k takes number k modulo their number.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and seat is not None and torch.cuda.device_count() > 1:
        name = f"cuda:{seat % torch.cuda.device_count()}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"model argument device={name}: this machine cannot use it: {reason}") from None
    return device


def scoring_budget(model: Any, options: EngineOptions) -> Budget:
    """Return the size limits of a scoring batch: the usual ones, cut to free memory, or the user's."""
    return _as_asked(SCORING.get(model.device.type, ACCELERATOR_SCORING), options, fitting_tokens(model, scored=1))


def writing_budget(model: Any, options: EngineOptions) -> Budget:
    """Return the size limits of a generation batch, chosen in the same way; one token per row needs logits."""
    return _as_asked(WRITING.get(model.device.type, ACCELERATOR_WRITING), options, fitting_tokens(model, scored=0.01))


def _as_asked(usual: Budget, options: EngineOptions, fitting: int | None) -> Budget:
    tokens = options.max_batch_tokens or min(usual.tokens, fitting or usual.tokens)
    return replace(usual, tokens=tokens, rows=options.batch_size or usual.rows)


def pass_limits(model: Any, options: EngineOptions) -> Limits:
    """Return the size limits of a pass over a tree: the user's, or the usual ones lowered to fit into free memory."""
    usual = {"cpu": CPU_PASSES, "mps": MPS_PASSES}.get(model.device.type, ACCELERATOR_PASSES)
    if options.max_batch_tokens is not None:
        return Limits(min(usual.pack, options.max_batch_tokens), options.max_batch_tokens)
    most = fitting_tokens(model, scored=1)
    return usual if most is None else Limits(min(usual.pack, most), min(usual.longest, most))


def share_processors(device: torch.device) -> None:
    """Limit torch to this xdist worker's share of the CPUs; by default each worker would use all of them.

    OMP_NUM_THREADS has precedence if the user set it.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if device.type == "cpu" and workers > 1 and "OMP_NUM_THREADS" not in os.environ:
        share = max(1, (os.cpu_count() or 1) // workers)
        torch.set_num_threads(min(torch.get_num_threads(), share))


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error of torch reports exhausted memory; on a CPU only its text tells."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def try_pass(run: Callable[[], Answer], shape: Callable[[], str], *, can_shrink: bool) -> Answer | None:
    """Return the answer of a forward pass, or None if memory ran out and a smaller pass should be tried.

    The caller then drops its caches, calls `free_memory` and halves its limits. Raises ModelError, with the `shape` of
    the pass in words, if the pass cannot shrink or failed for another reason.
    """
    try:
        return run()
    except (RuntimeError, MemoryError, IndexError, ValueError) as error:
        if not is_out_of_memory(error):
            raise ModelError(f"the model failed on {shape()}: {type(error).__name__}: {error}") from error
        if not can_shrink:
            raise ModelError(f"out of memory on {shape()}; give a smaller max_length, or another device") from error
    return None


def sequences(n: int, longest: int) -> str:
    """Return the shape of a batch in words, for messages."""
    return f"{n} sequence{'s' * (n > 1)} of up to {longest} tokens"


def free_memory() -> None:
    """Release memory that is no longer referenced, including the caches of allocators."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


class Usage:
    """Counts since a model was loaded. `tokens`: positions of all its forward passes, padding included."""

    def __init__(self) -> None:
        self.tokens = 0

    @contextmanager
    def counting(self, model: Any) -> Iterator[None]:
        """Count the tokens that the model reads meanwhile. The model, which may be the user's, is not changed."""
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
    """Return the most bytes allocated on an accelerator, or held by this process on a CPU; 0 where that is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if device.type == "mps":
        return int(torch.mps.driver_allocated_memory())
    if sys.platform == "win32":
        return 0
    import resource

    # In kilobytes, but in bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
