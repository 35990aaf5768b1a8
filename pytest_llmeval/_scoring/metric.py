"""From an entry of `metric_list` to a metric that is ready: name, item, aggregation, direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._functions import call
from pytest_llmeval._functions import check_options
from pytest_llmeval._functions import name_of
from pytest_llmeval._scoring import text
from pytest_llmeval._scoring.aggregations import AGGREGATIONS
from pytest_llmeval._scoring.aggregations import Aggregation
from pytest_llmeval._scoring.aggregations import Item
from pytest_llmeval._scoring.passk import PassAtK
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import OutputType
from pytest_llmeval._task import Task


#: What a metric keeps of one doc: "right", 0 or 1; "number"; "labels", [gold, predicted index]; "texts", [reference,
#: prediction]; "choices", [gold, a value per choice]; "lengths", [ll, units]; "any", what a user's function gives.
Kind: TypeAlias = Literal["right", "number", "labels", "texts", "choices", "lengths", "any"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a task.

    `aggregation` makes it from the docs' items; `standard_error`, where there is a formula, takes the items and
    the number of bootstrap draws. Of a generated text the item comes from `score`, or from `code` by running it.
    """

    name: str
    kind: Kind
    aggregation: Callable[[Sequence[Item]], float]
    higher_is_better: bool | None
    options: Mapping[str, Any] = NOTHING
    standard_error: Callable[[Sequence[Item], int], float] | None = None
    score: text.TextScore | None = None
    code: PassAtK | None = None

    @property
    def owned(self) -> bool:
        """Whether a function of the user aggregates it."""
        return isinstance(self.aggregation, _OwnAggregation)

    @property
    def expands(self) -> bool:
        """Whether its items may come under names of their own (``pass@1``, the keys of a returned dict)."""
        return self.code is not None or (self.score is not None and self.kind == "any")


@dataclass(frozen=True, slots=True)
class Definition:
    """What the format says of a metric: what it keeps of a doc of each output type, and its defaults.

    `scorer` makes the function that scores a generated text from the metric's options.
    """

    kinds: Mapping[OutputType, Kind]
    aggregation: str
    higher_is_better: bool = True
    scorer: Callable[..., text.TextScore] | None = None


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
            raise ValueError(f"aggregation {name} must return a number, it gave {value!r:.80}") from None


def resolve(spec: MetricSpec, output_type: OutputType, *, processed: bool = False) -> Metric:
    """The metric of an entry of `metric_list`.

    `processed`: the task has a `process_results`, so the name only says which of its numbers is meant. Raises
    ValueError, which names what is known, if the output type has no such metric or an option is wrong.
    """
    definition = DEFINITIONS.get(spec.name)
    if processed:
        return _assembled(spec, definition, "any")
    if spec.function is not None:
        return _of_function(spec, spec.function, output_type)
    if definition is None or output_type not in definition.kinds:
        raise ValueError(_unknown(spec.name, definition, output_type))
    kind = definition.kinds[output_type]
    _check_aggregation(spec, definition, kind)
    # As in the format, options mean nothing where no text is compared.
    if output_type != "generate_until":
        return _assembled(spec, definition, kind)
    if kind == "texts" and callable(spec.aggregation):
        # What such an option means is up to the task's own aggregation.
        return _assembled(spec, definition, kind, score=text.paired(spec.name))
    if definition.scorer is not None:
        return _assembled(spec, definition, kind, score=_made(spec, definition.scorer))
    return _assembled(spec, definition, kind, code=_made(spec, PassAtK.from_options))


def metrics_of(task: Task) -> tuple[Metric, ...]:
    """The metrics of a task, or of its output type if it lists none. Raises ValueError as `resolve` does."""
    specs = task.metrics or default_metrics(task.output_type)
    return tuple(resolve(spec, task.output_type, processed=task.process_results is not None) for spec in specs)


def unlisted(name: str) -> Metric:
    """The metric of a number that `process_results` returns and `metric_list` does not name: its mean."""
    return _assembled(MetricSpec(name), None, "any")


