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


#: The number of elements in one copy of logits on a CPU (4 MB): fresh memory for larger ones takes as long again.
CPU_ELEMENTS = 1 << 20
#: The number of ids whose weights are added up before a draw.
BLOCK = 256
#: Draws stop short of the whole sum, so that rounding never leads beyond the last id with a weight.
LARGEST_SHARE = 1 - 1e-6


def next_tokens(logits: torch.Tensor, rows: Sequence[int], watches: Sequence[Watch | None]) -> list[NextToken | None]:
    """Return what each watch asks of logits[rows[i]], shape [rows, vocabulary]; None where there is no watch."""
    asked = {(row, watch): None for row, watch in zip(rows, watches, strict=True) if watch is not None}
    # Choices share their first position; watches of one length fit into one tensor.
    alike: dict[tuple[int, int], list[tuple[int, Watch]]] = {}
    for row, watch in asked:
        alike.setdefault((watch.top, len(watch.ids)), []).append((row, watch))
    found: dict[tuple[int, Watch], NextToken] = {}
    # The probabilities are held three times: as they are, without the kept ids, and padded to whole blocks.
    most = CPU_ELEMENTS if logits.device.type == "cpu" else FLOAT_ELEMENTS // 4
    step = max(1, most // logits.shape[-1])
    for group in alike.values():
        for start in range(0, len(group), step):
            part = group[start : start + step]
            found |= zip(part, _reported(logits, part), strict=True)
    return [None if watch is None else found[row, watch] for row, watch in zip(rows, watches, strict=True)]


def _reported(logits: torch.Tensor, part: Sequence[tuple[int, Watch]]) -> list[NextToken]:
    """Return the distributions of (row, watch) pairs whose watches ask for equal numbers of ids."""
    values = logits[torch.tensor([row for row, _ in part], device=logits.device)].float()
    shares = values.softmax(-1)
    n = shares.shape[-1]
    if top := min(part[0][1].top, n - 1):
        kept = shares.topk(top).indices
        others = _Blocks(shares.scatter(1, kept, 0.0))
        ids = torch.cat([kept, others.drawn([watch.draw for _, watch in part])], 1)
        known = torch.ones_like(ids, dtype=torch.bool)
        best, likeliest = shares.gather(1, ids[:, :1])[:, 0], ids[:, 0]
    else:
        ids = torch.tensor([watch.ids for _, watch in part], device=logits.device)
        # A model with fewer ids gives those that it lacks no probability.
        known = ids < n
        kept = ids.where(known, 0)[:, :-1]
        others = _Blocks(shares.scatter(1, kept, shares.gather(1, kept).where(~known[:, :-1], 0.0)))
        best, likeliest = shares.max(-1)
    found = ids.where(known, 0)
    # As logits, since a probability may be too small for float32.
    sums = values.gather(1, likeliest[:, None]) - best[:, None].log()
    reported = (values.gather(1, found) - sums).where(known, -torch.inf)
    first = torch.where(known[:, 0] & (shares.gather(1, found[:, :1])[:, 0] == best), ids[:, 0], likeliest)
    answers = zip(ids.tolist(), reported.tolist(), others.total.log().tolist(), first.tolist(), strict=True)
    return [NextToken(tuple(some), tuple(logs), rest, likely) for some, logs, rest, likely in answers]


class _Blocks:
    """Weights [rows, ids] in blocks of ids, whose sums make a draw cheaper than a sum over all ids would."""

    def __init__(self, weights: torch.Tensor) -> None:
        # Apple's devices have no float64.
        exact = torch.float32 if weights.device.type == "mps" else torch.float64
        self._last = weights.shape[-1] - 1
        padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % BLOCK))
        self._weights = padded.view(len(weights), -1, BLOCK)
        self._sums = self._weights.sum(-1).to(exact).cumsum(-1)
        self.total = self._sums[:, -1]

    def drawn(self, draws: Sequence[float]) -> torch.Tensor:
        """Return the first id of each row, [rows, 1], up to which the weights exceed this share of their sum."""
        shares = torch.tensor(draws, dtype=self._sums.dtype, device=self._sums.device).clamp(max=LARGEST_SHARE)
        wanted = shares[:, None] * self.total[:, None]
        # NaN sorts behind everything.
        block = torch.searchsorted(self._sums, wanted, right=True).clamp(max=self._sums.shape[-1] - 1)
        before = torch.nn.functional.pad(self._sums, (1, 0)).gather(1, block)
        within = self._weights[torch.arange(len(block), device=block.device), block[:, 0]].to(self._sums.dtype)
        inside = within.cumsum(-1)
        left = torch.minimum(wanted - before, inside[:, -1:] * LARGEST_SHARE)
        return (block * BLOCK + torch.searchsorted(inside, left, right=True)).clamp(max=self._last)
