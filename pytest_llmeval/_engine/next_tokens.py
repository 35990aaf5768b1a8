"""The distribution of the next token at chosen positions: a few probabilities, and the sum of all others.

A position of a baseline run keeps its likeliest token ids and one id that is drawn from the others; a later run reports
its own probabilities of these ids. No more than one block of float32 logits is held at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_llmeval._engine.causal_model import FLOAT_ELEMENTS
from pytest_llmeval._engine.requests import Watch
from pytest_llmeval._lm import NextToken


def next_tokens(logits: torch.Tensor, rows: Sequence[int], watches: Sequence[Watch | None]) -> list[NextToken | None]:
    """Return what each watch asks of logits[rows[i]], shape [rows, vocabulary]; None where there is no watch."""
    asked = {(row, watch): None for row, watch in zip(rows, watches, strict=True) if watch is not None}
    # Choices share their first position; watches of one length fit into one tensor.
    alike: dict[tuple[int, int], list[tuple[int, Watch]]] = {}
    for row, watch in asked:
        alike.setdefault((watch.top, len(watch.ids)), []).append((row, watch))
    found: dict[tuple[int, Watch], NextToken] = {}
    # Beside the log-probabilities there are their copy without the kept ids, its exponentials, and their sums.
    step = max(1, FLOAT_ELEMENTS // (8 * logits.shape[-1]))
    for group in alike.values():
        for start in range(0, len(group), step):
            part = group[start : start + step]
            found |= zip(part, _reported(logits, part), strict=True)
    return [None if watch is None else found[row, watch] for row, watch in zip(rows, watches, strict=True)]


def _reported(logits: torch.Tensor, part: Sequence[tuple[int, Watch]]) -> list[NextToken]:
    """Return the distributions of (row, watch) pairs whose watches ask for equal numbers of ids."""
    at = torch.tensor([row for row, _ in part], device=logits.device)
    logprobs = logits[at].log_softmax(-1, dtype=torch.float32)
    best, likeliest = logprobs.max(-1)
    if top := min(part[0][1].top, logprobs.shape[-1] - 1):
        kept = logprobs.topk(top).indices
        others = logprobs.scatter(1, kept, -torch.inf)
        draws = torch.tensor([watch.draw for _, watch in part], dtype=torch.float64)
        ids = torch.cat([kept, _drawn(others, draws)], 1)
        reported = logprobs.gather(1, ids)
    else:
        ids = torch.tensor([watch.ids for _, watch in part], device=logits.device)
        # A model with fewer ids gives those that it lacks no probability.
        known = ids < logprobs.shape[-1]
        found = ids.where(known, 0)
        reported = logprobs.gather(1, found).where(known, -torch.inf)
        others = logprobs.scatter(1, found[:, :-1], logprobs.gather(1, found[:, :-1]).where(~known[:, :-1], -torch.inf))
    rest = others.logsumexp(-1)
    likeliest = torch.where(reported[:, 0] == best, ids[:, 0], likeliest)
    answers = zip(ids.tolist(), reported.tolist(), rest.tolist(), likeliest.tolist(), strict=True)
    return [NextToken(tuple(some), tuple(values), sums, first) for some, values, sums, first in answers]


def _drawn(logprobs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return one id per row, shape [rows, 1], drawn with these probabilities, which need not add up to 1."""
    # Apple's devices have no float64.
    exact = torch.float32 if logprobs.device.type == "mps" else torch.float64
    sums = logprobs.exp().cumsum(-1, dtype=exact)
    wanted = draws.to(exact).to(logprobs.device)[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True).clamp(max=logprobs.shape[-1] - 1)
