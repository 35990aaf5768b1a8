"""A model behind a server as an `LM`, which combines its encoder, the best door of the server and its chat template."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from typing import Literal

from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.requests import samples
from pytest_llmeval._engine.requests import settings_key
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import cut_at_stops
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.arguments import ServerArgs
from pytest_llmeval._models.chat import describe_tokenizer
from pytest_llmeval._models.chat import render_chat
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.encoding import Tokenizer
from pytest_llmeval._models.encoding import move_blanks
from pytest_llmeval._models.encoding import window_of
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.specs import ServerSpec
from pytest_llmeval._models.token_cache import TokenCache
from pytest_llmeval._models.token_cache import tokenizer_content
from pytest_llmeval._servers import MOST_LABELS
from pytest_llmeval._servers import Ask
from pytest_llmeval._servers import Client
from pytest_llmeval._servers import Codec
from pytest_llmeval._servers import Findings
from pytest_llmeval._servers import Ledger
from pytest_llmeval._servers import Passage
from pytest_llmeval._servers import Served
from pytest_llmeval._servers import Wire
from pytest_llmeval._servers import Written
from pytest_llmeval._servers import ask_labels
from pytest_llmeval._servers import chat
from pytest_llmeval._servers import find_served
from pytest_llmeval._servers import probe
from pytest_llmeval._servers import write


#: The value of the model argument `tokenizer` for texts without one.
NO_TOKENIZER = "none"
#: A scored prompt has up to max_length + 1 tokens, and servers need space for one more, which is generated.
SPARE = 2


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """The calls that serve a model: `facts` for result files; `slower` is a line about the probe's findings."""

    facts: Mapping[str, Any]
    slower: str | None


