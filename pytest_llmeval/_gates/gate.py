"""Gates as values: a gate, its bounds, the place where it was written, and rules that apply it to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


Operator: TypeAlias = Literal[">=", ">", "<=", "<"]

#: The subject of a confidence: the population that the docs are drawn from, or the docs of this data set.
Scope: TypeAlias = Literal["population", "dataset"]

#: The key under which a comparison was written; "" for a comparison written as a text, ``acc >= baseline - 0.02``.
Word: TypeAlias = Literal["", "max_drop", "max_rise", "min_gain"]


_OR_EQUAL: Mapping[Operator, Operator] = {">=": ">=", ">": ">=", "<=": "<=", "<": "<="}


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a gate was written: a task file, or else the setting named `origin`."""

    text: str
    path: Path | None = None
    line: int | None = None
    origin: str = "ini llmeval_gates"

    def error(self, message: str) -> LLMEvalError:
        """Return the error to raise about this gate: a TaskFileError, or a SettingError."""
        if self.path is None:
            return SettingError(f"{self.origin}: {self.text!r}: {message}")
        return TaskFileError(self.path, f"{self.text!r}: {message}", line=self.line, key="metadata.gates")


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition ``observed <operator> value``; `value` is finite."""

    operator: Operator
    value: float


@dataclass(frozen=True, slots=True)
class Change:
    """The condition ``now <operator> baseline + offset``.

    `offset` is exactly the decimal that was written, below 0 for an allowed loss of a metric that should be high.
    `relative`: it is a share of the baseline's value, 1/20 for ``5%``.
    """

    operator: Operator
    offset: Fraction
    relative: bool = False
    word: Word = ""

    def __str__(self) -> str:
        size = abs(self.offset)
        shown = f"{float(size * 100):.12g}%" if self.relative else f"{float(size):.12g}"
        return f"{self.operator} baseline" + (f" {'-' if self.offset < 0 else '+'} {shown}" if size else "")


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on one aggregated metric: bounds, all of which must hold, or a comparison with the baseline.

    `filter` None means the only filter that the metric has. `must_stay_right` holds the docs, by number or all of
    them, that must not become wrong. `confidence` None: the observed value decides; `written` is the confidence that
    the user wrote, if a part of its error was spent on early looks. `fdr`: the error is the expected share of false
    alarms among the failures of its family, instead of the probability of any. `name` is given by the user. `id` is the
    text in the brackets of the item's name, `rule` is equal for gates that stand on one line, and `family` holds metric
    and condition; it is empty without a confidence. `distance`: the metric is
    a distance of the run from its baseline, see `_scoring.DISTANCES`. `gates_for` sets these four.
    """

    metric: str
    bounds: tuple[Bound, ...]
    filter: str | None = None
    name: str | None = None
    id: str = ""
    place: Place = Place("")
    change: Change | None = None
    must_stay_right: tuple[int, ...] | Literal["all"] | None = None
    confidence: float | None = None
    scope: Scope = "population"
    fdr: bool = False
    rule: str = ""
    family: str = ""
    distance: bool = False
    written: float | None = None

    @property
    def compares(self) -> bool:
        """True if the gate compares a metric with its value in the baseline."""
        return self.change is not None or self.must_stay_right is not None

    @property
    def needs_baseline(self) -> bool:
        """True if the gate cannot be judged without a baseline."""
        return self.compares or self.distance

    @property
    def needs_next_tokens(self) -> bool:
        """True if the gate is on distances between next tokens, which are computed while docs are answered."""
        return self.distance and self.metric != "flips"

    @property
    def key(self) -> str:
        """The metric as written: ``acc``, or ``exact_match,strict-match``."""
        return self.metric if self.filter is None else f"{self.metric},{self.filter}"

    @property
    def condition(self) -> str:
        """The limits and the confidence, equal for gates that ask the same: ``>= baseline - 0.02 @ 0.95``.

        A limit is the same with and without equality.
        """
        limits = [f"{_OR_EQUAL[bound.operator]} {bound.value!r}" for bound in self.bounds]
        if self.change is not None:
            limits.append(str(replace(self.change, operator=_OR_EQUAL[self.change.operator])))
        scope = " dataset" if self.scope == "dataset" else ""
        at = "" if self.confidence is None else f" @ {self.confidence:.12g}{scope}{' fdr' if self.fdr else ''}"
        return " and ".join(sorted(limits)) + at


@dataclass(frozen=True, slots=True)
class Rule:
    """A gate and the `selector` of its tasks and groups: a name or glob, or ``tag:`` and a tag."""

    selector: str
    gate: Gate

    def selects(self, owner: Task | Group) -> bool:
        kind, colon, tag = self.selector.partition(":")
        if kind == "tag" and colon and not tag.startswith(":"):
            return isinstance(owner, Task) and any(fnmatchcase(own, tag) for own in owner.tags)
        return owner.name == self.selector or fnmatchcase(owner.name, self.selector)
