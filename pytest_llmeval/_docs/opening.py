"""Opening one split of a data set: from files, from a local mirror, from a function, or from the hub.

Whatever lies on this disk is read without any network, and only the files of the split that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._docs import readers
from pytest_llmeval._docs.layout import FORMATS
from pytest_llmeval._docs.layout import Layout
from pytest_llmeval._docs.layout import Splits
from pytest_llmeval._docs.layout import format_of
from pytest_llmeval._docs.layout import lookup
from pytest_llmeval._docs.layout import matching
from pytest_llmeval._docs.layout import read_layout
from pytest_llmeval._docs.layout import split_patterns
from pytest_llmeval._docs.readers import quiet_and_settled
from pytest_llmeval._errors import DataError
from pytest_llmeval._functions import call
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Task


if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True, slots=True)
class LocalData:
    """A folder on this disk, whether it holds a data set, and the column types that its README declares by config."""

    layout: Layout
    holds_data: bool
    features: Mapping[str, datasets.Features]


@dataclass(frozen=True, slots=True)
class Opened:
    """What was found so far: folders on this disk, and the splits that functions of task files returned.

    `unreachable`: data set -> why the hub could not be reached for it. Trying takes half a minute, so the 57 subjects
    of MMLU try once.
    """

    folders: dict[Path, LocalData] = field(default_factory=dict)
    made: dict[tuple[DocFunction, str], Any] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)


#: Keys of `dataset_kwargs` that tell `datasets.load_dataset` where to look, not how to read a file.
_LOADER_KEYS = frozenset(
    {
        "cache_dir",
        "data_dir",
        "data_files",
        "download_config",
        "download_mode",
        "num_proc",
        "revision",
        "save_infos",
        "storage_options",
        "streaming",
        "token",
        "trust_remote_code",
        "verification_mode",
    }
)

_HUB = "hf://datasets/"
_URL_MEND = (
    "a task file does not fetch from an address by itself; download the file and name the local path instead "
    "(relative to the task file)"
)


def open_split(task: Task, settings: Settings, split: str, opened: Opened) -> Any:
    """The raw split, before `process_docs`: a `datasets.Dataset`, or what `custom_dataset` returns for it.

    `dataset_path` is looked for in the mirror (`settings.data_dir`), beside the task file, in the working folder,
    and on the hub, in this order; `opened` is added to. Raises DataError, which names the data set, its config,
    the split, the places looked at and the mend.
    """
    path = task.dataset_path
    if task.custom_dataset is not None:
        return _from_function(task, task.custom_dataset, split, opened)
    if path is None:
        raise DataError(f"{describe(task, split)}: no dataset_path is given ({task.path})")
    _refuse_addresses(task, path, split)
    if path in readers.READERS:
        return _from_named_files(task, path, settings, split)
    looked: list[str] = []
    local = _find_folder(task, path, settings, looked, opened.folders)
    return _from_hub(task, path, split, looked, opened) if local is None else _from_folder(task, local, split)


def describe(task: Task, split: str | None) -> str:
    """``task t: data set org/name (config c), split 's'``."""
    source = task.dataset_path or ("of its custom_dataset" if task.custom_dataset else "(none)")
    config = f" (config {task.dataset_name})" if task.dataset_name else ""
    return f"task {task.name}: data set {source}{config}" + (f", split {split!r}" if split else "")


def _refuse_addresses(task: Task, path: str, split: str) -> None:
    """Only a hub data set, or a file of one, may be named by something that is no path."""
    patterns = split_patterns(task.dataset_kwargs.get("data_files") or ())
    named = [pattern for files in patterns.values() for pattern in files]
    if path in readers.READERS:
        named = [pattern for pattern in named if not pattern.startswith(_HUB)]
    for text in [path, str(task.dataset_kwargs.get("data_dir") or ""), *named]:
        if "://" in text:
            raise DataError(f"{describe(task, split)}: {text}: {_URL_MEND} ({task.path})")


def _no_such_split(task: Task, split: str, place: object, known: Sequence[str]) -> DataError:
    keys = ("test_split", "validation_split", "training_split")
    key = next((key for key in keys if getattr(task, key) == split), "fewshot_split")
    have = ", ".join(known) if known else "none"
    return DataError(
        f"{describe(task, split)}: {place} has no such split (it has: {have}); correct {key} in "
        f"{task.path}:{task.line_of(key)}, or add the split's files"
    )


def _from_function(task: Task, function: DocFunction, split: str, opened: Opened) -> Any:
    """`custom_dataset` is called with metadata and dataset_kwargs, and returns splits by name."""
    kwargs = {**{key: value for key, value in task.metadata.items() if key != "gates"}, **task.dataset_kwargs}
    where = f"{describe(task, split)} ({task.path}:{task.line_of('custom_dataset')})"
    key = (function, repr(kwargs))
    if key not in opened.made:
        with quiet_and_settled():
            opened.made[key] = call(function, where, **kwargs)
    splits = opened.made[key]
    if not isinstance(splits, Mapping):
        raise DataError(f"{where}: custom_dataset returned {type(splits).__name__}, expected splits by name")
    if split not in splits:
        raise _no_such_split(task, split, "custom_dataset", list(splits))
    return splits[split]


def _from_named_files(task: Task, kind: str, settings: Settings, split: str) -> datasets.Dataset:
    data_files = task.dataset_kwargs.get("data_files")
    if data_files is None:
        raise DataError(
            f"{describe(task, split)}: dataset_path {kind} needs dataset_kwargs: {{data_files: {{{split}: FILE}}}} "
            f"({task.path}:{task.line_of('dataset_path')})"
        )
    patterns = split_patterns(data_files)
    if split not in patterns:
        raise _no_such_split(task, split, "data_files", list(patterns))
    files = [path for pattern in patterns[split] for path in _named_files(task, settings, split, pattern)]
    return _read(task, split, kind, files, _reader_options(task))


def _named_files(task: Task, settings: Settings, split: str, pattern: str) -> Sequence[Path]:
    """The files of one entry of `data_files`: beside the task file, else (as in the peer) in the working folder."""
    if pattern.startswith(_HUB):
        return _mirrored_file(task, settings, split, pattern.removeprefix(_HUB))
    below = str(task.dataset_kwargs.get("data_dir") or "")
    places = [task.path.parent / below, Path.cwd() / below]
    for place in places:
        if files := matching(place, [pattern]):
            return files
    looked = " and ".join(dict.fromkeys(str(place / pattern) for place in places))
    raise DataError(f"{describe(task, split)}: no such file; looked for {looked}. Correct data_files in {task.path}")


def _mirrored_file(task: Task, settings: Settings, split: str, inside: str) -> Sequence[Path]:
    """``hf://datasets/org/name/path``, read as ``DIR/org/name/path`` of the mirror."""
    files = () if settings.data_dir is None else matching(settings.data_dir, [inside])
    if not files:
        raise DataError(
            f"{describe(task, split)}: data_files names {_HUB}{inside}: {_URL_MEND}, or put it at DIR/{inside} and "
            f"give --llmeval-data DIR (now {settings.data_dir or 'not given'})"
        )
    return files