def aggregation_name(metric: Metric) -> str:
    """How an aggregation is called: by its name in the format, or as a function of the user's."""
    if isinstance(metric.aggregation, _OwnAggregation):
        return name_of(metric.aggregation.function)
    return next(name for name, known in AGGREGATIONS.items() if known.function is metric.aggregation)


def default_metrics(output_type: OutputType) -> tuple[MetricSpec, ...]:
    """What is computed for a task without a `metric_list`."""
    return tuple(MetricSpec(name) for name in _DEFAULTS[output_type])


def stderr(metric: Metric, items: Sequence[Item], *, bootstrap_iters: int) -> float | None:
    """Standard error of the aggregated value; None for one doc, without a formula, and if it is not finite.

    With `bootstrap_iters` 0 no standard error is computed at all, as in lm-evaluation-harness.
    """
    if metric.standard_error is None or bootstrap_iters <= 0 or len(items) < 2:
        return None
    value = metric.standard_error(items, bootstrap_iters)
    return value if math.isfinite(value) else None


def _assembled(
    spec: MetricSpec,
    definition: Definition | None,
    kind: Kind,
    *,
    score: text.TextScore | None = None,
    code: PassAtK | None = None,
) -> Metric:
    aggregation = _aggregation(spec, definition)
    default = definition.higher_is_better if definition else None
    return Metric(
        name=spec.name,
        kind=kind,
        aggregation=aggregation.function,
        higher_is_better=default if spec.higher_is_better is None else spec.higher_is_better,
        options=spec.options,
        standard_error=aggregation.stderr,
        score=score,
        code=code,
    )


def _of_function(spec: MetricSpec, function: DocFunction, output_type: OutputType) -> Metric:
    if output_type != "generate_until":
        raise ValueError(f"a !function metric scores generated texts; a {output_type} task has process_results for it")
    score = text.of_function(function, spec.name, spec.options, spec.higher_is_better)
    return _assembled(spec, DEFINITIONS.get(spec.name), "any", score=score)


def _made(spec: MetricSpec, factory: Callable[..., Any]) -> Any:
    """What a factory makes of the options. Raises ValueError if it does not take them."""
    check_options(f"metric {spec.name}", factory, spec.options)
    return factory(**spec.options)


def _aggregation(spec: MetricSpec, definition: Definition | None) -> Aggregation:
    if callable(spec.aggregation):
        return Aggregation(_OwnAggregation(spec.aggregation))
    return AGGREGATIONS[_aggregation_name(spec, spec.aggregation, definition)]


def _aggregation_name(spec: MetricSpec, given: str | None, definition: Definition | None) -> str:
    default = definition.aggregation if definition else "mean"
    # The format calls the mean of the likelihoods a mean, though the items are no numbers.
    name = default if given is None or (spec.name, given) == ("likelihood", "mean") else given
    if name not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {name!r}; known: {', '.join(sorted(AGGREGATIONS))}")
    return name


def _check_aggregation(spec: MetricSpec, definition: Definition, kind: Kind) -> None:
    """An aggregation of the format must fit what the metric keeps of a doc."""
    if callable(spec.aggregation):
        return
    name = _aggregation_name(spec, spec.aggregation, definition)
    needed = NEEDED.get(name, kind)
    if needed != kind and (needed, kind) != ("number", "right"):
        raise ValueError(
            f"metric {spec.name} keeps {_IN_WORDS[kind]}, but aggregation {name} needs {_IN_WORDS[needed]}; "
            "name another metric or a !function as its aggregation"
        )


def _unknown(name: str, definition: Definition | None, output_type: OutputType) -> str:
    known = ", ".join(sorted(metric for metric, one in DEFINITIONS.items() if output_type in one.kinds))
    if definition is None:
        return f"unknown metric {name!r}; for {output_type} there are {known}"
    others = " and ".join(definition.kinds) or "process_results"
    return f"metric {name!r} is for {others}; for {output_type} there are {known}"


