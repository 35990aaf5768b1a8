"""Fixtures for the tests and benchmarks of this repository; the README shows the `conftest.py` of a user's suite.

The default model of `pytest benchmarks/starter`, the embedded checkpoint below `benchmarks/starter/models`, is named in
`pyproject.toml` (`llmeval_model`).
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
    """The folder of benchmark data and of results of lm_eval, which are not part of this repository."""
    folder = os.environ.get("LLMEVAL_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LLMEVAL_SHARED does not name a folder: no benchmark data on this machine")
    return Path(folder)
