"""Running code that is not ours while data is opened: the functions of a task file, and the `datasets` library.

Data files to tables, with the readers and the column types of the `datasets` library.

Only here and in `opening` is that library touched, and only when a data set is opened.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._errors import DataError


#: Python's and numpy's seeds in the peer when it loads a task (lm_eval --seed 0,1234,1234,1234).
_PYTHON_SEED, _NUMPY_SEED = 0, 1234


@contextmanager
def quiet_and_settled() -> Iterator[None]:
    """Run code of `datasets` or of a task file: no progress bars, and the same random numbers every time.

    A `process_docs` that shuffles with the global generator gives the same docs in every process, and the
    generators are left as they were.
    """
    import datasets
    import numpy as np

    bars_were_on = not datasets.are_progress_bars_disabled()
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(_PYTHON_SEED)
    np.random.seed(_NUMPY_SEED)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if bars_were_on:
            datasets.enable_progress_bars()


if TYPE_CHECKING:
    import datasets


def read(
    kind: str, files: Sequence[Path], options: Mapping[str, Any], features: datasets.Features | None = None
) -> datasets.Dataset:
    """Files of one format (a key of `READERS`) as one table in memory, as `datasets.load_dataset` would give it.

    `options` go to the reader (`sep`, `field`, ...), `features` are column types declared elsewhere. Files without
    rows give a table without rows. Raises whatever the reader raises.
    """
    import datasets

    if not any(path.stat().st_size for path in files):
        return datasets.Dataset.from_dict({})
    try:
        with quiet_and_settled():
            return READERS[kind]([str(path) for path in files], dict(options), features)
    except ValueError as error:
        if "corresponds to no data" not in str(error):  # how the library puts it that there are no rows
            raise
        return datasets.Dataset.from_dict({})


def declared_features(folder: Path) -> dict[str, datasets.Features]:
    """The column types that a README's `dataset_info` gives, by configuration. Raises DataError."""
    from datasets.info import DatasetInfosDict

    try:
        infos: Mapping[str, Any] = DatasetInfosDict.from_directory(str(folder))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{folder / 'README.md'}: dataset_info cannot be read ({reason})") from error
    return {name: info.features for name, info in infos.items() if info.features is not None}


def _read_parquet(files: list[str], options: dict[str, Any], features: datasets.Features | None) -> datasets.Dataset:
    import datasets
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    # Straight into memory, 4 ms a file; the library's own way through its disk cache takes 25. It would also
    # hash every value for a name (15 ms); where the file lies and when it was written do as well.
    table = pq.read_table(files, columns=options.get("columns"), partitioning=None)
    written = [(file, os.stat(file).st_mtime_ns) for file in files]
    dataset = datasets.Dataset(table, fingerprint=hashlib.sha256(repr(written).encode()).hexdigest()[:16])
    return dataset if features is None or dataset.features == features else dataset.cast(features)


def _through_cache(
    reader: Callable[..., datasets.Dataset], files: list[str], options: dict[str, Any], features: Any
) -> datasets.Dataset:
    """Read by way of a cache that is thrown away at once: nothing stale is read, no worker waits for a lock."""
    with tempfile.TemporaryDirectory(prefix="llmeval-") as cache:
        return reader(files, features=features, cache_dir=cache, keep_in_memory=True, **options)


def _read_json(files: list[str], options: dict[str, Any], features: Any) -> datasets.Dataset:
    import datasets

    return _through_cache(datasets.Dataset.from_json, files, options, features)


def _read_csv(files: list[str], options: dict[str, Any], features: Any) -> datasets.Dataset:
    import datasets

    tabs = {"sep": "\t"} if ".tsv" in Path(files[0]).suffixes else {}
    return _through_cache(datasets.Dataset.from_csv, files, {**tabs, **options}, features)


def _read_text(files: list[str], options: dict[str, Any], features: Any) -> datasets.Dataset:
    import datasets

    return _through_cache(datasets.Dataset.from_text, files, options, features)


#: `dataset_path` values that name a file format, and the formats of files in a folder.
READERS: Mapping[str, Callable[[list[str], dict[str, Any], Any], datasets.Dataset]] = MappingProxyType(
    {"parquet": _read_parquet, "json": _read_json, "csv": _read_csv, "text": _read_text}
)
