"""What lm_eval and this package both run, and on what."""

from __future__ import annotations

import os
from pathlib import Path

import goldenrows
import pytest


os.environ.update(goldenrows.RECORDED_PRODUCTS)


@pytest.fixture(scope="session")
def mirror(shared: Path) -> Path:
    return shared / "mirror"


@pytest.fixture(scope="session")
def checkpoint(starter_models: Path) -> Path:
    return starter_models / "good"
