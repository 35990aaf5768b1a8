"""The options about the journal: in which folder the answers of models are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval._journal import Journal
from pytest_llmeval._session.options import value_of


#: The name of the journal's folder in the cache folder of pytest.
FOLDER = "llmeval"


def journal_of(config: pytest.Config) -> Journal | None:
    """Return the journal of this run; None if it is off, or there is neither a folder nor pytest's cache."""
    if value_of(config, "no-cache"):
        return None
    if folder := value_of(config, "cache"):
        base = config.invocation_params.dir if config.getoption("llmeval_cache") else config.rootpath
        return Journal(lambda: base / Path(folder).expanduser())
    # Without pytest's own plugin there is no cache.
    cache: pytest.Cache | None = getattr(config, "cache", None)
    return None if cache is None else Journal(lambda: cache.mkdir(FOLDER))
