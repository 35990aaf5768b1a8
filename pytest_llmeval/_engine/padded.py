"""The plain engine: padded batches, longest sequences first, smaller batches when memory runs out.

Scoring batches are padded on the right: under a causal mask a token sees nothing to its right, so this padding changes
no score. `generation` writes texts in batches that are padded on the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import SizedRow
from pytest_llmeval._engine.batches import TokenRow
from pytest_llmeval._engine.batches import pack
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.batches import waves
from pytest_llmeval._engine.causal_model import SelectiveModel
from pytest_llmeval._engine.causal_model import evaluating
from pytest_llmeval._engine.causal_model import log_probabilities
from pytest_llmeval._engine.devices import Answer
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import sequences
from pytest_llmeval._engine.devices import try_pass
from pytest_llmeval._engine.generation import PaddedGenerator
from pytest_llmeval._engine.next_tokens import next_tokens
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import plan_prompts
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import NextToken


#: The number of batches that are planned at once, enough to batch rows of about the same length.
WAVE_BATCHES = 64


class PaddedEngine:
    """Scores requests and writes texts in padded batches.

    The model runs in evaluation mode; its own mode is restored afterwards. `scored` and `written` limit the size of
    scoring and of generation batches; they shrink when memory runs out. Raises ModelError if a single sequence does not
    fit, or if the model fails.
    """

    def __init__(self, model: Any, scored: Budget, written: Budget, eos_ids: Iterable[int]) -> None:
        self._model = model
        self._scored = _Batches(scored)
        self._written = _Batches(written)
        with evaluating(model):
            self.selective = SelectiveModel(model)
        self.generator = PaddedGenerator(model, eos_ids)

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]:
        answers: dict[int, Loglikelihood] = {}
        with evaluating(self._model):
            for wave in waves(requests, self._scored.budget.tokens * WAVE_BATCHES):
                rows = plan_rows([requests[place] for place in wave])
                for _, answered in self._scored.run(rows, self.answer):
                    for question, logprob, greedy, tokens in answered:
                        for place in question.requests:
                            truncated = requests[wave[place]].truncated
                            answers[wave[place]] = Loglikelihood(logprob, greedy, truncated, tokens)
                    on_progress(len(answers), len(requests))
        return [answers[place] for place in range(len(requests))]

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        answers: dict[int, Completion] = {}
        ended: set[int] = set()

        def end(prompt: Prompt) -> None:
            ended.update(prompt.places)
            on_progress(len(ended), len(requests))

        with evaluating(self._model):
            for group in self.generator.groups(plan_prompts(requests)):
                written = self._written.run(group, lambda batch: self.generator.run(batch, is_stopped, end))
                for batch, completions in written:
                    for prompt, completion in zip(batch, completions, strict=True):
                        answers |= dict.fromkeys(prompt.places, completion)
                    ended.update(answers)
                    on_progress(len(ended), len(requests))
        return [answers[place] for place in range(len(requests))]

    @torch.no_grad()
    def answer(self, batch: Sequence[TokenRow]) -> list[tuple[Question, float, bool, tuple[NextToken, ...]]]:
        """Return (question, log-probability, is_greedy, next tokens) for each question of the rows."""
        width = max(row.length for row in batch)
        places = [
            (row * width + position, target)
            for row, planned in enumerate(batch)
            for question in planned.questions
            for position, target in zip(question.positions, question.targets, strict=True)
        ]
        scored = {place: i for i, place in enumerate(dict.fromkeys(place for place, _ in places))}
        device = self._model.device
        ids, mask = right_padded([row.input_ids for row in batch])
        wanted = torch.tensor(list(scored), device=device)
        logits = self.selective.batch_logits(ids.to(device), mask.to(device), wanted)
        rows = [scored[place] for place, _ in places]
        values, greedy = log_probabilities(logits, rows, [target for _, target in places])
        questions = [question for row in batch for question in row.questions]
        watches = [question.watch_at(position) for question in questions for position in question.positions]
        tokens = next_tokens(logits, rows, watches)
        answers = []
        start = 0
        for question in questions:
            end = start + len(question.targets)
            total = math.fsum(values[start:end])
            seen = tuple(token for token in tokens[start:end] if token is not None)
            answers.append((question, total, all(greedy[start:end]) and not math.isnan(total), seen))
            start = end
        return answers


def right_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, both [rows, longest]; the mask is made from lengths, since padding has a real id."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


@dataclass(slots=True)
class _Batches:
    """Runs rows batch by batch, within size limits that shrink permanently when memory runs out."""

    budget: Budget

    def run(
        self, rows: Sequence[SizedRow], answer: Callable[[Sequence[SizedRow]], Answer]
    ) -> Iterator[tuple[list[SizedRow], Answer]]:
        """Yield each batch and its answer; a batch that does not fit into memory is split into smaller ones."""
        start = 0
        while start < len(rows):
            batch = next(pack(rows[start:], self.budget))
            n = len(batch)
            shape = partial(sequences, n, max(row.length for row in batch))
            answered = try_pass(partial(answer, batch), shape, can_shrink=n > 1)
            if answered is None:
                free_memory()
                self.budget = self.budget.after_running_out(batch)
                continue
            start += n
            yield batch, answered
