"""The inputs and outputs of the engine: token ids in, numbers and token ids out.

A model with a window of `max_length` tokens reads that many and so predicts one more: a scoring request may have
max_length + 1 tokens, the last of which is only predicted. `fit_request`, `fit_prompt` and `rolling_windows` cut
longer ones.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Protocol
from typing import TypeAlias

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import FinishReason
from pytest_llmeval._lm import GenerationKwargs


TokenIds: TypeAlias = tuple[int, ...]

#: Called with (requests done, requests in all); may be called more than once with the same numbers.
OnProgress: TypeAlias = Callable[[int, int], None]

#: Returns True if the text of the new tokens already contains a stop string of its request.
IsStopped: TypeAlias = Callable[[Sequence[int], "Prompt"], bool]


class RequestError(ModelError):
    """A request cannot be answered; `index` is its index in the list of requests. Nothing was computed."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


#: The values of `EngineOptions.engine`.
ENGINES = ("auto", "padded", "tree")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The user's options for an engine; all of them affect only speed and memory.

    `engine`: ``tree`` computes shared prefixes of sequences once, ``padded`` reads each sequence separately, ``auto``
    is the tree if a trial shows that the model gives the same numbers. `batch_size`: the most rows of a forward pass;
    `max_batch_tokens`: its most tokens, padding included. With None they depend on the device and its free memory.
    """

    engine: str = "auto"
    batch_size: int | None = None
    max_batch_tokens: int | None = None


#: The reason for padded batches on an accelerator, where continuous batching is not available.
CPU_ONLY = "it runs on CPUs only"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engines of one model, chosen by trials on small sequences, and the reasons.

    `scoring`: ``tree`` or ``padded``. `generation`: ``continuous`` or ``padded``; None before the first request for a
    text, which starts its trial. `refused`: the reasons against faster methods, by name: ``tree``, ``windows`` (the
    tree in layers with a sliding window), ``continuous``, ``output layer`` and ``last layer`` (computed only at
    positions where a token is scored). `longest`: the longest sequence, in tokens, for ``tree`` or ``continuous``, if
    there is such a limit; the padded engine computes longer ones.
    """

    scoring: str
    generation: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that are not empty, as plain data, so that `EngineChoice(**facts)` equals this choice."""
        facts = {"scoring": self.scoring, "generation": self.generation}
        more = {"refused": dict(self.refused), "longest": dict(self.longest)}
        return {name: value for name, value in (facts | more).items() if value}

    @property
    def slower(self) -> str | None:
        """A line about the refusals that reduce speed, with their reasons; None if there are none."""
        costs = {
            "tree": "scored by the padded engine, which reads shared prefixes again for each request",
            "continuous": "texts written in padded batches, which read shared prefixes again for each prompt",
            "output layer": "the output layer computed for every token, not only for scored ones",
        }
        told = [
            f"{cost}: {name} refused: {self.refused[name]}"
            for name, cost in costs.items()
            if name in self.refused and self.refused[name] != CPU_ONLY
        ]
        return "; ".join(told) or None


@dataclass(frozen=True, slots=True)
class Watch:
    """The token ids to report at a scored position: `ids`, the last of which was drawn, or the `top` likeliest ones.

    With `top` one more id is drawn from all others with their probabilities: the first, in the order of ids, at which
    their cumulative probability exceeds the share `draw` of their sum.
    """

    ids: TokenIds = ()
    top: int = 0
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for log P(continuation | context). Both have at least one id, together at most max_length + 1.

    `truncated`: the context was cut at its left end to fit the window. `watches`: the ids to report at each position of
    the continuation; empty for none.
    """

    context_ids: TokenIds
    continuation_ids: TokenIds
    truncated: bool = False
    watches: tuple[Watch, ...] = ()

    @property
    def input_ids(self) -> TokenIds:
        """The ids that the model reads: all but the last, which is only predicted."""
        return self.context_ids + self.continuation_ids[:-1]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request to continue `ids`, at least one; they and `kwargs.max_gen_toks` new tokens fit into the window.

    `thinking`: they end within a thought, whose text no stop string ends.
    """

    ids: TokenIds
    kwargs: GenerationKwargs
    truncated: bool = False
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """The new tokens of a generation, including the end token, if any."""

    ids: TokenIds
    finish_reason: FinishReason


class Writer(Protocol):
    """Continues prompts, in any order and grouping; returns one answer per request, in their order."""

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to write: the indices of the equal requests that it answers (`places`), their ids and settings."""

    places: tuple[int, ...]
    ids: TokenIds
    kwargs: GenerationKwargs
    thinking: bool = False

    @property
    def length(self) -> int:
        """The largest number of tokens of the prompt and its text together."""
        return len(self.ids) + self.kwargs.max_gen_toks

    @property
    def n_scored(self) -> int:
        return 1


