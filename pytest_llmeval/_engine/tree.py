"""The engine that computes each distinct token once: passes over a tree of token ids, through stock models.

A pass reads whole subtrees as one row. `position_ids` are depths, and a mask of four dimensions lets each token
see its ancestors alone, as it would in a sequence of its own. What sequences share beyond a pass waits in a KV cache.
Not every model takes such masks, or can do without its state: `choosing` tries, and what it finds decides.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any
from typing import Protocol

import torch
import transformers

from pytest_llmeval._engine.attention import NO_WINDOWS
from pytest_llmeval._engine.attention import BlockAttention
from pytest_llmeval._engine.attention import Windows
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import is_out_of_memory
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.padded import evaluating
from pytest_llmeval._engine.padded import log_probabilities
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.selective import SelectiveModel
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._engine.token_tree import distinct_waves
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Loglikelihood


#: Tokens that attend together on a processor; other devices gain less from fewer keys than from larger products.
BLOCK = 128
#: So many passes are planned at once.
WAVE_PASSES = 64


class Writer(Protocol):
    """The part of an engine that continues prompts."""

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]: ...


class TreeEngine:
    """An `Engine` that scores by the tree, and writes as the one does that `choose_writer` gives when it is needed.

    Requests of more than `reach` tokens, for which it is not known that the model takes the tree's masks, go to
    the padded engine. With `remembers`, for weights that nobody changes, the path that one call ends with stays in
    the cache for the next. Raises ModelError when not even one token fits into memory, or the model fails.
    """

    def __init__(
        self,
        model: Any,
        limits: Limits,
        padded: PaddedEngine,
        reach: float,
        windows: Windows = NO_WINDOWS,
        *,
        choose_writer: Callable[[], Writer] | None = None,
        remembers: bool = False,
    ) -> None:
        self._model = model
        self._padded = padded
        self._choose_writer = choose_writer
        self._limits = limits
        self._reach = reach
        self._remembers = remembers
        self._scorer = TreeScorer(model, padded.scorer.selective, BLOCK if model.device.type == "cpu" else 0, windows)

    @cached_property
    def writer(self) -> Writer:
        return self._padded if self._choose_writer is None else self._choose_writer()

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]:
        near = [i for i, request in enumerate(requests) if len(request.input_ids) <= self._reach]
        far = sorted(set(range(len(requests))).difference(near))
        answers: dict[int, Loglikelihood] = {}
        with evaluating(self._model):
            for answered in self._score([requests[i] for i in near]):
                answers |= {near[place]: answer for place, answer in answered.items()}
                on_progress(len(answers), len(requests))
        if far:
            rest = self._padded.score(
                [requests[i] for i in far], lambda done, _: on_progress(len(near) + done, len(requests))
            )
            answers |= zip(far, rest, strict=True)
        return [answers[place] for place in range(len(requests))]

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        return self.writer.generate(requests, is_stopped, on_progress)

    def _score(self, requests: Sequence[TokenRequest]) -> Iterator[dict[int, Loglikelihood]]:
        """Answers by the place of their request, pass by pass."""
        try:
            for wave in distinct_waves(requests, self._limits.pack * WAVE_PASSES):
                left = list(wave)
                while left:
                    asked, answered = left, set[int]()
                    for question, logprob, greedy in self._pass_by_pass([requests[i] for i in asked]):
                        places = [asked[i] for i in question.requests]
                        answered.update(places)
                        yield {i: Loglikelihood(logprob, greedy, requests[i].truncated) for i in places}
                    left = [i for i in left if i not in answered]
        finally:
            if not self._remembers:
                self._scorer.forget()

    def _pass_by_pass(self, requests: Sequence[TokenRequest]) -> Iterator[tuple[Question, float, bool]]:
        """Questions as they are answered. Some are left over when memory runs out: the next plan is for less."""
        tree = Tree(requests)
        values: list[list[float]] = [[] for _ in tree.questions]
        greedy = [True] * len(tree.questions)
        for step in tree.passes(self._limits, self._scorer.cached):
            try:
                answered = self._scorer.run(step)
            except (RuntimeError, MemoryError, IndexError, ValueError) as error:
                self._shrink(step, error)
                return
            for i, value, likeliest in answered:
                values[i].append(value)
                greedy[i] &= likeliest
                question = tree.questions[i]
                if len(values[i]) == len(question.targets):
                    total = math.fsum(values[i])
                    yield question, total, greedy[i] and not math.isnan(total)

    def _shrink(self, step: Pass, error: Exception) -> None:
        n, total = len(step.ids), step.held + len(step.ids)
        shape = f"{n} token{'s' * (n > 1)} behind {step.held}, in sequences of up to {max(step.depths) + 1}"
        if not is_out_of_memory(error):
            raise ModelError(f"the model failed on {shape}: {type(error).__name__}: {error}") from error
        if n == 1:
            raise ModelError(
                f"out of memory on {total} token{'s' * (total > 1)}; give a smaller max_length, or another device"
            ) from error
        self._scorer.forget()
        free_memory()
        self._limits = self._limits.after_running_out(n)


class TreeScorer:
    """Runs passes, one after the other as they are planned. `cached` is the path of ids that its KV cache holds.

    `block`: so many tokens attend together, to the keys that any of them can see; all of a pass if it is 0. `windows`
    says how far back layers look.
    """

    def __init__(self, model: Any, selective: SelectiveModel, block: int, windows: Windows) -> None:
        self.cached: TokenIds = ()
        self._model = model
        self._selective = selective
        self._block = block
        self._windows = windows
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        # The name was changed in transformers 5.24.
        self._cache_name = "cache" if "cache" in self._accepted else "past_key_values"
        self._cache: Any = None

    def forget(self) -> None:
        """Give the memory of the cache back."""
        self.cached, self._cache = (), None

    @torch.no_grad()
    def run(self, step: Pass) -> list[tuple[int, float, bool]]:
        """(question, log-probability of one of its targets, whether that is the likeliest token) for all asked."""
        places = {place: i for i, place in enumerate(dict.fromkeys(asked.place for asked in step.asked))}
        path = self.cached[: step.held]
        # The cache is worth nothing if the pass fails halfway.
        self.cached = ()
        logits = self._logits(step, list(places))
        self.cached = path + step.ids[: step.chain]
        if not places:
            return []
        values, greedy = log_probabilities(
            logits, [places[asked.place] for asked in step.asked], [asked.target for asked in step.asked]
        )
        return [
            (asked.question, *answer)
            for asked, answer in zip(step.asked, zip(values, greedy, strict=True), strict=True)
        ]

    def _logits(self, step: Pass, places: list[int]) -> torch.Tensor:
        """Logits [places, vocabulary] at these of the new tokens."""
        device = self._model.device
        self._crop(step.held)
        wanted = torch.tensor(places, dtype=torch.long, device=device)
        end = step.held + len(step.ids)
        mask = self._windows.masks(step, self._model.dtype, device)
        keywords = {
            "input_ids": torch.tensor([step.ids], device=device),
            "attention_mask": mask,
            "position_ids": torch.tensor([step.depths], device=device),
            self._cache_name: self._cache,
            "use_cache": True,
        }
        if "cache_position" in self._accepted:
            keywords["cache_position"] = torch.arange(step.held, end, device=device)
        cut = 0 < self._block < len(step.ids)
        masks = list(mask.values()) if isinstance(mask, Mapping) else [mask]
        with BlockAttention(masks, step, self._block) if cut else nullcontext():
            return self._selective.logits(keywords, wanted)

    def _crop(self, length: int) -> None:
        if length == 0 or self._cache is None:
            # Without the config: layers that keep only a window would drop what the mask still shows.
            self._cache = transformers.DynamicCache()
        elif (excess := self._cache.get_seq_length() - length) > 0:
            self._cache.crop(-excess)
