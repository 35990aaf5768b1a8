"""Model specs: the text of ``--llmeval-model``, parsed once, as the loader needs it.

A spec names a folder, a GGUF file, a hub id, a model behind a server, or a model of a plugin. It is checked without
torch, transformers or network access, so that a wrong spec is an error before the run starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal
from typing import TypeAlias
from urllib.parse import urlsplit

from pytest_llmeval._errors import SettingError
from pytest_llmeval._lm import LM
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.arguments import ServerArgs
from pytest_llmeval._models.arguments import read_model_args
from pytest_llmeval._models.checkpoints import check_folder
from pytest_llmeval._models.checkpoints import check_gguf
from pytest_llmeval._plain import did_you_mean


#: Returns a model for the text after ``SCHEME:`` and the texts of the model arguments.
ModelFactory: TypeAlias = Callable[[str, Mapping[str, str]], LM]

NO_SCHEMES: Mapping[str, ModelFactory] = MappingProxyType({})
#: The scheme of Hugging Face models, which is the default.
HUGGING_FACE = "hf"
#: The scheme of models behind a server.
SERVER = "openai"
#: Schemes in the documentation that other packages provide.
ELSEWHERE = frozenset({"vllm"})

# At least two letters, so that the drive of a Windows path is not a scheme.
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_PATH_LIKE = re.compile(r"[.~]{0,2}[/\\]|[.]{1,2}$|~|[A-Za-z]:[/\\]|.*\\|.*/.*/")


@dataclass(frozen=True, slots=True)
class HuggingFaceSpec:
    """A model that is loaded with transformers; `place` is a folder, a .gguf file, or a hub id."""

    kind: Literal["folder", "gguf", "hub"]
    place: str
    args: ModelArgs

    @property
    def name(self) -> str:
        """The name of the model in reports: the folder's or file's own name, or the hub id."""
        return self.place if self.kind == "hub" else os.path.basename(os.path.abspath(self.place))


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A model behind a server at `root`, without ``/v1``; `model` is its name there, empty for the only one."""

    root: str
    model: str
    args: ServerArgs


@dataclass(frozen=True, slots=True)
class SchemeSpec:
    """A spec ``SCHEME:REST`` of a plugin; `factory` is called with `rest` and the texts of the arguments."""

    factory: ModelFactory
    rest: str
    args: Mapping[str, str]


ModelSpec: TypeAlias = HuggingFaceSpec | ServerSpec | SchemeSpec


def parse_spec(text: str, args: Mapping[str, str], *, schemes: Mapping[str, ModelFactory] = NO_SCHEMES) -> ModelSpec:
    """Return the parsed spec of a model, after all checks that do not load the model.

    `text` is a folder, a ``.gguf`` file, a hub id, ``openai:URL#MODEL``, or ``SCHEME:REST`` of one of `schemes`.
    Raises SettingError for an unknown scheme; a folder or file that does not exist; a folder without config, weights or
    tokenizer; weights that are cut short; an address that is not one; and a model argument that is unknown or of the
    wrong type. The factory of a registered scheme checks its arguments itself.
    """
    found = _SCHEME.fullmatch(text)
    scheme, rest = (HUGGING_FACE, text) if found is None or Path(text).exists() else found.group("scheme", "rest")
    if scheme in schemes:
        return SchemeSpec(schemes[scheme], rest, args)
    if scheme == HUGGING_FACE:
        return _hugging_face(rest, read_model_args(args, ModelArgs))
    if scheme == SERVER:
        return _server(rest, read_model_args(args, ServerArgs))
    known = {HUGGING_FACE, SERVER, *schemes}
    if scheme in ELSEWHERE:
        raise SettingError(
            f"model {text!r}: {scheme!r} models come with a plugin, and no installed plugin registers this scheme "
            f"(hook pytest_llmeval_register_models); registered here: {', '.join(sorted(known))}"
        )
    mend = did_you_mean(scheme, sorted(known), otherwise=f"; there are: {', '.join(sorted(known))}")
    raise SettingError(f"model {text!r}: no scheme {scheme!r} is registered{mend}")


def _server(rest: str, args: ServerArgs) -> ServerSpec:
    address, _, model = rest.partition("#")
    parts = urlsplit(address)
    # The address is shown in reports and stored in files.
    if "@" in parts.netloc or parts.query:
        raise SettingError(
            f"model 'openai:...#{model}': the address holds a password or a query, which reports would show: put the "
            "key into an environment variable and name it with model argument api_key_env="
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"model {f'{SERVER}:{rest}'!r}: expected {SERVER}:http://HOST:PORT/v1#MODEL")
    return ServerSpec(address.rstrip("/").removesuffix("/v1").rstrip("/"), model, args)


def _hugging_face(place: str, args: ModelArgs) -> HuggingFaceSpec:
    if not place:
        raise SettingError("model '': expected a folder, a hub id such as org/name, or a .gguf file")
    path = Path(place).expanduser()
    if path.is_dir():
        if args.gguf_file is not None:
            check_gguf(path / args.gguf_file)
        else:
            check_folder(path, own_tokenizer=args.tokenizer is None)
        return HuggingFaceSpec("folder", str(path), args)
    if path.suffix == ".gguf":
        check_gguf(path)
        return HuggingFaceSpec("gguf", str(path), args)
    if path.exists():
        raise SettingError(f"model {place!r} is a file and not a model: expected a folder, a hub id, or a .gguf file")
    if _PATH_LIKE.match(place):
        raise SettingError(f"model {place!r}: there is no such folder (looked in {path.absolute().parent})")
    if not _HUB_ID.fullmatch(place) or "--" in place or ".." in place:
        raise SettingError(f"model {place!r} is neither a folder, nor a .gguf file, nor a hub id such as org/name")
    return HuggingFaceSpec("hub", place, args)
