"""The interface between tasks and models: three methods on lists of values.

The engine knows nothing about tasks, and tasks know nothing about tensors. Any object with the three methods of `LM`
is a model. Answers may have more than the protocol requires (`Loglikelihood.truncated`, `Generation`), which is then
used.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal
from typing import Protocol
from typing import TypeAlias
from typing import runtime_checkable

from pytest_llmeval._task import NOTHING


FinishReason = Literal["stop", "eos", "length", "thought"]


@dataclass(frozen=True, slots=True)
class NextToken:
    """The distribution of the next token at one scored position, on chosen token ids.

    `ids` are the kept ids and, as the last one, an id drawn from all others. `logprobs` are the natural logs of their
    probabilities, `rest` is that of the probability of all ids that are not kept. `likeliest` is the id of the highest
    probability; the first of `ids`, if that shares it.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    rest: float
    likeliest: int


#: The token ids to report at the scored positions of a request: the number of the likeliest ones to keep, or for each
#: position the ids that were kept and drawn before; an empty list for a request whose positions are not asked for.
Tracked: TypeAlias = int | Sequence[tuple[int, ...]]


class Loglikelihood(tuple[float, bool]):
    """The answer to a loglikelihood request: the pair that the protocol requires, with named fields.

    `logprob`: natural log of P(continuation | context), summed over tokens in float32 or better.
    `is_greedy`: every token of the continuation is the most likely one at its position.
    `truncated`: the context was cut at its left end to fit the model's window.
    `next_tokens`: the distribution at each scored position, if `LM.tracked` was asked for it.
    """

    truncated: bool
    next_tokens: tuple[NextToken, ...]

    def __new__(
        cls, logprob: float, is_greedy: bool, truncated: bool = False, next_tokens: tuple[NextToken, ...] = ()
    ) -> Loglikelihood:
        self = super().__new__(cls, (logprob, is_greedy))
        self.truncated = truncated
        self.next_tokens = next_tokens
        return self

    @property
    def logprob(self) -> float:
        return self[0]

    @property
    def is_greedy(self) -> bool:
        return self[1]


class RollingLoglikelihood(float):
    """The log-probability of a whole text, with the distributions at its positions if `LM.tracked` was asked for it."""

    next_tokens: tuple[NextToken, ...]

    def __new__(cls, logprob: float, next_tokens: tuple[NextToken, ...] = ()) -> RollingLoglikelihood:
        self = super().__new__(cls, logprob)
        self.next_tokens = next_tokens
        return self


class Generation(str):
    """A generated text without its stop string.

    `finish_reason`: it ended by a stop string, an end token, or length; ``thought`` if it ended before its thought did,
    which leaves no answer. `raw`: the text with its thoughts, if these were removed (see `ThoughtMarks`).
    """

    finish_reason: FinishReason
    truncated: bool
    raw: str

    def __new__(
        cls, text: str, finish_reason: FinishReason = "stop", truncated: bool = False, raw: str | None = None
    ) -> Generation:
        self = super().__new__(cls, text)
        self.finish_reason = finish_reason
        self.truncated = truncated
        self.raw = text if raw is None else raw
        return self


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """The texts around the thought that a model writes before its answer, such as ``<think>`` and ``</think>``.

    `start` is empty if it is unknown: a generation is then a thought up to its first `end`.
    """

    start: str
    end: str

    def opened_in(self, prompt: str) -> bool:
        """Return True if a prompt ends within a thought."""
        return prompt.rfind(self.start) > prompt.rfind(self.end)

    def answer_at(self, text: str, *, opened: bool) -> int | None:
        """Return the index at which the answer of a generation begins; None while its thought has no end.

        `opened`: its prompt ends within a thought. Stop strings apply from that index on.

        >>> ThoughtMarks("<think>", "</think>").answer_at("<think>no</think> yes", opened=False)
        17
        """
        if not opened and not text.lstrip().startswith(self.start):
            return 0
        end = text.find(self.end)
        return None if end < 0 else end + len(self.end)

    def removed(self, text: str, prompt: str) -> Generation:
        """Return the answer of a generation without its thoughts; empty if a thought has no end.

        After several thoughts the last answer counts, as in lm_eval.
        """
        given = text if isinstance(text, Generation) else Generation(text)
        begin = self.answer_at(text, opened=self.opened_in(prompt))
        if begin is None:
            return Generation("", "thought", given.truncated, raw=given.raw)
        answer = text.rpartition(self.end)[2].lstrip() if begin else text
        return Generation(answer, given.finish_reason, given.truncated, raw=given.raw)


@dataclass(frozen=True, slots=True)
class GenerationKwargs:
    """The settings of one generation.

    `until`: stop strings; the text ends before the first that occurs. `max_gen_toks`: the largest number of new tokens.
    `temperature` is used only with `do_sample`. `seed` and `repeat` distinguish the samples of one prompt: equal values
    give equal texts. `extra`: all other keys of the task's `generation_kwargs`, for the backend.
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
    """A language model. Answers are in the order of the requests.

    Optional members, used where present: `fingerprint: str`, which changes with its answers (the journal keeps those of
    a model that has one), `max_length: int`, `name: str`, `apply_chat_template(messages,
    add_generation_prompt) -> str`, `prepare()`, `close()`,
    `on_progress: Callable[[int, int], None] | None` (settable), called with the numbers of requests done and in all,
    `usage() -> Mapping[str, int]`, the `tokens` read so far and the `peak_memory` in bytes, and
    `describe() -> Mapping[str, Any]`, facts for result files: ``model`` and ``tokenizer`` map names to facts,
    ``chat_template`` is a text. `recomputed(dtype: str | None) -> Iterator[LM]`, for --llmeval-noise,
    --llmeval-calibrate and --llmeval-confirm, yields models with the same weights that compute in another way,
    described by their `name`: in passes of other sizes, and last in `dtype` if that is given. Their answers are equal
    up to rounding. Each is used before the next is requested.
    `thought_marks: ThoughtMarks | None`: thoughts between these marks are removed from generations before they are
    scored; the model returns them, and applies stop strings only to what follows them.
    `engine_choice.slower: str | None`, shown when a run starts, names the faster methods that were refused, and why.
    `tracked(requests, tracked: Sequence[Tracked])`, for gates such as ``kl <= 0.01``, answers (context, continuation)
    pairs by a `Loglikelihood` and whole texts, each a tuple of one text, by a `RollingLoglikelihood`, with their
    `next_tokens`; these are empty if ids are given for another number of positions than a request has. `vocabulary:
    str`, needed with it, identifies what the token ids mean.
    """

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> Sequence[tuple[float, bool]]:
        """Return log P(continuation | context), and True if greedy decoding would write it, for each pair."""
        ...

    def loglikelihood_rolling(self, requests: Sequence[str]) -> Sequence[float]:
        """Return log P(text) of each whole text, every token predicted exactly once."""
        ...

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> Sequence[str]:
        """Return a continuation of each context, cut before its first stop string."""
        ...


def cut_at_stops(text: str, stops: Iterable[str]) -> str:
    """Return the text before the first stop string that occurs in it. Empty stop strings are ignored.

    If stop strings overlap in the text, the first in `stops` applies, as in lm_eval.

    >>> cut_at_stops("a\\nb.c", [".", "\\n"])
    'a'
    """
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text
