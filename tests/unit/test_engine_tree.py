"""The tree of token ids, and the passes over it: every token once, in sight of its ancestors alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._engine import TokenIds
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.batches import common_length
from pytest_llmeval._engine.batches import waves
from pytest_llmeval._engine.token_tree import Asked
from pytest_llmeval._engine.token_tree import Block
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._engine.token_tree import blocks


# Few different ids, so that sequences often share a path; sometimes a long one, which all begin with.
ids = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)
pairs = st.lists(st.builds(TokenRequest, ids, ids), max_size=14)
shared = st.one_of(st.just(()), st.lists(st.integers(0, 2), max_size=30).map(tuple))
requests = st.builds(
    lambda start, asked: [TokenRequest(start + request.context_ids, request.continuation_ids) for request in asked],
    shared,
    pairs,
)
limits = st.builds(lambda pack, more: Limits(pack, pack + more), st.integers(1, 20), st.integers(0, 20))


def read(steps: list[Pass], cached: TokenIds = ()) -> list[tuple[Pass, list[TokenIds]]]:
    """What each new token of each pass sees, itself included, by the rules of `Pass`."""
    seen = []
    path = cached
    for step in steps:
        assert step.held <= len(path)
        path = path[: step.held]
        sights = [
            path + tuple(step.ids[j] for j in range(i + 1) if j == i or i < step.ends[j]) for i in range(len(step.ids))
        ]
        assert [len(sight) - 1 for sight in sights] == list(step.depths)
        seen.append((step, sights))
        path += step.ids[: step.n_path]
    return seen


def prefixes(asked: list[TokenRequest]) -> set[TokenIds]:
    return {request.input_ids[: i + 1] for request in asked for i in range(len(request.input_ids))}


def test_a_task_of_two_docs_is_one_pass_where_it_fits() -> None:
    asked = [TokenRequest((7, 8, 1), (4,)), TokenRequest((7, 8, 1), (5, 6)), TokenRequest((7, 8, 2), (4,))]
    assert list(Tree(asked).passes(Limits(10, 10))) == [
        Pass(
            held=0,
            ids=(7, 8, 1, 5, 2),
            depths=(0, 1, 2, 3, 2),
            ends=(5, 5, 4, 4, 5),
            n_path=4,
            asked=(Asked(2, 4, 1), Asked(2, 5, 0), Asked(3, 6, 0), Asked(4, 4, 2)),
        )
    ]


def test_the_start_is_read_with_the_first_pack_and_held_for_the_others() -> None:
    asked = [TokenRequest((7, 7, 7, doc, doc), (0,)) for doc in range(5)]
    steps = list(Tree(asked).passes(Limits(pack=4, longest=8)))
    assert [(step.held, step.ids) for step in steps] == [
        (0, (7, 7, 7, 0, 0, 1, 1)),
        (3, (2, 2, 3, 3)),
        (3, (4, 4)),
    ]


def test_a_long_start_is_read_in_parts() -> None:
    asked = [TokenRequest((7,) * 9 + (doc,), (0,)) for doc in range(2)]
    steps = list(Tree(asked).passes(Limits(pack=2, longest=4)))
    assert [(step.held, step.ids) for step in steps] == [(0, (7,) * 4), (4, (7,) * 4), (8, (7, 0, 1))]


def test_a_subtree_above_the_pack_holds_its_own_start() -> None:
    docs = [(1, 1, 1, choice, choice) for choice in range(3)]
    asked = [TokenRequest((7, *doc), (0,)) for doc in [*docs, (2,), (3,)]]
    steps = list(Tree(asked).passes(Limits(pack=4, longest=8)))
    assert [(step.held, step.ids) for step in steps] == [
        (0, (7, 1, 1, 1, 0, 0, 1, 1)),
        (4, (2, 2)),
        (1, (2, 3)),
    ]


def test_packs_are_of_about_equal_size() -> None:
    asked = [TokenRequest((doc,) * 3, (0,)) for doc in range(5)]
    assert [len(step.ids) for step in Tree(asked).passes(Limits(12, 12))] == [9, 6]


def test_nothing_asked_needs_no_pass() -> None:
    assert list(Tree([]).passes(Limits(1, 1))) == []
    assert Tree([]).n_tokens == 0
    assert list(waves([], 10, distinct=True)) == []


@given(asked=requests, limits=limits)
def test_every_distinct_token_is_computed_once_and_sees_its_own_sequence(
    asked: list[TokenRequest], limits: Limits
) -> None:
    tree = Tree(asked)
    computed = [sight for _, sights in read(list(tree.passes(limits))) for sight in sights]
    assert sorted(computed) == sorted(prefixes(asked))
    assert tree.n_tokens == len(computed)


@given(asked=requests, limits=limits)
def test_every_target_is_asked_once_where_its_context_ends(asked: list[TokenRequest], limits: Limits) -> None:
    tree = Tree(asked)
    found = [
        (question, sights[place], target)
        for step, sights in read(list(tree.passes(limits)))
        for place, target, question in step.asked
    ]
    wanted = []
    for i, question in enumerate(tree.questions):
        request = asked[question.requests[0]]
        whole = request.context_ids + request.continuation_ids
        assert {asked[place] for place in question.requests} == {request}
        wanted += [(i, whole[:end], whole[end]) for end in range(len(request.context_ids), len(whole))]
    assert sorted(found) == sorted(wanted)
    assert sorted(place for question in tree.questions for place in question.requests) == list(range(len(asked)))


@given(asked=requests, limits=limits)
def test_no_pass_is_longer_than_allowed(asked: list[TokenRequest], limits: Limits) -> None:
    for step in Tree(asked).passes(limits):
        assert 0 < len(step.ids) <= limits.longest


@given(before=requests, asked=requests, limits=limits)
def test_a_cached_path_is_gone_on_from(before: list[TokenRequest], asked: list[TokenRequest], limits: Limits) -> None:
    """As far as nothing is asked about it: the logits there are gone."""
    cached = before[0].input_ids if before else ()
    tree = Tree(asked)
    plan = read(list(tree.passes(limits, cached)), cached)
    targets = sum(len(step.asked) for step, _ in plan)
    assert targets == sum(len(question.targets) for question in tree.questions)
    computed = {sight for _, sights in plan for sight in sights}
    assert len(computed) == sum(len(sights) for _, sights in plan)
    assert prefixes(asked) - computed <= prefixes([TokenRequest((*cached, 0), (0,))])


def test_the_next_wave_does_not_read_the_start_again() -> None:
    steps = list(Tree([TokenRequest((7, 7, 7, 2), (0,))]).passes(Limits(9, 9), cached=(7, 7, 7, 1)))
    assert [(step.held, step.ids) for step in steps] == [(3, (2,))]


@given(tokens=st.integers(2, 200))
def test_a_pass_that_does_not_fit_is_split(tokens: int) -> None:
    less = Limits(150, 200).after_running_out(tokens)
    assert less.pack <= less.longest == tokens // 2


@given(a=ids, b=ids)
def test_common_length(a: TokenIds, b: TokenIds) -> None:
    n = common_length(a, b)
    assert a[:n] == b[:n]
    assert n in (len(a), len(b)) or a[n] != b[n]


@given(asked=requests, tokens=st.integers(1, 20))
def test_waves_keep_the_order_and_the_requests_of_a_context_together(asked: list[TokenRequest], tokens: int) -> None:
    parts = list(waves(asked, tokens, distinct=True))
    assert [place for part in parts for place in part] == list(range(len(asked)))
    for before, after in itertools.pairwise(parts):
        assert asked[before[-1]].context_ids != asked[after[0]].context_ids


def test_waves_count_what_is_distinct() -> None:
    asked = [TokenRequest((7,) * 100 + (doc,), (0, 0)) for doc in range(6)]
    assert list(waves(asked, 103, distinct=True)) == [range(2), range(2, 6)]


@given(asked=requests, limits=limits, size=st.integers(1, 12))
def test_blocks_cover_a_pass_and_all_that_it_sees(asked: list[TokenRequest], limits: Limits, size: int) -> None:
    for step in Tree(asked).passes(limits):
        parts = blocks(step, size)
        assert [i for part in parts for i in range(part.start, part.end)] == list(range(len(step.ids)))
        for part in parts:
            assert part.end - part.start <= size
            keys = [key for run in part.keys for key in range(*run)]
            assert keys == sorted(set(keys))
            assert all(end < start for (_, end), (start, _) in itertools.pairwise(part.keys))
            for i in range(part.start, part.end):
                seen = {step.held + j for j in range(i + 1) if j == i or i < step.ends[j]}
                assert seen | set(range(step.held)) <= set(keys)


def test_a_block_begins_with_a_doc_and_sees_no_other() -> None:
    asked = [TokenRequest((7, 7, doc, doc, doc), (0,)) for doc in range(4)]
    first, second = Tree(asked).passes(Limits(6, 8))
    assert blocks(first, 4) == [Block(0, 2, ((0, 2),)), Block(2, 5, ((0, 5),)), Block(5, 8, ((0, 2), (5, 8)))]
    assert blocks(second, 4) == [Block(0, 3, ((0, 5),)), Block(3, 6, ((0, 2), (5, 8)))]


@given(asked=requests, limits=limits, size=st.integers(1, 12))
def test_blocks_behind_the_shared_tokens_leave_out_what_all_see(
    asked: list[TokenRequest], limits: Limits, size: int
) -> None:
    for step in Tree(asked).passes(limits):
        n, known = len(step.ids), step.held + step.n_shared
        assert all(end == n for end in step.ends[: step.n_shared])
        assert step.n_shared == n or step.ends[step.n_shared] < n
        parts = blocks(step, size, behind_shared=True)
        assert [i for part in parts for i in range(part.start, part.end)] == list(range(step.n_shared, n))
        for part in parts:
            assert part.end - part.start <= size
            keys = [key for run in part.keys for key in range(*run)]
            assert keys == sorted(set(keys))
            assert min(keys) >= known
            for i in range(part.start, part.end):
                seen = {step.held + j for j in range(i + 1) if j == i or i < step.ends[j]}
                assert {key for key in seen if key >= known} <= set(keys)


def test_shared_tokens_are_left_out_of_blocks() -> None:
    asked = [TokenRequest((7, 7, doc, doc, doc), (0,)) for doc in range(4)]
    first, second = Tree(asked).passes(Limits(6, 8))
    assert (first.n_shared, second.n_shared, second.held) == (2, 0, 2)
    assert blocks(first, 4, behind_shared=True) == [Block(2, 5, ((2, 5),)), Block(5, 8, ((5, 8),))]
    assert blocks(second, 4, behind_shared=True) == [Block(0, 3, ((2, 5),)), Block(3, 6, ((5, 8),))]
