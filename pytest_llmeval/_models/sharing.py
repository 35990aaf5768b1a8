"""Token ids worked out once for all checkpoints of a session whose tokenizers are equal.

A doc of MMLU with five shots takes 3 ms (anatomy) to 16 ms (professional law) to encode on one processor, of which the
second checkpoint needs 0.1 (`perf/sharing.py`): a GPU would wait for the tokenizer. Generation and rolling
log-likelihoods encode little for what they compute, and do without.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import TypeAlias

from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._kept import Kept
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.encoding import Tokenizer


#: Token ids that are kept, 4 bytes each (256 MB): those of all of MMLU with five shots take a sixth of it.
ROOM = 1 << 26
#: What a tokenizer was told that says only where it lies.
PLACES = frozenset({"name_or_path", "vocab_file", "merges_file", "tokenizer_file", "special_tokens_map_file"})

#: Context, continuation, and whether the context was cut.
_Packed: TypeAlias = tuple["array[int]", "array[int]", bool]


class Encodings:
    """Makes the encoders of a session; equal ones share what they have encoded."""

    def __init__(self, room: int = ROOM) -> None:
        self._kept: Kept[bytes, _Packed] = Kept(room)

    def encoder(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
    ) -> TextEncoder:
        """As `TextEncoder`; one that shares nothing where the tokenizer's content cannot be told."""
        settings = {"add_bos_token": add_bos_token, "prefix_token_id": prefix_token_id}
        content = content_of(tokenizer)
        if content is None:
            return TextEncoder(tokenizer, max_length, add_bos_token=add_bos_token, prefix_token_id=prefix_token_id)
        identity = hashlib.sha256(f"{max_length} {settings} {content}".encode()).digest()
        return SharedEncoder(
            self._kept,
            identity,
            tokenizer,
            max_length,
            add_bos_token=add_bos_token,
            prefix_token_id=prefix_token_id,
        )


class SharedEncoder(TextEncoder):
    """Encodes what no equal encoder has encoded before it. `identity` says which ones are equal."""

    def __init__(
        self,
        kept: Kept[bytes, _Packed],
        identity: bytes,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        add_bos_token: bool | None,
        prefix_token_id: int | None,
    ) -> None:
        super().__init__(tokenizer, max_length, add_bos_token=add_bos_token, prefix_token_id=prefix_token_id)
        self._kept = kept
        self._identity = identity

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[TokenRequest]:
        keys = [self._key(*request) for request in requests]
        found = [self._kept.get(key) for key in keys]
        places = [place for place, packed in enumerate(found) if packed is None]
        try:
            fresh = dict(zip(places, super().pairs([requests[place] for place in places]), strict=True))
        except RequestError as error:
            raise RequestError(places[error.index], str(error)) from None
        self._keep({keys[place]: request for place, request in fresh.items()})
        # Choices of one doc get one context in common, as they had when it was encoded.
        contexts: dict[int, TokenIds] = {}
        return [fresh[place] if packed is None else _unpacked(packed, contexts) for place, packed in enumerate(found)]

    def _keep(self, fresh: dict[bytes, TokenRequest]) -> None:
        contexts: dict[TokenIds, array[int]] = {}
        for key, request in fresh.items():
            size = len(request.continuation_ids)
            if request.context_ids not in contexts:
                contexts[request.context_ids] = array("i", request.context_ids)
                size += len(request.context_ids)
            context = contexts[request.context_ids]
            self._kept.put(key, (context, array("i", request.continuation_ids), request.truncated), size)

    def _key(self, context: str, continuation: str) -> bytes:
        digest = hashlib.blake2b(self._identity, digest_size=16)
        digest.update(f"{len(context)} ".encode())
        digest.update((context + continuation).encode("utf-8", "surrogatepass"))
        return digest.digest()


def content_of(tokenizer: Tokenizer) -> str | None:
    """All that the ids of a text depend on, as a text; None for a tokenizer that is no fast one.

    Equal copies are equal wherever they lie, and under whatever name. A difference that changes no id (in a special
    token's options, say) makes them unequal all the same: they are then encoded by each.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    told = {name: str(value) for name, value in sorted(tokenizer.init_kwargs.items()) if name not in PLACES}
    kind = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
    return f"{kind} {tokenizer.bos_token_id} {tokenizer.eos_token_id} {told} {backend.to_str()}"


def _unpacked(packed: _Packed, contexts: dict[int, TokenIds]) -> TokenRequest:
    context, continuation, truncated = packed
    if id(context) not in contexts:
        contexts[id(context)] = tuple(context)
    return TokenRequest(contexts[id(context)], tuple(continuation), truncated)
