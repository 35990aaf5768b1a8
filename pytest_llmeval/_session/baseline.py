"""The options about the baseline: which one runs are compared with, or written into."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import Comparison
from pytest_llmeval._errors import SettingError
from pytest_llmeval._results import DocResult
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


class BaselineOptions:
    """The baseline `chosen` by option or ini key, None without one, and whether it is to be written (`updating`).

    Nothing is compared with a baseline that is being written.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.updating = bool(value_of(config, "update-baseline"))
        text = str(value_of(config, "baseline") or "")
        on_command_line = config.getoption("llmeval_baseline") is not None
        base = config.invocation_params.dir if on_command_line else config.rootpath
        self.chosen = Baseline.named(text, config.rootpath, base, settings) if text else None
        self._origin = origin_of(config, "baseline")

    @property
    def name(self) -> str:
        """The baseline as the user called it; empty if none is named."""
        return self.chosen.name if self.chosen else ""

    def check(self, models: Sequence[str]) -> None:
        """Raise SettingError for what can be known to fail before anything runs."""
        if self.chosen is None:
            return
        if not self.updating:
            self.chosen.check(self._origin)
        elif len(models) > 1:
            raise SettingError(
                f"--llmeval-update-baseline: a baseline holds the answers of one model, and {len(models)} are named "
                f"({', '.join(models)}): name one"
            )
        else:
            self.chosen.check_writable(self._origin)

    def comparison(self, task: Task, results: Sequence[DocResult]) -> Comparison | None:
        """Return a task's results beside the baseline; None without a baseline."""
        return None if self.chosen is None else self.chosen.compare(task, results)
