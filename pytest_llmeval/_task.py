"""The frozen values that a task file is read into.

`_taskfile` checks the YAML and turns it into these values, or raises; nothing in this module does any IO. The format
is that of EleutherAI's lm-evaluation-harness, "lm_eval" in this package (docs/new_task_guide.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import TypeAlias


#: The raw columns of one data set row, after `process_docs`.
DocData: TypeAlias = Mapping[str, Any]

#: The value of a `!function` tag.
DocFunction: TypeAlias = Callable[..., Any]

#: The value of a metric for one doc, before aggregation: a number, or a list such as [gold, prediction], [ll, words].
Item: TypeAlias = Any

#: The forms of an item; `_scoring.ITEM_KINDS` describes each.
ItemKind: TypeAlias = Literal[
    "right", "share", "number", "labels", "texts", "choices", "lengths", "labelled_doc", "any"
]


class _Nothing(Mapping[str, Any]):
    """An empty mapping that may be a dataclass default: until Python 3.12 a mapping proxy has no hash."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a task, which gives a value for each doc by exactly one of:

    ``text``: the name of a column if the doc has one of that name, else a Jinja template;
    ``choices``: texts that are the same for every doc, as written in the YAML;
    ``index``: a constant number (a choice index);
    ``function``: a ``!function``, called with the doc.

    `key` and `line` are the YAML key and its 1-based line, for messages.
    """

    key: str
    text: str | None = None
    choices: tuple[str, ...] | None = None
    index: int | None = None
    function: DocFunction | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FewshotSpec:
    """The examples before a doc, their source and their form (`fewshot_config`).

    Where an attribute is None, the task's own holds. `split` is the configured one (`fewshot_split` or
    `fewshot_config.split`); None means lm_eval's rule: training, else validation, else test.
    `samples` are examples written in the YAML, or a function that returns them.
    """

    sampler: Literal["default", "first_n"] = "default"
    split: str | None = None
    samples: tuple[DocData, ...] | DocFunction | None = None
    indices: tuple[int, ...] | None = None
    process_docs: DocFunction | None = None
    doc_to_text: Field | None = None
    doc_to_choice: Field | None = None
    doc_to_target: Field | None = None
    gen_prefix: Field | None = None
    fewshot_delimiter: str | None = None
    target_delimiter: str | None = None


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One entry of `metric_list` as written. `function` is set for a ``!function`` metric, `name` is then its name.

    `aggregation` is a name, a ``!function``, or None for the metric's own; likewise `higher_is_better`.
    """

    name: str
    function: DocFunction | None = None
    aggregation: str | DocFunction | None = None
    higher_is_better: bool | None = None
    options: Mapping[str, Any] = NOTHING


class ScoreRange(NamedTuple):
    """The least and the greatest score that a doc can have."""

    low: float
    high: float

    def check(self, metric: str, item: Item) -> None:
        """Raise ValueError for a number outside of a range that the task declared; NaN passes."""
        if isinstance(item, int | float) and (item < self.low or item > self.high):
            low, high = self
            raise ValueError(f"metric {metric}: {item} is outside of metadata.ranges, [{low:g}, {high:g}]")


