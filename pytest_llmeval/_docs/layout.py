"""Which files of a folder hold which split, when it is laid out like a data set on the Hugging Face hub.

The layout is the hub's own (huggingface.co/docs/hub/datasets-manual-configuration): a README.md whose front
matter lists `configs`, each with its `data_files`; else files and folders named after their split. Only names
are looked at here, nothing is read but the README.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pytest_llmeval._errors import DataError
from pytest_llmeval._task import NOTHING


#: File suffix -> reader. Of several kinds in one folder the first of this order holds the data: a
#: LICENSE.txt beside parquet files is no split.
FORMATS = MappingProxyType(
    {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
)
#: Compression is undone by the reader, all but parquet's own.
COMPRESSIONS = frozenset({".gz", ".bz2", ".xz", ".zst"})

#: Every name that says what a split is for, by the name that `datasets` gives such a split.
_SPLIT_WORDS = {
    word: split
    for split, words in {
        "train": ("train", "training"),
        "validation": ("validation", "valid", "dev", "val"),
        "test": ("test", "testing", "eval", "evaluation"),
    }.items()
    for word in words
}
_SPLIT_WORD = re.compile(rf"(?:^|[-._ 0-9])({'|'.join(_SPLIT_WORDS)})(?=[-._ 0-9]|$)")
_SHARD = re.compile(r"^(.+)-\d{5}-of-\d{5}")
#: Files that describe a data set and hold none of it.
_NOT_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json"})

#: Split name -> its files, in the order in which they are read.
Splits = Mapping[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class Config:
    """One named configuration of a data set: glob patterns per split, and options for the reader (`sep`, ...).

    Without patterns the names of the files in `folder` tell the splits.
    """

    folder: str
    patterns: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class Layout:
    """A folder's configurations by name; none where the README names none. `default` is used without a name.

    `typed`: the README also declares the columns' types (`dataset_info`).
    """

    folder: Path
    configs: Mapping[str, Config]
    default: str | None = None
    typed: bool = False

    def config(self, name: str | None) -> Config | None:
        """The configuration of that name, or None where the folder's file names decide. Raises DataError."""
        if not self.configs:
            return None
        wanted = name if name is not None else self.default
        if wanted is not None and wanted in self.configs:
            return self.configs[wanted]
        known = ", ".join(self.configs)
        problem = f"has no config {name!r}" if name is not None else "has several configs: name one as dataset_name"
        raise DataError(f"{self.folder} {problem} (its README.md has: {known})")

    def holds_data(self) -> bool:
        """Whether this is a data set at all: its README lists configurations, or data files lie in it."""
        return bool(self.configs or _data_files(self.folder))

    def splits(self, name: str | None) -> Splits:
        """The splits of a configuration of which files are there. Raises DataError."""
        config = self.config(name)
        if config is None:
            return _named_splits(self.folder, name)
        folder = self.folder / config.folder
        if not config.patterns:
            return _named_splits(folder, None)
        found = {split: matching(folder, patterns) for split, patterns in config.patterns.items()}
        return {split: files for split, files in found.items() if files}


def read_layout(folder: Path) -> Layout:
    """What the folder's README.md says about its configurations. Raises DataError if it cannot be read."""
    card = _front_matter(folder / "README.md")
    typed = "dataset_info" in card
    entries = [
        entry
        for entry in card.get("configs") or ()
        if isinstance(entry, Mapping) and entry.keys() & {"data_files", "data_dir"}
    ]
    configs = {str(entry.get("config_name", "default")): _read_config(entry) for entry in entries}
    marked = [str(entry.get("config_name", "default")) for entry in entries if entry.get("default")]
    return Layout(folder, configs, _default(configs, marked), typed)


def _default(configs: Mapping[str, Config], marked: Sequence[str]) -> str | None:
    if marked:
        return marked[0]
    return next(iter(configs)) if len(configs) == 1 else "default" if "default" in configs else None


def lookup(splits: Splits, wanted: str) -> tuple[Path, ...]:
    """The files of a split, which may be called by another word for it (`dev` for `validation`); or ()."""
    if wanted in splits:
        return splits[wanted]
    meaning = _SPLIT_WORDS.get(wanted)
    meant = [files for split, files in splits.items() if meaning is not None and _meaning(split) == meaning]
    return meant[0] if len(meant) == 1 else ()


