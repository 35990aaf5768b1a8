"""How texts longer than the model's window are read: what is cut off, and how a long text is scored in parts.

A model of `max_length` reads that many tokens at once and so predicts one more: a request may hold
max_length + 1 tokens, the last of which is only predicted.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._lm import GenerationKwargs


def fit_request(index: int, context: TokenIds, continuation: TokenIds, max_length: int) -> TokenRequest:
    """A request of at most max_length + 1 tokens: the context loses its left end, the continuation nothing.

    With max_length 3, ``(Q x A | yes no)`` becomes ``(x A | yes no)``: the model reads `x A yes`.
    Raises RequestError where the continuation leaves no room for even one token of context.
    """
    if len(continuation) > max_length:
        raise RequestError(
            index,
            f"a continuation of {len(continuation)} tokens cannot be scored in a window of {max_length}; "
            "shorten it, or give a larger max_length if the model has one",
        )
    room = max_length + 1 - len(continuation)
    return TokenRequest(context[-room:], continuation, truncated=len(context) > room)


def fit_prompt(index: int, ids: TokenIds, kwargs: GenerationKwargs, max_length: int) -> GenerationRequest:
    """A prompt that leaves room for `max_gen_toks` more tokens: it keeps its last max_length - max_gen_toks.

    Raises RequestError where that is nothing.
    """
    room = max_length - kwargs.max_gen_toks
    if room < 1:
        raise RequestError(
            index,
            f"max_gen_toks {kwargs.max_gen_toks} leaves no room for a prompt in a window of {max_length}; "
            "generate fewer tokens, or give a larger max_length if the model has one",
        )
    return GenerationRequest(ids[-room:], kwargs, truncated=len(ids) > room)


def rolling_windows(ids: TokenIds, prefix: TokenIds, max_length: int) -> Iterator[TokenRequest]:
    """Requests that together predict every token of a text exactly once, the first of them from `prefix`.

    Each window is full and predicts what no window before it did; only the last one predicts less, and is
    filled up with context instead. With max_length 4 and the text `Q x A yes no Q`::

        <s>     | Q x A yes       reads <s> Q x A
        x A yes | no Q            reads x A yes no

    `prefix` holds at least one token (BOS) and fewer than max_length.
    """
    start = max_length + 1 - len(prefix)
    if ids:
        yield TokenRequest(prefix, ids[:start])
    while start < len(ids):
        end = min(start + max_length, len(ids))
        yield TokenRequest((prefix + ids)[len(prefix) + end - max_length - 1 : len(prefix) + start], ids[start:end])
        start = end
