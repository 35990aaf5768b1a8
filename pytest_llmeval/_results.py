"""What is known after a doc was answered, and after all docs of a task were.

These are plain values: they cross process borders (xdist) and end up in reports, so they hold str, int, float,
bool, None, lists and dicts only, never a numpy or torch scalar.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Item


def number_name(number: float) -> str:
    """How a number that is not finite is called in messages: NaN, inf or -inf."""
    return "NaN" if math.isnan(number) else f"{number:g}"


def nonfinite_in(item: Item) -> str:
    """The first number of an item that is not finite, by its name; empty if there is none."""
    if isinstance(item, list | tuple):
        return next(filter(None, map(nonfinite_in, item)), "")
    return number_name(item) if isinstance(item, float) and not math.isfinite(item) else ""


@dataclass(frozen=True, slots=True)
class DocKey:
    """By what a doc is found again in another run: a hash of its columns, and one of all that was sent for it.

    `cluster` tells docs apart that share something (a passage), where the task names the column.
    """

    doc: str
    prompt: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """What a model chose of a doc's options: its index, the right ones, and by how much (log-probability).

    `index` is -1 where there is no choice (NaN); `margin`, to the second best, is infinite where only one option
    is possible. `margins` are those of metrics that pick by other values (``acc_norm``: log-probability per
    character), in the unit of these.
    """

    index: int
    gold: tuple[int, ...]
    margin: float
    margins: Mapping[str, float] = NOTHING

    def margin_by(self, metric: str) -> float | None:
        """The margin of what a metric picks; None if that is not known."""
        return self.margin if metric == "acc" else self.margins.get(metric)


@dataclass(frozen=True, slots=True)
class DocResult:
    """One evaluated doc.

    `scores[filter][metric]` is the doc's item for that metric. `correct` is the judgement shown as the item's
    outcome: the first 0/1 metric of the first filter, None if the task has none. `nonfinite` is what the model gave
    instead of a usable number ("NaN"), empty if it gave one: such a doc is never right and no gate passes over it.
    `truncated` counts requests whose context lost its left end; `cut_off` counts generations that ended by length.
    `tied`: several choices are the likeliest, of which the first is taken. `sample` holds what `--llmeval-output`
    writes, only if asked for. `error` is set when the doc could not be evaluated; it then has no scores. `key` and
    `pick` are there where settings ask for keys, `pick` for multiple choice only.
    """

    doc: int
    scores: Mapping[str, Mapping[str, Item]]
    correct: bool | None = None
    nonfinite: str = ""
    truncated: int = 0
    cut_off: int = 0
    tied: bool = False
    sample: Mapping[str, Any] | None = None
    error: str | None = None
    key: DocKey | None = None
    pick: Pick | None = None

    def to_list(self) -> list[Any]:
        scores = {name: dict(metrics) for name, metrics in self.scores.items()}
        sample = None if self.sample is None else dict(self.sample)
        return [
            self.doc,
            scores,
            self.correct,
            self.nonfinite,
            self.truncated,
            self.cut_off,
            self.tied,
            sample,
            self.error,
            self.key and [self.key.doc, self.key.prompt, self.key.cluster],
            self.pick and [self.pick.index, list(self.pick.gold), self.pick.margin, dict(self.pick.margins)],
        ]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> DocResult:
        *rest, key, pick = values
        result = cls(*rest)
        return replace(
            result,
            key=None if key is None else DocKey(*key),
            pick=None if pick is None else Pick(pick[0], tuple(pick[1]), *pick[2:]),
        )


@dataclass(frozen=True, slots=True)
class MetricValue:
    """An aggregated metric. `stderr` is None where it is not defined (one doc, or no formula): shown as N/A.

    `why` says of a value that is no finite number what made it so, where that is known: "is NaN: doc[3] has NaN".
    """

    metric: str
    filter: str
    value: float
    stderr: float | None
    higher_is_better: bool | None
    n: int
    why: str | None = None

    @property
    def key(self) -> str:
        """The peer's key, e.g. ``acc,none``."""
        return f"{self.metric},{self.filter}"


@dataclass(frozen=True, slots=True)
class Summary:
    """A task's or group's numbers over `n` docs of `n_total`.

    `tasks` are the names of the leaf tasks a group rests on (empty for a task). `notes` are sentences for the
    reader, e.g. that some contexts were truncated or that a metric is missing in some tasks of a group.
    `stopped_early`: the other docs were left out because what was asked of the task was proven.
    `nonfinite` counts docs without a usable number from the model, `nonfinite_values` are what it gave instead;
    `first_error` says of the first of the docs in error which it is, and why.
    """

    name: str
    display_name: str
    version: str | int | float | None
    num_fewshot: int | None
    n: int
    n_total: int
    values: tuple[MetricValue, ...]
    tasks: tuple[str, ...] = ()
    nonfinite: int = 0
    errors: int = 0
    truncated: int = 0
    cut_off: int = 0
    notes: tuple[str, ...] = ()
    stopped_early: bool = False
    nonfinite_values: tuple[str, ...] = ()
    first_error: str | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Values by the peer's key, and by the bare metric name where it has one filter only."""
        by_key = {value.key: value.value for value in self.values}
        return by_key | {v.metric: v.value for v in self.values if len(self.find(v.metric)) == 1}

    def find(self, metric: str, filter_name: str | None = None) -> tuple[MetricValue, ...]:
        """All values of a metric, or the one of a filter."""
        return tuple(v for v in self.values if v.metric == metric and (filter_name is None or v.filter == filter_name))


class Ledger:
    """Every result this process knows, by (variant, task, doc). A variant is the id of one model."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], dict[int, DocResult]] = {}

    def add(self, variant: str, task: str, results: Iterable[DocResult]) -> None:
        known = self._results.setdefault((variant, task), {})
        for result in results:
            known[result.doc] = result

    def of(self, variant: str, task: str) -> Mapping[int, DocResult]:
        """The results of one task so far, by doc index."""
        return self._results.get((variant, task), {})

    def scored(self) -> list[tuple[str, str]]:
        """(variant, task) in the order in which their first results came."""
        return list(self._results)
