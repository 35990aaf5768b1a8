"""Data files as tables, by the readers and column types of the `datasets` library.

That library is used only here and in `opening`, and only when a data set is opened.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._errors import DataError


if TYPE_CHECKING:
    import datasets


#: Seeds of Python and numpy in lm_eval when it loads a task (lm_eval --seed 0,1234,1234,1234).
_PYTHON_SEED, _NUMPY_SEED = 0, 1234


@contextmanager
def quiet_and_seeded() -> Iterator[None]:
    """Run code of `datasets` or of a task file without progress bars, and with the same random numbers every time.

    A `process_docs` that shuffles with the global generator gives the same docs in every process, and the
    states of the generators are restored.
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


def read(
    kind: str, files: Sequence[Path], options: Mapping[str, Any], features: datasets.Features | None = None
) -> datasets.Dataset:
    """Return files of one format (a value of `FORMATS`) as one table in memory, as `datasets.load_dataset` gives it.

    `options` go to the reader (`sep`, `field`, ...), `features` are column types declared elsewhere. Files without
    rows give a table without rows. Exceptions of the reader are passed on.
    """
    import datasets

    if not any(path.stat().st_size for path in files):
        return datasets.Dataset.from_dict({})
    names = [str(path) for path in files]
    try:
        with quiet_and_seeded():
            if kind == "parquet":
                return _read_parquet(names, options, features)
            tabs = {"sep": "\t"} if kind == "csv" and ".tsv" in files[0].suffixes else {}
            reader = getattr(datasets.Dataset, f"from_{kind}")
            # The cache is deleted at once, so that no stale data is read and no worker waits for a lock.
            with tempfile.TemporaryDirectory(prefix="llmeval-") as cache:
                settings = {"cache_dir": cache, "keep_in_memory": True, "features": features}
                table: datasets.Dataset = reader(names, **settings, **{**tabs, **options})
                return table
    except ValueError as error:
        if "corresponds to no data" not in str(error):  # the library's message where there are no rows
            raise
        return datasets.Dataset.from_dict({})


def _read_parquet(files: list[str], options: Mapping[str, Any], features: datasets.Features | None) -> datasets.Dataset:
    import datasets
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    # Reading into memory takes 4 ms per file, the library's disk cache 25. The library would also hash all values
    # for a fingerprint (15 ms); one made of the files' paths and modification times serves as well.
    table = pq.read_table(files, columns=options.get("columns"), partitioning=None)
    written = [(file, os.stat(file).st_mtime_ns) for file in files]
    dataset = datasets.Dataset(table, fingerprint=hashlib.sha256(repr(written).encode()).hexdigest()[:16])
    return dataset if features is None or dataset.features == features else dataset.cast(features)


def declared_features(folder: Path) -> dict[str, datasets.Features]:
    """Return the column types of the `dataset_info` in a README, by configuration. Raises DataError."""
    from datasets.info import DatasetInfosDict

    try:
        infos: Mapping[str, Any] = DatasetInfosDict.from_directory(str(folder))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{folder / 'README.md'}: dataset_info cannot be read ({reason})") from error
    return {name: info.features for name, info in infos.items() if info.features is not None}
