"""The seam between tasks and models: three methods on lists of values.

The engine knows nothing about tasks, and tasks know nothing about tensors. A model is anything with the three
methods of `LM`; what is richer than the protocol asks for (`Loglikelihood.truncated`, `Generation`) is used
where it is there.

Where a generated text ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal
from typing import Protocol
from typing import runtime_checkable

from pytest_llmeval._task import NOTHING


FinishReason = Literal["stop", "eos", "length"]


class Loglikelihood(tuple[float, bool]):
    """Answer to a loglikelihood request: the pair that the protocol asks for, with names.

    `logprob`: natural log of P(continuation | context), summed over tokens in float32 or better.
    `is_greedy`: every token of the continuation is the most likely one.
    `truncated`: the context lost its left end to fit the model's window.
    """

    truncated: bool

    def __new__(cls, logprob: float, is_greedy: bool, truncated: bool = False) -> Loglikelihood:
        self = super().__new__(cls, (logprob, is_greedy))
        self.truncated = truncated
        return self

    @property
    def logprob(self) -> float:
        return self[0]

    @property
    def is_greedy(self) -> bool:
        return self[1]


class Generation(str):
    """A generated text, without its stop string; `finish_reason` says what ended it."""

    finish_reason: FinishReason
    truncated: bool

    def __new__(cls, text: str, finish_reason: FinishReason = "stop", truncated: bool = False) -> Generation:
        self = super().__new__(cls, text)
        self.finish_reason = finish_reason
        self.truncated = truncated
        return self


@dataclass(frozen=True, slots=True)
class GenerationKwargs:
    """How to continue a text.

    `until`: stop strings; the text ends before the first that occurs. `max_gen_toks`: most new tokens.
    `temperature` is used only with `do_sample`. `seed` and `repeat` tell the samples of one prompt apart:
    equal values give equal texts. `extra` holds every other key of the task's `generation_kwargs`, for the backend.
    """

    until: tuple[str, ...] = ()
    max_gen_toks: int = 256
    do_sample: bool = False
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0
    repeat: int = 0
    extra: Mapping[str, Any] = NOTHING


@runtime_checkable
class LM(Protocol):
    """A language model. Answers come in the order of the requests.

    Optional members, used where present: `fingerprint: str`, `max_length: int`, `name: str`,
    `apply_chat_template(messages, add_generation_prompt) -> str`, `prepare()`, `close()`,
    `on_progress: Callable[[int, int], None] | None` (settable), called with requests done and asked for,
    `usage() -> Mapping[str, int]`, the `tokens` read so far and the `peak_memory` in bytes, and
    `describe() -> Mapping[str, Any]`, what result files say of the model: ``model`` and ``tokenizer`` hold facts by
    name, ``chat_template`` is its text. `twins(dtype: str | None) -> Iterator[LM]`, for --llmeval-noise, yields the
    same model computing otherwise, each with a `name` that says how: the same answers up to rounding, with other
    requests in a pass, and last in the dtype named, if one is. One is used at a time, before the next is asked for.
    """

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> Sequence[tuple[float, bool]]:
        """log P(continuation | context) and whether greedy decoding would write it, for each pair."""
        ...

    def loglikelihood_rolling(self, requests: Sequence[str]) -> Sequence[float]:
        """log P(text) of each whole text, every token predicted exactly once."""
        ...

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> Sequence[str]:
        """A continuation of each context, which ends before the first stop string."""
        ...


def cut_at_stops(text: str, stops: Iterable[str]) -> str:
    """The text before the first stop string that occurs in it. An empty stop string stops nothing.

    Of stop strings that overlap in the text the one named first wins, as in lm_eval.

    >>> cut_at_stops("a\\nb.c", [".", "\\n"])
    'a'
    """
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text
