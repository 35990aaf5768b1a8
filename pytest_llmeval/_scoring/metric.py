"""The metrics of lm-evaluation-harness's format, in one table, and the resolution of an entry of `metric_list`."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from pytest_llmeval._functions import call
from pytest_llmeval._functions import check_options
from pytest_llmeval._functions import name_of
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._output_types import Answered
from pytest_llmeval._scoring import choice
from pytest_llmeval._scoring import text
from pytest_llmeval._scoring.aggregations import AGGREGATIONS
from pytest_llmeval._scoring.items import ITEM_KINDS
from pytest_llmeval._scoring.passk import PassAtK
from pytest_llmeval._task import Aggregation
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Item
from pytest_llmeval._task import ItemKind
from pytest_llmeval._task import Metric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


@dataclass(frozen=True, slots=True)
class Keeps:
    """The item that a metric keeps of a doc of one output type.

    `item` and `picks_by` are those of `Metric`, for loglikelihoods. For generated texts `scorer` takes the options of
    the metric and returns the function that scores a text, or a `PassAtK`.
    """

    kind: ItemKind
    item: Callable[[Any], Item] | None = None
    picks_by: Callable[[Any], list[float]] | None = None
    scorer: Callable[..., text.TextScore | PassAtK] | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: its item for each output type that it serves, and its defaults.

    `by_rule`: lm_eval has no such metric, so its task files cannot list it; a rule that names it adds it to them.
    """

    keeps: Mapping[str, Keeps]  # by output type
    aggregation: str
    higher_is_better: bool = True
    runs_code: bool = False
    unconditional: bool = False
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class _OwnAggregation:
    """A ``!function`` as the aggregation of a metric. Raises ValueError unless it returns a number."""

    function: DocFunction

    def __call__(self, items: Sequence[Item]) -> float:
        value = call(self.function, "aggregation", list(items))
        try:
            return float(value)
        except (TypeError, ValueError):
            name = name_of(self.function)
            raise ValueError(f"aggregation {name} must return a number, got {value!r:.80}") from None


def resolve(spec: MetricSpec, output_type: str, *, processed: bool = False) -> Metric:
    """Return the metric of an entry of `metric_list`.

    `processed`: the task has a `process_results`, and the metric is one of its numbers, by name. Raises ValueError,
    which lists the known names, if the output type has no such metric or an option is wrong.
    """
    definition = METRICS.get(spec.name)
    if processed:
        return _assembled(spec, definition, "any")
    if spec.function is not None:
        if not OUTPUT_TYPES[output_type].generates:
            raise ValueError(
                f"a !function metric scores generated texts; a {output_type} task has process_results for it"
            )
        score = text.of_function(spec.function, spec.name, spec.options, spec.higher_is_better)
        return replace(_assembled(spec, definition, "any"), score=score)
    if definition is None or output_type not in definition.keeps:
        raise ValueError(_unknown(spec.name, definition, output_type))
    kept = definition.keeps[output_type]
    metric = _assembled(spec, definition, kept.kind)
    needed = metric.aggregation.needs
    taken = ("number", "right", "share") if needed == "number" else (needed,)
    if needed != "any" and kept.kind not in taken:
        raise ValueError(
            f"metric {spec.name} keeps {ITEM_KINDS[kept.kind].keeps}, but aggregation {metric.aggregation.name} needs "
            f"{ITEM_KINDS[needed].keeps}; name another metric or a !function as its aggregation"
        )
    if kept.scorer is None:
        # As in lm_eval, options have no effect where no text is compared.
        return replace(metric, item=kept.item, picks_by=kept.picks_by)
    if kept.kind == "texts" and metric.aggregation.owned:
        # The task's own aggregation decides what the options mean.
        return replace(metric, score=text.paired(spec.name))
    check_options(f"metric {spec.name}", kept.scorer, spec.options)
    made = kept.scorer(**spec.options)
    return (
        replace(metric, code=made.score, pass_at=made.k) if isinstance(made, PassAtK) else replace(metric, score=made)
    )