def _bypass() -> text.TextScore:
    return lambda prediction, references: {"bypass": None}


_LL: OutputType = "loglikelihood"
_ROLLING: OutputType = "loglikelihood_rolling"
_CHOICE: OutputType = "multiple_choice"
_TEXT: OutputType = "generate_until"

DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "acc": Definition({_CHOICE: "right", _LL: "right", _TEXT: "texts"}, "mean"),
        "acc_all": Definition({}, "acc_all"),
        "acc_bytes": Definition({_CHOICE: "right"}, "mean"),
        "acc_mutual_info": Definition({_CHOICE: "right"}, "mean"),
        "acc_norm": Definition({_CHOICE: "right"}, "mean"),
        "bits_per_byte": Definition({_ROLLING: "lengths"}, "bits_per_byte", higher_is_better=False),
        "bleu": Definition({_TEXT: "texts"}, "bleu", scorer=partial(text.translated, "bleu")),
        "brier_score": Definition({_CHOICE: "choices"}, "brier_score", higher_is_better=False),
        "bypass": Definition({_CHOICE: "any", _LL: "any", _TEXT: "any"}, "bypass", scorer=_bypass),
        "byte_perplexity": Definition({_ROLLING: "lengths"}, "weighted_perplexity", higher_is_better=False),
        "chrf": Definition({_TEXT: "texts"}, "chrf", scorer=partial(text.translated, "chrf")),
        "chrf++": Definition({_TEXT: "texts"}, "chrf++", scorer=partial(text.translated, "chrf++")),
        "exact_match": Definition({_CHOICE: "right", _TEXT: "right"}, "mean", scorer=text.exact_match),
        "f1": Definition({_CHOICE: "labels", _TEXT: "texts"}, "f1"),
        "likelihood": Definition({_CHOICE: "choices"}, "likelihood"),
        "mcc": Definition({_CHOICE: "labels", _TEXT: "texts"}, "matthews_corrcoef"),
        "numeric_match": Definition({_TEXT: "right"}, "mean", scorer=text.numeric_match),
        "pass@k": Definition({_TEXT: "number"}, "mean"),
        "pass_at_k": Definition({_TEXT: "number"}, "mean"),
        "perplexity": Definition({_LL: "number"}, "perplexity", higher_is_better=False),
        "ter": Definition({_TEXT: "texts"}, "ter", higher_is_better=False, scorer=partial(text.translated, "ter")),
        "word_perplexity": Definition({_ROLLING: "lengths"}, "weighted_perplexity", higher_is_better=False),
    }
)

METRIC_NAMES: frozenset[str] = frozenset(DEFINITIONS)
AGGREGATION_NAMES: frozenset[str] = frozenset(AGGREGATIONS)

_DEFAULTS: Mapping[OutputType, tuple[str, ...]] = MappingProxyType(
    {
        "loglikelihood": ("perplexity", "acc"),
        "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
        "multiple_choice": ("acc", "acc_norm"),
        "generate_until": ("exact_match",),
    }
)

#: What an aggregation needs of each doc, where that is not up to the user.
NEEDED: Mapping[str, Kind] = MappingProxyType(
    {
        "bits_per_byte": "lengths",
        "bleu": "texts",
        "brier_score": "choices",
        "chrf": "texts",
        "chrf++": "texts",
        "f1": "labels",
        "likelihood": "choices",
        "matthews_corrcoef": "labels",
        "mean": "number",
        "median": "number",
        "nanmean": "number",
        "perplexity": "number",
        "ter": "texts",
        "weighted_perplexity": "lengths",
    }
)

_IN_WORDS: Mapping[Kind, str] = MappingProxyType(
    {
        "any": "whatever a function returns",
        "choices": "a value per choice",
        "labels": "the right and the predicted choice of each doc",
        "lengths": "a loglikelihood and a length of each doc",
        "number": "a number of each doc",
        "right": "whether each doc is right",
        "texts": "the texts of each doc",
    }
)
