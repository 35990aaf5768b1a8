"""The scores of one doc, from a model's responses to it.

The responses pass through the filters, then the metrics of the task or its `process_results` score them. A problem
of a doc or an exception in a function of the task becomes the doc's `error`; it never ends a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._functions import call
from pytest_llmeval._functions import name_of
from pytest_llmeval._output_types import OUTPUT_TYPES
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
ItemsByMetric: TypeAlias = Mapping[str, Item]


def score_doc(
    task: Task,
    index: int,
    doc: RenderedDoc,
    responses: Sequence[Sequence[Any]],
    *,
    code_runner: CodeRunner | None = None,
    keep_sample: bool = True,
) -> DocResult:
    """Return the scores of one doc, or its error.

    `responses[i]` are the answers to the doc's i-th distinct request, one per repeat. The requests of a doc are those
    of its output type. `code_runner` runs the programs of pass@k. `keep_sample`: fill `sample` with the target, the
    responses and the filtered responses, for a sample file.
    """
    if doc.problem is not None:
        return DocResult(index, {}, error=doc.problem)
    output = OUTPUT_TYPES[task.output_type]
    try:
        given = [[output.read(response) for response in repeats] for repeats in responses]
        filtered = {pipeline.name: [pipeline(repeats, doc.data) for repeats in given] for pipeline in task.filters}
        scores = {name: _scores(task, doc, answers, code_runner) for name, answers in filtered.items()}
        for metric in task.metrics:
            if metric.declared_range is not None:
                for items in scores.values():
                    metric.declared_range.check(metric.name, items.get(metric.name))
    except LLMEvalError as error:
        return DocResult(index, {}, error=str(error))
    except ValueError as error:
        return DocResult(index, {}, error=f"task {task.name}, doc {index}: {error}")
    correct = _is_correct(task, next(iter(scores.values())))
    unusable = output.unusable(doc, given)
    if unusable and task.process_results is not None:
        # Scores that a function of the task computes from NaN mean nothing: argmax of NaN is 0, which may be right.
        scores = {
            name: {key: math.nan if isinstance(item, int | float) else item for key, item in items.items()}
            for name, items in scores.items()
        }
    flat = [response for repeats in responses for response in repeats]
    sample: dict[str, Any] | None = None
    if keep_sample:
        sample = {
            "target": plain_or_text(doc.target),
            "resps": plain_or_text(_as_given(responses, given)),
            "filtered_resps": {name: plain_or_text(answers) for name, answers in filtered.items()},
        }
    return DocResult(
        doc=index,
        scores=scores,
        correct=False if unusable else correct,
        nonfinite=unusable,
        truncated=sum(bool(getattr(response, "truncated", False)) for response in flat),
        cut_off=sum(getattr(response, "finish_reason", None) == "length" for response in flat),
        thoughts=sum(getattr(response, "finish_reason", None) == "thought" for response in flat),
        tied=_is_tied(task, doc, given),
        sample=sample,
    )


def _as_given(responses: Sequence[Sequence[Any]], given: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the responses for a sample file: texts with the thoughts that were removed before they were scored."""
    return [
        [getattr(response, "raw", value) for response, value in zip(repeats, values, strict=True)]
        for repeats, values in zip(responses, given, strict=True)
    ]


