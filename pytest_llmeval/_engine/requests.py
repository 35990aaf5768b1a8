"""What an engine is asked and what it answers: token ids in, numbers and token ids out.

An engine knows nothing about texts. `_models` turns texts into these values and back.

Which generations are one and the same, and which may share a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from typing import TypeAlias

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import FinishReason
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood


TokenIds: TypeAlias = tuple[int, ...]

#: Called with (requests done, requests asked for); may be called more than once with the same numbers.
OnProgress: TypeAlias = Callable[[int, int], None]

#: Whether the text of these new tokens already holds a stop string of its request.
IsStopped: TypeAlias = Callable[[Sequence[int], GenerationKwargs], bool]


class RequestError(ModelError):
    """One request cannot be served; `index` is its place in the list that was asked. Nothing was computed."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


#: The names that an engine may be asked for by.
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
        """What the model must read: everything but the last token, which is only predicted."""
        return self.context_ids + self.continuation_ids[:-1]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Continue `ids`, at least one; they and `kwargs.max_gen_toks` more fit the window."""

    ids: TokenIds
    kwargs: GenerationKwargs
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """The new tokens of a generation, the one that ended it included."""

    ids: TokenIds
    finish_reason: FinishReason


class Engine(Protocol):
    """Runs requests in whatever order and grouping is fastest; answers come in the order of the requests."""

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]: ...

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
        """The tokens that it may come to hold."""
        return len(self.ids) + self.kwargs.max_gen_toks

    @property
    def n_scored(self) -> int:
        return 1


def plan_prompts(requests: Sequence[GenerationRequest]) -> list[Prompt]:
    """Equal requests once. Greedy text depends on neither seed nor repeat, so there they make no difference."""
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
    """Whether tokens are drawn. Temperature 0 is the limit in which the likeliest token is always drawn."""
    return kwargs.do_sample and kwargs.temperature > 0
