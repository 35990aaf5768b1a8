"""The plugin's own hooks. Each docstring is a `conftest.py` that works as it stands."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest


if TYPE_CHECKING:
    from pytest_llmeval._lm import LM
    from pytest_llmeval._results import Summary


def pytest_llmeval_register_models(register: Callable[[str, Callable[[str, Mapping[str, str]], LM]], None]) -> None:
    """Teach ``--llmeval-model SCHEME:REST`` a new scheme.

    The factory gets what follows the colon and the texts of ``--llmeval-model-args``::

        from my_project.serving import RemoteLM

        def pytest_llmeval_register_models(register):
            register("remote", lambda rest, args: RemoteLM(rest, timeout=float(args.get("timeout", 60))))
    """


@pytest.hookspec
def pytest_llmeval_summary(model: str, summaries: Sequence[Summary], config: pytest.Config) -> None:
    """Called once per model at the end, with all its numbers, in the process that reports.

    ::

        def pytest_llmeval_summary(model, summaries, config):
            for summary in summaries:
                for value in summary.values:
                    my_dashboard.log(f"{model}/{summary.name}/{value.key}", value.value)
    """