def resolve_metrics(specs: Sequence[MetricSpec], output_type: str, *, processed: bool = False) -> tuple[Metric, ...]:
    """Return the metrics of a task, by the entries of its `metric_list`; those of its output type if there are none.

    Raises ValueError as `resolve` does.
    """
    if specs:
        return tuple(resolve(spec, output_type, processed=processed) for spec in specs)
    names = OUTPUT_TYPES[output_type].metrics
    return tuple(replace(resolve(MetricSpec(name), output_type, processed=processed), listed=False) for name in names)


def with_asked(task: Task, asked: Iterable[str]) -> Task:
    """Return the task with those metrics added that `asked` names, its output type has and lm_eval does not."""
    names = {metric.name for metric in task.metrics}
    added = [
        replace(resolve(MetricSpec(name), task.output_type), listed=False)
        for name in sorted({*asked} - names)
        if name in METRICS and METRICS[name].by_rule and task.output_type in METRICS[name].keeps
    ]
    return replace(task, metrics=(*task.metrics, *added)) if added and task.process_results is None else task


def metric_of(task: Task, name: str) -> Metric:
    """Return the metric under whose rules the values reported as `name` are aggregated.

    A number that `process_results` returns for a metric that is not listed is averaged. If a metric returns a dict,
    its rules hold for every key; if the rules of two such metrics differ, the aggregation raises ValueError.
    """
    for metric in task.metrics:
        if name in metric.names:
            return metric
    if task.process_results is not None:
        return _assembled(MetricSpec(name), None, "any")
    lenders = [metric for metric in task.metrics if metric.names_are_open]
    if len({(metric.aggregation, metric.higher_is_better) for metric in lenders}) == 1:
        return lenders[0]
    names = ", ".join(metric.name for metric in lenders)

    def unsettled(items: Sequence[Item]) -> float:
        raise ValueError(f"it may come from any of the metrics {names}, which are aggregated differently")

    return Metric(name, "any", Aggregation("unsettled", unsettled), None)


def stderr(metric: Metric, items: Sequence[Item], *, bootstrap_iters: int) -> float | None:
    """Return the standard error of the aggregated value; None for one doc, without a formula, and if it is not finite.

    With `bootstrap_iters` 0 no standard error is computed at all, as in lm-evaluation-harness.
    """
    if metric.aggregation.stderr is None or bootstrap_iters <= 0 or len(items) < 2:
        return None
    value = metric.aggregation.stderr(items, bootstrap_iters)
    return value if math.isfinite(value) else None


def _assembled(spec: MetricSpec, definition: Definition | None, kind: ItemKind) -> Metric:
    """Return the metric without the functions that make its items. Raises ValueError for an unknown aggregation."""
    name = spec.aggregation or (definition.aggregation if definition else "mean")
    if (spec.name, name) == ("likelihood", "mean"):
        # lm_eval calls the mean of the likelihoods a mean, though the items are not numbers.
        name = "likelihood"
    if callable(name):
        aggregation = Aggregation(name_of(name), _OwnAggregation(name), owned=True)
    elif name in AGGREGATIONS:
        aggregation = AGGREGATIONS[name]
    else:
        raise ValueError(f"unknown aggregation {name!r}; known: {', '.join(sorted(AGGREGATIONS))}")
    default = definition.higher_is_better if definition else None
    return Metric(
        spec.name,
        kind,
        aggregation,
        higher_is_better=default if spec.higher_is_better is None else spec.higher_is_better,
        options=spec.options,
        unconditional=definition is not None and definition.unconditional,
    )


def _unknown(name: str, definition: Definition | None, output_type: str) -> str:
    known = ", ".join(sorted(metric for metric, one in METRICS.items() if output_type in one.keeps))
    if definition is None:
        return f"unknown metric {name!r}; for {output_type} there are {known}"
    others = " and ".join(definition.keeps) or "process_results"
    return f"metric {name!r} is for {others}; for {output_type} there are {known}"


