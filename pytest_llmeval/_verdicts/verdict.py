"""The values: an outcome with its sentence, and the docs that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._baselines import Comparison
from pytest_llmeval._baselines import Entry
from pytest_llmeval._results import DocResult
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts.ties import Noise


#: `inconclusive`: the data cannot tell at the confidence asked for. A gate on the observed value never is.
Outcome: TypeAlias = Literal["passed", "failed", "inconclusive"]

#: How the docs of a run were chosen: all of them, at random, or the first ones, which stand for nothing but themselves.
Drawn: TypeAlias = Literal["all", "random", "first"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sentence` is one line for reports and failure texts, `numbers` what led to it, for JUnit and the like.

    `p_value` is the p-value of a gate with confidence that failed by its numbers: how probable they are if the gate
    holds. None where no number failed it: it passed, could not tell, or lacked data.
    """

    outcome: Outcome
    sentence: str
    numbers: Mapping[str, float | int] = NOTHING
    p_value: float | None = None

    def to_list(self) -> list[Any]:
        """The verdict as plain data, for another process."""
        return [self.outcome, self.sentence, dict(self.numbers), self.p_value]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Verdict:
        return cls(*values)

    def adding(self, *facts: str | None) -> Verdict:
        """The verdict with more said at the end of its sentence."""
        return replace(self, sentence="; ".join([self.sentence, *(fact for fact in facts if fact)]))


@dataclass(frozen=True, slots=True)
class TaskData:
    """The docs of one task: `results` in doc order, of a data set of `n_total`, and how they pair with a baseline.

    `noise` is what rounding alone does to them, where that was asked for.
    """

    task: Task
    results: Sequence[DocResult]
    n_total: int
    comparison: Comparison | None = None
    noise: Noise | None = None

    @property
    def pairs(self) -> Sequence[tuple[Entry, Entry]]:
        """The docs that run and baseline both have: before and now."""
        return () if self.comparison is None else self.comparison.pairing.pairs


@dataclass(frozen=True, slots=True)
class GateData:
    """The docs behind the numbers of `owner`, task by task, for gates that look beyond the observed value.

    `baseline` is what the user called it, empty if none is named. `ignore_unpaired`: docs that only the run or only
    the baseline has are left out of comparisons instead of failing them.
    """

    owner: Task | Group
    tasks: Sequence[TaskData]
    drawn: Drawn = "all"
    baseline: str = ""
    ignore_unpaired: bool = False

    @property
    def first_ones(self) -> str | None:
        """What to say of docs that are no sample."""
        if self.drawn != "first":
            return None
        docs = sum(len(part.results) for part in self.tasks)
        which = f"the first {docs:,} docs" if len(self.tasks) == 1 else "the first docs of each task"
        return f"{which} are no random sample of the others"
