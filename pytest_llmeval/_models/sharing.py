"""Where a text may be cut so that its parts, encoded by themselves, are exactly what the whole is encoded to.

A cut lies between a letter or digit of ASCII and the line break behind it. A tokenizer of the `tokenizers` library
splits a text into pieces by rules and encodes each piece by itself. Prompts of one task are mostly the same lines, so
that lines which many of them share need not be encoded for each.

Token ids worked out once for all checkpoints of a session whose tokenizers are equal.

A doc of MMLU with five shots takes 3 ms (anatomy) to 16 ms (professional law) to encode on one processor, of which the
second checkpoint needs 0.1 (`perf/sharing.py`): a GPU would wait for the tokenizer. Generation and rolling
log-likelihoods encode little for what they compute, and do without.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.encoding import Tokenizer
from pytest_llmeval._plain import BoundedCache


#: Alternatives of splitting rules none of which matches a letter or digit and a line break behind it, or looks at what
#: follows a letter or digit: GPT-2, GPT-3.5, GPT-4o and their like. A piece then ends at every cut, whatever follows.
ENDS_LINES = frozenset(
    [
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        "'(?i:[sdmt]|ll|ve|re)",
        r" ?\p{L}+",
        r" ?\p{N}+",
        r"\p{N}",
        r"\p{N}{1,2}",
        r"\p{N}{1,3}",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def cuts_are_exact(tokenizer: Any) -> bool:
    """Whether parts between cuts are encoded as they are within any text: known from the tokenizer's own rules.

    False for all whose rules are not known here, and for those that mark the start of a text (SentencePiece).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not getattr(tokenizer, "is_fast", False) or backend is None or backend.pre_tokenizer is None:
        return False
    normalizing = list(_steps(backend.normalizer, "normalizers"))
    splitting = list(_steps(backend.pre_tokenizer, "pretokenizers"))
    return (
        # Composing letters goes no further than a line.
        all(step["type"] in ("NFC", "NFKC") for step in normalizing)
        and all(map(_looks_no_further, splitting))
        and any(map(_ends_lines, splitting))
        and not any(_reaches_over(token) for token in backend.get_added_tokens_decoder().values())
    )


def last_cut(text: str) -> int:
    """The place of the last cut of a text, 0 if there is none."""
    place = len(text)
    while (place := text.rfind("\n", 0, place)) > 0:
        if _is_cut(text, place):
            return place
    return 0


def parts(text: str) -> list[str]:
    """What lies between the cuts of a text."""
    found: list[str] = []
    start, place = 0, text.find("\n")
    while place >= 0:
        if _is_cut(text, place):
            found.append(text[start:place])
            start = place
        place = text.find("\n", place + 1)
    return [*found, text[start:]]


def _is_cut(text: str, place: int) -> bool:
    """Whether the line break at a place stands behind a letter or digit of ASCII."""
    before = text[place - 1 : place]
    return before.isalnum() and before.isascii()


def _steps(component: Any, inner: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer as the library writes them down, sequences laid out flat."""
    waiting = [] if component is None else [json.loads(component.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = [*step[inner], *waiting]
        else:
            yield step


def _looks_no_further(step: Mapping[str, Any]) -> bool:
    """Whether what a step does on one side of a cut does not depend on the other side."""
    kind = step["type"]
    if kind == "ByteLevel":
        return not step["add_prefix_space"]
    return kind in ("Digits", "WhitespaceSplit") or _ends_lines(step)


def _ends_lines(step: Mapping[str, Any]) -> bool:
    """Whether a step makes a piece end at every cut."""
    kind = step["type"]
    if kind == "ByteLevel":
        return bool(step["use_regex"] and not step["add_prefix_space"])
    if kind != "Split" or step["behavior"] != "Isolated" or step["invert"]:
        return bool(kind == "WhitespaceSplit")
    return ENDS_LINES.issuperset(_alternatives(str(step["pattern"].get("Regex", ""))))


def _alternatives(pattern: str) -> list[str]:
    """What stands between the outermost bars of a regular expression."""
    found, depth = [""], 0
    for part in re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        depth += (part == "(") - (part == ")")
        if part == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return found


def _reaches_over(token: Any) -> bool:
    """Whether an added token, which is found before all else, may hold both sides of a cut."""
    text = str(token.content)
    return "\n" in text or (bool(token.rstrip) and text[-1:].isalnum())


#: Token ids that are kept, 4 bytes each (256 MB): those of all of MMLU with five shots take a sixth of it.
CAPACITY = 1 << 26
#: What a tokenizer was told that says only where it lies.
PLACES = frozenset({"name_or_path", "vocab_file", "merges_file", "tokenizer_file", "special_tokens_map_file"})

#: Context, continuation, and whether the context was cut.
_Packed: TypeAlias = tuple["array[int]", "array[int]", bool]


class Encodings:
    """Makes the encoders of a session; equal ones share what they have encoded."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._kept: BoundedCache[bytes, _Packed] = BoundedCache(capacity)

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
        kept: BoundedCache[bytes, _Packed],
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
