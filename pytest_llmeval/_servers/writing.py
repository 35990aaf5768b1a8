"""The calls that continue prompts: completions of token ids or texts, and chats of messages."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._lm import FinishReason
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._servers.doors import COMPLETIONS
from pytest_llmeval._servers.doors import Passage
from pytest_llmeval._servers.doors import Wire
from pytest_llmeval._servers.doors import item


#: Settings that servers change by themselves where a request does not name them, by the `owned_by` of the model.
NEUTRAL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "vllm": {"repetition_penalty": 1.0},
        "sglang": {"repetition_penalty": 1.0},
        # llama-cpp-python
        "me": {"repeat_penalty": 1.0},
    }
)
#: Settings with another meaning here, or that our own code applies.
OWN = frozenset({"num_beams", "until", "max_gen_toks", "max_length", "do_sample"})


@dataclass(frozen=True, slots=True)
class Written:
    """A continuation: its text, its token ids if the server shows them, and the reason for its end.

    The text may end before a stop string, the ids after it.
    """

    text: str
    ids: tuple[int, ...] | None
    finish_reason: FinishReason


async def write(wire: Wire, passage: Passage, kwargs: GenerationKwargs) -> Written:
    """Return the continuation of a passage."""
    body = _settings(wire, kwargs) | {"prompt": passage.ids if wire.takes_ids else passage.text}
    if wire.shows_ids:
        body["return_token_ids"] = True

    def read(data: Any) -> Written:
        choice = item(data, "choices")[0]
        ids = choice.get("token_ids") or None
        return Written(str(item(choice, "text")), None if ids is None else tuple(ids), _reason(choice))

    return await wire.client.post(COMPLETIONS, body, read)


async def chat(wire: Wire, messages: Sequence[Mapping[str, str]], kwargs: GenerationKwargs) -> Written:
    """Return the answer to messages, which the server puts into its own template."""
    body = _settings(wire, kwargs) | {"messages": list(messages)}

    def read(data: Any) -> Written:
        choice = item(data, "choices")[0]
        # An empty answer may be null.
        return Written(str(item(choice, "message")["content"] or ""), None, _reason(choice))

    return await wire.client.post("/v1/chat/completions", body, read)


def _settings(wire: Wire, kwargs: GenerationKwargs) -> dict[str, Any]:
    sampled = kwargs.do_sample and kwargs.temperature > 0
    body: dict[str, Any] = {
        "model": wire.model,
        "max_tokens": kwargs.max_gen_toks,
        "temperature": kwargs.temperature if sampled else 0,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "seed": kwargs.seed + kwargs.repeat,
    }
    if stops := [stop for stop in kwargs.until if stop]:
        body["stop"] = stops
    if sampled:
        body |= {name: value for name, value in (("top_p", kwargs.top_p), ("top_k", kwargs.top_k)) if value is not None}
    extra = {name: value for name, value in kwargs.extra.items() if name not in OWN and value is not None}
    return {**NEUTRAL.get(wire.owner, {}), **extra, **body}


def _reason(choice: Mapping[str, Any]) -> FinishReason:
    if choice.get("finish_reason") == "length":
        return "length"
    # vLLM names the stop string that ended a text; without one it was an end token.
    return "eos" if "stop_reason" in choice and not isinstance(choice["stop_reason"], str) else "stop"
