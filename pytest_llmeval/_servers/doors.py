"""Doors: the calls of different servers that return the log-probability of each token of a prompt.

A door is one function from a passage to the rows that a server reports. All are asked with token ids where the server
takes them, so that its tokens are those of our own encoder.

generate         SGLang's /generate, which computes only the rows from `logprob_start_len` on and reads its cache
tokens           vLLM's /inference/v1/generate (`vllm serve --enable-scale-out`), which can read its prefix cache
prompt_logprobs  vLLM's field of /v1/completions
echo             /v1/completions as OpenAI defined it: the prompt is repeated with the log-probabilities of its tokens
forced           /v1/completions, one request per token, which `logit_bias` forces; for servers whose echo is wrong
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from itertools import accumulate
from types import MappingProxyType
from typing import Any
from typing import TypeAlias

from pytest_llmeval._engine import TokenIds
from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers.client import AbsentError
from pytest_llmeval._servers.client import Client
from pytest_llmeval._servers.client import UnfitError


COMPLETIONS = "/v1/completions"
#: The form of tokens with `return_tokens_as_token_ids`.
ID_PREFIX = "token_id:"
#: The most tokens that vLLM accepts as `logprob_token_ids`.
MOST_LABELS = 128
#: The largest `logit_bias`, which decides over all other tokens.
FORCE = 100
#: The largest difference between a token's log-probability and the best one if they are the same token.
SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Passage:
    """A prompt whose end is to be scored: as `ids` from index `start` on, and as `text` from character `cut` on.

    Without a tokenizer there are no ids. The text is used only where the server takes no ids.
    """

    ids: TokenIds = ()
    start: int = 0
    text: str = ""
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """A served model and the facts that its requests depend on.

    `owner`: the ``owned_by`` of its entry in /v1/models. `takes_ids`: prompts may be token ids. `reads_cache`: the door
    `tokens` may read the prefix cache, because the server reports how much it read. `decode` returns the text of ids,
    None without a tokenizer. `n_added`: the number of ids that the server itself puts before a text.
    """

    client: Client
    model: str
    owner: str = ""
    takes_ids: bool = True
    reads_cache: bool = False
    decode: Callable[[Sequence[int]], str] | None = None
    n_added: int = 0

    def passage(self, ids: TokenIds, start: int) -> Passage:
        """Return the passage of token ids that is scored from `start` on.

        Raises ModelError if the server takes only texts and the border is inside a character.
        """
        if self.takes_ids or self.decode is None:
            return Passage(ids, start)
        text, context = self.decode(ids[self.n_added :]), self.decode(ids[self.n_added : start])
        if not text.startswith(context):
            raise ModelError(
                f"the text after {context[-60:]!r} begins inside a character: the server takes no token ids"
            )
        return Passage(ids, start, text, len(context))

    @property
    def shows_ids(self) -> bool:
        """True if the server is to name tokens by their ids, which vLLM does where it is asked to."""
        return self.owner == "vllm" and self.decode is not None


@dataclass(frozen=True, slots=True)
class Row:
    """The report of a server on one token: its log-probability, None if missing, given the tokens before it.

    `token`: its text, or ``token_id:N``. `is_best`: no other token is likelier. `top`: the likeliest tokens, as far as
    reported.
    """

    token: str
    logprob: float | None
    is_best: bool = False
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a prompt; those at `scored` are of the tokens to score.

    `n_prompt` and `n_cached`: the number of tokens of the prompt, and of those read from a cache, as the server counts
    them; None if it does not.
    """

    rows: tuple[Row, ...]
    scored: range
    n_prompt: int | None = None
    n_cached: int | None = None

    def score(self, shift: int = 0) -> tuple[float, bool]:
        """Return the log-probability of the scored tokens and True if each is the likeliest one.

        `shift`: the distance from a token to the row that holds its value. Raises UnfitError if a value is missing.
        """
        found = [self.rows[i + shift] for i in self.scored if 0 <= i + shift < len(self.rows)]
        values = [row.logprob for row in found if row.logprob is not None and math.isfinite(row.logprob)]
        if len(values) < len(self.scored):
            raise UnfitError(f"{len(self.scored) - len(values)} of {len(self.scored)} log-probabilities are missing")
        return math.fsum(values), all(row.is_best for row in found)


#: Returns the rows of a passage; the last argument is that of `Client.post`.
Door: TypeAlias = Callable[[Wire, Passage, bool], Awaitable[Reading]]


async def ask_generate(wire: Wire, passage: Passage, trial: bool) -> Reading:
    body = {
        "input_ids": passage.ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": passage.start - 1,
        "top_logprobs_num": 1,
    }

    def read(data: Any) -> Reading:
        meta = item(data, "meta_info")
        entries, best = item(meta, "input_token_logprobs"), item(meta, "input_top_logprobs")
        n_scored = len(passage.ids) - passage.start
        if len(entries) not in (n_scored, n_scored + 1):
            raise UnfitError(f"{len(entries)} rows for {n_scored} tokens and the one before")
        rows = tuple(
            Row(f"{ID_PREFIX}{entry[1]}", entry[0], bool(top) and entry[0] is not None and entry[0] >= top[0][0] - SAME)
            for entry, top in zip(entries, best, strict=True)
        )
        scored = range(len(rows) - n_scored, len(rows))
        _check_ids(rows[scored.start :], passage.ids[passage.start :])
        return Reading(rows, scored, meta.get("prompt_tokens"), meta.get("cached_tokens"))

    return await wire.client.post("/generate", body, read, trial=trial)


