"""The arguments of a Hugging Face model (``--llmeval-model-args``): names, meanings and types.

Values are texts until they are read here, so that ``revision=0001`` stays the text 0001.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval._engine.requests import ENGINES
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._settings import FLAG
from pytest_llmeval._settings import TEXT
from pytest_llmeval._settings import ValueType
from pytest_llmeval._settings import matching
from pytest_llmeval._settings import one_of
from pytest_llmeval._settings import whole_number


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


#: The type of each argument.
TYPES: Mapping[str, ValueType[Any]] = MappingProxyType(
    {
        "dtype": one_of(*DTYPES),
        "device": matching(r"[a-z]+(:\d+)?", "a device such as cpu, cuda, cuda:1 or mps"),
        "revision": TEXT,
        "max_length": whole_number(1),
        "attn_implementation": TEXT,
        "trust_remote_code": FLAG,
        "add_bos_token": FLAG,
        "prefix_token_id": whole_number(),
        "tokenizer": TEXT,
        "gguf_file": TEXT,
        "batch_size": whole_number(1),
        "max_batch_tokens": whole_number(1),
        "engine": one_of(*ENGINES),
    }
)


def read_model_args(args: Mapping[str, str]) -> ModelArgs:
    """Return the typed arguments. Raises SettingError for an unknown name or a value of the wrong type."""
    for name in args:
        if name not in TYPES:
            there_are = f"; there are: {', '.join(sorted(TYPES))}"
            raise SettingError(f"model argument {name!r} is unknown{did_you_mean(name, TYPES, otherwise=there_are)}")
    return ModelArgs(**{name: TYPES[name].read(text, f"model argument {name}") for name, text in args.items()})
