"""A Hugging Face model as an `LM`, which combines its encoder, engine and chat template."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from pytest_llmeval._engine import Completion
from pytest_llmeval._engine import EngineChoice
from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine import Prompt
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine import Watch
from pytest_llmeval._engine.choosing import Engine
from pytest_llmeval._engine.choosing import choose_engine
from pytest_llmeval._engine.choosing import other_groupings
from pytest_llmeval._engine.devices import Usage
from pytest_llmeval._engine.devices import choose_device
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import peak_memory
from pytest_llmeval._engine.devices import share_processors
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import RollingLoglikelihood
from pytest_llmeval._lm import Tracked
from pytest_llmeval._lm import cut_at_stops
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.chat import describe_tokenizer
from pytest_llmeval._models.chat import render_chat
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.encoding import window_of
from pytest_llmeval._models.loading import Loader
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.thoughts import ThoughtText
from pytest_llmeval._models.thoughts import marks_of
from pytest_llmeval._models.token_cache import TokenCache
from pytest_llmeval._plain import hash_of
from pytest_llmeval._plain import json_text


#: The number of tokens to decode beyond the bytes of a stop string, since some tokens have no text of their own.
SPARE_TOKENS = 4
#: The number of hexadecimal digits of a vocabulary's hash.
VOCABULARY_CHARS = 16


class HuggingFaceLM:
    """One causal model of transformers.

    `load` returns the model for its arguments; it is called when the weights are first needed. `identify` returns the
    fingerprint. `token_cache` may be shared by the models of a session. `on_progress`, an attribute that callers may
    set, is called with (requests done, requests in all) after every batch.
    """

    #: The journal knows models by the identity of a `DeferredLM`: one that computes in another way has none.
    identity: None = None

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        load: Callable[[ModelArgs], Any],
        args: ModelArgs,
        *,
        name: str,
        identify: Callable[[], str | None] | None = None,
        token_cache: TokenCache | None = None,
    ) -> None:
        self.name = name
        self.max_length = args.max_length or window_of(config, tokenizer)
        self.on_progress: Callable[[int, int], None] | None = None
        self._args = args
        thinking = {} if args.enable_thinking is None else {"enable_thinking": args.enable_thinking}
        #: Variables of the chat template, by name.
        self._template_args = {**(args.chat_template_args or {}), **thinking}
        self._tokenizer = tokenizer
        self._load = load
        self._identify = identify
        self._encoder = TextEncoder(
            tokenizer,
            self.max_length,
            add_bos_token=args.add_bos_token,
            prefix_token_id=args.prefix_token_id,
            cache=token_cache,
        )
        eos: int | None = tokenizer.eos_token_id
        self._eos_ids = () if eos is None else (eos,)
        self.commit: str = getattr(config, "_commit_hash", None) or ""
        self._weights: dict[str, Any] = {}
        self._usage = Usage()
        #: The model that `recomputed` loaded in another dtype, while it is open.
        self._in_other_dtype: HuggingFaceLM | None = None
        #: The marks of this model's thoughts, which are removed from generations before they are scored.
        self.thought_marks = marks_of(tokenizer, args.think_end_token)
        self._thoughts = ThoughtText(tokenizer, self.thought_marks)
        self._eos_text = self._encoder.decode(self._eos_ids, special_tokens=True)

    @cached_property
    def fingerprint(self) -> str | None:
        """A hash of everything that answers depend on; None for a model in memory, whose weights may change."""
        return None if self._identify is None else self._identify()

    @cached_property
    def _model(self) -> Any:
        return self._load(self._args)

    @cached_property
    def engine(self) -> Engine:
        model = self._model
        size = sum(parameter.numel() for parameter in model.parameters())
        self._weights = {"model_num_parameters": size, "model_dtype": str(model.dtype)}
        return choose_engine(model, self._args.engine_options, self._eos_ids, remembers=self._identify is not None)

    @property
    def engine_choice(self) -> EngineChoice:
        """The engines of this model, and the reasons against faster ones. Loads the weights."""
        return self.engine.choice

    def prepare(self) -> None:
        """Load the weights now. Raises ModelError if that fails."""
        _ = self.engine

    def close(self) -> None:
        """Free the memory, also that of a model in another dtype; a later request loads the model again."""
        if self._in_other_dtype is not None:
            self._in_other_dtype.close()
            self._in_other_dtype = None
        held = self.__dict__.keys() & {"engine", "_model"}
        for name in held:
            del self.__dict__[name]
        if held:
            free_memory()

    def usage(self) -> dict[str, int]:
        """Return the `tokens` read so far and the `peak_memory` in bytes; empty while the model is not loaded."""
        if "_model" not in self.__dict__:
            return {}
        return {"tokens": self._usage.tokens, "peak_memory": peak_memory(self._model.device)}

    def recomputed(self, dtype: str | None = None) -> Iterator[HuggingFaceLM]:
        """Yield the same model in passes of other sizes, then, if `dtype` is given, loaded in that dtype.

        The latter is closed when the iterator continues, or with this model. Raises ModelError if the model already
        has that dtype.
        """
        model = self._model
        for name, options in other_groupings(model, self._args.engine_options):
            yield self._copy(name, replace(self._args, **asdict(options)), model)
        if dtype is None:
            return
        if getattr(torch, dtype) == model.dtype:
            raise ModelError(f"--llmeval-noise: model {self.name!r} already computes in {dtype}: choose another dtype")
        self._in_other_dtype = other = self._copy(dtype, replace(self._args, dtype=dtype), None)
        try:
            yield other
        finally:
            other.close()

    def _copy(self, name: str, args: ModelArgs, model: Any) -> HuggingFaceLM:
        """Return a copy with its own engine; without `model` it loads its own model."""
        other = copy.copy(self)
        for cached in ("engine", "_model"):
            other.__dict__.pop(cached, None)
        if model is not None:
            other.__dict__["_model"] = model
        other.name, other.on_progress, other._args, other._weights = name, None, args, {}
        other._in_other_dtype = None
        return other

    def describe(self) -> dict[str, Any]:
        """Return the facts of the model for result files, under lm_eval's names."""
        self.prepare()
        return {
            "model": {
                **self._weights,
                "model_revision": self._args.revision or "main",
                "model_sha": self.commit,
                "engine": self.engine_choice.facts,
            },
            **describe_tokenizer(self._tokenizer, self.max_length),
        }

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> list[Loglikelihood]:
        """Return an answer for each (context, continuation).

        Raises RequestError for a continuation without tokens, or one that is longer than the window.
        """
        return self._score(self._encoder.pairs(requests))

    def loglikelihood_rolling(self, requests: Sequence[str]) -> list[float]:
        """Return the log-probability of each text, which is 0 for an empty text."""
        texts = self._encoder.rolling(requests)
        answers = iter(self._score([window for windows in texts for window in windows]))
        return [sum(next(answers).logprob for _ in windows) for windows in texts]

    @cached_property
    def vocabulary(self) -> str:
        """A hash of the tokens by id."""
        tokens = sorted(self._tokenizer.get_vocab().items(), key=lambda token: (token[1], token[0]))
        return hash_of(json_text(tokens))[:VOCABULARY_CHARS]

    def tracked(
        self, requests: Sequence[tuple[str, ...]], tracked: Sequence[Tracked]
    ) -> list[Loglikelihood | RollingLoglikelihood]:
        """Return an answer for each (context, continuation) or (text,), with the next tokens at scored positions.

        Raises RequestError as `loglikelihood` does.
        """
        pairs = iter(self._encoder.pairs([(request[0], request[1]) for request in requests if len(request) > 1]))
        texts = iter(self._encoder.rolling([request[0] for request in requests if len(request) == 1]))
        parts = [[next(pairs)] if len(request) > 1 else next(texts) for request in requests]
        watched = [_watched(windows, wanted) for windows, wanted in zip(parts, tracked, strict=True)]
        answers = iter(self._score([window for windows in watched for window in windows]))
        return [
            next(answers) if len(request) > 1 else _joined([next(answers) for _ in windows])
            for request, windows in zip(requests, watched, strict=True)
        ]

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[Generation]:
        """Return the generated texts. Raises RequestError if max_gen_toks leaves no space for a prompt."""
        prompts = self._encoder.prompts(requests)
        if marks := self.thought_marks:
            opened = [marks.opened_in(context) for context, _ in requests]
            prompts = [replace(prompt, thinking=thinks) for prompt, thinks in zip(prompts, opened, strict=True)]
        engine = self.engine
        with self._usage.counting(self._model):
            completions = engine.generate(prompts, self._is_stopped, self._report)
        return [self._text(prompt, done) for prompt, done in zip(prompts, completions, strict=True)]

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the prompt of messages by the model's chat template, as `render_chat` does."""
        return render_chat(self._tokenizer, self.name, messages, add_generation_prompt, self._template_args)

    def _score(self, requests: Sequence[TokenRequest]) -> list[Loglikelihood]:
        engine = self.engine
        with self._usage.counting(self._model):
            return engine.score(requests, self._report)

    def _report(self, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(done, total)

    def _stops(self, kwargs: GenerationKwargs) -> list[str]:
        return [stop for stop in (*kwargs.until, self._eos_text) if stop]

    def _is_stopped(self, ids: Sequence[int], prompt: Prompt) -> bool:
        """Return True if the text of new tokens contains a stop string, whatever the borders of tokens."""
        stops = self._stops(prompt.kwargs)
        # Only the last tokens can complete a stop string: the whole text is decoded only if they contain one.
        reach = max((len(stop.encode()) for stop in stops), default=0) + SPARE_TOKENS
        last = self._encoder.decode(ids[-reach:], special_tokens=True)
        if not any(stop in last for stop in stops):
            return False
        text = self._encoder.decode(ids, special_tokens=True)
        return self._cut(text, stops, thinking=prompt.thinking) != text

    def _cut(self, text: str, stops: Sequence[str], *, thinking: bool) -> str:
        """Return the new text before its first stop string; in a thought only the end of the text is one."""
        begin = self.thought_marks.answer_at(text, opened=thinking) if self.thought_marks else 0
        if begin is None:
            return cut_at_stops(text, [self._eos_text])
        return text[:begin] + cut_at_stops(text[begin:], stops)

    def _text(self, prompt: GenerationRequest, done: Completion) -> Generation:
        text = self._thoughts.of(done.ids)
        written = self._cut(text, self._stops(prompt.kwargs), thinking=prompt.thinking)
        reason = "stop" if done.finish_reason == "length" and written != text else done.finish_reason
        return Generation(written, reason, prompt.truncated)


def _watched(windows: Sequence[TokenRequest], tracked: Tracked) -> list[TokenRequest]:
    """Return the requests of a text with the ids to report at each position, in their order."""
    if isinstance(tracked, int):
        return [
            replace(window, watches=tuple(Watch(top=tracked, draw=draw) for draw in _draws(window)))
            for window in windows
        ]
    if len(tracked) != sum(len(window.continuation_ids) for window in windows):
        return list(windows)
    ids = iter(tracked)
    return [replace(window, watches=tuple(Watch(next(ids)) for _ in window.continuation_ids)) for window in windows]


def _draws(window: TokenRequest) -> Iterator[float]:
    """Yield a number from 0 to 1 for each position, a hash of all token ids before it, so that equal ones are equal."""
    read = hashlib.blake2b("".join(f" {token}" for token in window.context_ids).encode(), digest_size=8)
    for token in window.continuation_ids:
        yield int.from_bytes(read.digest(), "big") / 2**64
        read.update(f" {token}".encode())


def _joined(answers: Sequence[Loglikelihood]) -> RollingLoglikelihood:
    """Return the answer to a text from those to its windows."""
    tokens = tuple(token for answer in answers for token in answer.next_tokens)
    return RollingLoglikelihood(sum(answer.logprob for answer in answers), tokens)


def open_model(spec: HuggingFaceSpec, token_cache: TokenCache | None = None, seat: int | None = None) -> HuggingFaceLM:
    """Return the model of a spec. Config and tokenizer are read now, the weights later. Raises ModelError."""
    device = choose_device(spec.args.device, seat)
    share_processors(device)
    loader = Loader(spec)
    config = loader.config()
    return HuggingFaceLM(
        config,
        loader.tokenizer(),
        lambda args: Loader(replace(spec, args=args)).model(config, device),
        spec.args,
        name=spec.name,
        identify=lambda: loader.fingerprint(config),
        token_cache=token_cache,
    )
