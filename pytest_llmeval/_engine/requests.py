"""The values that cross the border of the engine: token ids in, numbers and token ids out.

A model of `max_length` reads that many tokens at once and so predicts one more: a scored request may hold
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

#: Called with (requests done, requests asked for); may be called more than once with the same numbers.
OnProgress: TypeAlias = Callable[[int, int], None]

#: Returns True if the text of these new tokens already holds a stop string of its request.
IsStopped: TypeAlias = Callable[[Sequence[int], GenerationKwargs], bool]


class RequestError(ModelError):
    """One request cannot be served; `index` is its place in the list that was asked. Nothing was computed."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


#: The values of `EngineOptions.engine`.
ENGINES = ("auto", "padded", "tree")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The user's choices for an engine; all of them change speed and memory only.

    `engine`: ``tree`` computes tokens that sequences share once, ``padded`` reads each sequence by itself, ``auto``
    is the tree where a trial shows that the model gives the same numbers. `batch_size`: most rows of a forward pass;
    `max_batch_tokens`: most tokens of one, padding included; None leaves both to the device and its free memory.
    """

    engine: str = "auto"
    batch_size: int | None = None
    max_batch_tokens: int | None = None


#: The reason for padded batches on an accelerator, where nothing faster could be chosen.
CPU_ONLY = "it runs on CPUs only"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engines that serve one model, as trials on small sequences decided, and the reasons.

    `scoring`: ``tree`` or ``padded``. `generation`: ``continuous`` or ``padded``; None before the first text is asked
    for, when its trial is made. `refused`: the reasons against faster ways that were tried, by name: ``tree``,
    ``windows`` (the tree in layers with a sliding window), ``continuous``, ``output layer`` and ``last layer``
    (computed only where a token is scored). `longest`: the most tokens of a sequence that ``tree`` or ``continuous``
    serves, where that is bounded; the padded engine serves longer ones.
    """

    scoring: str
    generation: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that are not empty, as plain data: `EngineChoice(**facts)` is this choice again."""
        facts = {"scoring": self.scoring, "generation": self.generation}
        more = {"refused": dict(self.refused), "longest": dict(self.longest)}
        return {name: value for name, value in (facts | more).items() if value}

    @property
    def slower(self) -> str | None:
        """One line on the refusals that cost speed, and their reasons; None if there are none."""
        costs = {
            "tree": "scored by the padded engine, which reads tokens that requests share again for each of them",
            "continuous": "texts written in padded batches, which read what prompts share again for each of them",
            "output layer": "the output layer computed for every token, not only for those that are scored",
        }
        told = [
            f"{cost}: {name} refused: {self.refused[name]}"
            for name, cost in costs.items()
            if name in self.refused and self.refused[name] != CPU_ONLY
        ]
        return "; ".join(told) or None


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """log P(continuation | context). Both hold at least one id; together at most max_length + 1.

    `truncated` says that the context lost its left end to fit the window.
    """

    context_ids: TokenIds
    continuation_ids: TokenIds
    truncated: bool = False

    @property
    def input_ids(self) -> TokenIds:
        """The ids that the model must read: all but the last token, which is only predicted."""
        return self.context_ids + self.continuation_ids[:-1]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Continue `ids`, at least one; they and `kwargs.max_gen_toks` more fit the window."""

    ids: TokenIds
    kwargs: GenerationKwargs
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """The new tokens of a generation, including the one that ended it."""

    ids: TokenIds
    finish_reason: FinishReason


class Writer(Protocol):
    """Continues prompts in any order and grouping; answers come in the order of the requests."""

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to write: the places of the equal requests that it answers, their ids and settings."""

    places: tuple[int, ...]
    ids: TokenIds
    kwargs: GenerationKwargs

    @property
    def length(self) -> int:
        """The most tokens that the prompt and its text can hold."""
        return len(self.ids) + self.kwargs.max_gen_toks

    @property
    def n_scored(self) -> int:
        return 1


def plan_prompts(requests: Sequence[GenerationRequest]) -> list[Prompt]:
    """Return one prompt for all equal requests. Greedy texts are equal whatever their seed and repeat."""
    asked: dict[tuple[object, ...], list[int]] = {}
    for place, request in enumerate(requests):
        draw = (request.kwargs.seed, request.kwargs.repeat) if samples(request.kwargs) else ()
        asked.setdefault((request.ids, settings_key(request.kwargs), draw), []).append(place)
    return [Prompt(tuple(places), requests[places[0]].ids, requests[places[0]].kwargs) for places in asked.values()]


def settings_key(kwargs: GenerationKwargs) -> str:
    """Equal for prompts that may share a batch: all settings but seed and repeat, `extra` in any order."""
    own = (kwargs.until, kwargs.max_gen_toks, kwargs.do_sample, kwargs.temperature, kwargs.top_p, kwargs.top_k)
    return repr((own, sorted(kwargs.extra.items())))


def samples(kwargs: GenerationKwargs) -> bool:
    """Return True if tokens are drawn. Temperature 0 is the limit in which the likeliest token is always drawn."""
    return kwargs.do_sample and kwargs.temperature > 0


def fit_request(index: int, context: TokenIds, continuation: TokenIds, max_length: int) -> TokenRequest:
    """Return a request of at most max_length + 1 tokens: the left end of the context is cut, the continuation is not.

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
    """Return a prompt of the last max_length - max_gen_toks ids, which leave room for the new tokens.

    Raises RequestError where no id would be left.
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
    """Yield requests that together predict every token of a text exactly once, the first of them from `prefix`.

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
