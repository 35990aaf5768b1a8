"""The objects of this plugin that live as long as the pytest session."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._lm import LM
from pytest_llmeval._registry import Registry
from pytest_llmeval._report import JoinedShards
from pytest_llmeval._results import Summary
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._session.early_stop import EarlyStop
from pytest_llmeval._session.judge import Judge
from pytest_llmeval._session.models import Models
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.options import word_of
from pytest_llmeval._session.progress import ProgressLine
from pytest_llmeval._session.rules import Rules
from pytest_llmeval._session.scheduling import Lessons
from pytest_llmeval._session.selection import Selection
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


class Session:
    """Settings, tasks, runs and rules of one pytest session, each an object of its own."""

    def __init__(
        self, config: pytest.Config, settings: Settings, models: Models, joined: JoinedShards | None = None
    ) -> None:
        self.config = config
        #: The shards that this run merges; None in any other run.
        self.joined = joined
        #: Task name -> hash of its plan, in a shard.
        self.plan: dict[str, str] = {}
        self.settings = settings
        self.models = models
        #: True in a worker process of pytest-xdist.
        self.on_worker = hasattr(config, "workerinput")
        self.baseline = BaselineOptions(config, settings)
        self.rules = Rules(config, lambda owner: self.evaluation.leaves(owner), has_baseline=bool(self.baseline.name))
        registry = Registry(_search_folders(config), root=config.rootpath, asked=self.rules.asked())
        baseline = None if self.baseline.updating else self.baseline.chosen
        self.evaluation = Evaluation(settings, registry, baseline)
        self.evaluation.journal = models.journal
        self.selection = Selection(self.evaluation)
        self.progress = ProgressLine(config)
        self.missing_data: str = word_of(config, "missing_data")
        judge = EarlyStop if settings.early_stop else Judge
        self.judge = judge(
            self.evaluation,
            self.baseline,
            self.progress,
            on_worker=self.on_worker,
            missing_data=self.missing_data,
            inconclusive=word_of(config, "inconclusive"),
        )
        self.lint_only: bool = bool(value_of(config, "lint"))
        #: What happened to other workers before this one started.
        self.lessons = Lessons.of(getattr(config, "workerinput", {}))
        #: (model, task, doc) of the docs that are asked alone, because a worker died in a wave with them.
        self.alone: set[tuple[str, str, int]] = set()
        #: True if nothing is run: the options only print what was collected.
        self.looks_only: bool = bool(value_of(config, "list") or value_of(config, "show"))
        #: How a wrong answer is recorded: ``pass``, ``xfail`` or ``fail``.
        self.wrong: str = value_of(config, "wrong") or "pass"
        self.started = datetime.now()
        #: True if the end of the run found an error that no item shows: the run then fails.
        self.failed_at_end = False
        #: True if the run was stopped before its end: by the user, by -x, or by an error.
        self.interrupted = False

    def values_in(self, path: Path) -> tuple[Task | Group, ...]:
        """Return the task or group in a file, and the tasks written inline in a group. Raises LLMEvalError."""
        found = self.evaluation.registry.load(path)
        return (found, *found.inline_tasks()) if isinstance(found, Group) else (found,)

    def refusal(self, task: Task) -> str | None:
        """Return why the task's generated code is not run, and record it for its gates; None if it is run."""
        reason = self.evaluation.refusal(task)
        if reason is not None:
            self.evaluation.data_errors[task.name] = reason
        return reason

    def asked_result(self, name: str, model: str, lm: LM) -> Summary:
        """Return the numbers of a task or group for a test of the user, which an error fails by its message alone."""
        if shard := self.settings.shard:
            pytest.skip(f"shard {shard} has only a part of the results")
        try:
            return self.result_of(name, model, lm)
        except LLMEvalError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    def result_of(self, name: str, model: str, lm: LM) -> Summary:
        """Return the numbers of a task or group by name, over all docs asked for. Raises LLMEvalError."""
        run, collected = self.selection.run(model), self.selection.collected
        owner = collected.get(name) or self.evaluation.registry.find(name, self.config.rootpath)
        if isinstance(owner, tuple):
            raise SettingError(
                f"llmeval_result({name!r}): {name!r} is a tag of {len(owner)} tasks; name a task or a group"
            )
        self.announce(run, lm)
        leaves = self.evaluation.leaves(owner)
        collected.update({value.name: value for value in (*leaves, owner)})
        for task in leaves:
            run.score(lm, task, self.evaluation.open(task).asked, self.progress.of(task.name))
        return self.judge.summary(run, owner)

    def announce(self, run: ModelRun, lm: LM) -> None:
        """Let a run take the name of its model; once, print the faster engines that were refused, and the reasons."""
        if run.introduced:
            return
        run.introduce(lm, self.models.given_name())
        slower = getattr(getattr(lm, "engine_choice", None), "slower", None)
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if slower and reporter is not None and not self.on_worker:
            reporter.ensure_newline()
            reporter.write_line(f"llmeval: {run.name}: {slower}")


def _search_folders(config: pytest.Config) -> list[Path]:
    """Return the folders in which names of tasks are looked up besides those near the file that uses them."""
    patterns = [str(pattern) for pattern in config.getini("llmeval_files")]
    named = [config.rootpath / pattern.split("*")[0] for pattern in patterns]
    return sorted({folder for folder in named if folder.is_dir()})
