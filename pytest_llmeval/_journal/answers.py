"""The answers of one model in a journal: keys of requests, and answers as bytes, which are the same again.

The key of a request is made of the identity of the model and of the texts and settings of the request. Token ids are a
function of these (the identity covers the tokenizer), so that a known answer needs no tokenizer. Nothing else is in
the key: not the task, the doc, its place, or where results are written.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any
from typing import get_args

from pytest_llmeval._doc import Instance
from pytest_llmeval._journal.journal import Journal
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import FinishReason
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._plain import plain_or_text


KEY_BYTES = 16
_FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)


class KnownAnswers:
    """The answers that a journal has of the model with this `identity`.

    `recalled` and `asked` count the requests that were answered from the journal, and all.
    """

    def __init__(self, journal: Journal, identity: str) -> None:
        self.recalled = 0
        self.asked = 0
        self._journal = journal
        self._identity = identity.encode("utf-8", "surrogatepass")
        self._mark = key_of(self._identity, "known")

    def is_known(self) -> bool:
        """Return True if answers of this model were kept, now or by another run."""
        return bool(self._journal.get([self._mark]))

    def recall(self, instances: Sequence[Instance]) -> list[Any]:
        """Return the answers in the order of the instances, None for each that is not known."""
        keys = [self._key(instance) for instance in instances]
        found = self._journal.get(keys)
        answers = [decoded(found[key]) if key in found else None for key in keys]
        self.asked += len(answers)
        self.recalled += sum(answer is not None for answer in answers)
        return answers

    def keep(self, answered: Iterable[tuple[Instance, Any]]) -> None:
        """Store the answers that have a form in bytes, in one transaction."""
        in_bytes = ((self._key(instance), encoded(answer)) for instance, answer in answered)
        entries = {key: value for key, value in in_bytes if value is not None}
        if entries:
            self._journal.put(entries | {self._mark: b""})

    def facts(self, version: str, output_type: str) -> Mapping[str, Any] | None:
        """Return the facts that the model stated after it answered docs of this output type; None if not known."""
        key = key_of(self._identity, "facts", version, output_type)
        found = self._journal.get([key]).get(key)
        facts: Mapping[str, Any] | None = None if found is None else json.loads(found)["facts"]
        return facts

    def keep_facts(self, version: str, output_type: str, facts: Mapping[str, Any], described: int) -> None:
        """Store facts that a model stated after docs of `described` output types: those of the fewest stay.

        `version` changes with the facts of a model whose answers stay the same.
        """
        key = key_of(self._identity, "facts", version, output_type)
        found = self._journal.get([key]).get(key)
        if found is None or json.loads(found)["described"] > described:
            self._journal.put({key: json.dumps({"described": described, "facts": facts}).encode()})

    def _key(self, instance: Instance) -> bytes:
        parts = (argument if isinstance(argument, str) else _settings(argument) for argument in instance.arguments)
        return key_of(self._identity, instance.kind, *parts)


def known_answers(journal: Journal | None, lm: LM) -> KnownAnswers | None:
    """Return the answers of a model in a journal; None without a journal, or if the model has no identity.

    The identity is the model's `identity`, if it has that member, else its `fingerprint`.
    """
    identity = getattr(lm, "identity", None) if hasattr(lm, "identity") else getattr(lm, "fingerprint", None)
    return KnownAnswers(journal, identity) if journal is not None and isinstance(identity, str) and identity else None


def key_of(identity: bytes, *parts: str) -> bytes:
    """Return a key that is different for different identities, or different parts in this order."""
    digest = blake2b(digest_size=KEY_BYTES)
    for part in (identity, *(part.encode("utf-8", "surrogatepass") for part in parts)):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def encoded(answer: Any) -> bytes | None:
    """Return an answer as bytes; None if it would not be the same again, or should rather be asked again (NaN)."""
    if type(answer) is float and not math.isnan(answer):
        return b"r" + struct.pack("<d", answer)
    if type(answer) in (Loglikelihood, tuple) and list(map(type, answer)) == [float, bool]:
        given = answer if isinstance(answer, Loglikelihood) else Loglikelihood(*answer)
        # Next tokens are not kept.
        if math.isnan(given.logprob) or given.next_tokens:
            return None
        return b"l" + struct.pack("<d??", *given, given.truncated)
    if type(answer) is Generation and answer.finish_reason in _FINISH_REASONS:
        flags = (_FINISH_REASONS.index(answer.finish_reason), answer.truncated)
        texts = [text.encode("utf-8", "surrogatepass") for text in (answer, answer.raw)]
        if answer.raw == answer:
            return b"g" + struct.pack("<B?", *flags) + texts[0]
        return b"h" + struct.pack("<B?Q", *flags, len(texts[0])) + b"".join(texts)
    return b"t" + answer.encode("utf-8", "surrogatepass") if type(answer) is str else None


def decoded(value: bytes) -> Any:
    """Return the answer of `encoded`."""
    kind, rest = value[:1], value[1:]
    if kind == b"r":
        return struct.unpack("<d", rest)[0]
    if kind == b"l":
        return Loglikelihood(*struct.unpack("<d??", rest))
    if kind == b"t":
        return rest.decode("utf-8", "surrogatepass")
    reason, is_truncated = struct.unpack("<B?", rest[:2])
    if kind == b"h":
        (size,) = struct.unpack("<Q", rest[2:10])
        answer, raw = (part.decode("utf-8", "surrogatepass") for part in (rest[10 : 10 + size], rest[10 + size :]))
        return Generation(answer, _FINISH_REASONS[reason], is_truncated, raw)
    return Generation(rest[2:].decode("utf-8", "surrogatepass"), _FINISH_REASONS[reason], is_truncated)


def _settings(kwargs: GenerationKwargs) -> str:
    """Return all settings of a generation as one text; seed and repeat tell its samples apart."""
    own = (kwargs.until, kwargs.max_gen_toks, kwargs.do_sample, kwargs.temperature, kwargs.top_p, kwargs.top_k)
    return json.dumps([*own, kwargs.seed, kwargs.repeat, sorted(plain_or_text(kwargs.extra).items())], default=str)
