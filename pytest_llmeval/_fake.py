"""A model that answers from tables or functions: for tests, examples and dry runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import TypeAlias

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import cut_at_stops
from pytest_llmeval._plain import listed


Messages: TypeAlias = Sequence[Mapping[str, str]]


def _minus_bytes(_context: str, continuation: str) -> float:
    return -float(len(continuation.encode()))


def _tagged_roles(messages: Messages, add_generation_prompt: bool) -> str:
    turns = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
    return turns + "<assistant>" if add_generation_prompt else turns.removesuffix("\n")


@dataclass
class FakeLM:
    """A model that answers from functions or tables; `calls` records the requests.

    `loglikelihood_of`: a function of (context, continuation), or a table whose keys are such pairs or continuations;
    an answer is a log-probability or a (log-probability, is_greedy) tuple. By default the log-probability is -1 per
    byte of the continuation. `text_of`: a function of (context, `GenerationKwargs`), a table by context, or one text
    for all contexts; texts are cut at stop strings. `rolling_of`: a function of the text, or a table by text; by
    default ``loglikelihood_of("", text)``. Raises ModelError for a request that is not in the table. ::

        lm = FakeLM(loglikelihood_of={" yes": -0.7, " no": -1.2}, text_of="The answer is 4\\n")
        assert lm.loglikelihood([("Is it?", " yes")])[0].logprob == -0.7
    """

    loglikelihood_of: Callable[[str, str], Any] | Mapping[Any, Any] = _minus_bytes
    text_of: Callable[[str, GenerationKwargs], str] | Mapping[str, str] | str = ""
    rolling_of: Callable[[str], float] | Mapping[str, float] | None = None
    chat_template: Callable[[Messages, bool], str] = _tagged_roles
    name: str = "fake"
    fingerprint: str | None = None
    max_length: int = 2048
    on_progress: Callable[[int, int], None] | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> list[Loglikelihood]:
        self.calls += [("loglikelihood", request) for request in requests]
        return [self._score(*request) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[str]) -> list[float]:
        self.calls += [("loglikelihood_rolling", text) for text in requests]
        return [self._roll(text) for text in requests]

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[Generation]:
        self.calls += [("generate_until", request) for request in requests]
        return [self._write(*request) for request in requests]

    def apply_chat_template(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        return self.chat_template(messages, add_generation_prompt)

    def _score(self, context: str, continuation: str) -> Loglikelihood:
        if callable(self.loglikelihood_of):
            answer = self.loglikelihood_of(context, continuation)
        else:
            answer = _look_up(self.loglikelihood_of, (context, continuation), continuation)
        return Loglikelihood(*answer) if isinstance(answer, tuple) else Loglikelihood(float(answer), False)

    def _roll(self, text: str) -> float:
        if self.rolling_of is None:
            return self._score("", text).logprob
        return float(self.rolling_of(text) if callable(self.rolling_of) else _look_up(self.rolling_of, text))

    def _write(self, context: str, kwargs: GenerationKwargs) -> Generation:
        if isinstance(self.text_of, str):
            text = self.text_of
        else:
            text = self.text_of(context, kwargs) if callable(self.text_of) else _look_up(self.text_of, context)
        written = cut_at_stops(text, kwargs.until)
        return Generation(written, "eos" if written == text else "stop")


def _look_up(table: Mapping[Any, Any], *keys: Any) -> Any:
    """Return the value of the first key that is in the table. Raises ModelError if none is."""
    for key in keys:
        if key in table:
            return table[key]
    raise ModelError(f"FakeLM has no answer to {keys[0]!r}; its table has: {listed(map(repr, table), 10)}")
