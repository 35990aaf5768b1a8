"""What `--llmeval-model-args` may say to a Hugging Face model: one table of names, meanings and readers.

Values are texts until they are read here, so that ``revision=0001`` stays the text 0001.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._engine.requests import ENGINES
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean


DTYPES = ("auto", "bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class ModelArgs:
    """How a Hugging Face model is loaded and run.

    `dtype`: ``auto`` is the dtype of the checkpoint. `device`: None takes cuda, else mps, else cpu.
    `max_length`: tokens that the model reads at once; None is the model's own limit. `batch_size`: most rows of
    a forward pass; `max_batch_tokens`: most tokens of one, padding included; both only change speed and memory.
    `add_bos_token`: None leaves it to the tokenizer. `prefix_token_id`: what comes before a text that has no
    context; None is BOS, else EOS. `tokenizer`: another folder or hub id for the tokenizer. `gguf_file`: a GGUF
    file inside the folder or hub repository. `engine`: ``tree`` computes what sequences share once, ``padded``
    reads each by itself; ``auto`` takes the tree where the model is seen to give the same numbers.
    """

    dtype: str = "auto"
    device: str | None = None
    revision: str | None = None
    max_length: int | None = None
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    add_bos_token: bool | None = None
    prefix_token_id: int | None = None
    tokenizer: str | None = None
    gguf_file: str | None = None
    batch_size: int | None = None
    max_batch_tokens: int | None = None
    engine: str = "auto"

    @property
    def engine_options(self) -> EngineOptions:
        """The arguments that the engine needs."""
        return EngineOptions(self.engine, self.batch_size, self.max_batch_tokens)


class _ExpectedError(Exception):
    """A text is not what its argument wants; the message says what that is."""


def read_model_args(args: Mapping[str, object]) -> ModelArgs:
    """The typed arguments. Raises SettingError for an unknown name or a value of the wrong kind."""
    for name in args:
        if name not in _READERS:
            there_are = f"; there are: {', '.join(sorted(_READERS))}"
            raise SettingError(f"model argument {name!r} is unknown{did_you_mean(name, _READERS, otherwise=there_are)}")
    return ModelArgs(**{name: _read(name, str(value)) for name, value in args.items()})


def _read(name: str, text: str) -> Any:
    try:
        return _READERS[name](text)
    except _ExpectedError as expected:
        raise SettingError(f"model argument {name}={text}: expected {expected}") from None


def _text(text: str) -> str:
    if not text:
        raise _ExpectedError("a text")
    return text


def _dtype(text: str) -> str:
    if text not in DTYPES:
        raise _ExpectedError(f"one of {', '.join(DTYPES)}")
    return text


def _engine(text: str) -> str:
    if text not in ENGINES:
        raise _ExpectedError(f"one of {', '.join(ENGINES)}")
    return text


def _device(text: str) -> str:
    if not re.fullmatch(r"[a-z]+(:\d+)?", text):
        raise _ExpectedError("a device such as cpu, cuda, cuda:1 or mps")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
        raise _ExpectedError("a whole number above 0")
    return int(text)


def _token_id(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise _ExpectedError("a token id, a whole number")
    return int(text)


_TRUTH = MappingProxyType({"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False})


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise _ExpectedError("true or false")
    return _TRUTH[text.lower()]


_READERS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "dtype": _dtype,
        "device": _device,
        "revision": _text,
        "max_length": _count,
        "attn_implementation": _text,
        "trust_remote_code": _truth,
        "add_bos_token": _truth,
        "prefix_token_id": _token_id,
        "tokenizer": _text,
        "gguf_file": _text,
        "batch_size": _count,
        "max_batch_tokens": _count,
        "engine": _engine,
    }
)
