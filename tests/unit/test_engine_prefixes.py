"""Prefixes that prompts share, and guesses of how a text goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._engine.scheduler import PromptLookup
from pytest_llmeval._engine.scheduler import SharedPrefix
from pytest_llmeval._engine.scheduler import plan_shared_prefixes


def text(prefix: SharedPrefix | None) -> tuple[int, ...]:
    return () if prefix is None else sum((part.ids for part in prefix.path), ())


def test_prompts_share_prefixes_at_every_depth() -> None:
    shots = (1, 2, 3)
    prompts = [(*shots, 4, 5, 6), (9, 9), (*shots, 4, 5, 7), (*shots, 8), (*shots, 4, 5, 7)]
    planned = dict(plan_shared_prefixes(prompts, 2))
    assert {place: text(prefix) for place, prefix in planned.items()} == {
        0: (1, 2, 3, 4, 5),
        1: (),
        2: (1, 2, 3, 4, 5),
        3: (1, 2, 3),
        4: (1, 2, 3, 4, 5),
    }
    assert planned[0] is planned[2] is planned[4]
    assert planned[0] is not None
    assert planned[0].parent is planned[3]


def test_equal_prompts_share_all_but_their_last_token() -> None:
    planned = plan_shared_prefixes([(1, 2, 3, 4)] * 3, 2)
    assert [text(prefix) for _, prefix in planned] == [(1, 2, 3)] * 3
    assert len({prefix for _, prefix in planned}) == 1


def test_a_prompt_that_begins_another_keeps_its_last_token() -> None:
    assert [text(prefix) for _, prefix in plan_shared_prefixes([(1, 2, 3), (1, 2, 3, 4)], 2)] == [(1, 2), (1, 2)]


def test_what_is_too_short_is_no_prefix() -> None:
    assert plan_shared_prefixes([(1, 2, 3), (1, 2, 4)], 3) == [(0, None), (1, None)]
    assert plan_shared_prefixes([], 1) == []


prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple), max_size=12)


@given(prompts=prompts, least=st.integers(1, 4))
def test_every_prompt_goes_on_from_its_prefix(prompts: list[tuple[int, ...]], least: int) -> None:
    planned = plan_shared_prefixes(prompts, least)
    assert sorted(place for place, _ in planned) == list(range(len(prompts)))
    for place, prefix in planned:
        assert prompts[place][: len(text(prefix))] == text(prefix)
        assert len(text(prefix)) < len(prompts[place])
        assert all(len(part.ids) >= least for part in (prefix.path if prefix else ()))
    prefixes = [prefix for _, found in planned if found for prefix in found.path]
    assert all(prefixes.count(prefix) > 1 for prefix in prefixes)
    # Those of one prefix are neighbours.
    for prefix in set(prefixes):
        below = [i for i, (_, found) in enumerate(planned) if found and prefix in found.path]
        assert below == list(range(below[0], below[-1] + 1))


class TestPromptLookup:
    @pytest.mark.parametrize(
        ("ids", "n", "guess"),
        [
            ((1, 2, 3, 4, 5, 1, 2, 3), 2, (4, 5)),
            ((7, 2, 3, 4, 1, 2, 3), 1, (4,)),
            # The last time counts.
            ((1, 2, 3, 1, 2, 4, 1, 2), 1, (4,)),
            # The longer match counts.
            ((9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2), 1, (3,)),
            # A text that turns in circles goes on so.
            ((5, 6, 5, 6, 5), 4, (6, 5, 6, 5)),
            ((4, 4, 4), 3, (4, 4, 4)),
            ((1, 2, 3), 2, ()),
            ((1,), 2, ()),
            ((1, 2, 1, 2), 0, ()),
        ],
    )
    def test_it_goes_on_as_after_the_same_tokens_before(
        self, ids: tuple[int, ...], n: int, guess: tuple[int, ...]
    ) -> None:
        assert PromptLookup(ids).guess(n) == guess

    def test_it_grows(self) -> None:
        lookup = PromptLookup((1, 2, 3, 1))
        assert lookup.guess(1) == ()
        lookup.add(2)
        assert lookup.guess(1) == (3,)
