"""What is cut off a text that is too long, and how such a text is scored in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._engine import RequestError
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine import fit_prompt
from pytest_llmeval._engine import fit_request
from pytest_llmeval._engine import rolling_windows
from pytest_llmeval._lm import GenerationKwargs


Q, A, YES, NO, X = 3, 4, 5, 6, 7
ids = st.lists(st.integers(0, 9), max_size=30).map(tuple)


def test_a_request_that_fits_is_left_alone() -> None:
    assert fit_request(0, (Q, X, A), (YES, NO), 4) == TokenRequest((Q, X, A), (YES, NO), truncated=False)


def test_a_long_context_loses_its_left_end() -> None:
    request = fit_request(0, (Q, X, A), (YES, NO), 3)
    assert request == TokenRequest((X, A), (YES, NO), truncated=True)
    assert request.input_ids == (X, A, YES)


def test_a_continuation_may_fill_the_window() -> None:
    assert fit_request(0, (Q, X), (A, YES, NO), 3) == TokenRequest((X,), (A, YES, NO), truncated=True)


def test_a_continuation_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        RequestError, match=r"a continuation of 4 tokens cannot be scored in a window of 3 tokens; shorten"
    ) as e:
        fit_request(7, (Q,), (A, YES, NO, X), 3)
    assert e.value.index == 7


def test_a_prompt_keeps_its_end_and_leaves_room() -> None:
    request = fit_prompt(0, (X, X, X, X, X, X, X, X, Q), GenerationKwargs(max_gen_toks=3), 6)
    assert (request.ids, request.truncated) == ((X, X, Q), True)
    assert not fit_prompt(0, (X, X, Q), GenerationKwargs(max_gen_toks=3), 6).truncated


def test_a_window_without_room_for_a_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="max_gen_toks 6 leaves no space for a prompt in a window of 6 tokens;"):
        fit_prompt(0, (Q,), GenerationKwargs(max_gen_toks=6), 6)


def test_rolling_windows_of_four() -> None:
    assert list(rolling_windows((Q, X, A, YES, NO, Q), (1,), 4)) == [
        TokenRequest((1,), (Q, X, A, YES)),
        TokenRequest((X, A, YES), (NO, Q)),
    ]


def test_an_empty_text_has_no_window() -> None:
    assert list(rolling_windows((), (1,), 4)) == []


@given(ids=ids, prefix=st.lists(st.just(99), min_size=1, max_size=3).map(tuple), max_length=st.integers(4, 12))
def test_windows_predict_every_token_once_after_what_stands_before_it(
    ids: tuple[int, ...], prefix: tuple[int, ...], max_length: int
) -> None:
    text = prefix + ids
    place = len(prefix)
    windows = list(rolling_windows(ids, prefix, max_length))
    for window in windows:
        end = place + len(window.continuation_ids)
        assert window.continuation_ids == text[place:end]
        assert window.context_ids == text[place - len(window.context_ids) : place]
        assert len(window.input_ids) == min(max_length, end - 1)
        place = end
    assert place == len(text) or not ids


@given(context=ids.filter(bool), continuation=ids.filter(bool), max_length=st.integers(1, 20))
def test_a_fitted_request_is_the_end_of_the_whole(
    context: tuple[int, ...], continuation: tuple[int, ...], max_length: int
) -> None:
    if len(continuation) > max_length:
        with pytest.raises(RequestError):
            fit_request(0, context, continuation, max_length)
        return
    request = fit_request(0, context, continuation, max_length)
    kept = request.context_ids + request.continuation_ids
    assert kept == (context + continuation)[-max_length - 1 :]
    assert request.continuation_ids == continuation
    assert request.truncated == (len(kept) < len(context + continuation))
    assert 1 <= len(request.input_ids) <= max_length
