"""The values that every report and file is made of: the results of one model, gathered once at the end of a session."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import TypeAlias

from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._verdicts import Noise
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict


#: Name of a group -> names of its direct members, tasks or groups.
Children: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class GateLine:
    """A selected gate and its verdict; None if it was not judged, for the reason `why` if that is known."""

    nodeid: str
    verdict: Verdict | None
    why: str | None = None

    @property
    def outcome(self) -> str:
        return "not judged" if self.verdict is None else self.verdict.outcome

    @property
    def sentence(self) -> str:
        """The verdict in one line, or why there is none."""
        if self.verdict is None:
            return self.why or "the run ended before it was judged"
        return self.verdict.sentence

    @property
    def full_sentence(self) -> str:
        """The verdict in one line with all of its facts, or why there is none."""
        return self.sentence if self.verdict is None else self.verdict.full_sentence

    @property
    def next_step(self) -> str | None:
        """The action that the verdict recommends, None if there is none."""
        facts = () if self.verdict is None else self.verdict.facts
        return next((fact.text for fact in facts if fact.label == "next"), None)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task with its numbers, the docs behind them, and what a probe of rounding showed, if there was one."""

    data: TaskData
    summary: Summary
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its numbers and the names of its direct members."""

    group: Group
    summary: Summary
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The results of one model.

    `name` is what reports call the model, `id` its part of item ids (empty if there is one model only), `spec` what the
    user named, empty for the model of a fixture. `facts` are those of `LM.describe`, `usage` those of `LM.usage`.
    """

    name: str
    tasks: Sequence[TaskReport] = ()
    groups: Sequence[GroupReport] = ()
    gates: Sequence[GateLine] = ()
    id: str = ""
    spec: str = ""
    facts: Mapping[str, Any] = NOTHING
    usage: Mapping[str, int] = NOTHING

    @property
    def summaries(self) -> list[Summary]:
        """The numbers of tasks, then those of groups."""
        return [*(task.summary for task in self.tasks), *(group.summary for group in self.groups)]

    @property
    def children(self) -> Children:
        return {group.summary.name: group.members for group in self.groups}

    @property
    def engine(self) -> Mapping[str, Any]:
        """The engines that serve the model, and why faster ones were refused; empty if the model does not say."""
        return dict(self.facts.get("model", NOTHING).get("engine", NOTHING))

    @property
    def file_name(self) -> str:
        """The model in files: as the user named it, but a path by its last part, which is its name in reports."""
        return self.name if not self.spec or Path(self.spec).is_absolute() else self.spec


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that hold for all models: `started` in seconds since 1970, `seconds` of its duration."""

    settings: Settings
    model_args: str = ""
    started: float = 0.0
    seconds: float = 0.0
    git_hash: str | None = None
