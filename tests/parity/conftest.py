"""What lm_eval and this package both run, and on what."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mirror(shared: Path) -> Path:
    return shared / "mirror"


@pytest.fixture(scope="session")
def checkpoint(starter_models: Path) -> Path:
    return starter_models / "good"
