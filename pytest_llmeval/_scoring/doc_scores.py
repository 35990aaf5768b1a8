"""From a model's responses to one doc's scores.

Filters, then the metrics of the task or its own `process_results`. Whatever a doc or a function of the task gets
wrong becomes the doc's `error`; it never ends a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeAlias

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._functions import call
from pytest_llmeval._functions import name_of
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._output_types import OutputType
from pytest_llmeval._output_types import margin
from pytest_llmeval._output_types import pick
from pytest_llmeval._plain import plain
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._scoring.items import misfit
from pytest_llmeval._scoring.metric import metric_of
from pytest_llmeval._scoring.passk import CodeRunner
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import Item
from pytest_llmeval._task import Metric
from pytest_llmeval._task import Task


#: A doc's items by metric name.
Scores: TypeAlias = Mapping[str, Item]


def score_doc(
    task: Task,
    index: int,
    doc: RenderedDoc,
    responses: Sequence[Sequence[Any]],
    *,
    code_runner: CodeRunner | None = None,
    keep_sample: bool = True,
) -> DocResult:
    """The scores of one doc.

    `responses[i]`: the repeats' answers to the doc's i-th distinct request. There is one request per choice (for
    `acc_mutual_info` followed by one per choice without its context), and a single one for the other output
    types. `code_runner` runs the programs of pass@k. `keep_sample`: fill `sample` with what a sample file says of
    target, responses and filtered responses.
    """
    if doc.problem is not None:
        return DocResult(index, {}, error=doc.problem)
    output = OUTPUT_TYPES[task.output_type]
    try:
        given = [[_understood(output, response) for response in repeats] for repeats in responses]
        filtered = {pipeline.name: [pipeline(repeats, doc.data) for repeats in given] for pipeline in task.filters}
        scores = {name: _scores(task, _Asked(doc, answers, code_runner)) for name, answers in filtered.items()}
        for metric in task.metrics:
            if metric.declared_range is not None:
                for items in scores.values():
                    metric.declared_range.check(metric.name, items.get(metric.name))
    except LLMEvalError as error:
        return DocResult(index, {}, error=str(error))
    except ValueError as error:
        return DocResult(index, {}, error=f"task {task.name}, doc {index}: {error}")
    correct = _judged(task, next(iter(scores.values())))
    unusable = output.unusable(doc, given)
    if unusable and task.process_results is not None:
        scores = {name: _unknown(items) for name, items in scores.items()}
    return DocResult(
        doc=index,
        scores=scores,
        correct=False if unusable else correct,
        nonfinite=unusable,
        truncated=_count(responses, lambda response: getattr(response, "truncated", False)),
        cut_off=_count(responses, lambda response: getattr(response, "finish_reason", None) == "length"),
        tied=_is_tied(task, doc, given),
        sample=_sample(doc, given, filtered) if keep_sample else None,
    )


def pick_of(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> Pick | None:
    """Which choice the model found likeliest, and by how much; None where a task has no choices to pick from."""
    choices = doc.choices or ()
    if not OUTPUT_TYPES[task.output_type].has_choices or not choices:
        return None
    lls = [float(repeats[0][0]) for repeats in responses[: len(choices)]]
    others = {name: values for name, values in choice_values(task, doc, responses).items() if name != "acc"}
    return Pick(pick(lls), doc.gold, _margin(lls), {name: _margin(values) for name, values in others.items()})


def choice_values(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> dict[str, list[float]]:
    """What each metric of the task that picks a choice picks it by; empty where none does, or nobody knows how."""
    if not OUTPUT_TYPES[task.output_type].has_choices or task.process_results is not None:
        return {}
    output = OUTPUT_TYPES[task.output_type]
    if output.answered is None:
        return {}
    answered = output.answered(doc, [output.read_response(repeats[0]) for repeats in responses])
    return {metric.name: metric.picks_by(answered) for metric in task.metrics if metric.picks_by is not None}


def _is_tied(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> bool:
    """Whether the likeliest of a doc's choices has its equal: in half precision many do, of a broken model all."""
    if not OUTPUT_TYPES[task.output_type].has_choices or task.process_results is not None:
        return False
    lls = [float(repeats[0][0]) for repeats in responses[: len(doc.choices or ())]]
    index = pick(lls)
    return index >= 0 and margin(lls, index) == 0


