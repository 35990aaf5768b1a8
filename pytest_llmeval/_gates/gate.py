"""The values: a gate, its bounds, the place where it was written, and a rule that hands it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


Operator: TypeAlias = Literal[">=", ">", "<=", "<"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gate was written: in a task file, or else in a setting (`origin` is its name)."""

    text: str
    path: Path | None = None
    line: int | None = None
    origin: str = "ini llmeval_gates"

    def error(self, message: str) -> LLMEvalError:
        """The error to raise about this gate: of the task file, or of the setting."""
        if self.path is None:
            return SettingError(f"{self.origin}: {self.text!r}: {message}")
        return TaskFileError(self.path, f"{self.text!r}: {message}", line=self.line, key="metadata.gates")


@dataclass(frozen=True, slots=True)
class Bound:
    """One comparison: the observed value must stand in `operator` to `value`, which is finite."""

    operator: Operator
    value: float


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on one aggregated metric; every bound must hold.

    `filter` None means the only filter that the metric has. `name` is the gate's own, `id` what stands between
    the brackets of its item, set by `gates_for`.
    """

    metric: str
    bounds: tuple[Bound, ...]
    filter: str | None = None
    name: str | None = None
    id: str = ""
    place: Place = Place("")

    @property
    def key(self) -> str:
        """The metric as written: ``acc``, or ``exact_match,strict-match``."""
        return self.metric if self.filter is None else f"{self.metric},{self.filter}"

    def to_list(self) -> list[Any]:
        """The gate as plain data, for another process. The place is not carried."""
        bounds = [[bound.operator, bound.value] for bound in self.bounds]
        return [self.metric, bounds, self.filter, self.name, self.id]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Gate:
        metric, bounds, *rest = values
        return cls(metric, tuple(Bound(operator, value) for operator, value in bounds), *rest)


@dataclass(frozen=True, slots=True)
class Rule:
    """A gate for whatever `selector` selects: a name or glob of tasks and groups, or ``tag:`` and a tag."""

    selector: str
    gate: Gate

    def selects(self, owner: Task | Group) -> bool:
        kind, colon, tag = self.selector.partition(":")
        if kind == "tag" and colon and not tag.startswith(":"):
            return isinstance(owner, Task) and any(fnmatchcase(own, tag) for own in owner.tags)
        return owner.name == self.selector or fnmatchcase(owner.name, self.selector)
