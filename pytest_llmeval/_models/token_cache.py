"""Token ids encoded once for all models of a session whose tokenizers are equal.

Encoding a doc of MMLU with five few-shot examples takes 3 ms (anatomy) to 16 ms (professional law) on one processor;
with the cache the second checkpoint needs 0.1 ms (`perf/sharing.py`). Otherwise a GPU would wait for the tokenizer.
Generation and rolling log-likelihoods spend little time on encoding and are not cached.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from pytest_llmeval._engine import RequestError
from pytest_llmeval._engine import TokenIds
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._plain import BoundedCache


#: The most token ids in a cache, 4 bytes each (256 MB). All of MMLU with five few-shot examples needs a sixth of it.
CAPACITY = 1 << 26
#: Settings of a tokenizer that name only the location of its files.
FILE_SETTINGS = frozenset({"name_or_path", "vocab_file", "merges_file", "tokenizer_file", "special_tokens_map_file"})

#: A pair of texts (context, continuation).
Pair: TypeAlias = tuple[str, str]
#: Context ids, continuation ids, and True if the context was truncated.
_Packed: TypeAlias = tuple["array[int]", "array[int]", bool]


class TokenCache:
    """Encoded (context, continuation) pairs; `capacity` is a number of token ids."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._cache: BoundedCache[bytes, _Packed] = BoundedCache(capacity)

    def pairs(
        self, encoder: bytes, pairs: Sequence[Pair], encode: Callable[[Sequence[Pair]], list[TokenRequest]]
    ) -> list[TokenRequest]:
        """Return the token ids of (context, continuation) pairs; those not in the cache are encoded in one call.

        `encoder`: a key that is equal for encoders that return equal ids. Raises RequestError as `encode` does, with
        the index of the pair in `pairs`.
        """
        keys = [_key(encoder, *pair) for pair in pairs]
        found = [self._cache.get(key) for key in keys]
        missing = [i for i, packed in enumerate(found) if packed is None]
        try:
            fresh = dict(zip(missing, encode([pairs[i] for i in missing]), strict=True))
        except RequestError as error:
            raise RequestError(missing[error.index], str(error)) from None
        self._keep({keys[i]: request for i, request in fresh.items()})
        # The choices of a doc share one context tuple, as they do after encoding.
        contexts: dict[int, TokenIds] = {}
        return [fresh[i] if packed is None else _unpack(packed, contexts) for i, packed in enumerate(found)]

    def _keep(self, fresh: dict[bytes, TokenRequest]) -> None:
        contexts: dict[TokenIds, array[int]] = {}
        for key, request in fresh.items():
            size = len(request.continuation_ids)
            if request.context_ids not in contexts:
                contexts[request.context_ids] = array("i", request.context_ids)
                size += len(request.context_ids)
            context = contexts[request.context_ids]
            self._cache.put(key, (context, array("i", request.continuation_ids), request.truncated), size)


def tokenizer_content(tokenizer: Any) -> str | None:
    """Return a text of everything that the ids of texts depend on; None if the tokenizer is not a fast one.

    Copies in different folders, or under different names, have equal contents. A difference that changes no id (e.g. an
    option of a special token) also makes contents unequal; such tokenizers share no ids.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    settings = {name: str(value) for name, value in sorted(tokenizer.init_kwargs.items()) if name not in FILE_SETTINGS}
    kind = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
    return f"{kind} {tokenizer.bos_token_id} {tokenizer.eos_token_id} {settings} {backend.to_str()}"


def _key(encoder: bytes, context: str, continuation: str) -> bytes:
    digest = hashlib.blake2b(encoder, digest_size=16)
    digest.update(f"{len(context)} ".encode())
    digest.update((context + continuation).encode("utf-8", "surrogatepass"))
    return digest.digest()


def _unpack(packed: _Packed, contexts: dict[int, TokenIds]) -> TokenRequest:
    context, continuation, truncated = packed
    if id(context) not in contexts:
        contexts[id(context)] = tuple(context)
    return TokenRequest(contexts[id(context)], tuple(continuation), truncated)
