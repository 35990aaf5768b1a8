"""The reading of `metric_list` and `filter_list` into resolved metrics and ready filters."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._scoring import AGGREGATIONS
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._task import TAKE_FIRST
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import FilterStep
from pytest_llmeval._task import Metric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import ScoreRange
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.sources import Modules
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value


#: Keys of a metric that are not options of its function.
_METRIC_KEYS = frozenset({"metric", "aggregation", "higher_is_better", "hf_evaluate"})


def read_metrics(
    entries: Mapping[str, Value],
    output_type: str,
    modules: Modules,
    *,
    own_results: bool,
    ranges: Mapping[str, Sequence[Any]],
) -> tuple[Metric, ...]:
    """Return the metrics of a task; those of its output type if it lists none.

    `own_results`: the task has a `process_results`, so a metric only names a number that it returns, and without a
    list any name is accepted. `ranges` are those that the task declares for its docs' scores, by metric.
    """
    value = typed.given(entries, "metric_list")
    if value is None:
        metrics = list(resolve_metrics((), output_type, processed=own_results))
    else:
        tables = enumerate(typed.tables(value, "metric_list"))
        metrics = [
            _metric(table, f"metric_list[{position}]", output_type, modules, own_results) for position, table in tables
        ]
        _reject_twice([metric.name for metric in metrics], value, "metric_list", "metric")
    declared = {name: ScoreRange(float(low), float(high)) for name, (low, high) in ranges.items()}
    return tuple(replace(metric, declared_range=declared.get(metric.name)) for metric in metrics)


def read_filters(entries: Mapping[str, Value], modules: Modules) -> tuple[Pipeline, ...]:
    """Return the filter pipelines of a task; if it lists none, one that takes the first response."""
    value = typed.given(entries, "filter_list")
    if value is None:
        return (TAKE_FIRST,)
    specs = []
    for position, table in enumerate(typed.tables(value, "filter_list")):
        key = f"filter_list[{position}]"
        name = typed.name(_needed(table, "name", key), f"{key}.name")
        steps = typed.tables(_needed(table, "filter", key), f"{key}.filter")
        specs.append(Pipeline(name, tuple(_step(s, f"{key}.filter[{n}]", modules) for n, s in enumerate(steps))))
    if not specs:
        raise typed.wrong(value, "filter_list", "the list is empty")
    _reject_twice([spec.name for spec in specs], value, "filter_list", "filter")
    return tuple(specs)


def _metric(table: Table, key: str, output_type: str, modules: Modules, own_results: bool) -> Metric:
    metric = _needed(table, "metric", key)
    function: DocFunction | None = None
    if isinstance(metric, FunctionRef):
        function = modules.function(metric, f"{key}.metric")
        name = metric.text.rpartition(".")[2]
    else:
        name = typed.name(metric, f"{key}.metric")
    written, better, hub = (
        typed.given(table.entries, name) for name in ("aggregation", "higher_is_better", "hf_evaluate")
    )
    aggregation: str | DocFunction | None = None
    if isinstance(written, FunctionRef):
        aggregation = modules.function(written, f"{key}.aggregation")
    elif written is not None:
        aggregation = typed.one_of(written, f"{key}.aggregation", AGGREGATIONS)
    higher_is_better = None if better is None else typed.flag(better, f"{key}.higher_is_better")
    options = typed.options({k: v for k, v in table.entries.items() if k not in _METRIC_KEYS}, key)
    if own_results and aggregation is None and name not in METRICS:
        message = f"metric {name!r} comes from process_results, so it needs an aggregation, such as mean"
        raise typed.wrong(table, key, message)
    # Only generated texts are passed to a metric function; for other output types the key has no effect.
    scores_text = OUTPUT_TYPES[output_type].generates and not own_results
    if hub is not None and typed.flag(hub, f"{key}.hf_evaluate") and scores_text:
        raise typed.wrong(hub, f"{key}.hf_evaluate", "metric scripts from a hub are not run; write a !function metric")
    try:
        spec = MetricSpec(name, function, aggregation, higher_is_better, options)
        return resolve(spec, output_type, processed=own_results)
    except ValueError as error:
        raise typed.wrong(metric, f"{key}.metric", str(error)) from None


def _step(table: Table, key: str, modules: Modules) -> FilterStep:
    written = _needed(table, "function", key)
    rest = {name: value for name, value in table.entries.items() if name != "function"}
    function: DocFunction | None = None
    if isinstance(written, FunctionRef):
        name, function = written.text, modules.function(written, f"{key}.function")
    else:
        name = typed.text(written, f"{key}.function")
        if isinstance(custom := rest.get("filter_fn"), FunctionRef):
            del rest["filter_fn"]
            function = modules.function(custom, f"{key}.filter_fn")
    options = typed.options(rest, key)
    try:
        return filter_step(name, options, function)
    except ValueError as error:
        raise typed.wrong(written, key, str(error)) from None


def _needed(table: Table, name: str, key: str) -> Value:
    value = typed.given(table.entries, name)
    if value is None:
        raise typed.wrong(table, key, f"has no {name!r}")
    return value


def _reject_twice(names: Sequence[str], value: Value, key: str, what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise typed.wrong(value, key, f"{what} {name!r} is listed twice; results are known by these names")
