"""Log-likelihoods of token ids: length-sorted, right-padded batches through a causal model of transformers.

Under a causal mask a token sees nothing to its right, so padding there changes no score. The output layer runs
only where a next token is scored, and log-probabilities are float32 whatever the model computes in.

The plain engine: one padded batch after the other, longest first, smaller ones when memory runs out.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any
from typing import TypeVar

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import Row
from pytest_llmeval._engine.batches import Sized
from pytest_llmeval._engine.batches import pack
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.batches import waves
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import is_out_of_memory
from pytest_llmeval._engine.generation import PaddedGenerator
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import plan_prompts
from pytest_llmeval._engine.selective import SelectiveModel
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Loglikelihood


#: Elements of a float32 copy of logits that are held at once (256 MB).
FLOAT_ELEMENTS = 1 << 26


class PaddedScorer:
    """Answers the questions of rows with one forward pass each batch."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        self.selective = SelectiveModel(model)

    @torch.no_grad()
    def run(self, batch: Sequence[Row]) -> list[tuple[Question, float, bool]]:
        """(question, log-probability, whether greedy decoding would write the same) for each question."""
        width = max(row.length for row in batch)
        places = [
            (row * width + position, target)
            for row, planned in enumerate(batch)
            for question in planned.questions
            for position, target in zip(question.positions, question.targets, strict=True)
        ]
        scored = {place: i for i, place in enumerate(dict.fromkeys(place for place, _ in places))}
        logits = self._logits([row.input_ids for row in batch], list(scored))
        values, greedy = log_probabilities(
            logits, [scored[place] for place, _ in places], [target for _, target in places]
        )
        answers = []
        start = 0
        for question in (question for row in batch for question in row.questions):
            end = start + len(question.targets)
            total = math.fsum(values[start:end])
            answers.append((question, total, all(greedy[start:end]) and not math.isnan(total)))
            start = end
        return answers

    def _logits(self, rows: Sequence[Sequence[int]], places: list[int]) -> torch.Tensor:
        """Logits [places, vocabulary] at these places of the flattened right-padded batch."""
        device = self._model.device
        ids, mask = right_padded(rows)
        keywords: dict[str, Any] = {"input_ids": ids.to(device)}
        if "attention_mask" in self._accepted:
            keywords["attention_mask"] = mask.to(device)
        if "use_cache" in self._accepted:
            keywords["use_cache"] = False
        return self.selective.logits(keywords, torch.tensor(places, device=device))


def right_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask [rows, longest]; the mask knows the lengths, for the padding id is a real one too."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


def log_probabilities(logits: torch.Tensor, rows: list[int], targets: list[int]) -> tuple[list[float], list[bool]]:
    """log P(targets[i]) under logits[rows[i]], in float32, and whether that target is the likeliest token.

    Through `log_softmax`, not `logsumexp`: over 50,000 words the latter is off by 8e-6 a token, always to one side.
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


SizedRow = TypeVar("SizedRow", bound=Sized)
Answer = TypeVar("Answer")

#: So many batches of tokens are planned at once, enough that rows of one length find each other.
WAVE_BATCHES = 64


class PaddedEngine:
    """An `Engine` on a causal model of transformers.

    The model answers in evaluation mode and is left in the mode it was in. The budgets say what a batch may hold
    that is scored, or written; they shrink when memory runs out. Raises ModelError when not even one sequence
    fits, or the model fails.
    """

    def __init__(self, model: Any, scored: Budget, written: Budget, eos_ids: Iterable[int]) -> None:
        self._model = model
        self._scored = _Batches(scored)
        self._written = _Batches(written)
        with evaluating(model):
            self.scorer = PaddedScorer(model)
        self.generator = PaddedGenerator(model, eos_ids)

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]:
        answers: dict[int, Loglikelihood] = {}
        with evaluating(self._model):
            for wave in waves(requests, self._scored.budget.tokens * WAVE_BATCHES):
                rows = plan_rows([requests[place] for place in wave])
                for _, answered in self._scored.run(rows, self.scorer.run):
                    for question, logprob, greedy in answered:
                        for place in question.requests:
                            truncated = requests[wave[place]].truncated
                            answers[wave[place]] = Loglikelihood(logprob, greedy, truncated)
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


class _Batches:
    """Runs rows batch by batch, within a budget that shrinks for good when memory runs out."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def run(
        self, rows: Sequence[SizedRow], answer: Callable[[Sequence[SizedRow]], Answer]
    ) -> Iterator[tuple[list[SizedRow], Answer]]:
        """Each batch and its answer; a batch that does not fit into memory is tried again as smaller ones."""
        start = 0
        while start < len(rows):
            batch = next(pack(rows[start:], self.budget))
            try:
                answered = answer(batch)
            except (RuntimeError, MemoryError, IndexError, ValueError) as error:
                self._shrink(batch, error)
                continue
            start += len(batch)
            yield batch, answered

    def _shrink(self, batch: Sequence[Sized], error: Exception) -> None:
        shape = f"{len(batch)} sequence{'s' * (len(batch) > 1)} of up to {max(row.length for row in batch)} tokens"
        if not is_out_of_memory(error):
            raise ModelError(f"the model failed on {shape}: {type(error).__name__}: {error}") from error
        if len(batch) == 1:
            raise ModelError(f"out of memory on {shape}; give a smaller max_length, or another device") from error
        free_memory()
        self.budget = self.budget.after_running_out(batch)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without dropout, for a model that is being trained too; every part of it is then in its own mode again."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
