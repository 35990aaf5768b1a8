"""The files of a checkpoint: checks of names, sizes and first bytes, and hashes of their contents."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import listed


INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WEIGHTS = ("*.safetensors", "*.bin")
#: Each of these files shows that a tokenizer was saved; the files that it needs depend on its class.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
GGUF_MAGIC = b"GGUF"
GGUF_PACKAGES = ("gguf", "accelerate")
LFS_POINTER = b"version https://git-lfs"
#: A safetensors file starts with the length of its header (8 bytes) and the header: tensor -> offsets in the rest.
_LENGTH_BYTES = 8
_LARGEST_HEADER = 100_000_000
#: Files of a model or its tokenizer, as opposed to a README or an optimizer state, which change no answer.
PARTS = ("*.safetensors", "*.bin", "*.gguf", "*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.py")
#: Files that a trainer writes beside a checkpoint.
NO_PARTS = frozenset({"trainer_state.json", "training_args.bin", "optimizer.bin", "scheduler.bin", "requirements.txt"})


def check_folder(folder: Path, *, own_tokenizer: bool = True) -> None:
    """Raise SettingError if a folder has no config, no weights or, with `own_tokenizer`, no tokenizer."""
    _check_config(folder)
    for path in _weight_files(folder):
        _check_weights(path)
    if own_tokenizer and not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise SettingError(
            f"model {str(folder)!r} has no tokenizer (looked for {', '.join(TOKENIZER_FILES)}): save it beside the "
            "weights, or name another folder or hub id as model argument tokenizer="
        )


def check_gguf(path: Path) -> None:
    """Raise SettingError if a GGUF file is missing or is not GGUF, or if packages for reading it are missing."""
    if not path.is_file():
        raise SettingError(f"model {str(path)!r}: there is no such file")
    if problem := _not_data(path):
        raise SettingError(f"model {str(path)!r} is not a GGUF file: {problem}")
    start = _first_bytes(path)[: len(GGUF_MAGIC)]
    if start != GGUF_MAGIC:
        raise SettingError(f"model {str(path)!r} is not a GGUF file: it starts with {start!r}, not {GGUF_MAGIC!r}")
    missing = missing_packages(GGUF_PACKAGES)
    if missing:
        raise SettingError(
            f"model {str(path)!r}: reading GGUF needs {' and '.join(missing)}: "
            "pip install 'pytest-llmeval-harness[gguf]'"
        )


def missing_packages(names: Iterable[str]) -> list[str]:
    """Return the names of packages that are not installed, without importing any."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def content_hashes(place: Path) -> list[tuple[str, str]]:
    """Return (name, SHA-256) of each file of the model in a folder, sorted by name.

    For a file, return its hash with an empty name. All bytes are read: gigabytes take seconds.
    """
    return [("" if path == place else path.name, file_hash(path)) for path in files_of(place)]


def files_of(place: Path) -> list[Path]:
    """Return the files of the model in a folder, sorted by name; a file is its own only one."""
    if place.is_file():
        return [place]
    return [
        path
        for path in sorted(place.iterdir())
        if path.is_file() and path.name not in NO_PARTS and any(path.match(pattern) for pattern in PARTS)
    ]


def file_hash(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_config(folder: Path) -> None:
    path = folder / "config.json"
    if path.is_file():
        _read_object(path, folder)
        return
    if (folder / "adapter_config.json").is_file():
        raise SettingError(f"model {str(folder)!r} holds an adapter only: merge it into its base model and save that")
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs:
        raise SettingError(f"model {str(folder)!r} is a folder of GGUF files: name the file, e.g. {str(ggufs[0])!r}")
    raise SettingError(f"model {str(folder)!r} has no config.json: expected a folder written by save_pretrained")


def _weight_files(folder: Path) -> list[Path]:
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    if index is None:
        files = sorted(file for pattern in WEIGHTS for file in folder.glob(pattern))
        if not files:
            raise SettingError(f"model {str(folder)!r} has no weights (looked for {', '.join(WEIGHTS)})")
        return files
    shards = sorted(set(_read_object(index, folder).get("weight_map", {}).values()))
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise SettingError(
            f"model {str(folder)!r}: {len(missing)} of the {len(shards)} files that {index.name} lists "
            f"{'is' if len(missing) == 1 else 'are'} missing: {listed(missing)}"
        )
    return [folder / name for name in shards]


def _check_weights(path: Path) -> None:
    if problem := _not_data(path):
        raise SettingError(f"model weights {str(path)!r}: {problem}")
    if path.suffix == ".safetensors":
        expected = _safetensors_size(path)
        if expected is None or path.stat().st_size < expected:
            what = "the header is damaged" if expected is None else f"it is cut short ({expected} bytes expected)"
            raise SettingError(f"model weights {str(path)!r} cannot be read: {what}; copy or download the file again")


def _safetensors_size(path: Path) -> int | None:
    """Return the size in bytes that the header of a safetensors file implies; None if it cannot be read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 0 < length <= _LARGEST_HEADER:
            return None
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            return None
    return _LENGTH_BYTES + length + max(ends, default=0)


def _read_object(path: Path, folder: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingError(f"model {str(folder)!r}: {path.name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingError(f"model {str(folder)!r}: {path.name} does not hold a JSON object")
    return value


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(64)


def _not_data(path: Path) -> str | None:
    start = _first_bytes(path)
    if start.startswith(LFS_POINTER):
        return "it is a git-lfs pointer; run 'git lfs pull'"
    return None if start else "it is empty"
