"""The results of docs and the summaries of tasks.

They are sent between processes (xdist) and written to reports, so they contain only str, int, float, bool, None, lists
and dicts, never a numpy or torch scalar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import astuple
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Item


def number_name(number: float) -> str:
    """Return the name of a number that is not finite, for messages: NaN, inf or -inf."""
    return "NaN" if math.isnan(number) else f"{number:g}"


def nonfinite_in(item: Item) -> str:
    """Return the name of the first number of an item that is not finite; empty if all are finite."""
    if isinstance(item, list | tuple):
        return next(filter(None, map(nonfinite_in, item)), "")
    return number_name(item) if isinstance(item, float) and not math.isfinite(item) else ""


@dataclass(frozen=True, slots=True)
class DocKey:
    """The identity of a doc across runs: a hash of its columns (`doc`), and one of all requests made for it (`prompt`).

    `cluster`: the value that the docs of a cluster share, such as a passage, if the task names its column.
    """

    doc: str
    prompt: str
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """The option that a model chose for a doc.

    `index`: the chosen option, -1 if there is none (NaN). `gold`: the right options. `margin`: the difference in
    log-probability to the second best option, infinite if only one option is possible. `margins`: the margins of
    metrics that choose by other values, in their unit (``acc_norm``: log-probability per character).
    """

    index: int
    gold: tuple[int, ...]
    margin: float
    margins: Mapping[str, float] = NOTHING

    def margin_by(self, metric: str) -> float | None:
        """Return the margin in the values by which a metric chooses; None if it is unknown."""
        return self.margin if metric == "acc" else self.margins.get(metric)


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a doc's next-token distributions from those of the baseline: means over its scored positions.

    `kl`: the KL divergence in nats, estimated without bias; `least`: its lower bound, in which the tokens that are not
    kept count as one. `rest`: the probability of these in the baseline. `agreement`: the share of positions with the
    same likeliest token. `problem`: the reason why there is no distance; empty if there is one.
    """

    kl: float = 0.0
    least: float = 0.0
    rest: float = 0.0
    agreement: float = 1.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DocResult:
    """The result of one doc.

    `scores[filter][metric]`: the doc's item for that metric. `correct`: the outcome of the doc's pytest item, which is
    the first 0/1 metric of the first filter; None if the task has none. `nonfinite`: the name of an answer that is not
    a usable number ("NaN"), else empty; such a doc is never right, and no gate passes with it. `truncated`: the number
    of requests whose context was cut. `cut_off`: the number of generations that ended by length. `thoughts`: the number
    of those that ended within their thought. `tied`: several choices have the highest score, and the first of them
    counts. `sample`: the rows for `--llmeval-output`.
    `error`: the reason why the doc could not be evaluated; it then has no scores. `key` and `pick` are set if
    `Settings.keep_keys` is, `pick` for multiple choice only. `next_tokens`: the text of its scored positions, for a
    baseline that keeps them. `distance` is set if the baseline of a comparison keeps them.
    """

    doc: int
    scores: Mapping[str, Mapping[str, Item]]
    correct: bool | None = None
    nonfinite: str = ""
    truncated: int = 0
    cut_off: int = 0
    thoughts: int = 0
    tied: bool = False
    sample: Mapping[str, Any] | None = None
    error: str | None = None
    key: DocKey | None = None
    pick: Pick | None = None
    next_tokens: str = ""
    distance: Distance | None = None

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
            self.thoughts,
            self.tied,
            sample,
            self.error,
            self.key and [self.key.doc, self.key.prompt, self.key.cluster],
            self.pick and [self.pick.index, list(self.pick.gold), self.pick.margin, dict(self.pick.margins)],
            self.next_tokens,
            self.distance and list(astuple(self.distance)),
        ]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> DocResult:
        *rest, key, pick, next_tokens, distance = values
        result = cls(*rest)
        return replace(
            result,
            key=None if key is None else DocKey(*key),
            pick=None if pick is None else Pick(pick[0], tuple(pick[1]), *pick[2:]),
            next_tokens=next_tokens,
            distance=None if distance is None else Distance(*distance),
        )


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The value of a metric over docs. `stderr` is None, shown as N/A, if it is undefined (one doc, or no formula).

    `why`: the cause of a value that is not finite, if known, e.g. "is NaN: doc[3] has NaN".
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
        """The key in lm_eval's results, e.g. ``acc,none``."""
        return f"{self.metric},{self.filter}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The values of a task or group over `n` of its `n_total` docs.

    `tasks`: the names of the tasks of a group at any depth (empty for a task). `notes`: sentences for the report, e.g.
    that some contexts were truncated or that a metric is missing in some tasks of a group. `stopped_early`: the other
    docs were not scored because all gates were proven. `nonfinite`: the number of docs whose answer is not a usable
    number, `nonfinite_values`: these answers. `first_error`: name and reason of the first doc with an error.
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
    thoughts: int = 0
    notes: tuple[str, ...] = ()
    stopped_early: bool = False
    nonfinite_values: tuple[str, ...] = ()
    first_error: str | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The values by lm_eval's key, and by the metric name alone if the metric has only one filter."""
        by_key = {value.key: value.value for value in self.values}
        return by_key | {v.metric: v.value for v in self.values if len(self.find(v.metric)) == 1}

    def find(self, metric: str, filter_name: str | None = None) -> tuple[MetricValue, ...]:
        """Return the values of a metric: for all filters, or for one."""
        return tuple(v for v in self.values if v.metric == metric and (filter_name is None or v.filter == filter_name))