@dataclass(frozen=True, slots=True)
class DocMean:
    """The description of a metric as a mean over docs.

    `values` maps the items of all docs to one number per doc; the metric is their mean, or with `log` its
    exponential. `plain`: the items are these numbers. `support`: the least and the greatest number that a doc can
    have, where known. Numbers computed from log-probabilities, which are 0 at most, have only lower bounds: `floor`
    is the lower bound of the mean; `least` computes that of one doc's number from the items of all docs.
    """

    values: Callable[[Sequence[Item]], Sequence[float]]
    log: bool = False
    support: ScoreRange | None = None
    plain: bool = False
    floor: float | None = None
    least: Callable[[Sequence[Item]], float] | None = None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A function from the items of all docs to the value of a metric, and all facts about it.

    `name` is lm_eval's, or the name of the user's function (`owned`). `needs`: the kind of item that
    `function` takes, "any" where that is up to the user. `stderr` takes the items and the number of bootstrap draws;
    None: there is no formula. `doc_mean` is None where the value is not a mean over docs (f1, bleu); `range` then has
    the bounds of the value, where they are known.
    """

    name: str
    function: Callable[[Sequence[Item]], float]
    needs: ItemKind = "any"
    stderr: Callable[[Sequence[Item], int], float] | None = None
    doc_mean: DocMean | None = None
    range: ScoreRange | None = None
    owned: bool = False

    def __call__(self, items: Sequence[Item]) -> float:
        return self.function(items)


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a task: an entry of `metric_list`, resolved for the task's output type.

    A doc's item comes from one of three functions. `item` takes what the output type makes of a doc's loglikelihoods;
    `score` takes (prediction, references) of a generated text and returns items by name; `code` takes (completions,
    prompt, references, doc, runner), runs the programs, and returns one item for each k of `pass_at`. All are None
    where `process_results` scores. `picks_by` returns the value of each choice, for a metric that is 1 if the choice
    with the largest value is right. `unconditional`: it also needs the choices' loglikelihoods without the context.
    `listed` is False for a metric that the task has by its output type, without a `metric_list`. `declared_range` is
    its entry of ``metadata: {ranges: {f1: [0, 1]}}``.
    """

    name: str
    kind: ItemKind
    aggregation: Aggregation
    higher_is_better: bool | None
    options: Mapping[str, Any] = NOTHING
    item: Callable[[Any], Item] | None = field(default=None, compare=False, repr=False)
    picks_by: Callable[[Any], list[float]] | None = field(default=None, compare=False, repr=False)
    score: Callable[[Any, Sequence[str]], Mapping[str, Item]] | None = field(default=None, compare=False, repr=False)
    code: Callable[..., Mapping[str, Item]] | None = field(default=None, compare=False, repr=False)
    pass_at: tuple[int, ...] = ()
    unconditional: bool = False
    listed: bool = True
    declared_range: ScoreRange | None = None

    @property
    def range(self) -> ScoreRange | None:
        """The range of a doc's score, known for the metric or declared; None if the metric is not a mean of scores."""
        mean = self.aggregation.doc_mean
        if mean is None or mean.log:
            return None
        if self.kind in ("right", "share") or self.pass_at:
            return ScoreRange(0.0, 1.0)
        return mean.support or (self.declared_range if mean.plain else None)

    @property
    def value_range(self) -> ScoreRange | None:
        """The range of the value over all docs, which may have no upper end; None if it is not known."""
        if self.aggregation.owned:
            return None
        if self.kind in ("right", "share") or self.pass_at:
            return ScoreRange(0.0, 1.0)
        if self.kind != "any" and self.aggregation.range is not None:
            return self.aggregation.range
        mean = self.aggregation.doc_mean
        if self.kind != "any" and self.range is None and mean is not None and mean.floor is not None:
            return ScoreRange(math.exp(mean.floor) if mean.log else mean.floor, math.inf)
        return self.range

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which its values are reported: ``pass@1``, ... or its own."""
        return tuple(f"pass@{k}" for k in self.pass_at) or (self.name,)

    @property
    def names_are_open(self) -> bool:
        """True if a function of the task may return items under any name (the keys of a dict)."""
        return self.score is not None and self.kind == "any"


#: One function of a filter pipeline, ready: (answers, doc) -> answers, or a single value.
FilterFunction: TypeAlias = Callable[[Sequence[Any], DocData], Any]


@dataclass(frozen=True, slots=True)
class FilterStep:
    """One function of a filter pipeline as written, and `apply`, made of it; `function` is set for a ``!function``."""

    name: str
    apply: FilterFunction = field(compare=False, repr=False)
    options: Mapping[str, Any] = NOTHING
    function: DocFunction | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An entry of `filter_list`, ready: called with a doc's responses, one per repeat, and the doc.

    It returns a single value if the last step is `take_first`, else a list (of one for `majority_vote`). Raises
    ValueError where a step cannot be applied, and TaskFileError where a function of the task fails.
    """

    name: str
    steps: tuple[FilterStep, ...]

    def __call__(self, responses: Sequence[Any], doc: DocData) -> Any:
        value: Any = list(responses)
        for step in self.steps:
            value = step.apply(value if isinstance(value, list) else [value], doc)
        return value


