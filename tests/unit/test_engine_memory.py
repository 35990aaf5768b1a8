"""Running out of memory, on every road: what is tried again, in which order, how small, and what is said in the end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import pytest
import tablemodels as tables
import torch

from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.continuous import ContinuousGenerator
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.tree import TreeEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs


LARGE = 10**6
AT_ONCE = Budget(LARGE, LARGE, LARGE)
#: Seven docs behind one start of three tokens, no two of them of one length.
DOCS = [(3, 7, 4, *[7] * i, i) for i in range(7)]
SCORED = [TokenRequest(doc, (4,)) for doc in DOCS]
WRITTEN = [GenerationRequest(doc, GenerationKwargs(max_gen_toks=2)) for doc in DOCS]
#: The batches of the docs, longest first, within 15 tokens.
SMALLER = [(1, 10), (1, 9), (1, 8), (2, 7), (2, 5)]


def nothing(done: int, total: int) -> None:
    """A progress that nobody watches."""


def never(ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
    return False


class Memory:
    """The memory of a model: it runs out above `limit` tokens of a pass. `tried` holds the shape of each pass."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch, limit: int, error: Exception | None = None) -> None:
        self.tried: list[tuple[int, int]] = []
        self.freed = 0
        self._limit = limit
        self._error = error or torch.OutOfMemoryError("CUDA out of memory.")
        model.register_forward_pre_hook(self._run, with_kwargs=True)
        monkeypatch.setattr(gc, "collect", self._free)

    def _run(self, _: Any, __: Any, keywords: dict[str, Any]) -> None:
        rows, width = keywords["input_ids"].shape
        self.tried.append((rows, width))
        if rows * width > self._limit:
            raise self._error

    def _free(self, *_: int) -> int:
        self.freed += 1
        return 0


def padded(model: Any) -> PaddedEngine:
    engine = PaddedEngine(model, AT_ONCE, AT_ONCE, [2])
    # What is seen of the model at first is seen before memory is short.
    engine.generate(WRITTEN[:1], never, nothing)
    return engine


def tree(model: Any) -> TreeEngine:
    return TreeEngine(model, Limits(64, 128), padded(model), float("inf"))


def continuous(model: Any) -> ContinuousGenerator:
    return ContinuousGenerator(model, padded(model), AT_ONCE, 512, float("inf"))


def test_padded_scoring_halves_the_tokens_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables.bigram()
    engine = padded(model)
    expected = engine.score(SCORED, nothing)
    memory = Memory(model, monkeypatch, limit=20)
    answers = engine.score(SCORED, nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-6)
    assert memory.tried == [(7, 10), (3, 10), *SMALLER]
    assert memory.freed == 2
    assert engine._scored.budget == Budget(15, LARGE, LARGE)
    # The budget stays small for the next call.
    memory.tried.clear()
    engine.score(SCORED, nothing)
    assert memory.tried == SMALLER


def test_padded_writing_halves_the_tokens_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables.chain()
    engine = padded(model)
    expected = engine.generate(WRITTEN, never, nothing)
    memory = Memory(model, monkeypatch, limit=20)
    assert engine.generate(WRITTEN, never, nothing) == expected
    # A batch that fits is read once, and then one token at a time.
    assert memory.tried == [
        *[(7, 10), (3, 10)],
        *[(1, 10), (1, 1), (1, 9), (1, 8), (1, 1), (2, 7), (2, 1), (2, 5), (2, 1)],
    ]
    assert memory.freed == 2
    assert engine._written.budget == Budget(18, LARGE, LARGE)


def test_the_tree_halves_a_pass_and_reads_what_is_left_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables.bigram()
    engine = tree(model)
    expected = engine.score(SCORED, nothing)
    memory = Memory(model, monkeypatch, limit=8)
    answers = engine.score(SCORED, nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-6)
    assert memory.tried == [(1, 16), (1, 3), *[(1, 1)] * 5, (1, 8)]
    assert memory.freed == 1
    assert engine._limits == Limits(8, 8)


def test_continuous_writing_halves_passes_rows_and_tokens_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables.chain()
    engine = continuous(model)
    expected = engine.generate(WRITTEN, never, nothing)
    memory = Memory(model, monkeypatch, limit=9)
    assert engine.generate(WRITTEN, never, nothing) == expected
    assert memory.tried[:4] == [(1, 49), (1, 15), (1, 4), (1, 1)]
    assert max(memory.tried[2:]) == (1, 7)
    assert memory.freed == 2
    assert engine._pack == 7
    assert engine._budget == Budget(LARGE // 4, LARGE, 1)


ROADS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "padded scoring": (tables.bigram, lambda model: padded(model).score),
    "padded writing": (tables.chain, lambda model: padded(model).generate),
    "tree": (tables.bigram, lambda model: tree(model).score),
    "continuous": (tables.chain, lambda model: continuous(model).generate),
}

#: The last pass that is tried on each road, in the message, and the shapes of all passes that were tried.
SMALLEST = {
    "padded scoring": ("1 sequence of up to 10 tokens", [(4, 10), (2, 10), (1, 10)]),
    "padded writing": ("1 sequence of up to 12 tokens", [(4, 10), (2, 10), (1, 10)]),
    "tree": ("1 token after 0 in the cache, in sequences of up to 1", [(1, 13), (1, 6), (1, 3), (1, 1)]),
    "continuous": ("1 sequence of up to 9 tokens", [(1, 34), (1, 15), (1, 7), (1, 3), (1, 1)]),
}
#: The first pass on each road.
WHOLE = {
    "padded scoring": ("4 sequences of up to 10 tokens", [(4, 10)]),
    "padded writing": ("4 sequences of up to 12 tokens", [(4, 10)]),
    "tree": ("13 tokens after 0 in the cache, in sequences of up to 10", [(1, 13)]),
    "continuous": ("4 sequences of up to 12 tokens", [(1, 34)]),
}


def ask(road: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[str, list[tuple[int, int]]]:
    """What is said in the end, and what was tried, where no pass succeeds."""
    make, method = ROADS[road]
    model = make()
    run = method(model)
    memory = Memory(model, monkeypatch, 0, error)
    with pytest.raises(ModelError) as said:
        run(*((SCORED[3:],) if "scor" in road or road == "tree" else (WRITTEN[3:], never)), nothing)
    assert said.value.__cause__ is error
    return str(said.value), memory.tried


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("x"), MemoryError(), RuntimeError("can't allocate memory")])
@pytest.mark.parametrize("road", ROADS)
def test_the_smallest_pass_that_does_not_fit_is_an_error(
    road: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, tried = ask(road, monkeypatch, error)
    assert said == f"out of memory on {SMALLEST[road][0]}; give a smaller max_length, or another device"
    assert tried == SMALLEST[road][1]


@pytest.mark.parametrize("error", [IndexError("no such token"), ValueError("odd"), RuntimeError("shape")])
@pytest.mark.parametrize("road", ROADS)
def test_other_errors_are_not_tried_again(road: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    said, tried = ask(road, monkeypatch, error)
    assert said == f"the model failed on {WHOLE[road][0]}: {type(error).__name__}: {error}"
    assert tried == WHOLE[road][1]
