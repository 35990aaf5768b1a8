"""Which requests share a forward pass."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import TokenRow
from pytest_llmeval._engine.batches import pack
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.batches import waves
from pytest_llmeval._engine.requests import plan_prompts
from pytest_llmeval._engine.requests import settings_key
from pytest_llmeval._lm import GenerationKwargs


# Few different ids, so that sequences often begin each other.
ids = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)
requests = st.lists(st.builds(TokenRequest, ids, ids), max_size=12)


@dataclass(frozen=True)
class Block:
    length: int
    n_scored: int


def test_choices_of_one_token_share_a_row() -> None:
    choices = [TokenRequest((1, 2, 3), (letter,)) for letter in (4, 5, 6, 7)]
    assert plan_rows(choices) == [TokenRow((1, 2, 3), tuple(Question(2, (4 + i,), (i,)) for i in range(4)))]
    assert plan_rows(choices)[0].n_scored == 1


def test_a_longer_choice_carries_the_shorter_ones() -> None:
    rows = plan_rows([TokenRequest((1, 2), (4,)), TokenRequest((1, 2), (4, 5)), TokenRequest((1, 2), (6, 7))])
    assert rows == [
        TokenRow((1, 2, 6), (Question(1, (6, 7), (2,)),)),
        TokenRow((1, 2, 4), (Question(1, (4, 5), (1,)), Question(1, (4,), (0,)))),
    ]


def test_equal_requests_are_one_question() -> None:
    assert plan_rows([TokenRequest((1,), (2, 3))] * 3) == [TokenRow((1, 2), (Question(0, (2, 3), (0, 1, 2)),))]


def test_one_sequence_may_be_split_at_several_places() -> None:
    rows = plan_rows([TokenRequest((1, 2, 3), (4,)), TokenRequest((1,), (2, 3, 4))])
    assert rows == [TokenRow((1, 2, 3), (Question(2, (4,), (0,)), Question(0, (2, 3, 4), (1,))))]
    assert rows[0].n_scored == 3


def test_nothing_asked_needs_no_row() -> None:
    assert plan_rows([]) == []
    assert list(pack([], Budget(10, 10, 10))) == []
    assert list(waves([], 10)) == []


@given(requests=requests)
def test_rows_answer_every_request_once(requests: list[TokenRequest]) -> None:
    rows = plan_rows(requests)
    answered = [place for row in rows for question in row.questions for place in question.requests]
    assert sorted(answered) == list(range(len(requests)))
    for row in rows:
        for question in row.questions:
            for place in question.requests:
                request = requests[place]
                assert row.input_ids[: len(request.input_ids)] == request.input_ids
                assert question.targets == request.continuation_ids
                assert question.start == len(request.context_ids) - 1
    assert [row.length for row in rows] == sorted((row.length for row in rows), reverse=True)


@given(requests=requests)
def test_no_row_begins_another(requests: list[TokenRequest]) -> None:
    inputs = [row.input_ids for row in plan_rows(requests)]
    assert not any(a is not b and b[: len(a)] == a for a in inputs for b in inputs)


@given(
    rows=st.lists(st.builds(Block, st.integers(1, 9), st.integers(1, 9)), max_size=20),
    budget=st.builds(Budget, st.integers(1, 30), st.integers(1, 30), st.integers(1, 5)),
)
def test_batches_keep_the_order_and_the_budget(rows: list[Block], budget: Budget) -> None:
    batches = list(pack(rows, budget))
    assert [row for batch in batches for row in batch] == rows
    for batch in batches:
        assert len(batch) == 1 or (
            len(batch) <= budget.rows
            and len(batch) * max(row.length for row in batch) <= budget.tokens
            and sum(row.n_scored for row in batch) <= budget.scored
        )


@given(rows=st.lists(st.builds(Block, st.integers(1, 9), st.just(1)), min_size=2, max_size=20))
def test_half_of_a_batch_fits_the_budget_that_follows_it(rows: list[Block]) -> None:
    budget = Budget(10**6, 10**6, 10**6).after_running_out(rows)
    assert len(next(pack(rows, budget))) < len(rows)


@given(requests=requests, tokens=st.integers(1, 20))
def test_waves_keep_the_order_and_the_requests_of_a_context_together(requests: list[TokenRequest], tokens: int) -> None:
    parts = list(waves(requests, tokens))
    assert [place for part in parts for place in part] == list(range(len(requests)))
    for before, after in itertools.pairwise(parts):
        assert requests[before[-1]].context_ids != requests[after[0]].context_ids


def test_a_wave_ends_when_it_holds_enough() -> None:
    asked = [TokenRequest((i,) * 8, (0, 0)) for i in range(6)]
    assert list(waves(asked, 20)) == [range(2), range(2, 4), range(4, 6)]


def test_equal_greedy_prompts_are_written_once() -> None:
    asked = [GenerationRequest((1, 2), GenerationKwargs(seed=seed, repeat=seed)) for seed in range(3)]
    assert [prompt.places for prompt in plan_prompts(asked)] == [(0, 1, 2)]


def test_samples_differ_by_seed_and_repeat() -> None:
    kwargs = [(0, 0), (0, 1), (1, 0), (0, 0)]
    asked = [
        GenerationRequest((1, 2), GenerationKwargs(do_sample=True, temperature=1.0, seed=seed, repeat=repeat))
        for seed, repeat in kwargs
    ]
    assert [prompt.places for prompt in plan_prompts(asked)] == [(0, 3), (1,), (2,)]


def test_settings_are_equal_in_any_order_and_no_prompt_is_merged_across_them() -> None:
    one, other = GenerationKwargs(extra={"a": 1, "b": 2}), GenerationKwargs(extra={"b": 2, "a": 1})
    assert settings_key(one) == settings_key(other)
    asked = [GenerationRequest((1,), GenerationKwargs(until=(stop,))) for stop in ("a", "b")]
    assert [prompt.places for prompt in plan_prompts(asked)] == [(0,), (1,)]
