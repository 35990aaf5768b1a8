"""Requests that share a forward pass: rows, batches and waves. Pure planning, no tensors.

A row is one sequence that the model reads once. It serves all equal requests, every single-token choice after the
same context, and every request whose input is a prefix of the row (the probabilities of a causal model do not depend on
later tokens).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Protocol
from typing import TypeVar

from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import Watch


@dataclass(frozen=True, slots=True)
class Question:
    """Target tokens of a row: P(targets[i] | input up to and including position start + i) is wanted for each i.

    `requests` are the indices of the equal requests that it serves. `watches`: those of the requests.
    """

    start: int
    targets: TokenIds
    requests: tuple[int, ...]
    watches: tuple[Watch, ...] = ()

    @property
    def positions(self) -> range:
        return range(self.start, self.start + len(self.targets))

    def watch_at(self, position: int) -> Watch | None:
        """Return the ids to report at a position of the input; None if there are none."""
        return self.watches[position - self.start] if self.watches else None


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One sequence to read, and the questions that its logits answer."""

    input_ids: TokenIds
    questions: tuple[Question, ...]

    @property
    def length(self) -> int:
        return len(self.input_ids)

    @property
    def n_scored(self) -> int:
        """The number of its positions that need the output layer."""
        return len({place for question in self.questions for place in question.positions})


class Sized(Protocol):
    """A row that can be packed: its length, and the number of its positions that need the output layer."""

    @property
    def length(self) -> int: ...
    @property
    def n_scored(self) -> int: ...


SizedRow = TypeVar("SizedRow", bound=Sized)


@dataclass(frozen=True, slots=True)
class Budget:
    """The size limits of one forward pass: tokens with padding, positions whose logits are computed, and rows."""

    tokens: int
    scored: int
    rows: int

    def after_running_out(self, batch: Sequence[Sized]) -> Budget:
        """Return limits that allow half of a batch that did not fit into memory."""
        return replace(self, tokens=max(1, len(batch) * max(row.length for row in batch) // 2))


def plan_rows(requests: Sequence[TokenRequest]) -> list[TokenRow]:
    """Return the fewest rows that answer all requests, longest first.

    `("Q A", " yes")`, `("Q A", " no")` and `("Q A", " yes and no")` become the one row `Q A yes and`.
    """
    asked: dict[TokenIds, dict[tuple[TokenIds, tuple[Watch, ...]], list[int]]] = {}
    for index, request in enumerate(requests):
        wanted = request.continuation_ids, request.watches
        asked.setdefault(request.input_ids, {}).setdefault(wanted, []).append(index)
    grouped: list[tuple[TokenIds, list[Question]]] = []
    # In this order a sequence comes right after the longest one of which it is a prefix.
    for input_ids in sorted(asked, reverse=True):
        if not grouped or grouped[-1][0][: len(input_ids)] != input_ids:
            grouped.append((input_ids, []))
        grouped[-1][1].extend(
            Question(len(input_ids) - len(targets), targets, tuple(places), watches)
            for (targets, watches), places in asked[input_ids].items()
        )
    rows = [TokenRow(input_ids, tuple(questions)) for input_ids, questions in grouped]
    return sorted(rows, key=lambda row: -row.length)


def pack(rows: Sequence[SizedRow], budget: Budget) -> Iterator[list[SizedRow]]:
    """Yield batches of consecutive rows within `budget`, padding counted; a row above it is a batch of its own."""
    batch: list[SizedRow] = []
    width = scored = 0
    for row in rows:
        wider, more = max(width, row.length), scored + row.n_scored
        n = len(batch) + 1
        if batch and not (n <= budget.rows and n * wider <= budget.tokens and more <= budget.scored):
            yield batch
            batch, wider, more = [], row.length, row.n_scored
        batch.append(row)
        width, scored = wider, more
    if batch:
        yield batch


def waves(requests: Sequence[TokenRequest], tokens: int, *, distinct: bool = False) -> Iterator[range]:
    """Yield ranges of consecutive requests that are planned together, each of about `tokens` tokens.

    Waves limit the memory of a plan and let progress follow the order of the docs. Requests of one context are in one
    wave, so that they can share rows. `distinct`: only tokens that the model reads and that are not in the common
    prefix with the previous request are counted.
    """
    start = held = 0
    for index, request in enumerate(requests):
        before = requests[index - 1] if index else TokenRequest((), ())
        if held >= tokens and request.context_ids != before.context_ids:
            yield range(start, index)
            start, held = index, 0
        if distinct:
            held += len(request.input_ids) - common_length(before.input_ids, request.input_ids)
        else:
            held += len(request.context_ids) + len(request.continuation_ids)
    if start < len(requests):
        yield range(start, len(requests))


def common_length(a: TokenIds, b: TokenIds) -> int:
    """Return the length of the common prefix of two sequences."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