def take_first(answers: Sequence[Any], doc: DocData) -> Any:
    """Return the first answer: the step of the same name."""
    return answers[0]


#: The pipeline of a task that lists none; it takes the first response.
TAKE_FIRST = Pipeline("none", (FilterStep("take_first", take_first),))


@dataclass(frozen=True, slots=True)
class Task:
    """One benchmark. Field names are the YAML keys; `path` and `lines` say where they were written.

    `metrics` and `filters` are resolved and ready; `metrics` are those of the output type where none are listed.
    `gates` holds the entries of ``metadata: {gates: [...]}`` as written (text or mapping) with their line;
    `gates_path` is the file that they stand in, if it is another one, from which they were included.
    `config` is the resolved YAML as plain data, for reports and hashes (functions by their source).
    `output_type` names a record of `_output_types.OUTPUT_TYPES`. `evaluated_split` is `test_split`, else
    `validation_split`.
    """

    name: str
    path: Path
    output_type: str
    doc_to_text: Field | None
    doc_to_target: Field | None
    alias: str | None = None
    tags: tuple[str, ...] = ()
    dataset_path: str | None = None
    dataset_name: str | None = None
    dataset_kwargs: Mapping[str, Any] = NOTHING
    custom_dataset: DocFunction | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    process_docs: DocFunction | None = None
    doc_to_choice: Field | None = None
    process_results: DocFunction | None = None
    description: Field | None = None
    gen_prefix: Field | None = None
    fewshot: FewshotSpec = FewshotSpec()
    num_fewshot: int | None = None
    fewshot_delimiter: str = "\n\n"
    target_delimiter: str = " "
    generation_kwargs: Mapping[str, Any] = NOTHING
    filters: tuple[Pipeline, ...] = (TAKE_FIRST,)
    repeats: int = 1
    metrics: tuple[Metric, ...] = ()
    unsafe_code: bool = False
    version: str | int | float | None = None
    metadata: Mapping[str, Any] = NOTHING
    gates: tuple[tuple[str | Mapping[str, Any], int], ...] = ()
    gates_path: Path | None = None
    config: Mapping[str, Any] = NOTHING
    lines: Mapping[str, int] = field(default=NOTHING, repr=False)

    @property
    def evaluated_split(self) -> str | None:
        return self.test_split or self.validation_split

    @property
    def cluster(self) -> str | None:
        """The column that docs of one cluster share (``metadata: {cluster: passage}``); None for independent docs."""
        column: str | None = self.metadata.get("cluster")
        return column

    @property
    def display_name(self) -> str:
        return self.alias or self.name

    def line_of(self, key: str) -> int:
        """Return the 1-based line of a key, or 1 where the key was inherited from another file."""
        return self.lines.get(key, 1)


@dataclass(frozen=True, slots=True)
class GroupMetric:
    """One entry of `aggregate_metric_list`. `filters` None means: every filter that the tasks have."""

    metric: str
    filters: tuple[str, ...] | None = None
    weight_by_size: bool = True
    aggregation: DocFunction | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Several tasks reported together. `members` are names of tasks, groups or tags, or inline values."""

    name: str
    path: Path
    members: Sequence[str | Task | Group]
    alias: str | None = None
    metrics: tuple[GroupMetric, ...] = ()
    version: str | int | float | None = None
    metadata: Mapping[str, Any] = NOTHING
    gates: tuple[tuple[str | Mapping[str, Any], int], ...] = ()
    gates_path: Path | None = None
    lines: Mapping[str, int] = field(default=NOTHING, repr=False)

    @property
    def display_name(self) -> str:
        return self.alias or self.name

    def line_of(self, key: str) -> int:
        return self.lines.get(key, 1)

    def inline_tasks(self) -> tuple[Task, ...]:
        """Return the tasks that are written in the group's own file, at any depth."""
        found: list[Task] = []
        for member in self.members:
            if isinstance(member, Task):
                found.append(member)
            elif isinstance(member, Group):
                found += member.inline_tasks()
        return tuple(found)
