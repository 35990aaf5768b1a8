"""For the tests and benchmarks of this repository; what users write in theirs is in the README.

The model that `pytest benchmarks/starter` runs on without being told is named in `pyproject.toml`
(`llmeval_model`): the embedded checkpoint below `benchmarks/starter/models`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def starter_models() -> Path:
    """The folder of the embedded checkpoints: good, early, damaged."""
    return Path(__file__).parent / "benchmarks" / "starter" / "models"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real benchmark data and a peer's results, which are not part of this repository."""
    folder = os.environ.get("LLMEVAL_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LLMEVAL_SHARED names no folder: no benchmark data on this machine")
    return Path(folder)
