"""What lm_eval and this package both run, and on what."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mirror(shared: Path) -> Path:
    return shared / "mirror"


@pytest.fixture(scope="session")
def checkpoint(starter_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model; a random one where it is not there."""
    import pairedruns

    good = starter_models / "good"
    return good if good.is_dir() else pairedruns.save_random_llama(tmp_path_factory.mktemp("checkpoint"))