def split_patterns(data_files: Any) -> dict[str, tuple[str, ...]]:
    """`data_files` in any of its spellings as patterns per split: a text, a list, or either per split."""
    if isinstance(data_files, Mapping):
        return {str(split): _texts(paths) for split, paths in data_files.items()}
    if isinstance(data_files, list | tuple) and all(isinstance(entry, Mapping) for entry in data_files):
        return {str(entry.get("split", "train")): _texts(entry.get("path", ())) for entry in data_files}
    return {"train": _texts(data_files)}


def matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """The files that the glob patterns name, relative to the folder, in the order of their names."""
    found = [path for pattern in patterns for path in _matching(folder, pattern)]
    return tuple(dict.fromkeys(found))


def _matching(folder: Path, pattern: str) -> list[Path]:
    path = folder / pattern
    if path.is_file():
        return [path]
    if pattern.endswith("**"):
        path /= "*"
    base = Path(path.anchor) if Path(pattern).is_absolute() else folder
    return [file for file in sorted(base.glob(str(path.relative_to(base)))) if file.is_file()]


def format_of(path: Path) -> str | None:
    """The reader for a file: parquet, json, csv or text; None if there is none."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSIONS]
    return FORMATS.get(suffixes[-1]) if suffixes else None


def _read_config(entry: Mapping[str, Any]) -> Config:
    data_files = entry.get("data_files")
    patterns = {} if data_files is None else split_patterns(data_files)
    known = {"config_name", "data_files", "data_dir", "default", "version", "description"}
    options = {key: value for key, value in entry.items() if key not in known}
    return Config(str(entry.get("data_dir") or ""), patterns, options)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def _front_matter(readme: Path) -> Mapping[str, Any]:
    """The YAML between the two `---` lines at the top of a README; empty if there is none."""
    if not readme.is_file():
        return NOTHING
    head, _, rest = readme.read_text(encoding="utf-8", errors="replace").partition("---")
    if head.strip() or "\n---" not in rest:
        return NOTHING
    try:
        # libyaml's safe loader where there is one: the card of a data set with many configs is long.
        card = yaml.load(rest.split("\n---", 1)[0], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        raise DataError(f"{readme}: the front matter is no YAML ({' '.join(str(error).split())})") from error
    return card if isinstance(card, Mapping) else NOTHING


def _named_splits(folder: Path, name: str | None) -> Splits:
    """Splits by the names of files and folders: `<config>/<split>-*.parquet`, `data/test.jsonl`, `test/0.csv`."""
    base = folder / name if name else folder
    if not base.is_dir():
        if name == "default":
            base = folder
        else:
            raise DataError(f"{folder} has no config {name!r} (no README.md with configs, and no folder {name})")
    files = _data_files(base)
    homes = {_home(path, base) for path in files}
    if len(homes) > 1 and name is None:
        known = ", ".join(sorted(str(home) for home in homes))
        raise DataError(f"{folder} has several configs: name one as dataset_name (folders with data: {known})")
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_split_of(path.relative_to(base)), []).append(path)
    if files and not any(map(_meaning, splits)):
        splits.setdefault("train", list(files))
    return {split: tuple(paths) for split, paths in splits.items()}


def _data_files(folder: Path) -> Sequence[Path]:
    """All files of the folder's most data-like format, sorted, hidden ones left out."""
    kinds: dict[str, list[Path]] = {kind: [] for kind in FORMATS.values()}
    for path in sorted(folder.rglob("*")):
        kind = format_of(path)
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if kind and not hidden and path.name not in _NOT_DATA and path.is_file():
            kinds[kind].append(path)
    return next((files for files in kinds.values() if files), [])


def _home(path: Path, base: Path) -> Path:
    """The folder of a file without parts that are named after a split, or after nothing (`data`)."""
    parts = path.relative_to(base).parent.parts
    return Path(*(part for part in parts if part != "data" and not _SPLIT_WORD.search(part)))


def _split_of(path: Path) -> str:
    for part in reversed(path.parent.parts):
        if word := _SPLIT_WORD.search(part):
            return word.group(1)
    if shard := _SHARD.match(path.name):
        return shard.group(1)
    word = _SPLIT_WORD.search(path.name)
    return word.group(1) if word else path.name.split(".")[0]


def _meaning(split: str) -> str | None:
    """What a split of that name is for, if its name says so: train, validation or test."""
    word = _SPLIT_WORD.search(split)
    return _SPLIT_WORDS[word.group(1)] if word else None
