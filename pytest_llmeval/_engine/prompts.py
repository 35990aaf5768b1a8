"""Which generations are one and the same, and which may share a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval._engine import GenerationKwargs
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import TokenIds


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
