"""The identity of a model: what its answers depend on, as one hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.specs import Source


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
