"""A Hugging Face model as an `LM`: texts in, answers out; encoding, engine and decoding put together."""

from __future__ import annotations

import copy
import datetime
import re
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jinja2
import torch

from pytest_llmeval._engine.choosing import choose_engine
from pytest_llmeval._engine.choosing import other_groupings
from pytest_llmeval._engine.devices import Usage
from pytest_llmeval._engine.devices import choose_device
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import peak_memory
from pytest_llmeval._engine.devices import share_processors
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import Engine
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import cut_at_stops
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.loading import Loader
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.token_cache import TokenCache


#: The window of a model whose config and tokenizer say nothing about one.
DEFAULT_MAX_LENGTH = 2048
#: Where configs of different model types keep their window, in the order they are asked.
LENGTH_NAMES = ("n_positions", "max_position_embeddings", "n_ctx")
#: Tokenizers without a limit report int(1e30).
NO_LIMIT = 10**12
#: The day of every chat template that prints one: the day which Llama 3's own template falls back to.
TODAY = datetime.datetime(2024, 7, 26)
_STRFTIME_NOW = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<format>.*?)(?P=quote)\s*\)""")
#: Tokens that are looked at beyond the length of a stop string: some write nothing, or part of a letter.
SPARE_TOKENS = 4


class HuggingFaceLM:
    """Serves one causal model. `load` is called for the weights when they are first needed, with the arguments.

    `on_progress` is called with (requests done, requests asked for) after every batch. `encodings` are those that
    several models of a session share.
    """

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
        self._options = args.engine_options
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
        self._commit: str = getattr(config, "_commit_hash", None) or ""
        self._weights: dict[str, Any] = {}
        self._usage = Usage()
        self._eos_text = self._encoder.decode(self._eos_ids, special_tokens=True)

    @cached_property
    def fingerprint(self) -> str | None:
        """What the answers depend on, as one hash; None for a model in memory, whose weights may change."""
        return None if self._identify is None else self._identify()

    @cached_property
    def _model(self) -> Any:
        return self._load(self._args)

    @cached_property
    def engine(self) -> Engine:
        model = self._model
        size = sum(parameter.numel() for parameter in model.parameters())
        self._weights = {"model_num_parameters": size, "model_dtype": str(model.dtype)}
        return choose_engine(model, self._options, self._eos_ids, remembers=self._identify is not None)

    def prepare(self) -> None:
        """Read the weights now. Raises ModelError if that fails."""
        _ = self.engine

    def close(self) -> None:
        """Give the memory back; another request would load the model again."""
        held = self.__dict__.keys() & {"engine", "_model"}
        for name in held:
            del self.__dict__[name]
        if held:
            free_memory()

    def usage(self) -> dict[str, int]:
        """`tokens` read since the model was first loaded, and `peak_memory` in bytes; nothing while it is not."""
        if "_model" not in self.__dict__:
            return {}
        return {"tokens": self._usage.tokens, "peak_memory": peak_memory(self._model.device)}

    def recomputed(self, dtype: str | None = None) -> Iterator[HuggingFaceLM]:
        """The same model in passes of other sizes, then loaded in another dtype, for as long as that one is used.

        Raises ModelError for the dtype that it has.
        """
        model = self._model
        for name, options in other_groupings(model, self._options):
            other = self._copy(name, self._args, model)
            other._options = options
            yield other
        if dtype is None:
            return
        if getattr(torch, dtype) == model.dtype:
            raise ModelError(f"--llmeval-noise: model {self.name!r} computes in {dtype} already: name another dtype")
        other = self._copy(dtype, replace(self._args, dtype=dtype), None)
        try:
            yield other
        finally:
            other.close()

    def _copy(self, name: str, args: ModelArgs, model: Any) -> HuggingFaceLM:
        """A copy with an engine of its own; it loads a model of its own unless it is given this one's."""
        other = copy.copy(self)
        for cached in ("engine", "_model"):
            other.__dict__.pop(cached, None)
        if model is not None:
            other.__dict__["_model"] = model
        other.name, other.on_progress, other._args, other._weights = name, None, args, {}
        return other

    def describe(self) -> dict[str, Any]:
        """What result files say of the model, in lm_eval's words: its weights, its tokenizer, its chat template."""
        self.prepare()
        tokenizer = self._tokenizer
        special = {
            f"tokenizer_{name}_token": [token, str(getattr(tokenizer, f"{name}_token_id"))]
            for name in ("pad", "eos", "bos")
            for token in [getattr(tokenizer, f"{name}_token")]
        }
        return {
            "model": {**self._weights, "model_revision": self._args.revision or "main", "model_sha": self._commit},
            "tokenizer": {**special, "eot_token_id": tokenizer.eos_token_id, "max_length": self.max_length},
            "chat_template": tokenizer.get_chat_template() if tokenizer.chat_template else None,
        }

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> list[Loglikelihood]:
        """Raises RequestError for a continuation without a token, or one that is longer than the window."""
        return self._score(self._encoder.pairs(requests))

    def loglikelihood_rolling(self, requests: Sequence[str]) -> list[float]:
        """An empty text has log-probability 0."""
        texts = self._encoder.rolling(requests)
        answers = iter(self._score([window for windows in texts for window in windows]))
        return [sum(next(answers).logprob for _ in windows) for windows in texts]

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[Generation]:
        """Raises RequestError for a request whose max_gen_toks leaves no room for its prompt."""
        prompts = self._encoder.prompts(requests)
        engine = self.engine
        with self._usage.counting(self._model):
            completions = engine.generate(prompts, self._is_stopped, self._report)
        return [self._text(prompt, done) for prompt, done in zip(prompts, completions, strict=True)]

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt that the model's own template makes of messages; templates that print a date print `TODAY`.

        Without the generation prompt the last message stays open, to be continued. Where a template refuses a
        system message it is left out, as lm_eval does, with a warning. Raises ModelError if there is no template.
        """
        if not self._tokenizer.chat_template:
            raise ModelError(f"model {self.name!r} has no chat template: run it without --llmeval-chat-template")
        others = [message for message in messages if message["role"] != "system"]
        try:
            return self._render(messages, add_generation_prompt)
        except (jinja2.TemplateError, ValueError) as error:
            refusal = error
        try:
            if others == list(messages):
                raise refusal
            prompt = self._render(others, add_generation_prompt)
        except (jinja2.TemplateError, ValueError):
            raise ModelError(f"the chat template of model {self.name!r} fails: {refusal}") from refusal
        warnings.warn(
            f"the chat template of model {self.name!r} takes no system message ({refusal}): it is left out",
            LLMEvalWarning,
            stacklevel=2,
        )
        return prompt

    def _score(self, requests: Sequence[TokenRequest]) -> list[Loglikelihood]:
        engine = self.engine
        with self._usage.counting(self._model):
            return engine.score(requests, self._report)

    def _render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=_on_that_day(self._tokenizer.get_chat_template()),
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                date_string=TODAY.strftime("%d %b %Y"),
            )
        )

    def _report(self, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(done, total)

    def _stops(self, kwargs: GenerationKwargs) -> list[str]:
        return [stop for stop in (*kwargs.until, self._eos_text) if stop]

    def _is_stopped(self, ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
        """Whether the text holds a stop string, wherever its tokens end; only new tokens can complete one."""
        stops = self._stops(kwargs)
        reach = max((len(stop.encode()) for stop in stops), default=0) + SPARE_TOKENS
        return _holds_any(self._encoder.decode(ids[-reach:], special_tokens=True), stops) and _holds_any(
            self._encoder.decode(ids, special_tokens=True), stops
        )

    def _text(self, prompt: GenerationRequest, done: Completion) -> Generation:
        text = self._encoder.decode(done.ids, special_tokens=False)
        written = cut_at_stops(text, self._stops(prompt.kwargs))
        reason = "stop" if done.finish_reason == "length" and written != text else done.finish_reason
        return Generation(written, reason, prompt.truncated)


def open_model(spec: HuggingFaceSpec, token_cache: TokenCache | None = None) -> HuggingFaceLM:
    """Return the model of a spec: config and tokenizer are read now, the weights later. Raises ModelError."""
    device = choose_device(spec.args.device)
    share_processors(device)
    loader = Loader(spec)
    config = loader.config()
    return HuggingFaceLM(
        config,
        loader.tokenizer(),
        lambda args: Loader(replace(spec, args=args)).model(config, device),
        spec.args,
        name=spec.source.name,
        identify=lambda: loader.fingerprint(config),
        token_cache=token_cache,
    )


def _on_that_day(template: str) -> str:
    """A chat template that asks for today's date, with `TODAY` in its place."""
    return _STRFTIME_NOW.sub(lambda found: repr(TODAY.strftime(found["format"])), template)


def window_of(config: Any, tokenizer: Any) -> int:
    """How many tokens a model reads at once, by its config (of its text part), else by its tokenizer."""
    text_config = getattr(config, "text_config", None) or config
    for name in LENGTH_NAMES:
        length = getattr(text_config, name, None)
        if length is not None:
            return int(length)
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if length is not None and length < NO_LIMIT else DEFAULT_MAX_LENGTH


def _holds_any(text: str, stops: Sequence[str]) -> bool:
    return any(stop in text for stop in stops)
