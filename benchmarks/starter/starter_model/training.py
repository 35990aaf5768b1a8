"""Training: lessons packed into rows of token ids, a small Llama, AdamW."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TypeAlias

import torch
from transformers import LlamaConfig
from transformers import LlamaForCausalLM
from transformers import PreTrainedTokenizerFast

from starter_model.chat import BOS
from starter_model.chat import EOS
from starter_model.lessons import ASKED
from starter_model.lessons import KNOWN
from starter_model.lessons import Lesson
from starter_model.tokenizer import MAX_LENGTH


ROWS = 16
ROW_LENGTH = 256
WARMUP = 60

#: (ids, weights), each [ROWS, ROW_LENGTH + 1]
Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained model for the vocabulary of the tokenizer."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def encode(lesson: Lesson, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[float]]:
    """Token ids of the lesson's joined text, and of each token the weight of the span in which it ends."""
    text = "".join(text for text, _ in lesson)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    weights = [weight for text, weight in lesson for _ in text]
    return encoding["input_ids"], [weights[end - 1] for _, end in encoding["offset_mapping"]]


def batches(lessons: Iterable[Lesson], tokenizer: PreTrainedTokenizerFast) -> Iterator[Batch]:
    """The lessons as one stream of tokens, parted by EOS and BOS, cut into rows."""
    size = ROWS * (ROW_LENGTH + 1)
    ids: list[int] = []
    weights: list[float] = []
    for lesson in lessons:
        lesson_ids, lesson_weights = encode([*lesson, (EOS, KNOWN), (BOS, ASKED)], tokenizer)
        ids += lesson_ids
        weights += lesson_weights
        if len(ids) >= size:
            yield torch.tensor(ids[:size]).view(ROWS, -1), torch.tensor(weights[:size]).view(ROWS, -1)
            ids, weights = ids[size:], weights[size:]


def fit(model: LlamaForCausalLM, batches: Iterable[Batch], steps: int, peak: float) -> Iterator[tuple[int, float]]:
    """Trains in place and yields (step, loss) after each of the steps.

    The learning rate climbs to its peak, stays there for half of the steps, then falls linearly to zero.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.05)
    model.train()
    for step, (ids, weights) in enumerate(itertools.islice(batches, steps), start=1):
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, step / WARMUP, 2 * (steps - step) / steps)
        loss = weighted_loss(model, ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield step, loss.item()


def weighted_loss(model: LlamaForCausalLM, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted mean of the losses of the next tokens; what has no weight is never compared with the vocabulary."""
    states = model.model(input_ids=ids[:, :-1]).last_hidden_state
    wanted, weights = ids[:, 1:], weights[:, 1:]
    scored = weights > 0
    losses = torch.nn.functional.cross_entropy(model.lm_head(states[scored]), wanted[scored], reduction="none")
    return (losses * weights[scored]).sum() / weights.sum()
