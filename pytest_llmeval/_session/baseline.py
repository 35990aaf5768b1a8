"""What the runs of this session are compared with, or written into: the baseline that the user named."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_llmeval._baselines import Comparison
from pytest_llmeval._baselines import Folder
from pytest_llmeval._baselines import Update
from pytest_llmeval._baselines import compare_task
from pytest_llmeval._baselines import updated
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


class Reference:
    """The baseline named by option or ini. With `updating` it is written, and nothing is compared with it."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.settings = settings
        self.updating = bool(value_of(config, "update-baseline"))
        self.origin = origin_of(config, "baseline")
        text = str(value_of(config, "baseline") or "")
        on_command_line = config.getoption("llmeval_baseline") is not None
        base = config.invocation_params.dir if on_command_line else config.rootpath
        self.folder = Folder.named(text, config.rootpath, base) if text else None
        self._comparisons: dict[tuple[str, str], tuple[int, Comparison]] = {}

    @property
    def name(self) -> str:
        """What the user called it; empty if none is named."""
        return self.folder.name if self.folder else ""

    def check(self, models: Sequence[str]) -> None:
        """What can be known before anything runs. Raises SettingError."""
        if self.folder is None:
            return
        if not self.updating:
            self.folder.check(self.origin)
        elif len(models) > 1:
            raise SettingError(
                f"--llmeval-update-baseline: a baseline holds the answers of one model, and {len(models)} are named "
                f"({', '.join(models)}): name one"
            )
        else:
            self.folder.check_writable(self.origin)

    def comparison(self, variant: str, task: Task, results: Sequence[DocResult]) -> Comparison | None:
        """A task's results beside the baseline; None without one. Worked out again when there are more results."""
        if self.folder is None:
            return None
        known = self._comparisons.get((variant, task.name))
        if known is None or known[0] != len(results):
            comparison = compare_task(self.folder, task, self.settings, results)
            self._comparisons[variant, task.name] = known = (len(results), comparison)
        return known[1]

    def write(
        self, task: Task, results: Sequence[DocResult], summary: Summary, model: str, facts: Mapping[str, Any]
    ) -> Update:
        """Write a task's results. Raises BaselineError or SettingError if that cannot be."""
        if self.folder is None:
            raise SettingError(f"{self.origin}: none is named")
        try:
            old = self.folder.read(task.name)
        except BaselineError:
            # A whole run replaces a file whatever is in it.
            if len(results) < summary.n_total:
                raise
            old = None
        path = self.folder.path_of(task.name)
        update = updated(old, path, task, self.settings, results, summary, model, facts)
        self.folder.write(update.record)
        return update
