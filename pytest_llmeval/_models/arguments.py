"""The arguments of models (``--llmeval-model-args``): names, meanings and types.

Values are texts until they are converted here by type, so that ``revision=0001`` stays the text 0001.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from typing import Any
from typing import TypeVar

from pytest_llmeval._engine import ENGINES
from pytest_llmeval._engine import EngineOptions
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._servers import ID_DOORS
from pytest_llmeval._servers import Patience
from pytest_llmeval._settings import FLAG
from pytest_llmeval._settings import TEXT
from pytest_llmeval._settings import ValueType
from pytest_llmeval._settings import matching
from pytest_llmeval._settings import one_of
from pytest_llmeval._settings import whole_number


#: The environment variable with the key of a server.
API_KEY = "OPENAI_API_KEY"
DTYPES = ("auto", "bfloat16", "float16", "float32", "float64")


def _argument(value_type: ValueType[Any], default: Any = None) -> Any:
    return field(default=default, metadata={"type": value_type})


def _json_object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(text)
    return found


JSON_OBJECT = ValueType("a JSON object", _json_object)


@dataclass(frozen=True, slots=True)
class ModelArgs:
    """The arguments of a Hugging Face model (`--llmeval-model-args`), each with its type on the command line.

    `dtype`: ``auto`` is the dtype of the checkpoint. `device`: None is cuda if available, else mps, else cpu.
    `max_length`: the window in tokens; None is the model's own limit. `add_bos_token`: None is the tokenizer's default.
    `prefix_token_id`: the token before a text without context; None is BOS, else EOS. `tokenizer`: another folder or
    hub id for the tokenizer. `think_end_token`: the text that ends a model's thought, or the number of its token; None:
    that of the chat template, if it has a known one; empty: thoughts are a part of the answer. `enable_thinking` and
    `chat_template_args` (a JSON object) are variables of the chat template. `gguf_file`: a GGUF file in the folder or
    hub repository. `batch_size`, `max_batch_tokens` and `engine` are those of `EngineOptions`.
    """

    dtype: str = _argument(one_of(*DTYPES), "auto")
    device: str | None = _argument(matching(r"[a-z]+(:\d+)?", "a device such as cpu, cuda, cuda:1 or mps"))
    revision: str | None = _argument(TEXT)
    max_length: int | None = _argument(whole_number(1))
    attn_implementation: str | None = _argument(TEXT)
    trust_remote_code: bool = _argument(FLAG, False)
    add_bos_token: bool | None = _argument(FLAG)
    prefix_token_id: int | None = _argument(whole_number())
    tokenizer: str | None = _argument(TEXT)
    think_end_token: str | None = _argument(matching(".*", "a text or the number of a token"))
    enable_thinking: bool | None = _argument(FLAG)
    chat_template_args: Mapping[str, Any] | None = _argument(JSON_OBJECT)
    gguf_file: str | None = _argument(TEXT)
    batch_size: int | None = _argument(whole_number(1))
    max_batch_tokens: int | None = _argument(whole_number(1))
    engine: str = _argument(one_of(*ENGINES), "auto")

    @property
    def engine_options(self) -> EngineOptions:
        """The arguments for the engine."""
        return EngineOptions(self.engine, self.batch_size, self.max_batch_tokens)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


_POSITIVE = ValueType("a number above 0", _positive)


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """The arguments of a model behind a server, each with its type on the command line.

    `tokenizer`: a folder, .gguf file or hub id, or ``none`` to send texts; None is the served model's own name, as the
    server gives it. `max_length`, `add_bos_token`, `prefix_token_id` and `trust_remote_code` are those of `ModelArgs`;
    without `max_length` it is the window that the server states. `door`: the call that scores prompts; ``auto`` is the
    best that the server knows. `chat`: texts are written by /v1/chat/completions, with the server's template.
    `max_concurrency`: the most requests under way. `timeout`: seconds per attempt. `retries`: attempts after the first.
    `tolerance`: the largest difference of two values of one log-probability. `api_key_env`: the environment variable
    with the key. `revision`: a name for the served weights, with which results of two runs count as those of one model.
    """

    tokenizer: str | None = _argument(TEXT)
    trust_remote_code: bool = _argument(FLAG, False)
    max_length: int | None = _argument(whole_number(2))
    add_bos_token: bool | None = _argument(FLAG)
    prefix_token_id: int | None = _argument(whole_number())
    door: str = _argument(one_of("auto", *ID_DOORS), "auto")
    chat: bool = _argument(FLAG, False)
    max_concurrency: int = _argument(whole_number(1), 64)
    timeout: float = _argument(_POSITIVE, 600.0)
    retries: int = _argument(whole_number(), 8)
    tolerance: float = _argument(_POSITIVE, 0.1)
    api_key_env: str = _argument(matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable"), API_KEY)
    revision: str | None = _argument(TEXT)

    @property
    def patience(self) -> Patience:
        """The arguments for the client."""
        return Patience(self.timeout, self.retries, self.max_concurrency)


Args = TypeVar("Args", ModelArgs, ServerArgs)


def read_model_args(args: Mapping[str, str], kind: type[Args]) -> Args:
    """Return the arguments with their types. Raises SettingError for an unknown name or a value of the wrong type."""
    types: dict[str, ValueType[Any]] = {known.name: known.metadata["type"] for known in fields(kind)}
    for name in args:
        if name not in types:
            there_are = f"; there are: {', '.join(sorted(types))}"
            raise SettingError(f"model argument {name!r} is unknown{did_you_mean(name, types, otherwise=there_are)}")
    return kind(**{name: types[name].read(text, f"model argument {name}") for name, text in args.items()})
