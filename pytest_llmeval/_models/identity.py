"""The identity of a model for the journal: equal for models that answer equally, found without torch.

It covers the contents of the model's files, the arguments that numbers depend on, the kind of device, the versions of
the packages that compute, and the code of the rooms between a request and its answer. It does not cover what changes
no answer: where the files lie, sizes of batches, a chat template (prompts are in the keys of requests) but for the
marks of thoughts that it contains, because stop strings apply after a thought.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_llmeval._journal import Identity
from pytest_llmeval._journal import Journal
from pytest_llmeval._journal import key_of
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.checkpoints import file_hash
from pytest_llmeval._models.checkpoints import files_of
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.thoughts import KNOWN_MARKS
from pytest_llmeval._plain import version_of


#: Arguments that change no number beyond rounding, and those that name files, whose contents are hashed.
NOT_IN_IDENTITY = frozenset({"batch_size", "max_batch_tokens", "device", "revision", "tokenizer", "gguf_file"})
#: Keys of JSON files that change no answer to a given prompt.
INERT_KEYS = frozenset({"_name_or_path", "name_or_path", "transformers_version", "chat_template", "_commit_hash"})
#: JSON files that are compared without these keys; others, such as a tokenizer's vocabulary, byte by byte.
SETTINGS_FILES = frozenset({"config.json", "generation_config.json", "tokenizer_config.json"})
#: Files of templates, which write prompts.
TEMPLATE = ".jinja"
#: Packages whose versions may change a number or a token id.
PACKAGES = ("torch", "transformers", "tokenizers", "gguf", "flash-attn", "peft")
#: Rooms and modules of this package whose code turns a request into an answer.
CODE = ("_engine", "_models", "_lm.py")
#: Seconds after a change within which another one may leave the times of a file as they are.
SETTLED_SECONDS = 2.0
#: Bytes that are hashed in about a tenth of a second.
MANY_BYTES = 1 << 26


def identifier(spec: HuggingFaceSpec, journal: Journal) -> Callable[[Any], Identity | None]:
    """Return the function that returns the identity of a model, given the model.

    Where files have to be hashed, torch is imported meanwhile: most likely it is needed.
    """
    if spec.kind == "hub":
        return lambda lm: identity_of_commit(spec, lm.commit)
    return lambda lm: identity_of_files(spec, journal, lambda: import_module("pytest_llmeval._models.huggingface"))


def identity_of_files(spec: HuggingFaceSpec, journal: Journal, meanwhile: Callable[[], object]) -> Identity | None:
    """Return the identity of a model by its files, every byte for facts; None if some are not on this machine.

    `journal` remembers the hashes of files by their sizes and times. Where hashing takes long, `meanwhile` is called.
    """
    places = _places(spec)
    if places is None:
        return None
    files = [path for place in places for path in files_of(place)]
    hashes = _remembered_hashes(files, journal, meanwhile)
    # A GGUF file may have any name.
    names = {path: "" if path.suffix == ".gguf" else path.name for path in files}
    parts = [[names[path], _settings_of(path) or hashes[path]] for path in files if path.suffix != TEMPLATE]
    every_byte = [[names[path], hashes[path]] for path in files]
    return Identity(_identity([parts, _thought_ends(files)], spec.args), _digest([every_byte, asdict(spec.args)]))


def identity_of_commit(spec: HuggingFaceSpec, commit: str) -> Identity | None:
    """Return the identity of a model of the hub by its commit; None if that does not decide about its answers."""
    if not commit or spec.args.tokenizer is not None or spec.args.trust_remote_code:
        return None
    content = [spec.place, commit, spec.args.gguf_file]
    return Identity(_identity(content, spec.args), _digest([content, asdict(spec.args)]))


def _identity(content: Any, args: ModelArgs) -> str:
    """Return a hash of the content of a model, its arguments, and what computes its answers here."""
    chosen = {name: value for name, value in asdict(args).items() if name not in NOT_IN_IDENTITY}
    versions = {package: version_of(package) for package in PACKAGES}
    return _digest([content, chosen, _device_kind(args.device), versions, _code_hash()])


def _places(spec: HuggingFaceSpec) -> list[Path] | None:
    """Return the folders and files that the model is made of; None if one of them is not on this machine."""
    place = Path(spec.place)
    # Code of the hub, "org/name--module.Class", is read from there.
    if spec.kind == "hub" or "--" in str(_read_json(place / "config.json").get("auto_map")):
        return None
    places = [place]
    if spec.args.gguf_file is not None:
        places = [place / spec.args.gguf_file]
    if spec.args.tokenizer is not None:
        places.append(Path(spec.args.tokenizer))
    adapter = place / "adapter_config.json"
    if adapter.is_file():
        base = _read_json(adapter).get("base_model_name_or_path")
        places.append(Path(str(base)))
    return places if all(path.exists() for path in places) else None


def _remembered_hashes(files: Sequence[Path], journal: Journal, meanwhile: Callable[[], object]) -> Mapping[Path, str]:
    """Return the hashes of files; those that the journal does not remember are computed, several at once.

    If that takes long, `meanwhile` is called in this thread, for hashing leaves a processor free.
    """
    keys = {path: _key_of_file(path) for path in files}
    known = journal.get(keys.values())
    found = {path: known[key].decode() for path, key in keys.items() if key in known}
    others = [path for path in files if path not in found]
    if others:
        with ThreadPoolExecutor() as pool:
            hashes = pool.map(file_hash, others)
            if sum(path.stat().st_size for path in others) > MANY_BYTES:
                meanwhile()
            found.update(zip(others, hashes, strict=True))
        # A file that changed while it was read has other times now, and so another key.
        settled = [path for path in others if keys[path] == _key_of_file(path) and _is_settled(path)]
        journal.put({keys[path]: found[path].encode() for path in settled})
    return found


def _key_of_file(path: Path) -> bytes:
    """Return a key that changes with every change of a file; `st_ctime_ns` does, also where a copy keeps times."""
    found = path.stat()
    times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)
    return key_of(b"file", str(path.resolve()), *map(str, times))


def _is_settled(path: Path) -> bool:
    return time.time() - path.stat().st_ctime > SETTLED_SECONDS


def _thought_ends(files: Iterable[Path]) -> list[str]:
    """Return the ends of thoughts that occur in the chat templates among some files."""
    templates = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.suffix == TEMPLATE]
    templates += [str(_read_json(path).get("chat_template")) for path in files if path.name == "tokenizer_config.json"]
    return [marks.end for marks in KNOWN_MARKS if any(marks.end in template for template in templates)]


def _settings_of(path: Path) -> str | None:
    """Return the content of a settings file without what changes no answer; None for another file."""
    if path.name not in SETTINGS_FILES:
        return None
    return json.dumps({key: value for key, value in _read_json(path).items() if key not in INERT_KEYS}, sort_keys=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _device_kind(device: str | None) -> str:
    """Return the kind of a device, ``cuda`` of ``cuda:1``; for None, what the choice will depend on."""
    if device is not None:
        return device.partition(":")[0]
    accelerators = [name for name in ("/dev/nvidiactl", "/dev/kfd") if os.path.exists(name)]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return " ".join(["automatic", sys.platform, *([] if hidden else accelerators)])


def _code_hash() -> str:
    root = Path(__file__).parents[1]
    paths = [path for name in CODE for path in _sources(root / name)]
    return _digest([[str(path.relative_to(root)), path.read_text(encoding="utf-8")] for path in paths])


def _sources(place: Path) -> Iterable[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
