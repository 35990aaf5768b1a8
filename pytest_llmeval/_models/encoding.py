"""Encoding of texts as token ids, and decoding, for one tokenizer.

A continuation is encoded together with its context, and its ids are those after the ids of the context, as in the
training data. Encoded separately, ` yes` may begin with another token, and may have BOS before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import chain
from typing import Any
from typing import TypeAlias

from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine import RequestError
from pytest_llmeval._engine import TokenIds
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine import fit_prompt
from pytest_llmeval._engine import fit_request
from pytest_llmeval._engine import rolling_windows
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models.cuts import cuts_are_exact
from pytest_llmeval._models.cuts import last_cut
from pytest_llmeval._models.cuts import parts
from pytest_llmeval._models.token_cache import Pair
from pytest_llmeval._models.token_cache import TokenCache
from pytest_llmeval._models.token_cache import tokenizer_content


#: A tokenizer of transformers, without its types, so that the package can be checked without transformers.
Tokenizer: TypeAlias = Any

#: The attributes for the window in configs of different model types, in the order in which they are tried.
LENGTH_NAMES = ("n_positions", "max_position_embeddings", "n_ctx")
#: The window of a model if neither its config nor its tokenizer has a limit.
DEFAULT_MAX_LENGTH = 2048
#: Tokenizers without a limit report int(1e30).
NO_LIMIT = 10**12

#: The contexts that `_encode_apart` tries before a continuation.
ANCHORS = ("\n", ".", "a")


class TextEncoder:
    """Encodes requests for a window of `max_length` tokens.

    A text gets the special tokens that its tokenizer adds in front, unless it already begins with BOS (from a chat
    template). Special tokens at the end (EOS) are removed, because the text continues. `add_bos_token`: False omits
    those in front too, True adds BOS whatever the tokenizer does. `prefix_token_id`: the token before a text without
    context; None is BOS, else EOS. `cache` stores encoded pairs for encoders with equal tokenizers, windows and
    settings.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        cache: TokenCache | None = None,
    ) -> None:
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._add_bos_token = add_bos_token
        self._bos: int | None = tokenizer.bos_token_id
        self._named_prefix = prefix_token_id
        self._first_ids, self._last_ids = _special_ids(tokenizer)
        self._cuts_are_exact = cuts_are_exact(tokenizer)
        starts = {token for token in (self._bos, prefix_token_id) if token is not None}
        self._bos_texts = tuple(text for token in starts if (text := self.decode([token], special_tokens=True)))
        content = None if cache is None else tokenizer_content(tokenizer)
        self._cache = None if content is None else cache
        settings = f"{max_length} {add_bos_token} {prefix_token_id} {content}"
        self._identity = hashlib.sha256(settings.encode()).digest()

    @property
    def prefix_token_id(self) -> int:
        """The id before a text without context. Raises ModelError if none is given and there is no BOS or EOS."""
        for token in (self._named_prefix, self._bos, self._tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        raise ModelError(
            "the tokenizer has neither BOS nor EOS to put before a text without context: "
            "set a token with --llmeval-model-args prefix_token_id=N"
        )

    def pairs(self, requests: Sequence[Pair]) -> list[TokenRequest]:
        """Return the requests of (context, continuation) texts. Raises RequestError if one cannot be scored."""
        if self._cache is None:
            return self._encode_pairs(requests)
        return self._cache.pairs(self._identity, requests, self._encode_pairs)

    def rolling(self, texts: Sequence[str]) -> list[list[TokenRequest]]:
        """Return the windows of each whole text. The prefix token (BOS) is before the first and is not predicted."""
        named = self._named_prefix is not None or not self._first_ids
        prefix = (self.prefix_token_id,) if named else self._first_ids
        encoded = self._encode_bare(texts)
        return [list(rolling_windows(_without(encoded[text], prefix), prefix, self.max_length)) for text in texts]

    def prompts(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[GenerationRequest]:
        """Return the requests of prompts. Raises RequestError if max_gen_toks leaves no space for a prompt."""
        encoded = self._encode(text for text, _ in requests)
        return [
            fit_prompt(i, encoded[text] or (self.prefix_token_id,), kwargs, self.max_length)
            for i, (text, kwargs) in enumerate(requests)
        ]

    def decode(self, ids: Sequence[int], *, special_tokens: bool) -> str:
        """Return the text of tokens, with or without EOS and other special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=not special_tokens))

    def _encode_pairs(self, requests: Sequence[Pair]) -> list[TokenRequest]:
        moved = [move_blanks(context, continuation) for context, continuation in requests]
        places = {context: last_cut(context) if self._cuts_are_exact else 0 for context, _ in moved}
        # The ids of a context up to its last cut (head) do not depend on the rest (tail), which is encoded with `rest`.
        with_special: list[str] = []
        bare: list[str] = []
        for context, rest in moved:
            head, tail = context[: places[context]], context[places[context] :]
            if head:
                with_special.append(head)
            # A text after a head, or without context, gets no special tokens in front.
            texts = bare if head or not context else with_special
            texts += [tail, tail + rest] if tail else [rest]
        encoded, encoded_bare = self._encode(with_special), self._encode_bare(bare)
        answers = []
        for i, (context, rest) in enumerate(moved):
            head, tail = context[: places[context]], context[places[context] :]
            left, right = self._split(i, tail, rest, encoded_bare if head or not context else encoded)
            answers.append(fit_request(i, encoded[head] + left if head else left, right, self.max_length))
        return answers

    def _split(self, index: int, context: str, rest: str, encoded: Mapping[str, TokenIds]) -> tuple[TokenIds, TokenIds]:
        """Return the ids of a context and of its continuation, which together spell the concatenated text."""
        if context and encoded[context]:
            left, whole = encoded[context], encoded[context + rest]
            right = whole[len(left) :]
            if whole[: len(left)] != left and not self._spells(left + right, whole):
                right = self._encode_apart(rest, left, whole)
        else:
            prefix = (self.prefix_token_id,)
            left, right = prefix, _without(encoded[context + rest], prefix)
        if not right:
            raise RequestError(index, f"the continuation {rest!r} after {context[-60:]!r} has no token to score")
        return left, right

    def _encode_apart(self, rest: str, left: TokenIds, whole: TokenIds) -> TokenIds:
        """Return the ids of a continuation if a token of the whole text spans the end of the context.

        Some tokenizers mark the start of a text as the start of a word, which a continuation is not. So the
        continuation is also encoded after each of `ANCHORS`; the result is the first encoding whose ids, after those of
        the context, spell the whole text.
        """
        texts = [rest, *(text for anchor in ANCHORS for text in (anchor, anchor + rest))]
        encoded = self._encode_bare(texts)
        found = [encoded[rest]]
        for anchor in ANCHORS:
            start, joined = encoded[anchor], encoded[anchor + rest]
            found.append(joined[len(start) :] if joined[: len(start)] == start else ())
        return next((ids for ids in found if ids and self._spells(left + ids, whole)), found[0])

    def _spells(self, ids: TokenIds, whole: TokenIds) -> bool:
        """Return True if ids spell the same text as `whole`. Token strings are compared: decoding may remove blanks."""
        found, expected = (self._tokenizer.convert_ids_to_tokens(list(part)) for part in (ids, whole))
        return "".join(found) == "".join(expected)

    def _encode(self, texts: Iterable[str]) -> dict[str, TokenIds]:
        """Return the ids of each distinct text with its special tokens in front, each of them once."""
        distinct = dict.fromkeys(texts)
        bare = {text for text in distinct if self._add_bos_token is False or text.startswith(self._bos_texts)}
        others = [text for text in distinct if text not in bare]
        if self._cuts_are_exact:
            encoded = {text: self._first_ids + ids for text, ids in self._encode_bare(others).items()}
        else:
            encoded = self._tokenize(others, special_tokens=True)
        encoded = {text: self._trim(ids) for text, ids in encoded.items()} | self._encode_bare(bare)
        bos = self._bos
        if not self._add_bos_token or bos is None:
            return encoded
        return {text: ids if ids[:1] == (bos,) else (bos, *ids) for text, ids in encoded.items()}

    def _encode_bare(self, texts: Iterable[str]) -> dict[str, TokenIds]:
        """Return the ids of each distinct text without special tokens."""
        distinct = dict.fromkeys(texts)
        if not self._cuts_are_exact:
            return self._tokenize(list(distinct), special_tokens=False)
        parts_of = {text: parts(text) for text in distinct}
        encoded = self._tokenize(list(dict.fromkeys(chain.from_iterable(parts_of.values()))), special_tokens=False)
        return {text: tuple(chain.from_iterable(map(encoded.__getitem__, parts_of[text]))) for text in distinct}

    def _tokenize(self, texts: list[str], *, special_tokens: bool) -> dict[str, TokenIds]:
        """Return the ids of texts. The tokenizer is called once, so that a fast one can use its threads."""
        if not texts:
            return {}
        encoded = self._tokenizer(
            texts, add_special_tokens=special_tokens, padding=False, truncation=False, verbose=False
        )["input_ids"]
        return {text: tuple(ids) for text, ids in zip(texts, encoded, strict=True)}

    def _trim(self, ids: TokenIds) -> TokenIds:
        """Return ids without special tokens at the end, and without repetition of those in front."""
        if self._last_ids and ids[-len(self._last_ids) :] == self._last_ids:
            ids = ids[: -len(self._last_ids)]
        n = len(self._first_ids)
        return ids[n:] if n and ids[: 2 * n] == self._first_ids * 2 else ids


def window_of(config: Any, tokenizer: Tokenizer) -> int:
    """Return the window of a model in tokens, from its (text) config, else from its tokenizer."""
    text_config = getattr(config, "text_config", None) or config
    for name in LENGTH_NAMES:
        length = getattr(text_config, name, None)
        if length is not None:
            return int(length)
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if length is not None and length < NO_LIMIT else DEFAULT_MAX_LENGTH


def _special_ids(tokenizer: Tokenizer) -> tuple[TokenIds, TokenIds]:
    """Return the ids that a tokenizer adds before and after every text, found with the first word of its vocabulary."""
    if not tokenizer("", verbose=False)["input_ids"]:
        return (), ()
    special = set(tokenizer.all_special_ids)
    word = next(
        token for i in range(len(tokenizer)) if i not in special and (token := tokenizer.convert_ids_to_tokens(i))
    )
    bare = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
    whole = tokenizer(word, verbose=False)["input_ids"]
    at = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), len(whole))
    return tuple(whole[:at]), tuple(whole[at + len(bare) :])


def move_blanks(context: str, continuation: str) -> tuple[str, str]:
    """Return ``("A:", " yes")`` for ``("A: ", "yes")``, since tokens contain the blank before a word."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _without(ids: TokenIds, prefix: TokenIds) -> TokenIds:
    return ids[len(prefix) :] if ids[: len(prefix)] == prefix else ids