class ServerLM:
    """A model behind a server.

    `connect` returns a client of the server. The server is examined when `prepare` or the first request comes; the
    facts of the model are known from then on. If a call fails, what was answered is kept, so that requests which are
    repeated cost nothing. `on_progress`, an attribute that callers may set, is called with (requests done, in all).
    """

    def __init__(
        self,
        spec: ServerSpec,
        connect: Callable[[], Client],
        load_tokenizer: Callable[[str], Tokenizer],
        token_cache: TokenCache | None = None,
    ) -> None:
        self.name = spec.model or spec.root
        self.on_progress: Callable[[int, int], None] | None = None
        self._spec = spec
        self._args: ServerArgs = spec.args
        self._connect = connect
        self._load_tokenizer = load_tokenizer
        self._token_cache = token_cache
        self._n_tokens = 0

    @cached_property
    def _client(self) -> Client:
        return self._connect()

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self._client)

    @cached_property
    def _served(self) -> Served:
        return self._client.run(find_served(self._client, self._spec.model))

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        named = self._args.tokenizer
        if named == NO_TOKENIZER or (named is None and self._args.chat):
            return None
        try:
            return self._load_tokenizer(named or self._served.root)
        except ModelError as error:
            if named is not None:
                raise
            raise ModelError(
                f"the tokenizer of {self._served.name!r} is needed to send token ids, and {self._served.root!r} names "
                "none that can be loaded: set model argument tokenizer= to a folder or hub id, or tokenizer=none to "
                f"send texts, or chat=true to send messages ({str(error).splitlines()[0]})"
            ) from None

    @property
    def max_length(self) -> int:
        if self._args.max_length is not None:
            return self._args.max_length
        window = self._served.window
        return max(1, (window_of(None, self._tokenizer) if window is None else window) - SPARE)

    @cached_property
    def _encoder(self) -> TextEncoder | None:
        if self._tokenizer is None:
            return None
        return TextEncoder(
            self._tokenizer,
            self.max_length,
            add_bos_token=self._args.add_bos_token,
            prefix_token_id=self._args.prefix_token_id,
            cache=self._token_cache,
        )

    @cached_property
    def _findings(self) -> Findings:
        served, encoder = self._served, self._encoder
        codec = None if encoder is None else _codec(encoder, self._tokenizer)
        only = None if self._args.door == "auto" else self._args.door
        examined = probe(self._client, served.name, served.owner, codec, tolerance=self._args.tolerance, only=only)
        return self._client.run(examined)

    @property
    def _chats(self) -> bool:
        return self._args.chat or not self._findings.completes

    @property
    def _wire(self) -> Wire:
        return self._findings.wire

    def prepare(self) -> None:
        """Examine the server now. Raises ModelError if it cannot be reached, or cannot be trusted."""
        try:
            _ = self._findings
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; a later request opens others and examines the server again."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()
        for name in ("_ledger", "_served", "_findings"):
            self.__dict__.pop(name, None)

    def usage(self) -> dict[str, int]:
        """Return the `tokens` sent so far, except those that the server says it read from a cache."""
        return {"tokens": self._n_tokens} if self._n_tokens else {}

    @property
    def fingerprint(self) -> str | None:
        """A hash of the server's facts and the model argument `revision`; None without that.

        A server does not show its weights: only the user knows if they are those of another run.
        """
        if self._args.revision is None:
            return None
        content = None if self._tokenizer is None else tokenizer_content(self._tokenizer)
        parts = [self._args.revision, self._served.name, self.max_length, self._chats, content]
        parts += [self._args.add_bos_token, self._args.prefix_token_id]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def engine_choice(self) -> ServerChoice:
        """The calls that the probe chose, and the reasons against others."""
        found = self._findings
        scoring = "+".join(name for name in (found.name, "labels" if found.labels else "") if name)
        generation = "chat" if self._chats else "completions"
        facts = {"scoring": scoring, "generation": generation, "refused": dict(found.refused)}
        lines = [*found.notes]
        if not scoring:
            lines.append(f"no log-probabilities: {_reasons(found)}")
        if found.wire.owner == "vllm" and found.name and not found.wire.reads_cache:
            lines.append(
                "prompts are scored without the prefix cache (vllm serve --enable-scale-out "
                "--enable-prompt-tokens-details reads it)"
            )
        return ServerChoice({name: value for name, value in facts.items() if value}, "; ".join(lines) or None)

    def describe(self) -> dict[str, Any]:
        """Return the facts of the model for result files, under lm_eval's names."""
        served, choice = self._served, self.engine_choice
        facts: dict[str, Any] = {
            "model": {
                "model_revision": self._args.revision,
                "served_model": served.name,
                "served_by": served.owner,
                "server": self._spec.root,
                "engine": choice.facts,
            }
        }
        return facts if self._tokenizer is None else facts | describe_tokenizer(self._tokenizer, self.max_length)

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> list[Loglikelihood]:
        """Return an answer for each (context, continuation). Raises ModelError if the server gives none."""
        self.prepare()
        if self._encoder is not None:
            return self._score(self._encoder.pairs(requests))
        moved = [move_blanks(context, rest) for context, rest in requests]
        passages = [Passage(text=context + rest, cut=len(context)) for context, rest in moved]
        if any(not passage.cut for passage in passages):
            raise ModelError(
                "a text without context can be scored only with a tokenizer: set model argument tokenizer="
            )
        return self._ledger.answers(
            passages, self._report, lambda new: [self._ask_row(passage, passage) for passage in new]
        )

    def loglikelihood_rolling(self, requests: Sequence[str]) -> list[float]:
        """Return the log-probability of each text, which is 0 for an empty text."""
        self.prepare()
        if self._encoder is None:
            raise ModelError("a whole text can be scored only with a tokenizer: set model argument tokenizer=")
        texts = self._encoder.rolling(requests)
        answers = iter(self._score([window for windows in texts for window in windows]))
        return [sum(next(answers).logprob for _ in windows) for windows in texts]

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[Generation]:
        """Return the generated texts. Raises RequestError if max_gen_toks leaves no space for a prompt."""
        self.prepare()
        if self._chats or self._encoder is None:
            texts = {_draw_key(text, kwargs): (text, kwargs) for text, kwargs in requests}
            keys = [_draw_key(text, kwargs) for text, kwargs in requests]
            return self._ledger.answers(
                keys, self._report, lambda new: [self._ask_text(key, *texts[key]) for key in new]
            )
        prompts = self._encoder.prompts(requests)
        keys = [_draw_key(prompt.ids, prompt.kwargs) for prompt in prompts]
        first = dict(zip(keys, prompts, strict=True))
        return self._ledger.answers(
            keys, self._report, lambda new: [self._ask_prompt(key, first[key]) for key in sorted(new)]
        )

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the prompt of messages by the named tokenizer's template, as `render_chat` does.

        For /v1/chat/completions, whose server has the template, it is the messages as JSON.
        """
        if not self._chats and self._tokenizer is not None:
            return render_chat(self._tokenizer, self.name, messages, add_generation_prompt)
        if not add_generation_prompt:
            raise ModelError(
                f"model {self.name!r}: a server with its own chat template cannot continue an answer that was begun: "
                "set model argument tokenizer=, without chat"
            )
        return json.dumps([dict(message) for message in messages], ensure_ascii=False)

    def _score(self, requests: Sequence[TokenRequest]) -> list[Loglikelihood]:
        scores = self._ledger.answers(
            [(one.context_ids, one.continuation_ids) for one in requests], self._report, self._plan
        )
        return [
            Loglikelihood(logprob, is_greedy, request.truncated)
            for (logprob, is_greedy), request in zip(scores, requests, strict=True)
        ]

    def _plan(self, keys: Sequence[Any]) -> list[Ask]:
        """Return the exchanges that score (context, continuation) ids: one for all choices of one token.

        Sorted by ids, so that prompts with a common beginning follow each other, while the server remembers it.
        """
        found, asks = self._findings, []
        by_context: dict[Any, list[Any]] = {}
        for key in sorted(keys):
            by_context.setdefault(key[0], []).append(key)
        for context, group in by_context.items():
            single = [key for key in group if len(key[1]) == 1] if found.labels else []
            asks += [self._ask_labels(context, single[i : i + MOST_LABELS]) for i in range(0, len(single), MOST_LABELS)]
            labelled = set(single)
            asks += [
                self._ask_row(key, self._wire.passage(context + key[1], len(context)))
                for key in group
                if key not in labelled
            ]
        return asks

    def _ask_row(self, key: Hashable, passage: Passage) -> Ask:
        door, shift, wire = self._findings.door, self._findings.shift, self._wire
        if door is None:
            raise ModelError(
                f"the server at {self._spec.root} gives no log-probabilities of prompts that can be used: "
                f"{_reasons(self._findings)}"
            )

        async def send() -> Sequence[Any]:
            reading = await door(wire, passage, False)
            if passage.ids and reading.n_prompt not in (None, len(passage.ids)):
                raise ModelError(
                    f"the server reads {reading.n_prompt} tokens in {passage.text[-80:]!r}, the named tokenizer finds "
                    f"{len(passage.ids)}: its tokens cannot be scored"
                )
            self._n_tokens += (reading.n_prompt or len(passage.ids)) - (reading.n_cached or 0)
            return [reading.score(shift)]

        return Ask([key], send)

    def _ask_labels(self, context: Any, keys: Sequence[Any]) -> Ask:
        labels = [key[1][0] for key in keys]

        async def send() -> Sequence[Any]:
            answers = await ask_labels(self._wire, context, labels, False)
            self._n_tokens += len(context)
            return [answers[label] for label in labels]

        return Ask(keys, send)

    def _ask_prompt(self, key: Hashable, prompt: GenerationRequest) -> Ask:
        wire = self._wire
        passage = wire.passage(prompt.ids, len(prompt.ids))

        async def send() -> Sequence[Any]:
            written = await write(wire, passage, prompt.kwargs)
            self._n_tokens += len(prompt.ids)
            return [self._generation(written, prompt.kwargs, truncated=prompt.truncated)]

        return Ask([key], send)

    def _ask_text(self, key: Hashable, text: str, kwargs: GenerationKwargs) -> Ask:
        async def send() -> Sequence[Any]:
            if self._chats:
                return [self._generation(await chat(self._wire, _messages(text), kwargs), kwargs)]
            return [self._generation(await write(self._wire, Passage(text=text, cut=len(text)), kwargs), kwargs)]

        return Ask([key], send)

    def _report(self, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(done, total)

    def _generation(self, written: Written, kwargs: GenerationKwargs, *, truncated: bool = False) -> Generation:
        text, stops = written.text, list(kwargs.until)
        if self._encoder is not None and not self._chats:
            if written.ids is not None:
                text = self._encoder.decode(written.ids, special_tokens=False)
            eos = self._tokenizer.eos_token if self._tokenizer is not None else None
            stops += [eos] if eos else []
        cut = cut_at_stops(text, stops)
        reason = "stop" if written.finish_reason == "length" and cut != text else written.finish_reason
        return Generation(cut, reason, truncated)


def open_server(spec: ServerSpec, token_cache: TokenCache | None = None) -> ServerLM:
    """Return the model of a spec; the server is asked later. Raises SettingError for a key that cannot be sent."""
    key = os.environ.get(spec.args.api_key_env, "").strip() or None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise SettingError(f"environment variable {spec.args.api_key_env}: the key has characters that cannot be sent")

    def load_tokenizer(place: str) -> Tokenizer:
        # Imported here because it imports torch.
        from pytest_llmeval._models.loading import Loader

        kind: Literal["gguf", "folder", "hub"]
        kind = "gguf" if place.endswith(".gguf") else "folder" if Path(place).is_dir() else "hub"
        args = ModelArgs(trust_remote_code=spec.args.trust_remote_code, add_bos_token=spec.args.add_bos_token)
        return Loader(HuggingFaceSpec(kind, place, args)).tokenizer()

    return ServerLM(spec, lambda: Client(spec.root, key=key, patience=spec.args.patience), load_tokenizer, token_cache)


def _codec(encoder: TextEncoder, tokenizer: Any) -> Codec:
    kwargs = GenerationKwargs(max_gen_toks=1)
    return Codec(
        encode=lambda text: encoder.prompts([(text, kwargs)])[0].ids,
        encode_bare=lambda text: tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]),
        decode=lambda ids: encoder.decode(ids, special_tokens=True),
        size=len(tokenizer),
    )


def _reasons(found: Findings) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in found.refused.items())


def _draw_key(prompt: Any, kwargs: GenerationKwargs) -> tuple[Any, ...]:
    """Return a key that is equal for requests with equal texts: seed and repeat count only where tokens are sampled."""
    return (prompt, settings_key(kwargs), (kwargs.seed, kwargs.repeat) if samples(kwargs) else ())


def _messages(text: str) -> list[dict[str, str]]:
    """Return the messages of `apply_chat_template`, or one message of a text without a template."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, list) and found and all(isinstance(one, dict) and "role" in one for one in found):
        return found
    return [{"role": "user", "content": text}]
