"""What all tests share: no network, and models that are worked out by hand."""

from __future__ import annotations

import os
from types import ModuleType

import pytest


os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tables() -> ModuleType:
    """The module `tablemodels`; a fixture, so that torch is imported only where a test uses it."""
    import tablemodels

    return tablemodels