def pick_of(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> Pick | None:
    """Return the choice that the model finds likeliest, and its margin; None if the task has no choices."""
    choices = doc.choices or ()
    if not OUTPUT_TYPES[task.output_type].has_choices or not choices:
        return None
    lls = [float(repeats[0][0]) for repeats in responses[: len(choices)]]
    others = {name: values for name, values in choice_values(task, doc, responses).items() if name != "acc"}
    return Pick(pick(lls), doc.gold, _margin(lls), {name: _margin(values) for name, values in others.items()})


def choice_values(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> dict[str, list[float]]:
    """Return, by metric, the values of the choices that it picks by; empty for a task with a `process_results`."""
    output = OUTPUT_TYPES[task.output_type]
    if output.answered is None or not output.has_choices or task.process_results is not None:
        return {}
    answered = output.answered(doc, [output.read(repeats[0]) for repeats in responses])
    return {metric.name: metric.picks_by(answered) for metric in task.metrics if metric.picks_by is not None}


def _is_tied(task: Task, doc: RenderedDoc, responses: Sequence[Sequence[Any]]) -> bool:
    """Return True if the likeliest choices are tied: many docs in half precision, all docs of a broken model."""
    if not OUTPUT_TYPES[task.output_type].has_choices or task.process_results is not None:
        return False
    lls = [float(repeats[0][0]) for repeats in responses[: len(doc.choices or ())]]
    index = pick(lls)
    return index >= 0 and margin(lls, index) == 0


def _margin(values: Sequence[float]) -> float:
    """Return the margin of the pick; 0 if there is no pick."""
    index = pick(values)
    return 0.0 if index < 0 else margin(values, index)


def _scores(task: Task, doc: RenderedDoc, answers: list[Any], code_runner: CodeRunner | None) -> ItemsByMetric:
    """Return the items of a doc under one filter. `answers` has one answer per distinct request."""
    if task.process_results is not None:
        return _processed(task, task.process_results, doc, answers)
    answered = OUTPUT_TYPES[task.output_type].answered
    if answered is not None:
        given = answered(doc, answers)
        return {metric.name: metric.item(given) for metric in task.metrics if metric.item is not None}
    references = doc.references or tuple((doc.choices or ())[index] for index in doc.gold)
    if not references:
        raise ValueError("the doc has no right answer to compare with")
    (prediction,) = answers
    scores: dict[str, Item] = {}
    for metric in task.metrics:
        if metric.code is not None:
            scores |= metric.code(prediction, doc.text, references, doc.data, code_runner)
        elif metric.score is not None:
            items = {name: _plain(name, item) for name, item in metric.score(prediction, references).items()}
            if metric.names_are_open:
                for name, item in items.items():
                    _check_item(metric, name, item, "its function", "return that, or name an aggregation for it")
            scores |= items
    return scores


def _processed(task: Task, function: DocFunction, doc: RenderedDoc, answers: list[Any]) -> ItemsByMetric:
    """Return the items that `process_results` returns, called with (doc, answers) as in lm_eval.

    It may omit a metric for some docs, but each doc needs at least one of the metrics that the task lists.
    """
    source = f"process_results {name_of(function)}"
    found = call(function, "process_results", dict(doc.data), list(answers))
    if not isinstance(found, Mapping):
        raise ValueError(f"{source} must return a dict by metric, got {found!r:.80}")
    items = {str(name): _plain(str(name), item) for name, item in found.items()}
    listed = [metric.name for metric in task.metrics if metric.listed]
    if listed and not any(name in items for name in listed):
        raise ValueError(
            f"{source} gave {dict(found)!r:.80}, which has no score for a metric of metric_list ({', '.join(listed)}): "
            "return at least one of these"
        )
    known = {metric.name for metric in task.metrics}
    for name, item in items.items():
        if name not in known:
            mend = "return that, leave it out, or list it in metric_list with an aggregation that takes it"
        elif len(listed) > 1:
            # Each doc needs at least one score.
            mend = f"return that, or leave {name} out where a doc has none"
        else:
            mend = "return that"
        _check_item(metric_of(task, name), name, item, source, mend)
    return items


def _is_correct(task: Task, scores: ItemsByMetric) -> bool | None:
    """Return the judgement of the first score that is 0 or 1 and means right or wrong; None if no score does."""
    metrics = {metric.name: metric for metric in task.metrics}
    for name in [*(name for name in metrics if name in scores), *scores]:
        metric, item = metrics.get(name), scores[name]
        # The item of a function or a program may mean anything: only 0 and 1 are taken as a judgement.
        is_judgement = metric is None or metric.kind in ("right", "any")
        if is_judgement and isinstance(item, int | float) and item in (0, 1):
            better_is_0 = metric is not None and metric.higher_is_better is False
            return bool(item) is not better_is_0
    return None


def _check_item(metric: Metric, name: str, item: Item, source: str, mend: str) -> None:
    """Raise ValueError if the metric's aggregation cannot work with an item that a function of the task returned."""
    if form := misfit(metric, item):
        taker = metric.aggregation.name
        raise ValueError(f"metric {name}: {source} gave {item!r:.80}, and {taker} needs {form}: {mend}")


def _plain(name: str, item: Any) -> Item:
    try:
        return plain(item)
    except TypeError as error:
        raise ValueError(f"metric {name}: {error}") from None
