"""What all tests share: no network, and models that are worked out by hand."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings


os.environ.setdefault("HF_HUB_OFFLINE", "1")

# The time of an example depends on what else the machine does, so it decides nothing.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def tables() -> ModuleType:
    """The module `tablemodels`; a fixture, so that torch is imported only where a test uses it."""
    import tablemodels

    return tablemodels


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with recorded results and a mirror of the data sets, where the environment names one."""
    return _folder_of("LLMEVAL_SHARED", "recorded results and data sets")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, a folder or a GGUF file, where the environment names it."""
    return _folder_of("LLMEVAL_SMOLLM2", "SmolLM2-135M-Instruct")


def _folder_of(variable: str, what: str) -> Path:
    path = Path(os.environ.get(variable, ""))
    if not os.environ.get(variable) or not path.exists():
        pytest.skip(f"{variable} names no path that holds {what}")
    return path
