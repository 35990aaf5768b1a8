"""The engine that computes each distinct token once: passes over a tree of token ids, through unmodified models.

A pass reads whole subtrees as one row. `position_ids` are depths, and a mask of four dimensions hides all tokens but
the ancestors of each token, as in a separate sequence. Tokens that several passes share stay in a KV cache. Some models
do not accept such masks, or have a recurrent state: a trial in `choosing` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import transformers

from pytest_llmeval._engine.attention import NO_WINDOWS
from pytest_llmeval._engine.attention import BlockAttention
from pytest_llmeval._engine.attention import Windows
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import waves
from pytest_llmeval._engine.causal_model import evaluating
from pytest_llmeval._engine.causal_model import log_probabilities
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import try_pass
from pytest_llmeval._engine.next_tokens import next_tokens
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import Watch
from pytest_llmeval._engine.token_tree import Asked
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import NextToken


#: The number of tokens in a block of attention on a CPU.
BLOCK = 128
#: The number of passes that are planned at once.
WAVE_PASSES = 64


class TreeEngine:
    """Scores requests in passes over their token tree.

    The padded engine scores requests of more than `reach` tokens, for which the tree's masks were not tried. `windows`:
    the sliding windows of the model's layers. `block`: the number of tokens whose attention is computed together, over
    the keys that any of them can see; 0 for a whole pass. `remembers`: the last path of a call stays in the cache for
    the next call, which requires constant weights. Raises ModelError if a single token does not fit into memory, or if
    the model fails.
    """

    def __init__(
        self,
        model: Any,
        limits: Limits,
        padded: PaddedEngine,
        reach: float,
        windows: Windows = NO_WINDOWS,
        *,
        block: int = BLOCK,
        remembers: bool = False,
    ) -> None:
        self._model = model
        self._padded = padded
        self._limits = limits
        self._reach = reach
        self._windows = windows
        # Other devices gain more from larger products than from fewer keys.
        self._block = block if model.device.type == "cpu" else 0
        self._remembers = remembers
        #: The ids of the path in the KV cache.
        self._cached: TokenIds = ()
        self._cache: Any = None

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

    def _score(self, requests: Sequence[TokenRequest]) -> Iterator[dict[int, Loglikelihood]]:
        """Yield answers by the index of their request, pass by pass."""
        try:
            for wave in waves(requests, self._limits.pack * WAVE_PASSES, distinct=True):
                left = list(wave)
                while left:
                    asked, answered = left, set[int]()
                    for question, logprob, greedy, tokens in self._pass_by_pass([requests[i] for i in asked]):
                        places = [asked[i] for i in question.requests]
                        answered.update(places)
                        yield {i: Loglikelihood(logprob, greedy, requests[i].truncated, tokens) for i in places}
                    left = [i for i in left if i not in answered]
        finally:
            if not self._remembers:
                self._forget()

    def _pass_by_pass(
        self, requests: Sequence[TokenRequest]
    ) -> Iterator[tuple[Question, float, bool, tuple[NextToken, ...]]]:
        """Yield answered questions until memory runs out; the caller plans smaller passes for the others."""
        tree = Tree(requests)
        values: list[list[float]] = [[] for _ in tree.questions]
        greedy = [True] * len(tree.questions)
        #: By position; a question without watches has none.
        tokens: list[dict[int, NextToken]] = [{} for _ in tree.questions]
        for step in tree.passes(self._limits, self._cached):
            n = len(step.ids)
            watches = [tree.questions[one.question].watch_at(step.depths[one.place]) for one in step.asked]
            answered = try_pass(partial(self._run, step, watches), partial(_shape, step), can_shrink=n > 1)
            if answered is None:
                self._forget()
                free_memory()
                self._limits = self._limits.after_running_out(n)
                return
            for (place, _, i), value, likeliest, token in answered:
                values[i].append(value)
                greedy[i] &= likeliest
                if token is not None:
                    tokens[i][step.depths[place]] = token
                question = tree.questions[i]
                if len(values[i]) == len(question.targets):
                    total = math.fsum(values[i])
                    seen = tuple(tokens[i][position] for position in sorted(tokens[i]))
                    yield question, total, greedy[i] and not math.isnan(total), seen

    def _forget(self) -> None:
        """Drop the cache and release its memory."""
        self._cached, self._cache = (), None

    @torch.no_grad()
    def _run(self, step: Pass, watches: Sequence[Watch | None]) -> list[tuple[Asked, float, bool, NextToken | None]]:
        """Return (token asked for, log-probability, is_greedy, next token) for each scored token of a pass."""
        places = {place: i for i, place in enumerate(dict.fromkeys(asked.place for asked in step.asked))}
        path = self._cached[: step.held]
        # If the pass fails halfway, the cache is unusable.
        self._cached = ()
        logits = self._logits(step, list(places))
        self._cached = path + step.ids[: step.n_path]
        if not places:
            return []
        rows = [places[asked.place] for asked in step.asked]
        values, greedy = log_probabilities(logits, rows, [asked.target for asked in step.asked])
        return list(zip(step.asked, values, greedy, next_tokens(logits, rows, watches), strict=True))

    def _logits(self, step: Pass, places: list[int]) -> torch.Tensor:
        """Return logits [len(places), vocabulary] at these indices of the new tokens."""
        device = self._model.device
        if step.held == 0 or self._cache is None:
            # Without the config, since layers that keep only a window would drop tokens that the mask does not hide.
            self._cache = transformers.DynamicCache()
        elif (excess := self._cache.get_seq_length() - step.held) > 0:
            self._cache.crop(-excess)
        wanted = torch.tensor(places, dtype=torch.long, device=device)
        mask = self._windows.masks(step, self._model.dtype, device)
        cut = 0 < self._block < len(step.ids)
        masks = list(mask.values()) if isinstance(mask, Mapping) else [mask]
        with BlockAttention(masks, step, self._block) if cut else nullcontext():
            return self._padded.selective.row_logits(step.ids, step.depths, step.held, mask, self._cache, wanted)


def _shape(step: Pass) -> str:
    n = len(step.ids)
    return f"{n} token{'s' * (n > 1)} after {step.held} in the cache, in sequences of up to {max(step.depths) + 1}"
