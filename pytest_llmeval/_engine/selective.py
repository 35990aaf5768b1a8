"""Models that compute what is asked of them, and leave out what nobody reads where they allow it.

The output layer runs only where a next token is scored. So do the last layer's feed-forward parts: behind them no
token looks at another. Whether that is so for a model is seen, not looked up.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import ExitStack
from contextlib import contextmanager
from typing import Any

import torch


#: Results that differ by more than this share of their spread are not the same, in whatever precision.
SAME_WITHIN = 0.05


class SelectiveModel:
    """Logits of some positions of a causal model, with as little computed for the others as it is seen to allow.

    `head` is the output layer and `mixers` are parts of the last layer; both run on those positions only. They are
    None and empty where that would change the logits.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.head: torch.nn.Module | None = None
        self.mixers: tuple[torch.nn.Module, ...] = ()
        self._find()

    @torch.no_grad()
    def logits(self, keywords: Mapping[str, Any], wanted: torch.Tensor) -> torch.Tensor:
        """Logits [wanted, vocabulary] at these places of the flattened tokens that `keywords` hand to the model."""
        with ExitStack() as hooks:
            # Not every module takes no tokens at all.
            for mixer in self.mixers if len(wanted) else ():
                hooks.enter_context(_running_at(mixer, wanted))
            if self.head is not None:
                hooks.enter_context(_reading_at(self.head, wanted))
            logits: torch.Tensor = self._model(**keywords).logits.flatten(0, 1)
        return logits[wanted] if self.head is None else logits

    @torch.no_grad()
    def _find(self) -> None:
        """Take what leaves the logits as they are: all of it, or the output layer alone."""
        device = self._model.device
        ids = torch.tensor([[0, 1, 0], [1, 0, 1]], device=device)
        every = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        accepted = inspect.signature(self._model.forward).parameters
        keywords = {name: value for name, value in every.items() if name in accepted}
        wanted = torch.tensor([1, 5], device=device)
        expected = self.logits(keywords, wanted)
        mixers = tuple(_mixers(self._model))
        for tried in (mixers, ()) if mixers else ((),):
            # A model with another way to its logits may fail anywhere in there; it is then asked for all of them.
            try:
                self.head, self.mixers = self._model.get_output_embeddings(), tried
                if are_same(self.logits(keywords, wanted), expected):
                    return
            except Exception:  # noqa: S112
                continue
        self.head, self.mixers = None, ()


def are_same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two ways to the same numbers agree, up to what the rounding of their precision may do."""
    if found.shape != expected.shape:
        return False
    within = min(SAME_WITHIN, torch.finfo(expected.dtype).eps ** 0.5)
    expected = expected.float()
    return bool((found.float() - expected).norm() <= within * (expected - expected.mean()).norm())


def _mixers(model: Any) -> Iterator[torch.nn.Module]:
    """Children of the last layer, with products of their own, that compute each token by itself."""
    stacks = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) > 0]
    if not stacks:
        return
    every = [module for _, module in model.named_modules(remove_duplicate=False)]
    for child in max(stacks, key=len)[-1].children():
        weights = [weight for weight in child.parameters() if weight.dim() > 1]
        # One that layers share also runs where its other tokens are read.
        if (
            weights
            and sum(module is child for module in every) == 1
            and _is_token_wise(child, weights[0], model.config)
        ):
            yield child


def _is_token_wise(module: torch.nn.Module, weight: torch.Tensor, config: Any) -> bool:
    width = getattr(config, "hidden_size", 0)
    tokens = torch.arange(5 * width, device=weight.device).sin().to(weight.dtype).view(1, 5, width)
    # An attention asks for more than hidden states.
    try:
        whole, part = module(tokens), module(tokens[:, [1, 3]])
        return whole.shape[:2] == (1, 5) and are_same(part, whole[:, [1, 3]])
    except Exception:
        return False


@contextmanager
def _reading_at(module: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Lets a module see the hidden states of these places only, as one row [1, places, hidden]."""
    handle = module.register_forward_pre_hook(lambda _, inputs: (inputs[0].flatten(0, 1)[places][None], *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _running_at(module: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Lets a module compute these places only, and give 0 for all others."""

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
