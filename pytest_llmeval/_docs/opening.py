"""The splits of data sets: opened from files, from a local mirror, from a function, or from the hub.

Data on this disk is read without network access, and only the files of the requested split are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._docs.layout import FORMATS
from pytest_llmeval._docs.layout import Layout
from pytest_llmeval._docs.layout import format_of
from pytest_llmeval._docs.layout import lookup
from pytest_llmeval._docs.layout import matching
from pytest_llmeval._docs.layout import matching_splits
from pytest_llmeval._docs.layout import read_layout
from pytest_llmeval._docs.layout import split_patterns
from pytest_llmeval._docs.readers import declared_features
from pytest_llmeval._docs.readers import quiet_and_seeded
from pytest_llmeval._docs.readers import read
from pytest_llmeval._errors import DataError
from pytest_llmeval._functions import call
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Task


if TYPE_CHECKING:
    import datasets


#: Keys of `dataset_kwargs` for `datasets.load_dataset` that say where the data is, not how a file is read.
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
        "verification_mode",
    }
)

_HUB = "hf://datasets/"
_URL_MEND = (
    "a task file does not fetch from an address by itself; download the file and name the local path instead "
    "(relative to the task file)"
)


class DataSource:
    """The data sets opened so far. Tasks that use the same data set share its tables. A run has one such object."""

    def __init__(self) -> None:
        self._splits: dict[tuple[Any, ...], Any] = {}
        #: Folders on this disk, and the column types that their READMEs declare, by configuration.
        self._folders: dict[Path, tuple[Layout, Mapping[str, datasets.Features]]] = {}
        #: What functions of task files returned, by function and arguments.
        self._made: dict[tuple[DocFunction, str], Any] = {}
        #: Data set -> the reason why the hub could not be reached. An attempt takes half a minute, so there is one for
        #: the 57 subjects of MMLU.
        self._unreachable: dict[str, str] = {}

    def split(self, task: Task, settings: Settings, split: str) -> Any:
        """Return the raw split, before `process_docs`: a `datasets.Dataset`, or what `custom_dataset` gives for it.

        `dataset_path` is looked for in the mirror (`settings.data_dir`), beside the task file, in the working folder,
        and on the hub, in this order. Raises DataError, which names the data set, its config, the split, the places
        searched and the remedy.
        """
        key = (
            task.dataset_path,
            task.dataset_name,
            repr(dict(task.dataset_kwargs)),
            task.custom_dataset,
            repr(dict(task.metadata)) if task.custom_dataset else None,
            task.path.parent,
            settings.data_dir,
            split,
        )
        if key not in self._splits:
            self._splits[key] = self._open(task, settings, split)
        return self._splits[key]

    def _open(self, task: Task, settings: Settings, split: str) -> Any:
        path = task.dataset_path
        if task.custom_dataset is not None:
            return self._from_function(task, task.custom_dataset, split)
        if path is None:
            raise DataError(f"{describe(task, split)}: no dataset_path is given ({task.path})")
        _refuse_addresses(task, path, split)
        if path in FORMATS.values():
            return _from_named_files(task, path, settings, split)
        mirror = [settings.data_dir] if settings.data_dir is not None and not Path(path).is_absolute() else []
        looked: list[str] = []
        for base in dict.fromkeys([*mirror, task.path.parent, Path.cwd()]):
            folder = base / path
            if folder not in self._folders and folder.is_dir():
                self._folders[folder] = _read_folder(task, folder)
            if folder in self._folders and self._folders[folder][0].holds_data:
                return _from_folder(task, *self._folders[folder], split)
            looked.append(f"{folder} ({'holds no data files' if folder in self._folders else 'no such folder'})")
        return self._from_hub(task, path, split, looked)

    def _from_function(self, task: Task, function: DocFunction, split: str) -> Any:
        """Return a split from the splits that `custom_dataset` returns by name, given metadata and dataset_kwargs."""
        kwargs = {**{key: value for key, value in task.metadata.items() if key != "gates"}, **task.dataset_kwargs}
        where = f"{describe(task, split)} ({task.path}:{task.line_of('custom_dataset')})"
        key = (function, repr(kwargs))
        if key not in self._made:
            with quiet_and_seeded():
                self._made[key] = call(function, where, **kwargs)
        splits = self._made[key]
        if not isinstance(splits, Mapping):
            raise DataError(f"{where}: custom_dataset returned {type(splits).__name__}, expected splits by name")
        if split not in splits:
            raise _no_such_split(task, split, "custom_dataset", list(splits))
        return splits[split]

    def _from_hub(self, task: Task, path: str, split: str, looked: Sequence[str]) -> datasets.Dataset:
        import datasets

        reason = self._unreachable.get(path)
        if reason is None:
            kwargs = {key: value for key, value in task.dataset_kwargs.items() if key != "streaming"}
            try:
                with quiet_and_seeded():
                    return datasets.load_dataset(path, task.dataset_name, split=split, **kwargs)
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                if isinstance(error, ConnectionError):
                    self._unreachable[path] = reason
        raise DataError(
            f"{describe(task, split)}: cannot be loaded. Looked for {', '.join(looked)}, and on the Hugging Face hub "
            f"({reason}). Put it at DIR/{path}, laid out as on the hub, and give --llmeval-data DIR; or go online "
            "(if it is gated, log in and accept its terms)"
        )


def describe(task: Task, split: str | None) -> str:
    """Return ``task t: data set org/name (config c), split 's'``, the start of a message."""
    source = task.dataset_path or ("of its custom_dataset" if task.custom_dataset else "(none)")
    config = f" (config {task.dataset_name})" if task.dataset_name else ""
    return f"task {task.name}: data set {source}{config}" + (f", split {split!r}" if split else "")


def _refuse_addresses(task: Task, path: str, split: str) -> None:
    """Raise DataError for an address: only a path, a hub data set or a file of a hub data set is read."""
    patterns = split_patterns(task.dataset_kwargs.get("data_files") or ())
    named = [pattern for files in patterns.values() for pattern in files]
    if path in FORMATS.values():
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
    return _read(task, split, kind, files)


def _named_files(task: Task, settings: Settings, split: str, pattern: str) -> Sequence[Path]:
    """Return the files of one entry of `data_files`: beside the task file, else (as in lm_eval) in the working folder.

    ``hf://datasets/org/name/path`` is read as ``DIR/org/name/path`` of the mirror.
    """
    if pattern.startswith(_HUB):
        inside = pattern.removeprefix(_HUB)
        if settings.data_dir is not None and (files := matching(settings.data_dir, [inside])):
            return files
        raise DataError(
            f"{describe(task, split)}: data_files names {_HUB}{inside}: {_URL_MEND}, or put it at DIR/{inside} and "
            f"give --llmeval-data DIR (now {settings.data_dir or 'not given'})"
        )
    below = str(task.dataset_kwargs.get("data_dir") or "")
    places = [task.path.parent / below, Path.cwd() / below]
    for place in places:
        if files := matching(place, [pattern]):
            return files
    looked = " and ".join(dict.fromkeys(str(place / pattern) for place in places))
    raise DataError(f"{describe(task, split)}: no such file; looked for {looked}. Correct data_files in {task.path}")


def _read_folder(task: Task, folder: Path) -> tuple[Layout, Mapping[str, datasets.Features]]:
    try:
        layout = read_layout(folder)
        return layout, declared_features(folder) if layout.has_types else {}
    except DataError as error:
        raise DataError(f"{describe(task, None)}: {error}") from error


def _from_folder(task: Task, layout: Layout, features: Mapping[str, datasets.Features], split: str) -> datasets.Dataset:
    """Return a split by the task's own `data_files`, relative to the folder, else by the configuration."""
    data_files = task.dataset_kwargs.get("data_files")
    if data_files is not None:
        folder = layout.folder / str(task.dataset_kwargs.get("data_dir") or "")
        splits, options = matching_splits(folder, split_patterns(data_files)), NOTHING
    else:
        try:
            splits, options = layout.splits(task.dataset_name)
        except DataError as error:
            place = f"{task.path}:{task.line_of('dataset_name')}"
            raise DataError(f"{describe(task, split)}: {error}; correct dataset_name in {place}") from error
    files = lookup(splits, split)
    if not files:
        raise _no_such_split(task, split, layout.folder, list(splits))
    kind = format_of(files[0])
    if kind is None:
        known = ", ".join(FORMATS)
        raise DataError(f"{describe(task, split)}: {files[0]} has an unsupported format; convert it to {known}")
    declared = features.get(task.dataset_name or layout.default or "default")
    return _read(task, split, kind, files, options, declared)


def _read(
    task: Task,
    split: str,
    kind: str,
    files: Sequence[Path],
    options: Mapping[str, Any] = NOTHING,
    features: datasets.Features | None = None,
) -> datasets.Dataset:
    """Return files as one table. Reader options in `dataset_kwargs` take precedence over those of the configuration."""
    own = {key: value for key, value in task.dataset_kwargs.items() if key not in _LOADER_KEYS}
    try:
        return read(kind, files, {**options, **own}, features)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error.__cause__ or error).split())}"
        names = ", ".join(map(str, files))
        raise DataError(f"{describe(task, split)}: {names} cannot be read as {kind} ({reason})") from error
