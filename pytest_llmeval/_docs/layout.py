"""The files of each split in a folder that is laid out like a data set on the Hugging Face hub.

The layout is that of the hub (huggingface.co/docs/hub/datasets-manual-configuration): a README.md whose front
matter lists `configs`, each with its `data_files`; else files and folders named after their split. Only the README
is read here; of other files only the names are used.

``datasets.load_dataset(folder, config, split=split)`` reads such a folder as well. It is not used, since it

- prepares every split of a configuration, whereas only the requested split is read here;
- takes 25 ms per parquet file for a copy in its disk cache, against 4 ms to read it into memory (see `readers`);
  MMLU has 57 configurations;
- locks that cache, so that the workers of pytest-xdist wait for each other;
- queries the hub if there is no such folder, and its errors name neither the task nor the places it searched.
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


#: File suffix -> format. If a folder has files of several formats, only the first in this order is data: a LICENSE.txt
#: beside parquet files is not a split. The formats are values of `dataset_path` as well.
FORMATS = MappingProxyType(
    {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
)
#: Suffixes of compressed files. The readers decompress them, except parquet, which compresses inside the file.
COMPRESSIONS = frozenset({".gz", ".bz2", ".xz", ".zst"})

#: Word in the name of a file or folder -> the name that `datasets` gives such a split.
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
#: Files that describe a data set but contain no data.
_NOT_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json"})

#: Split name -> its files, in the order in which they are read.
Splits = Mapping[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class Config:
    """One named configuration of a data set: glob patterns per split, and options for the reader (`sep`, ...).

    Without patterns the splits are found by the names of the files in `folder`.
    """

    folder: str
    patterns: Mapping[str, tuple[str, ...]]
    options: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class Layout:
    """The configurations of a folder by name, if its README has any. `default` is used if a task names none.

    `holds_data`: the folder is a data set, since its README lists configurations or data files lie in it.
    `has_types`: the README also declares the types of the columns (`dataset_info`).
    """

    folder: Path
    configs: Mapping[str, Config]
    default: str | None
    holds_data: bool
    has_types: bool

    def splits(self, name: str | None) -> tuple[Splits, Mapping[str, Any]]:
        """Return the splits of a configuration that have files, and the options of its reader. Raises DataError."""
        if not self.configs:
            return _named_splits(self.folder, name), NOTHING
        config = self.configs.get(name if name is not None else self.default or "")
        if config is None:
            problem = f"has no config {name!r}" if name is not None else "has several configs: name one as dataset_name"
            raise DataError(f"{self.folder} {problem} (its README.md has: {', '.join(self.configs)})")
        folder = self.folder / config.folder
        splits = matching_splits(folder, config.patterns) if config.patterns else _named_splits(folder, None)
        return splits, config.options


def read_layout(folder: Path) -> Layout:
    """Return the configurations that the README.md of a folder lists. Raises DataError if it cannot be read."""
    card = _front_matter(folder / "README.md")
    configs: dict[str, Config] = {}
    marked: list[str] = []
    for entry in card.get("configs") or ():
        if not isinstance(entry, Mapping) or not entry.keys() & {"data_files", "data_dir"}:
            continue
        name, data_files = str(entry.get("config_name", "default")), entry.get("data_files")
        known = {"config_name", "data_files", "data_dir", "default", "version", "description"}
        options = {key: value for key, value in entry.items() if key not in known}
        patterns = {} if data_files is None else split_patterns(data_files)
        configs[name] = Config(str(entry.get("data_dir") or ""), patterns, options)
        if entry.get("default"):
            marked.append(name)
    unmarked = next(iter(configs)) if len(configs) == 1 else "default" if "default" in configs else None
    holds_data = bool(configs or _data_files(folder))
    return Layout(folder, configs, marked[0] if marked else unmarked, holds_data, "dataset_info" in card)


def lookup(splits: Splits, wanted: str) -> tuple[Path, ...]:
    """Return the files of a split, also under another name for it (`dev` for `validation`); () if there are none."""
    if wanted in splits:
        return splits[wanted]
    meaning = _SPLIT_WORDS.get(wanted)
    meant = [files for split, files in splits.items() if meaning is not None and _meaning(split) == meaning]
    return meant[0] if len(meant) == 1 else ()


def split_patterns(data_files: Any) -> dict[str, tuple[str, ...]]:
    """Return the glob patterns of each split from `data_files`: a text, a list, or a mapping from splits to either."""
    if isinstance(data_files, Mapping):
        return {str(split): _texts(paths) for split, paths in data_files.items()}
    if isinstance(data_files, list | tuple) and all(isinstance(entry, Mapping) for entry in data_files):
        return {str(entry.get("split", "train")): _texts(entry.get("path", ())) for entry in data_files}
    return {"train": _texts(data_files)}


def matching(folder: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """Return the files that glob patterns relative to a folder match, in the order of the patterns, then by name."""
    found: list[Path] = []
    for pattern in patterns:
        path = folder / pattern
        if path.is_file():
            found.append(path)
            continue
        if pattern.endswith("**"):
            path /= "*"
        base = Path(path.anchor) if Path(pattern).is_absolute() else folder
        found += (file for file in sorted(base.glob(str(path.relative_to(base)))) if file.is_file())
    return tuple(dict.fromkeys(found))


def matching_splits(folder: Path, patterns: Mapping[str, tuple[str, ...]]) -> Splits:
    """Return the splits that have files which match their patterns, with these files."""
    found = {split: matching(folder, globs) for split, globs in patterns.items()}
    return {split: files for split, files in found.items() if files}


def format_of(path: Path) -> str | None:
    """Return the format of a file: parquet, json, csv or text; None for any other."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSIONS]
    return FORMATS.get(suffixes[-1]) if suffixes else None


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def _front_matter(readme: Path) -> Mapping[str, Any]:
    """Return the YAML between the two `---` lines at the top of a README; empty if there is none."""
    if not readme.is_file():
        return NOTHING
    head, _, rest = readme.read_text(encoding="utf-8", errors="replace").partition("---")
    if head.strip() or "\n---" not in rest:
        return NOTHING
    try:
        # libyaml's safe loader if it is installed, because the card of a data set with many configs is long.
        card = yaml.load(rest.split("\n---", 1)[0], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        raise DataError(f"{readme}: the front matter is not YAML ({' '.join(str(error).split())})") from error
    return card if isinstance(card, Mapping) else NOTHING


def _named_splits(folder: Path, name: str | None) -> Splits:
    """Return splits by file and folder names: `<config>/<split>-*.parquet`, `data/test.jsonl`, `test/0.csv`."""
    base = folder / name if name else folder
    if not base.is_dir():
        if name == "default":
            base = folder
        else:
            raise DataError(f"{folder} has no config {name!r} (no README.md with configs, and no folder {name})")
    files = _data_files(base)
    # The folder of each file without the parts that are named after a split or just `data`.
    parts = [path.relative_to(base).parent.parts for path in files]
    homes = {Path(*(part for part in one if part != "data" and not _SPLIT_WORD.search(part))) for one in parts}
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
    """Return all files of the first format of `FORMATS` in a folder, sorted, without hidden files."""
    kinds: dict[str, list[Path]] = {kind: [] for kind in FORMATS.values()}
    for path in sorted(folder.rglob("*")):
        kind = format_of(path)
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if kind and not hidden and path.name not in _NOT_DATA and path.is_file():
            kinds[kind].append(path)
    return next((files for files in kinds.values() if files), [])


def _split_of(path: Path) -> str:
    for part in reversed(path.parent.parts):
        if word := _SPLIT_WORD.search(part):
            return word.group(1)
    if shard := _SHARD.match(path.name):
        return shard.group(1)
    word = _SPLIT_WORD.search(path.name)
    return word.group(1) if word else path.name.split(".")[0]


def _meaning(split: str) -> str | None:
    """Return the use of a split if a word of its name gives it: train, validation or test."""
    word = _SPLIT_WORD.search(split)
    return _SPLIT_WORDS[word.group(1)] if word else None
