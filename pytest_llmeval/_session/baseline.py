"""The options about the baseline: which one runs are compared with, or written into, and the docs beside it."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence

import pytest

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import Record
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.options import word_of
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData


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
        #: True if docs without a partner in the baseline are left out of comparisons.
        self.ignores_unpaired = word_of(config, "unpaired") == "ignore"
        #: True if runs are counted as nights, in a file beside the baseline.
        self.keeps_nights = bool(config.getini("llmeval_nights"))
        self._origin = origin_of(config, "baseline")
        self._root = config.rootpath

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
            if self.keeps_nights:
                self.chosen.check_writable("ini llmeval_nights")
        elif len(models) > 1:
            raise SettingError(
                f"--llmeval-update-baseline: a baseline holds the answers of one model, and {len(models)} are named "
                f"({', '.join(models)}): name one"
            )
        else:
            self.chosen.check_writable(self._origin)

    def record(self, task: str) -> Record | None:
        """Return the baseline of a task before the run; None if there is none, or none that can be used."""
        if self.chosen is None or self.updating:
            return None
        try:
            return self.chosen.read(task)
        except BaselineError:
            # The comparison reports it.
            return None

    def dtypes(self, tasks: Iterable[Task]) -> set[str]:
        """Return the dtypes in which the models computed that answered for the baseline, as far as it states them."""
        records = filter(None, (self.record(task.name) for task in tasks))
        return {str(model["dtype"]) for record in records for model in record.header.models if model["dtype"]}

    def data(self, run: ModelRun, owner: Task | Group) -> GateData:
        """Return the docs of a task or group, paired with those of the baseline."""
        parts = [self.part(run, task) for task in run.evaluation.leaves(owner)]
        whole = all(len(part.results) == part.n_total for part in parts)
        first = run.evaluation.settings.sample_seed is None
        return GateData(
            owner=owner,
            tasks=parts,
            drawn="all" if whole else "first" if first else "random",
            baseline=self.name,
            ignore_unpaired=self.ignores_unpaired,
            noise={part.task.name: noise for part in parts if (noise := run.noise.needed(part.task.name))},
            root=self._root,
        )

    def part(self, run: ModelRun, task: Task) -> TaskData:
        """Return the docs of one task in doc order, paired with those of the baseline if there is one."""
        known = run.results(task.name)
        results = [known[index] for index in sorted(known)]
        total = run.evaluation.sizes.get(task.name, (0, len(results)))[1]
        key, chosen = ("comparison", task.name), self.chosen
        comparison = run.computed(task, key, lambda: chosen.compare(task, results)) if chosen else None
        return TaskData(task, results, total, comparison)
