"""Calls of an unmodified causal model of transformers: no dropout, no log lines, and no unneeded logits.

The output layer runs only at positions where a next token is scored. So do the feed-forward parts of the last layer,
since no attention follows them. A trial decides whether this holds for a model, never a list of model names.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import contextmanager
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from pytest_llmeval._errors import ModelError


#: Results that differ by more than this share of their standard deviation are not the same, in any precision.
SAME_WITHIN = 0.05
#: The number of elements in one float32 copy of logits (256 MB).
FLOAT_ELEMENTS = 1 << 26


class SelectiveModel:
    """A causal model that computes logits at chosen positions only, as far as a trial shows that they do not change.

    `head` is the output layer and `mixers` are parts of the last layer; both run on those positions only. They are
    None and empty if that would change the logits, or if the model fails with them; `refused` holds the reasons.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        # The name was changed in transformers 5.24.
        self._cache_name = "cache" if "cache" in self._accepted else "past_key_values"
        self.head: torch.nn.Module | None = None
        self.mixers: tuple[torch.nn.Module, ...] = ()
        self.refused: dict[str, str] = {}
        self._find()

    @torch.no_grad()
    def logits(self, keywords: Mapping[str, Any], wanted: torch.Tensor) -> torch.Tensor:
        """Return logits [wanted, vocabulary] at the indices `wanted` of the flattened tokens in `keywords`."""
        with ExitStack() as hooks:
            # Some modules do not accept an input without tokens.
            for mixer in self.mixers if len(wanted) else ():
                hooks.enter_context(_running_at(mixer, wanted))
            if self.head is not None:
                hooks.enter_context(_reading_at(self.head, wanted))
            logits: torch.Tensor = self._model(**keywords).logits.flatten(0, 1)
        return logits[wanted] if self.head is None else logits

    def batch_logits(self, ids: torch.Tensor, mask: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return logits [wanted, vocabulary] at indices of the flattened batch: `ids` and `mask` are [rows, tokens]."""
        every = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
        return self.logits({name: value for name, value in every.items() if name in self._accepted}, wanted)

    def row_logits(
        self, ids: Sequence[int], depths: Sequence[int], held: int, mask: Any, cache: Any, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Return logits [wanted, vocabulary] at the indices `wanted` of one row of new ids with positions `depths`.

        The row follows the `held` tokens of a cache. `mask` is [1, 1, new tokens, all tokens], or one per layer type.
        """
        device = self._model.device
        keywords = {
            "input_ids": torch.tensor([ids], device=device),
            "attention_mask": mask,
            "position_ids": torch.tensor([depths], device=device),
            self._cache_name: cache,
            "use_cache": True,
        }
        if "cache_position" in self._accepted:
            keywords["cache_position"] = torch.arange(held, held + len(ids), device=device)
        return self.logits(keywords, wanted)

    @torch.no_grad()
    def _find(self) -> None:
        """Choose the modules that leave the logits unchanged: output and last layer, or the output layer alone."""
        device = self._model.device
        ids = torch.tensor([[0, 1, 0], [1, 0, 1]], device=device)
        batch = ids, torch.ones_like(ids), torch.tensor([1, 5], device=device)
        expected = self.batch_logits(*batch)
        mixers = tuple(_mixers(self._model))
        if not mixers:
            self.refused["last layer"] = "no part of it computes each token by itself"
        for name, tried in ((("last layer", mixers),) if mixers else ()) + (("output layer", ()),):
            # A model that computes its logits in another way may fail anywhere here; then it computes all of them.
            try:
                self.head, self.mixers = self._model.get_output_embeddings(), tried
                if are_same(self.batch_logits(*batch), expected):
                    return
                self.refused[name] = "the logits change"
            except Exception as error:
                self.refused[name] = reason_of(error)
        self.head, self.mixers = None, ()


def log_probabilities(logits: torch.Tensor, rows: list[int], targets: list[int]) -> tuple[list[float], list[bool]]:
    """Return log P(targets[i]) under logits[rows[i]], in float32, and True where that target is the likeliest token.

    Uses `log_softmax`, because `logsumexp` over 50,000 words has a systematic error of 8e-6 per token.
    """
    at = torch.tensor(rows, device=logits.device)
    target = torch.tensor(targets, device=logits.device)
    values = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    step = max(1, FLOAT_ELEMENTS // logits.shape[-1])
    for start in range(0, len(logits), step):
        part = logits[start : start + step].log_softmax(-1, dtype=torch.float32)
        here = (at >= start) & (at < start + step)
        values[here] = part[at[here] - start, target[here]]
    return values.tolist(), (logits.argmax(-1)[at] == target).tolist()


def reason_of(error: Exception) -> str:
    """Return the class and first line of an error, as the reason of a refusal, or just the text of a ModelError."""
    if isinstance(error, ModelError):
        return str(error)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def are_same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return True if two results are equal up to the rounding of their precision."""
    if found.shape != expected.shape:
        return False
    within = min(SAME_WITHIN, torch.finfo(expected.dtype).eps ** 0.5)
    expected = expected.float()
    return bool((found.float() - expected).norm() <= within * (expected - expected.mean()).norm())


def _mixers(model: Any) -> Iterator[torch.nn.Module]:
    """Yield the children of the last layer that have weight matrices and compute each token independently."""
    stacks = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) > 0]
    if not stacks:
        return
    every = [module for _, module in model.named_modules(remove_duplicate=False)]
    for child in max(stacks, key=len)[-1].children():
        weights = [weight for weight in child.parameters() if weight.dim() > 1]
        # A child that several layers share also runs in a layer whose other tokens are read.
        if (
            weights
            and sum(module is child for module in every) == 1
            and _is_token_wise(child, weights[0], model.config)
        ):
            yield child


def _is_token_wise(module: torch.nn.Module, weight: torch.Tensor, config: Any) -> bool:
    width = getattr(config, "hidden_size", 0)
    tokens = torch.arange(5 * width, device=weight.device).sin().to(weight.dtype).view(1, 5, width)
    # An attention module needs more than hidden states: its error means False, it is not a refusal.
    try:
        whole, part = module(tokens), module(tokens[:, [1, 3]])
        return whole.shape[:2] == (1, 5) and are_same(part, whole[:, [1, 3]])
    except Exception:
        return False


@contextmanager
def _reading_at(module: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Pass only the hidden states at `places` (flattened positions) to a module, as one row [1, places, hidden]."""
    handle = module.register_forward_pre_hook(lambda _, inputs: (inputs[0].flatten(0, 1)[places][None], *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _running_at(module: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Let a module compute only the flattened positions `places`, and return 0 for all others."""

    def scatter(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        shape = (*shapes.pop(), output.shape[-1])
        everywhere = output.new_zeros(shape)
        everywhere.flatten(0, 1)[places] = output[0]
        return everywhere

    def select(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        (hidden,) = inputs
        shapes.append(hidden.shape[:2])
        return (hidden.flatten(0, 1)[places][None],)

    shapes: list[torch.Size] = []
    handles = [module.register_forward_pre_hook(select), module.register_forward_hook(scatter)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Set a model to evaluation mode (no dropout), and restore the mode of each of its modules afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def silence() -> Iterator[list[str]]:
    """Disable progress bars and log lines of transformers; its warnings are appended to the list instead.

    They are not propagated to the root logger either, which transformers does if the variable CI is set: pytest would
    show them as captured log.
    """
    caught: list[str] = []
    root = logging.getLogger("transformers")
    bars: Any = transformers_logging
    had_bars = bars.is_progress_bar_enabled()
    handlers, propagates = root.handlers[:], root.propagate
    root.handlers[:], root.propagate = [_Collector(caught)], False
    bars.disable_progress_bar()
    try:
        yield caught
    finally:
        root.handlers[:], root.propagate = handlers, propagates
        if had_bars:
            bars.enable_progress_bar()


class _Collector(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())