async def ask_tokens(wire: Wire, passage: Passage, trial: bool) -> Reading:
    async def ask(skip: bool) -> Reading:
        settings = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0, "skip_reading_prefix_cache": skip}
        body = {"model": wire.model, "token_ids": passage.ids, "sampling_params": settings}

        def read(data: Any) -> Reading:
            return _prompt_rows(data, item(data, "prompt_logprobs"), passage)

        return await wire.client.post("/inference/v1/generate", body, read, trial=trial)

    if wire.reads_cache:
        reading = await ask(skip=False)
        # Rows of tokens that were read from the cache are missing or wrong.
        if (reading.n_cached or 0) < passage.start:
            return reading
    return await ask(skip=True)


async def ask_prompt_logprobs(wire: Wire, passage: Passage, trial: bool) -> Reading:
    body = {"model": wire.model, "prompt": passage.ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}

    def read(data: Any) -> Reading:
        return _prompt_rows(data, item(_choice(data), "prompt_logprobs"), passage)

    return await wire.client.post(COMPLETIONS, body, read, trial=trial)


async def ask_echo(wire: Wire, passage: Passage, trial: bool) -> Reading:
    prompt = passage.ids if wire.takes_ids else passage.text
    # One new token, because some servers generate without end where none is asked for; its row is the last.
    body = {"model": wire.model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    if wire.shows_ids:
        body["return_tokens_as_token_ids"] = True

    def read(data: Any) -> Reading:
        rows, offsets = completion_rows(data)
        n_prompt = _usage(data).get("prompt_tokens")
        if not wire.takes_ids:
            # The server may show tokens that it put before the text.
            before = max(0, "".join(row.token for row in rows).find(passage.text))
            starts = offsets if before == 0 else _starts(rows)
            ends = [start + len(row.token) for row, start in zip(rows, starts, strict=True)]
            first = next((i for i, end in enumerate(ends) if end > before + passage.cut), len(rows))
            last = next((i for i, start in enumerate(starts) if start >= before + len(passage.text)), len(rows))
            if first >= last:
                raise AbsentError("the prompt is not repeated with its log-probabilities")
            return Reading(rows, range(first, last), n_prompt)
        if len(rows) < len(passage.ids):
            raise AbsentError(f"{len(rows)} of {len(passage.ids)} tokens of the prompt are repeated")
        if len(rows) > len(passage.ids) + 1:
            raise UnfitError(f"{len(rows)} tokens where a prompt of {len(passage.ids)} and one new token are expected")
        scored = range(passage.start, len(passage.ids))
        _check_ids([rows[i] for i in scored], passage.ids[passage.start :])
        return Reading(rows, scored, n_prompt)

    return await wire.client.post(COMPLETIONS, body, read, trial=trial)


async def ask_forced(wire: Wire, passage: Passage, trial: bool) -> Reading:
    rows: list[Row] = []
    for at in range(passage.start, len(passage.ids)):
        rows.append(await _force(wire, passage.ids[:at], passage.ids[at], trial))
    return Reading(tuple(rows), range(len(rows)))


async def ask_labels(wire: Wire, ids: TokenIds, labels: Sequence[int], trial: bool) -> dict[int, tuple[float, bool]]:
    """Return the log-probability of each of some tokens after a prompt, and True if it is the likeliest token.

    One request of vLLM, which reads the prefix cache.
    """
    body = {
        "model": wire.model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 1,
        "logprob_token_ids": labels,
        "return_tokens_as_token_ids": True,
    }

    def read(data: Any) -> dict[int, tuple[float, bool]]:
        rows, _ = completion_rows(data)
        written, top = rows[0].token, rows[0].top
        if absent := [label for label in labels if f"{ID_PREFIX}{label}" not in top]:
            raise AbsentError(f"the answer has no value for {len(absent)} of {len(labels)} tokens")
        # The token that greedy decoding writes is the likeliest.
        return {
            label: (float(top[name]), name == written or top[name] >= top[written] - SAME)
            for label in labels
            for name in [f"{ID_PREFIX}{label}"]
        }

    return await wire.client.post(COMPLETIONS, body, read, trial=trial)


#: The doors for token ids and those for texts, the best first.
ID_DOORS: Mapping[str, Door] = MappingProxyType(
    {
        "generate": ask_generate,
        "tokens": ask_tokens,
        "prompt_logprobs": ask_prompt_logprobs,
        "echo": ask_echo,
        "forced": ask_forced,
    }
)
TEXT_DOORS: Mapping[str, Door] = MappingProxyType({"echo": ask_echo, "forced": ask_forced})


async def next_tokens(wire: Wire, passage: Passage, n_top: int, *, trial: bool) -> Reading:
    """Return one row: the token that greedy decoding writes after a passage, with the `n_top` likeliest tokens."""
    body: dict[str, Any] = {
        "model": wire.model,
        "prompt": passage.ids if wire.takes_ids else passage.text,
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": n_top,
    }
    if wire.shows_ids:
        body["return_tokens_as_token_ids"] = True

    def read(data: Any) -> Reading:
        rows, _ = completion_rows(data)
        return Reading(rows[:1], range(1), _usage(data).get("prompt_tokens"))

    return await wire.client.post(COMPLETIONS, body, read, trial=trial)


async def _force(wire: Wire, ids: TokenIds, token: int, trial: bool) -> Row:
    decode = wire.decode
    if decode is None:
        raise ModelError("a token can only be forced if the tokenizer is known: name it as model argument tokenizer=")
    body = {
        "model": wire.model,
        "prompt": ids if wire.takes_ids else wire.passage(ids, len(ids)).text,
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": 1,
        "logit_bias": {str(token): FORCE},
    }
    if wire.shows_ids:
        body["return_tokens_as_token_ids"] = True

    def read(data: Any) -> Row:
        row = completion_rows(data)[0][0]
        if row.token not in (f"{ID_PREFIX}{token}", decode([token])):
            raise UnfitError(f"the server wrote {row.token!r} where the token {decode([token])!r} was forced")
        return row

    return await wire.client.post(COMPLETIONS, body, read, trial=trial)


def completion_rows(data: Any) -> tuple[tuple[Row, ...], list[int]]:
    """Return the rows of an answer of /v1/completions, and the offset of each token in the text. Raises UnfitError."""
    logprobs = item(_choice(data), "logprobs")
    tokens, values = item(logprobs, "tokens"), item(logprobs, "token_logprobs")
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not tokens or not len(tokens) == len(values) == len(tops):
        raise UnfitError(f"{len(tokens)} tokens, {len(values)} log-probabilities, {len(tops)} sets of likeliest tokens")
    offsets = logprobs.get("text_offset")
    rows = tuple(
        Row(str(token), value, _is_best(value, top), top or {})
        for token, value, top in zip(tokens, values, tops, strict=True)
    )
    if not offsets or len(offsets) != len(tokens):
        return rows, _starts(rows)
    return rows, [int(offset) for offset in offsets]


def _starts(rows: Sequence[Row]) -> list[int]:
    """Return the place of each token in the text of all of them."""
    return list(accumulate((len(row.token) for row in rows[:-1]), initial=0))


def item(data: Any, name: str) -> Any:
    """Return a field of an answer. Raises AbsentError if it is missing or null."""
    value = data.get(name) if isinstance(data, Mapping) else None
    if value is None:
        raise AbsentError(f"the answer has no {name}")
    return value


def _choice(data: Any) -> Any:
    return item(data, "choices")[0]


def _usage(data: Any) -> Mapping[str, Any]:
    usage = data.get("usage")
    return usage if isinstance(usage, Mapping) else {}


def _prompt_rows(data: Any, found: Sequence[Any], passage: Passage) -> Reading:
    """Return the rows of vLLM's `prompt_logprobs`: per token a mapping of ids to log-probability and rank.

    They are counted from the end, since rows of cached tokens may be missing.
    """
    usage = _usage(data)
    n_scored = len(passage.ids) - passage.start
    if not n_scored <= len(found) <= len(passage.ids):
        raise UnfitError(f"{len(found)} rows for {len(passage.ids)} tokens, of which {n_scored} are scored")
    rows = []
    for i, (token, ranked) in enumerate(zip(passage.ids[len(passage.ids) - len(found) :], found, strict=True)):
        if ranked and str(token) not in ranked:
            if i >= len(found) - n_scored:
                raise UnfitError(f"token ids {', '.join(sorted(ranked))} where {token} was sent")
            ranked = None
        entry = ranked[str(token)] if ranked else {"logprob": None}
        top = {f"{ID_PREFIX}{other}": value["logprob"] for other, value in (ranked or {}).items()}
        best = entry["rank"] == 1 if "rank" in entry else _is_best(entry["logprob"], top)
        rows.append(Row(f"{ID_PREFIX}{token}", entry["logprob"], best, top))
    details = usage.get("prompt_tokens_details")
    n_cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Reading(tuple(rows), range(len(rows) - n_scored, len(rows)), usage.get("prompt_tokens"), n_cached)


def _check_ids(rows: Sequence[Row], ids: TokenIds) -> None:
    """Raise UnfitError if rows that name their ids have others."""
    for row, token in zip(rows, ids, strict=True):
        name = f"{ID_PREFIX}{token}"
        if row.token.startswith(ID_PREFIX) and row.token != name:
            raise UnfitError(f"token ids {row.token.removeprefix(ID_PREFIX)} where {token} was sent")


def _is_best(value: float | None, top: Mapping[str, float] | None) -> bool:
    return value is not None and top is not None and len(top) > 0 and value >= max(top.values()) - SAME
