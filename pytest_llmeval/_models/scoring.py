"""Log-likelihoods of token ids: length-sorted, right-padded batches through a causal model of transformers.

Under a causal mask a token sees nothing to its right, so padding there changes no score. The output layer runs
only where a next token is scored, and log-probabilities are float32 whatever the model computes in.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch

from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import Row
from pytest_llmeval._models.selective import SelectiveModel


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