def _margin(values: Sequence[float]) -> float:
    """Of the pick; 0 where there is none."""
    index = pick(values)
    return 0.0 if index < 0 else margin(values, index)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A doc with one filtered answer per distinct request."""

    doc: RenderedDoc
    answers: list[Any]
    code_runner: CodeRunner | None


def _scores(task: Task, asked: _Asked) -> Scores:
    """The items of one filter."""
    if task.process_results is not None:
        return _processed(task.process_results, asked, task)
    answered = OUTPUT_TYPES[task.output_type].answered
    if answered is None:
        return _text_items(asked, task.metrics)
    given = answered(asked.doc, asked.answers)
    return {metric.name: metric.item(given) for metric in task.metrics if metric.item is not None}


def _judged(task: Task, scores: Scores) -> bool | None:
    """Whether the doc is right by the first score that is 0 or 1 and tells so; None if there is none."""
    metrics = {metric.name: metric for metric in task.metrics}
    for name in [*(name for name in metrics if name in scores), *scores]:
        metric = metrics.get(name)
        # Of items that a function or a program gave only the value tells.
        if (metric is None or metric.kind in ("right", "any")) and _is_0_or_1(scores[name]):
            better_is_0 = metric is not None and metric.higher_is_better is False
            return bool(scores[name]) is not better_is_0
    return None


def _text_items(asked: _Asked, metrics: Sequence[Metric]) -> Scores:
    doc = asked.doc
    references = doc.references or tuple((doc.choices or ())[index] for index in doc.gold)
    if not references:
        raise ValueError("the doc has no right answer to compare with")
    (prediction,) = asked.answers
    scores: dict[str, Item] = {}
    for metric in metrics:
        if metric.code is not None:
            scores |= metric.code(prediction, doc.text, references, doc.data, asked.code_runner)
        elif metric.score is not None:
            given = {name: _item(name, item) for name, item in metric.score(prediction, references).items()}
            if metric.kind == "any":
                for name, item in given.items():
                    _check_shape(metric, name, item, "its function", "return that, or name an aggregation for it")
            scores |= given
    return scores


def _processed(function: DocFunction, asked: _Asked, task: Task) -> Scores:
    """What the task's own function makes of the answers, called as the format has it: (doc, answers) -> items.

    It may leave a metric out of some docs, but not all that the task lists out of one.
    """
    source = f"process_results {name_of(function)}"
    found = call(function, "process_results", dict(asked.doc.data), list(asked.answers))
    if not isinstance(found, Mapping):
        raise ValueError(f"{source} must return a dict by metric, got {found!r:.80}")
    items = {str(name): _item(str(name), item) for name, item in found.items()}
    listed = [metric.name for metric in task.metrics if metric.listed]
    if listed and not any(name in items for name in listed):
        raise ValueError(
            f"{source} gave {dict(found)!r:.80}, which has no score for a metric of metric_list ({', '.join(listed)}): "
            "return one under such a name"
        )
    known = {metric.name for metric in task.metrics}
    for name, item in items.items():
        if name not in known:
            mend = "return that, leave it out, or list it in metric_list with an aggregation that takes it"
        elif len(listed) > 1:
            # A doc needs one score at least.
            mend = f"return that, or leave {name} out where a doc has none"
        else:
            mend = "return that"
        _check_shape(metric_of(task, name), name, item, source, mend)
    return items


def _check_shape(metric: Metric, name: str, item: Item, source: str, mend: str) -> None:
    """Raises ValueError for what a function of the task gives if the metric's aggregation cannot work with it."""
    if needed := misfit(metric, item):
        taker = metric.aggregation.name
        raise ValueError(f"metric {name}: {source} gave {item!r:.80}, and {taker} needs {needed}: {mend}")


def _item(name: str, item: Any) -> Item:
    try:
        return plain(item)
    except TypeError as error:
        raise ValueError(f"metric {name}: {error}") from None


def _is_0_or_1(item: Item) -> bool:
    return isinstance(item, int | float) and item in (0, 1)


def _unknown(scores: Scores) -> Scores:
    """Numbers that a function of the task made of NaN say nothing: argmax of NaN is 0, which may be right."""
    return {name: math.nan if isinstance(item, int | float) else item for name, item in scores.items()}


def _count(responses: Sequence[Sequence[Any]], which: Callable[[Any], bool]) -> int:
    return sum(bool(which(response)) for repeats in responses for response in repeats)


def _sample(doc: RenderedDoc, given: list[list[Any]], filtered: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        "target": plain_or_text(doc.target),
        "resps": plain_or_text(given),
        "filtered_resps": {name: plain_or_text(answers) for name, answers in filtered.items()},
    }


def _understood(output: OutputType, response: Any) -> Any:
    """A response as a plain value. Raises ValueError if a model answers something else."""
    try:
        return output.read_response(response)
    except (TypeError, ValueError, IndexError):
        raise ValueError(f"the model answered {response!r:.80}, expected {output.expected}") from None
