"""Requests that share a forward pass: rows, batches and waves. Pure planning, no tensors.

A row is one sequence that the model reads once. It answers all equal requests, every choice of one token after the
same context, and every request whose input is the beginning of the row (the probabilities of a causal model do not
depend on later tokens).
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


@dataclass(frozen=True, slots=True)
class Question:
    """Target tokens of a row: P(targets[i] | input up to and including position start + i) is wanted for each i.

    `requests` are the places of the (equal) requests that this answers.
    """

    start: int
    targets: TokenIds
    requests: tuple[int, ...]

    @property
    def positions(self) -> range:
        return range(self.start, self.start + len(self.targets))


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One sequence to read, and the questions that it answers."""

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
    """The most that one forward pass may hold: tokens with padding, positions that are scored, and rows."""

    tokens: int
    scored: int
    rows: int

    def after_running_out(self, batch: Sequence[Sized]) -> Budget:
        """Return a budget for half of a batch that did not fit into memory."""
        return replace(self, tokens=max(1, len(batch) * max(row.length for row in batch) // 2))


def plan_rows(requests: Sequence[TokenRequest]) -> list[TokenRow]:
    """Return the fewest rows that answer all requests, longest first.

    `("Q A", " yes")`, `("Q A", " no")` and `("Q A", " yes and no")` become the one row `Q A yes and`.
    """
    asked: dict[TokenIds, dict[TokenIds, list[int]]] = {}
    for index, request in enumerate(requests):
        asked.setdefault(request.input_ids, {}).setdefault(request.continuation_ids, []).append(index)
    grouped: list[tuple[TokenIds, list[Question]]] = []
    # In this order a sequence comes right after the longest one that it begins.
    for input_ids in sorted(asked, reverse=True):
        if not grouped or grouped[-1][0][: len(input_ids)] != input_ids:
            grouped.append((input_ids, []))
        grouped[-1][1].extend(
            Question(len(input_ids) - len(targets), targets, tuple(places))
            for targets, places in asked[input_ids].items()
        )
    rows = [TokenRow(input_ids, tuple(questions)) for input_ids, questions in grouped]
    return sorted(rows, key=lambda row: -row.length)


def pack(rows: Sequence[SizedRow], budget: Budget) -> Iterator[list[SizedRow]]:
    """Yield batches of neighbouring rows, padded to the longest of each; a row above the budget goes alone."""
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
    """Yield places of requests that are planned together: runs of about `tokens` tokens, in the order asked.

    Waves bound the memory of a plan and let progress follow the order of the docs. Requests of one context stay
    together, so that they can share rows. `distinct`: only tokens that the model reads and that the request before
    does not share are counted.
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
    """Return the number of tokens with which both sequences begin."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