def _picking(picks_by: Callable[[Answered], list[float]]) -> Keeps:
    return Keeps("right", partial(choice.picks_gold, picks_by), picks_by)


def _texts(name: str) -> Keeps:
    """Return the item that is the texts, for an aggregation defined in the task file: lm_eval has none for texts."""
    return Keeps("texts", scorer=partial(text.paired, name))


def _translated(name: str, *, higher_is_better: bool = True) -> Definition:
    return Definition({_TEXT: Keeps("texts", scorer=partial(text.translated, name))}, name, higher_is_better)


_LL = "loglikelihood"
_ROLLING = "loglikelihood_rolling"
_CHOICE = "multiple_choice"
_TEXT = "generate_until"

_ANY = Keeps("any")
_LABELS = Keeps("labels", choice.labels)
_PER_BYTE = Keeps("lengths", partial(choice.per_unit, choice.count_bytes))
_PER_WORD = Keeps("lengths", partial(choice.per_unit, choice.count_words))
_PASS_AT_K = Definition({_TEXT: Keeps("number", scorer=PassAtK.from_options)}, "mean", runs_code=True)

METRICS: Mapping[str, Definition] = MappingProxyType(
    {
        "acc": Definition(
            {
                _CHOICE: _picking(choice.log_probabilities),
                _LL: Keeps("right", choice.writes_text),
                _TEXT: _texts("acc"),
            },
            "mean",
        ),
        "acc_all": Definition({}, "acc_all"),
        "acc_bytes": Definition({_CHOICE: _picking(choice.per_byte)}, "mean"),
        "acc_mutual_info": Definition({_CHOICE: _picking(choice.gains)}, "mean", unconditional=True),
        "acc_norm": Definition({_CHOICE: _picking(choice.per_character)}, "mean"),
        "bits_per_byte": Definition({_ROLLING: _PER_BYTE}, "bits_per_byte", higher_is_better=False),
        "bleu": _translated("bleu"),
        "brier_score": Definition(
            {_CHOICE: Keeps("choices", choice.gold_and_probabilities)}, "brier_score", higher_is_better=False
        ),
        "bypass": Definition(
            {
                _CHOICE: _ANY,
                _LL: _ANY,
                _TEXT: Keeps("any", scorer=lambda: lambda prediction, references: {"bypass": None}),
            },
            "bypass",
        ),
        "byte_perplexity": Definition({_ROLLING: _PER_BYTE}, "weighted_perplexity", higher_is_better=False),
        "chrf": _translated("chrf"),
        "chrf++": _translated("chrf++"),
        "exact_match": Definition(
            {_CHOICE: Keeps("right", choice.writes_gold), _TEXT: Keeps("right", scorer=text.exact_match)}, "mean"
        ),
        "f1": Definition({_CHOICE: _LABELS, _TEXT: _texts("f1")}, "f1"),
        "likelihood": Definition({_CHOICE: Keeps("choices", choice.gold_and_lls)}, "likelihood"),
        "mcc": Definition({_CHOICE: _LABELS, _TEXT: _texts("mcc")}, "matthews_corrcoef"),
        # Not in lm_eval; the name and the formula are those of DataDecide (Magnusson et al. 2025, arXiv:2504.11393).
        "norm_correct_prob": Definition({_CHOICE: Keeps("share", choice.gold_share)}, "mean", by_rule=True),
        "numeric_match": Definition({_TEXT: Keeps("right", scorer=text.numeric_match)}, "mean"),
        "pass@k": _PASS_AT_K,
        "pass_at_k": _PASS_AT_K,
        "perplexity": Definition({_LL: Keeps("number", choice.likeliest)}, "perplexity", higher_is_better=False),
        "ter": _translated("ter", higher_is_better=False),
        "word_perplexity": Definition({_ROLLING: _PER_WORD}, "weighted_perplexity", higher_is_better=False),
    }
)
