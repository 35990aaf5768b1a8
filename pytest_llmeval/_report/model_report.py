"""The values of all reports and result files: the results of one model, collected once at the end of a session."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import TypeAlias

from pytest_llmeval._results import DocResult
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
    """A selected gate. `verdict` is None if the gate was not judged; `why` is the reason, if known."""

    nodeid: str
    verdict: Verdict | None
    why: str | None = None

    @property
    def outcome(self) -> str:
        return "not judged" if self.verdict is None else self.verdict.outcome

    @property
    def sentence(self) -> str:
        """The verdict in one line, or the reason why there is none."""
        if self.verdict is None:
            return self.why or "the run ended before it was judged"
        return self.verdict.sentence

    @property
    def full_sentence(self) -> str:
        """The verdict in one line with all facts, or the reason why there is none."""
        return self.sentence if self.verdict is None else self.verdict.full_sentence

    @property
    def judges_first_docs(self) -> bool:
        """True if a confidence was given to docs that were not drawn at random."""
        return self.verdict is not None and any(fact.label == "sample" for fact in self.verdict.facts)

    @property
    def next_step(self) -> str | None:
        """The next step that the verdict recommends; None if there is none."""
        facts = () if self.verdict is None else self.verdict.facts
        return next((fact.text for fact in facts if fact.label == "next"), None)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task with its docs and summary, and the noise that ``--llmeval-noise`` measured, if any.

    `again`: the second results of docs that were asked for again, by number.
    """

    data: TaskData
    summary: Summary
    noise: Noise | None = None
    again: Mapping[int, DocResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group with its summary and the names of its direct members."""

    group: Group
    summary: Summary
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The results of one model.

    `name` is the model's name in reports, `id` its part of item ids (empty for a single model), `spec` the name or path
    that the user gave, empty for the model of a fixture. `facts` comes from `LM.describe`, `usage` from `LM.usage`.
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
        """The summaries of tasks, then those of groups."""
        return [*(task.summary for task in self.tasks), *(group.summary for group in self.groups)]

    @property
    def children(self) -> Children:
        return {group.summary.name: group.members for group in self.groups}

    @property
    def engine(self) -> Mapping[str, Any]:
        """The engines of the model, and the reasons why faster ones were refused; empty if the model reports none."""
        return dict(self.facts.get("model", NOTHING).get("engine", NOTHING))

    @property
    def file_name(self) -> str:
        """The model's name in files: as the user gave it, but only the last part of an absolute path."""
        return self.name if not self.spec or Path(self.spec).is_absolute() else self.spec


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that are the same for all models: `started` in seconds since 1970, `seconds` its duration."""

    settings: Settings
    model_args: str = ""
    started: float = 0.0
    seconds: float = 0.0
    git_hash: str | None = None
