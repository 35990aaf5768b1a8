"""What a model spec names: a folder, a GGUF file, a hub id, or something that a plugin serves.

Everything here is known without torch, transformers or a network, so that a wrong spec ends a run before it
starts.

The identity of a model: what its answers depend on, as one hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Literal

from pytest_llmeval._errors import SettingError
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._plain import did_you_mean


#: Schemes that the documentation names and that other packages serve.
ELSEWHERE = frozenset({"openai", "vllm"})
HUGGING_FACE = "hf"

# Two letters at least, so that the drive of a Windows path is no scheme.
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_PATH_LIKE = re.compile(r"[.~]{0,2}[/\\]|[.]{1,2}$|~|[A-Za-z]:[/\\]|.*\\|.*/.*/")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a Hugging Face model comes from: `place` is a folder, a .gguf file, or a hub id."""

    kind: Literal["folder", "gguf", "hub"]
    place: str

    @property
    def name(self) -> str:
        """What reports call the model: the folder's or file's own name, or the hub id."""
        return self.place if self.kind == "hub" else os.path.basename(os.path.abspath(self.place))

    @property
    def path(self) -> Path:
        return Path(self.place)


def split_scheme(spec: str, schemes: Iterable[str]) -> tuple[str, str]:
    """The scheme of a spec and what follows it; a spec without one is a Hugging Face model.

    Raises SettingError for a scheme that nobody has registered.
    """
    found = _SCHEME.fullmatch(spec)
    if found is None or Path(spec).exists():
        return HUGGING_FACE, spec
    scheme, rest = found["scheme"], found["rest"]
    known = {HUGGING_FACE, *schemes}
    if scheme in known:
        return scheme, rest
    if scheme in ELSEWHERE:
        raise SettingError(
            f"model {spec!r}: {scheme!r} models come with a plugin, and none is installed that registers the scheme "
            f"(hook pytest_llmeval_register_models); registered here: {', '.join(sorted(known))}"
        )
    mend = did_you_mean(scheme, sorted(known), otherwise=f"; there are: {', '.join(sorted(known))}")
    raise SettingError(f"model {spec!r}: no scheme {scheme!r} is registered{mend}")


def find_source(place: str) -> Source:
    """The folder, GGUF file or hub id that a spec names. Raises SettingError if it can be none of these."""
    if not place:
        raise SettingError("model '': expected a folder, a hub id such as org/name, or a .gguf file")
    path = Path(place).expanduser()
    if path.is_dir():
        return Source("folder", str(path))
    if path.suffix == ".gguf":
        return Source("gguf", str(path))
    if path.exists():
        raise SettingError(f"model {place!r} is a file and no model: expected a folder, a hub id, or a .gguf file")
    if _PATH_LIKE.match(place):
        raise SettingError(f"model {place!r}: there is no such folder (looked in {path.absolute().parent})")
    if not _HUB_ID.fullmatch(place) or "--" in place or ".." in place:
        raise SettingError(f"model {place!r} is neither a folder, nor a .gguf file, nor a hub id such as org/name")
    return Source("hub", place)


#: Files that make a model and its tokenizer; a README or an optimizer state changes no answer.
PARTS = ("*.safetensors", "*.bin", "*.gguf", "*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.py")
#: What a trainer writes beside a checkpoint.
NO_PARTS = frozenset({"trainer_state.json", "training_args.bin", "optimizer.bin", "scheduler.bin", "requirements.txt"})
#: Arguments that change speed and memory only.
NEUTRAL_ARGS = frozenset({"device", "batch_size", "max_batch_tokens", "engine"})


def fingerprint_of(source: Source, args: ModelArgs, config: Any) -> str | None:
    """Hash of the contents of a folder's or file's parts, or of a hub id's commit, and of the arguments.

    Every byte is read once: gigabytes take seconds. Equal copies have equal fingerprints wherever they lie. None
    for a model of the hub whose commit is not known.
    """
    commit = getattr(config, "_commit_hash", None)
    if source.kind == "hub" and commit is None:
        return None
    known = [("arguments", {name: value for name, value in asdict(args).items() if name not in NEUTRAL_ARGS})]
    known += [("model", _content(source.kind, source.place, commit))]
    if args.tokenizer is not None:
        kind = "folder" if Path(args.tokenizer).is_dir() else "hub"
        known += [("tokenizer", _content(kind, args.tokenizer, None))]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _content(kind: str, place: str, commit: str | None) -> Any:
    if kind == "hub":
        return [place, commit]
    path = Path(place)
    files = [path] if path.is_file() else list(_parts(path))
    names = [""] if path.is_file() else [file.name for file in files]
    return [[name, _hash(file)] for name, file in zip(names, files, strict=True)]


def _parts(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.name not in NO_PARTS and any(file.match(pattern) for pattern in PARTS):
            yield file


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
