"""Texts to token ids and back, as running text is encoded: the one place that knows the tokenizer.

A continuation is what is left of the encoded joined text after the encoded context, because that is how the
model has seen such texts: encoded by itself ` yes` may begin with a stray token, and BOS may get in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import chain
from typing import Any
from typing import TypeAlias

from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.windows import fit_prompt
from pytest_llmeval._engine.windows import fit_request
from pytest_llmeval._engine.windows import rolling_windows
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import sharing as segments


#: A tokenizer of transformers. The package works without its types.
Tokenizer: TypeAlias = Any

#: Texts that a continuation is encoded after, to see how it goes on without a context of its own.
ANCHORS = ("\n", ".", "a")


class TextEncoder:
    """Encodes requests for a window of `max_length` tokens.

    A text gets the special tokens that its tokenizer puts in front, unless it begins with BOS already (a chat
    template wrote it); what a tokenizer puts behind a text (EOS) is left out, for a prompt goes on.
    `add_bos_token` False leaves the former out too, True puts BOS there whatever the tokenizer does.
    `prefix_token_id` stands before a text without context; by default BOS, else EOS.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
    ) -> None:
        self.max_length = max_length
        self._tokenizer = tokenizer
        self._add_bos_token = add_bos_token
        self._bos: int | None = tokenizer.bos_token_id
        self._named_prefix = prefix_token_id
        self._before, self._behind = _special_ids(tokenizer)
        self._cuts_are_exact = segments.cuts_are_exact(tokenizer)
        starts = {token for token in (self._bos, prefix_token_id) if token is not None}
        self._bos_texts = tuple(text for token in starts if (text := self.decode([token], special_tokens=True)))

    @property
    def prefix_token_id(self) -> int:
        """Raises ModelError if the tokenizer has neither BOS nor EOS and none was named."""
        for token in (self._named_prefix, self._bos, self._tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        raise ModelError(
            "the tokenizer has neither BOS nor EOS to stand before a text without context: "
            "name one with --llmeval-model-args prefix_token_id=N"
        )

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[TokenRequest]:
        """(context, continuation) texts as requests. Raises RequestError for one that cannot be scored."""
        moved = [_move_blanks(context, continuation) for context, continuation in requests]
        cut = {context: self._cut(context) for context, _ in moved}
        heads = self._encode(head for head, _ in cut.values() if head)
        whole = self._encode(
            t for context, rest in moved if context and not cut[context][0] for t in (context, context + rest)
        )
        # What follows a head, or stands alone, gets no special tokens in front.
        behind = self._encode_bare(
            text
            for context, rest in moved
            if cut[context][0] or not context
            for tail in [cut[context][1]]
            for text in ((tail, tail + rest) if tail else (rest,))
        )
        answers = []
        for i, (context, rest) in enumerate(moved):
            head, tail = cut[context]
            left, right = self._split(i, tail, rest, behind if head or not context else whole)
            answers.append(fit_request(i, heads[head] + left if head else left, right, self.max_length))
        return answers

    def rolling(self, texts: Sequence[str]) -> list[list[TokenRequest]]:
        """The windows of each whole text. BOS is what the first token is predicted from, never predicted."""
        prefix = (self.prefix_token_id,) if self._named_prefix is not None or not self._before else self._before
        encoded = self._encode_bare(texts)
        return [list(rolling_windows(_without(encoded[text], prefix), prefix, self.max_length)) for text in texts]

    def prompts(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[GenerationRequest]:
        """Prompts to be continued. Raises RequestError for one that leaves no room."""
        encoded = self._encode(text for text, _ in requests)
        return [
            fit_prompt(i, encoded[text] or (self.prefix_token_id,), kwargs, self.max_length)
            for i, (text, kwargs) in enumerate(requests)
        ]

    def decode(self, ids: Sequence[int], *, special_tokens: bool) -> str:
        """The text of some tokens; `special_tokens` says whether EOS and its like are written out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=not special_tokens))

    def _cut(self, context: str) -> tuple[str, str]:
        """A context in two, so that the first part is encoded alike whatever follows the second; it may be empty."""
        place = segments.last_cut(context) if self._cuts_are_exact else 0
        return context[:place], context[place:]

    def _split(self, index: int, context: str, rest: str, encoded: Mapping[str, TokenIds]) -> tuple[TokenIds, TokenIds]:
        """The ids of a context, and those of its continuation: together they spell the joined text."""
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
        """A continuation by itself, where a token of the joined text reaches over the border.

        Some tokenizers mark the start of a text as the start of a word, which a continuation is not. So it is
        also encoded behind other text; the first ids count that spell the joined text after those of the context.
        """
        texts = [rest, *(text for anchor in ANCHORS for text in (anchor, anchor + rest))]
        encoded = self._encode_bare(texts)
        found = [encoded[rest], *(_after(encoded[anchor], encoded[anchor + rest]) for anchor in ANCHORS)]
        return next((ids for ids in found if ids and self._spells(left + ids, whole)), found[0])

    def _spells(self, ids: TokenIds, whole: TokenIds) -> bool:
        """Whether ids are the same letters as `whole`, by the pieces themselves: decoding may tidy up blanks."""
        found, expected = (self._tokenizer.convert_ids_to_tokens(list(part)) for part in (ids, whole))
        return "".join(found) == "".join(expected)

    def _encode(self, texts: Iterable[str]) -> dict[str, TokenIds]:
        """Each distinct text with the special tokens in front that it should have, once."""
        distinct = dict.fromkeys(texts)
        bare = {text for text in distinct if self._add_bos_token is False or text.startswith(self._bos_texts)}
        encoded = self._encode_dressed([text for text in distinct if text not in bare])
        encoded |= self._encode_bare(bare)
        bos = self._bos
        if not self._add_bos_token or bos is None:
            return encoded
        return {text: ids if ids[:1] == (bos,) else (bos, *ids) for text, ids in encoded.items()}

    def _encode_dressed(self, texts: list[str]) -> dict[str, TokenIds]:
        if self._cuts_are_exact:
            encoded = {text: self._before + ids for text, ids in self._encode_bare(texts).items()}
        else:
            encoded = self._call(texts, special_tokens=True)
        return {text: self._undress(ids) for text, ids in encoded.items()}

    def _encode_bare(self, texts: Iterable[str]) -> dict[str, TokenIds]:
        distinct = dict.fromkeys(texts)
        if not self._cuts_are_exact:
            return self._call(list(distinct), special_tokens=False)
        parts = {text: segments.parts(text) for text in distinct}
        encoded = self._call(list(dict.fromkeys(chain.from_iterable(parts.values()))), special_tokens=False)
        return {text: tuple(chain.from_iterable(map(encoded.__getitem__, parts[text]))) for text in distinct}

    def _call(self, texts: list[str], *, special_tokens: bool) -> dict[str, TokenIds]:
        """One call for all texts: a fast tokenizer spreads them over its own threads."""
        if not texts:
            return {}
        encoded = self._tokenizer(
            texts, add_special_tokens=special_tokens, padding=False, truncation=False, verbose=False
        )["input_ids"]
        return {text: tuple(ids) for text, ids in zip(texts, encoded, strict=True)}

    def _undress(self, ids: TokenIds) -> TokenIds:
        """Without what stands behind, and with what stands in front only once."""
        if self._behind and ids[-len(self._behind) :] == self._behind:
            ids = ids[: -len(self._behind)]
        n = len(self._before)
        return ids[n:] if n and ids[: 2 * n] == self._before * 2 else ids


def _special_ids(tokenizer: Tokenizer) -> tuple[TokenIds, TokenIds]:
    """What a tokenizer puts before and behind every text, seen on the first word of its vocabulary."""
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


def _move_blanks(context: str, continuation: str) -> tuple[str, str]:
    """``("A: ", "yes")`` is scored as ``("A:", " yes")``: models write a blank as part of the word behind it."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _without(ids: TokenIds, prefix: TokenIds) -> TokenIds:
    return ids[len(prefix) :] if ids[: len(prefix)] == prefix else ids


def _after(start: TokenIds, whole: TokenIds) -> TokenIds:
    """The rest of `whole` behind `start`, nothing if it does not begin so."""
    return whole[len(start) :] if whole[: len(start)] == start else ()