def plan_prompts(requests: Sequence[GenerationRequest]) -> list[Prompt]:
    """Return one prompt per set of equal requests. Seed and repeat make no difference to greedy texts."""
    asked: dict[tuple[object, ...], list[int]] = {}
    for place, request in enumerate(requests):
        draw = (request.kwargs.seed, request.kwargs.repeat) if samples(request.kwargs) else ()
        asked.setdefault((request.ids, request.thinking, settings_key(request.kwargs), draw), []).append(place)
    firsts = [(requests[places[0]], tuple(places)) for places in asked.values()]
    return [Prompt(places, first.ids, first.kwargs, first.thinking) for first, places in firsts]


def settings_key(kwargs: GenerationKwargs) -> str:
    """Return a key that is equal for prompts that may share a batch: all settings but seed and repeat."""
    own = (kwargs.until, kwargs.max_gen_toks, kwargs.do_sample, kwargs.temperature, kwargs.top_p, kwargs.top_k)
    return repr((own, sorted(kwargs.extra.items())))


def samples(kwargs: GenerationKwargs) -> bool:
    """Return True if tokens are sampled. At temperature 0, the limit of sampling, they are the likeliest ones."""
    return kwargs.do_sample and kwargs.temperature > 0


def fit_request(index: int, context: TokenIds, continuation: TokenIds, max_length: int) -> TokenRequest:
    """Return a request of at most max_length + 1 tokens: the left end of the context is cut, the continuation is not.

    With max_length 3, ``(Q x A | yes no)`` becomes ``(x A | yes no)``: the model reads `x A yes`.
    Raises RequestError if the continuation is so long that no token of context fits.
    """
    if len(continuation) > max_length:
        raise RequestError(
            index,
            f"a continuation of {len(continuation)} tokens cannot be scored in a window of {max_length} tokens; "
            "shorten it, or give a larger max_length if the model has one",
        )
    room = max_length + 1 - len(continuation)
    return TokenRequest(context[-room:], continuation, truncated=len(context) > room)


def fit_prompt(index: int, ids: TokenIds, kwargs: GenerationKwargs, max_length: int) -> GenerationRequest:
    """Return a prompt of the last max_length - max_gen_toks ids, so that the new tokens fit into the window.

    Raises RequestError if no id is left.
    """
    room = max_length - kwargs.max_gen_toks
    if room < 1:
        raise RequestError(
            index,
            f"max_gen_toks {kwargs.max_gen_toks} leaves no space for a prompt in a window of {max_length} tokens; "
            "generate fewer tokens, or give a larger max_length if the model has one",
        )
    return GenerationRequest(ids[-room:], kwargs, truncated=len(ids) > room)


def rolling_windows(ids: TokenIds, prefix: TokenIds, max_length: int) -> Iterator[TokenRequest]:
    """Yield requests that together predict every token of a text exactly once, the first token from `prefix`.

    All windows are full and predict only new tokens after the first window; the last one may predict fewer tokens and
    then has more context. With max_length 4 and the text `Q x A yes no Q`::

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
