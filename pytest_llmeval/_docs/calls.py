"""Running code that is not ours while data is opened: the functions of a task file, and the `datasets` library."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._task import DocFunction


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


def call(function: DocFunction, where: str, *args: Any, **kwargs: Any) -> Any:
    """What a task file's function returns. Raises DataError, which starts with `where`, if the function raises."""
    try:
        with quiet_and_settled():
            return function(*args, **kwargs)
    except Exception as error:
        name = getattr(function, "__name__", "the function")
        raise DataError(f"{where}: {name} raised {type(error).__name__}: {error}") from error
