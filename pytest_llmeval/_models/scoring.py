"""Log-likelihoods of token ids: length-sorted, right-padded batches through a causal model of transformers.

Under a causal mask a token sees nothing to its right, so padding there changes no score. The output layer runs
only where a next token is scored, and log-probabilities are float32 whatever the model computes in.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import Row


#: Elements of a float32 copy of logits that are held at once (256 MB).
FLOAT_ELEMENTS = 1 << 26
#: Logits that differ by more than this share of their spread are not the same.
SAME_WITHIN = 0.05


class PaddedScorer:
    """Answers the questions of rows with one forward pass each batch.

    `head` is the output layer, if the model may be asked for the logits of some positions only.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        self.head = self._find_selective_head()

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
        logits = self._logits([row.input_ids for row in batch], list(scored), self.head)
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

    def _logits(self, rows: Sequence[Sequence[int]], places: list[int], head: torch.nn.Module | None) -> torch.Tensor:
        """Logits [places, vocabulary] at these places of the flattened right-padded batch."""
        device = self._model.device
        ids, mask = right_padded(rows)
        keywords: dict[str, Any] = {"input_ids": ids.to(device)}
        if "attention_mask" in self._accepted:
            keywords["attention_mask"] = mask.to(device)
        if "use_cache" in self._accepted:
            keywords["use_cache"] = False
        wanted = torch.tensor(places, device=device)
        if head is None:
            everything: torch.Tensor = self._model(**keywords).logits
            return everything.flatten(0, 1)[wanted]
        with only_at(head, wanted):
            selected: torch.Tensor = self._model(**keywords).logits
            return selected.flatten(0, 1)

    def _find_selective_head(self) -> torch.nn.Module | None:
        """The output layer, if the model may be asked for the logits of some positions only.

        That is so if nothing but the layer itself and element-wise steps (a soft cap, a scale) come after the
        hidden states. Whether it is so is seen, not looked up: both ways must give the same logits.
        """
        rows, places = [[0, 1, 0], [1, 0, 1]], [1, 5]
        with torch.no_grad():
            everything = self._logits(rows, places, None)
            try:
                head: torch.nn.Module | None = self._model.get_output_embeddings()
                selected = self._logits(rows, places, head)
            # A model with another way to its logits may fail anywhere in there; it is then asked for all of them.
            except Exception:
                return None
        return head if same_logits(selected, everything) else None


def same_logits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two ways to the same logits agree, up to what the rounding of half precision may do."""
    if found.shape != expected.shape:
        return False
    expected = expected.float()
    return bool((found.float() - expected).norm() <= SAME_WITHIN * (expected - expected.mean()).norm())


def right_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask [rows, longest]; the mask knows the lengths, for the padding id is a real one too."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


@contextmanager
def only_at(head: torch.nn.Module, places: torch.Tensor) -> Iterator[None]:
    """Lets the output layer see the hidden states of these places only, as one row [1, places, hidden]."""

    def select(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden, *rest = inputs
        return (hidden.flatten(0, 1)[places].unsqueeze(0), *rest)

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


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