def _find_folder(
    task: Task, path: str, settings: Settings, looked: list[str], folders: dict[Path, LocalData]
) -> LocalData | None:
    """The folder of this disk that holds the data set; the places without it are added to `looked`."""
    mirror = [settings.data_dir] if settings.data_dir is not None and not Path(path).is_absolute() else []
    for base in dict.fromkeys([*mirror, task.path.parent, Path.cwd()]):
        folder = base / path
        if folder not in folders and folder.is_dir():
            folders[folder] = _read_folder(task, folder)
        if folder in folders and folders[folder].holds_data:
            return folders[folder]
        looked.append(f"{folder} ({'holds no data files' if folder in folders else 'no such folder'})")
    return None


def _read_folder(task: Task, folder: Path) -> LocalData:
    try:
        layout = read_layout(folder)
        return LocalData(layout, layout.holds_data(), readers.declared_features(folder) if layout.typed else {})
    except DataError as error:
        raise DataError(f"{describe(task, None)}: {error}") from error


def _from_folder(task: Task, local: LocalData, split: str) -> datasets.Dataset:
    layout = local.layout
    splits, options = _splits(task, layout, split)
    files = lookup(splits, split)
    if not files:
        raise _no_such_split(task, split, layout.folder, list(splits))
    kind = format_of(files[0])
    if kind is None:
        known = ", ".join(FORMATS)
        raise DataError(f"{describe(task, split)}: {files[0]} is of no format that is read here; convert it to {known}")
    features = local.features.get(task.dataset_name or layout.default or "default")
    return _read(task, split, kind, files, {**options, **_reader_options(task)}, features)


def _splits(task: Task, layout: Layout, split: str) -> tuple[Splits, Mapping[str, Any]]:
    """The splits of the task's own `data_files` (relative to the data set), else of its configuration with options."""
    data_files = task.dataset_kwargs.get("data_files")
    if data_files is not None:
        folder = layout.folder / str(task.dataset_kwargs.get("data_dir") or "")
        found = {name: matching(folder, globs) for name, globs in split_patterns(data_files).items()}
        return {name: files for name, files in found.items() if files}, NOTHING
    try:
        config = layout.config(task.dataset_name)
        return layout.splits(task.dataset_name), NOTHING if config is None else config.options
    except DataError as error:
        place = f"{task.path}:{task.line_of('dataset_name')}"
        raise DataError(f"{describe(task, split)}: {error}; correct dataset_name in {place}") from error


def _reader_options(task: Task) -> dict[str, Any]:
    return {key: value for key, value in task.dataset_kwargs.items() if key not in _LOADER_KEYS}


def _read(
    task: Task,
    split: str,
    kind: str,
    files: Sequence[Path],
    options: Mapping[str, Any],
    features: datasets.Features | None = None,
) -> datasets.Dataset:
    try:
        return readers.read(kind, files, options, features)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error.__cause__ or error).split())}"
        names = ", ".join(map(str, files))
        raise DataError(f"{describe(task, split)}: {names} cannot be read as {kind} ({reason})") from error


def _from_hub(task: Task, path: str, split: str, looked: Sequence[str], opened: Opened) -> datasets.Dataset:
    if path in opened.unreachable:
        raise DataError(_not_had(task, path, split, looked, opened.unreachable[path]))
    import datasets

    refused = {"trust_remote_code", "streaming"}
    kwargs = {key: value for key, value in task.dataset_kwargs.items() if key not in refused}
    try:
        with quiet_and_settled():
            return datasets.load_dataset(path, task.dataset_name, split=split, **kwargs)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if isinstance(error, ConnectionError):
            opened.unreachable[path] = reason
        raise DataError(_not_had(task, path, split, looked, reason)) from error


def _not_had(task: Task, path: str, split: str, looked: Sequence[str], reason: str) -> str:
    return (
        f"{describe(task, split)}: it cannot be had. Looked for {', '.join(looked)}, and on the Hugging Face hub "
        f"({reason}). Put it at DIR/{path}, laid out as on the hub, and give --llmeval-data DIR; or go online "
        "(for a gated one: log in, and accept its terms)"
    )
