"""The tokens that a server reads where a prompt is sent: token ids or texts, a BOS, a template, another tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_llmeval._engine import TokenIds
from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers.client import closes
from pytest_llmeval._servers.client import denies
from pytest_llmeval._servers.doors import COMPLETIONS
from pytest_llmeval._servers.doors import Passage
from pytest_llmeval._servers.doors import Wire
from pytest_llmeval._servers.doors import item


#: The probed prompts; no two of them end alike.
CONTEXTS = (
    "The capital of France is",
    "1 2 3 4 5 6 7",
    "Once upon a time, there was a little girl who lived in a",
)


@dataclass(frozen=True, slots=True)
class Codec:
    """A tokenizer: texts to ids with and without the special tokens in front, and ids to text with special tokens.

    `size`: the number of its ids.
    """

    encode: Callable[[str], TokenIds]
    encode_bare: Callable[[str], TokenIds]
    decode: Callable[[Sequence[int]], str]
    size: int


@dataclass(frozen=True, slots=True)
class Context:
    """A prompt of the probe; `ids` is empty if the tokenizer is unknown."""

    text: str
    ids: TokenIds = ()

    def passage(self, wire: Wire) -> Passage:
        """Return the prompt alone, with nothing to score."""
        return wire.passage(self.ids, len(self.ids)) if self.ids else Passage(text=self.text, cut=len(self.text))


def contexts_of(codec: Codec | None) -> list[Context]:
    """Return the prompts of the probe."""
    return [Context(text, () if codec is None else codec.encode(text)) for text in CONTEXTS]


async def find_intake(wire: Wire, contexts: Sequence[Context]) -> Wire | None:
    """Return the wire with the form in which the server takes prompts; None if it refuses /v1/completions.

    Raises ModelError if it reads more or fewer tokens than it was sent.
    """
    sent = [len(context.ids) for context in contexts]
    if wire.takes_ids:
        read = await _count(wire, contexts)
        if read is not None:
            _check_counts(wire, sent, read)
            return wire
    wire = replace(wire, takes_ids=False)
    read = await _count(wire, contexts)
    if read is None or wire.decode is None:
        return None if read is None else wire
    if read == [size + 1 for size in sent] and len({context.ids[0] for context in contexts}) == 1:
        # If all ids begin with BOS, and the server adds one, the text is sent without it.
        shorter = replace(wire, n_added=1)
        if await _count(shorter, contexts) == sent:
            return shorter
    _check_counts(wire, sent, read)
    return wire


async def compare_tokenizers(wire: Wire, codec: Codec) -> str | None:
    """Return a note if the server does not show its tokenizer. Raises ModelError if it differs from `codec`."""
    for path, key in (("/tokenize", "prompt"), ("/extras/tokenize", "input")):
        try:
            for text in CONTEXTS:
                body = {"model": wire.model, key: text, "add_special_tokens": False}
                ids = await wire.client.post(path, body, lambda data: tuple(item(data, "tokens")), trial=True)
                own = codec.encode_bare(text)
                if own not in (ids, ids[1:]):
                    raise _differs(wire, f"{text!r} is {list(own)} by the named one and {list(ids)} by the server")
        except ModelError as error:
            if not closes(error):
                raise
            continue
        return None
    for context in contexts_of(codec) if wire.takes_ids else []:
        body = {"model": wire.model, "prompt": context.ids, "max_tokens": 1, "temperature": 0}
        try:
            alone = await wire.client.post(COMPLETIONS, body, _text, trial=True)
            echoed = await wire.client.post(COMPLETIONS, {**body, "echo": True}, _text, trial=True)
        except ModelError as error:
            if not closes(error):
                raise
            break
        if echoed == alone:
            break
        if context.text not in echoed:
            raise _differs(wire, f"the ids of {context.text!r} are the text {echoed!r} by the server")
    else:
        if wire.takes_ids:
            return None
    return "the server does not show its tokenizer, which was not compared"


def _text(data: Any) -> str:
    return str(item(item(data, "choices")[0], "text"))


async def _count(wire: Wire, contexts: Sequence[Context]) -> list[int] | None:
    """Return the number of tokens of each prompt, as the server counts them; None if it refuses them.

    Empty if it does not count.
    """

    def read(data: Any) -> int | None:
        _ = item(data, "choices")[0]
        count = (data.get("usage") or {}).get("prompt_tokens")
        return None if count is None else int(count)

    counts: list[int | None] = []
    for context in contexts:
        passage = context.passage(wire)
        prompt = passage.ids if wire.takes_ids else passage.text
        body = {"model": wire.model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        try:
            counts.append(await wire.client.post(COMPLETIONS, body, read, trial=True))
        except ModelError as error:
            if denies(error) or not closes(error):
                raise
            return None
    return [] if None in counts else [count for count in counts if count is not None]


def _check_counts(wire: Wire, sent: Sequence[int], read: Sequence[int]) -> None:
    surplus = {count - size for count, size in zip(read, sent, strict=False)}
    if surplus <= {0}:
        return
    if surplus == {1} and wire.takes_ids:
        reason = "it puts a second BOS before every prompt"
    elif surplus == {1}:
        reason = "it puts BOS before every prompt, which the named tokenizer does not do (add_bos_token=true does)"
    elif len(surplus) == 1 and min(surplus) > 1:
        reason = "it puts a chat template around every prompt, which would be put on twice"
    else:
        reason = "its tokenizer differs from the named one"
    raise ModelError(
        f"the server at {wire.client.root} reads {', '.join(map(str, read))} tokens where prompts of "
        f"{', '.join(map(str, sent))} are sent: {reason}"
    )


def _differs(wire: Wire, seen: str) -> ModelError:
    return ModelError(
        f"the tokenizer of the server at {wire.client.root} differs from the named one: {seen}; name the tokenizer of "
        "the served model as model argument tokenizer="
    )
