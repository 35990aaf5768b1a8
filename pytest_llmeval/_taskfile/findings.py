"""The checks of a task that can be read but looks wrong, from its file and the column names of its data.

An "error" makes all docs fail, or most of them. A "warning" can be evaluated but is probably not what was meant;
under ``--llmeval-strict`` it is an error as well. Unknown keys, filters and metrics are not checked here: a file with
one of them cannot be read at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from typing import TypeAlias

import jinja2
from jinja2 import nodes

from pytest_llmeval import _template
from pytest_llmeval._errors import TemplateError
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._scoring import responses_left
from pytest_llmeval._scoring import responses_used
from pytest_llmeval._task import FewshotSpec
from pytest_llmeval._task import Field
from pytest_llmeval._task import Metric
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile.fields import ConstantIndices
from pytest_llmeval._taskfile.generation import generation_settings


Severity: TypeAlias = Literal["error", "warning"]

#: A name in single braces: a field of `str.format`, plain text to Jinja.
_FORMAT_FIELD = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding in a task file. `line` is None if the key comes from an included file."""

    path: Path
    line: int | None
    key: str
    message: str
    severity: Severity

    def __str__(self) -> str:
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.message}"


#: Key, message and severity: a finding without its place.
_Odd: TypeAlias = tuple[str, str, Severity]


def lint(task: Task, columns: Sequence[str] | None = None) -> list[Finding]:
    """Return all findings about a task. `columns` are those of its evaluated split, None if they are not known."""
    found: list[_Odd] = []
    if "trust_remote_code" in (task.config.get("dataset_kwargs") or {}):
        message = "trust_remote_code is not used: data sets no longer run code of their own"
        found.append(("dataset_kwargs", message, "warning"))
    found += [odd for check in _CHECKS for odd in check(task)]
    for field in _fields(task):
        found += _check_field(field, columns)
    for field in _fields(task.fewshot):
        # The examples may come from data with other columns.
        found += _check_field(field, None)
    found += _check_samples(task)
    if task.cluster is not None and columns is not None and task.cluster not in columns:
        listed = ", ".join(columns)
        found.append(("metadata.cluster", f"the data has no column {task.cluster!r} (it has: {listed})", "error"))
    # The line of a key, or of the key that it is part of.
    lines = {key: task.lines.get(key, task.lines.get(re.split(r"[.\[]", key)[0])) for key, _, _ in found}
    return [Finding(task.path, lines[key], key, message, severity) for key, message, severity in found]


def _fields(owner: Task | FewshotSpec) -> list[Field]:
    names = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
    found = [getattr(owner, name, None) for name in names]
    return [field for field in found if field is not None]


def _check_field(field: Field, columns: Sequence[str] | None) -> Iterator[_Odd]:
    """Find a template that cannot be compiled, that uses an unknown field, or that uses no field at all."""
    if field.text is None or field.text in (columns or ()):
        return
    try:
        fields = _template.fields(field.text, place=field.key)
    except TemplateError as error:
        yield field.key, str(error).removeprefix(f"{field.key}: "), "error"
        return
    if columns is not None:
        yield from _check_columns(field, field.text, columns)
    # Braces of `str.format` in a template that uses no field. In a description they may also be LaTeX.
    for name in () if fields else _FORMAT_FIELD.findall(field.text):
        if name in columns if columns is not None else field.key.startswith("doc_to_"):
            message = f"no field is used, and {{{name}}} is plain text; a field is written {{{{{name}}}}}"
            yield field.key, message, "warning"
            return


def _check_columns(field: Field, text: str, columns: Sequence[str]) -> Iterator[_Odd]:
    for name in sorted(needed_fields(text) - set(columns)):
        mend = did_you_mean(name, columns, otherwise=".")
        yield field.key, f"field {name!r} is not in the data{mend} It has: {', '.join(columns)}.", "error"
    if field.key in ("doc_to_text", "doc_to_choice") and text.isidentifier():
        message = f"{text!r} is not a column of the data{did_you_mean(text, columns, otherwise='.')}"
        if field.key == "doc_to_choice":
            yield field.key, f"{message} It is not a list of options either.", "error"
        else:
            yield field.key, f"{message} Every doc has this text as its prompt.", "warning"


def _check_samples(task: Task) -> Iterator[_Odd]:
    """Find examples written in the YAML that lack a field used to render them, or that are too few."""
    shots = task.fewshot
    if not isinstance(shots.samples, tuple) or not shots.samples or shots.split is not None:
        return
    keys = set.intersection(*(set(sample) for sample in shots.samples))
    own = [shots.doc_to_text or task.doc_to_text, shots.doc_to_choice or task.doc_to_choice]
    for field in (*own, shots.doc_to_target or task.doc_to_target):
        if field is None or field.text is None or field.text in keys:
            continue
        try:
            missing = sorted(needed_fields(field.text) - keys)
        except jinja2.TemplateSyntaxError:
            continue
        if missing:
            yield "fewshot_config", f"{field.key} uses field {missing[0]!r}, which some samples do not have", "error"
    if (task.num_fewshot or 0) > len(shots.samples):
        message = f"num_fewshot is {task.num_fewshot}, more than the number of samples ({len(shots.samples)})"
        yield "fewshot_config", message, "warning"


def needed_fields(template: str) -> AbstractSet[str]:
    """Return the names without which a template cannot be rendered.

    Names that are used only where the template itself tests if they are defined are left out:
    ``{{a if a is defined else b}}`` needs neither a nor b, ``{{c | default("")}}`` does not need c.
    """
    tree = jinja2.Environment(autoescape=False).parse(template)  # noqa: S701 - prompts are not HTML
    return _needed(tree) & _template.fields(template, place="") - jinja2.defaults.DEFAULT_NAMESPACE.keys()


def _needed(node: nodes.Node) -> set[str]:
    if isinstance(node, nodes.Name):
        return {node.name}
    if isinstance(node, nodes.If | nodes.CondExpr):
        tests = [node.test, *node.test.find_all(nodes.Test)]
        if any(isinstance(test, nodes.Test) and test.name in ("defined", "undefined") for test in tests):
            return set()
    if isinstance(node, nodes.Filter) and node.name in ("default", "d"):
        return set()
    if isinstance(node, nodes.Test) and node.name in ("defined", "undefined"):
        return set()
    return set().union(*(_needed(child) for child in node.iter_child_nodes()))


def _check_choices(task: Task) -> Iterator[_Odd]:
    choices = task.doc_to_choice.choices if task.doc_to_choice is not None else None
    if choices is None or not OUTPUT_TYPES[task.output_type].has_choices:
        return
    if task.target_delimiter[-1:].isspace() and (spaced := [choice for choice in choices if choice[0].isspace()]):
        message = f"{spaced[0]!r} begins with white space and target_delimiter ends with it: the model sees both"
        yield "doc_to_choice", message, "warning"
    target = task.doc_to_target
    if target is None:
        return
    indices = target.function.indices if isinstance(target.function, ConstantIndices) else ()
    for index in indices if target.index is None else (target.index,):
        if index >= len(choices):
            yield "doc_to_target", f"{index} is not an index of the {len(choices)} options of doc_to_choice", "error"
    for text in target.choices or ():
        if text not in choices:
            yield "doc_to_target", f"{text!r} is not among the options of doc_to_choice", "error"


def _check_generation(task: Task) -> Iterator[_Odd]:
    if not OUTPUT_TYPES[task.output_type].generates:
        if task.generation_kwargs:
            yield "generation_kwargs", f"not used: nothing is generated for output_type {task.output_type}", "warning"
        if task.unsafe_code:
            yield "unsafe_code", f"not used: no code is generated for output_type {task.output_type}", "warning"
    elif "generation_kwargs.until" not in task.lines:
        message = f"no 'until': a text ends at the few-shot delimiter {task.fewshot_delimiter!r}"
        yield "generation_kwargs", message, "warning"


def _check_repeats(task: Task) -> Iterator[_Odd]:
    if task.repeats < 2:
        return
    used = max(responses_used(spec, task.repeats) for spec in task.filters)
    if used < task.repeats:
        what = "one is" if used == 1 else f"{used} are"
        message = f"of {task.repeats} responses to a doc {what} scored; use filter_list to combine or score all"
        yield "repeats", message, "warning"
    if OUTPUT_TYPES[task.output_type].generates and not generation_settings(task.generation_kwargs)["do_sample"]:
        yield "repeats", f"greedy decoding gives the same text {task.repeats} times; set do_sample: true", "warning"


def _check_samples_asked_for(task: Task) -> Iterator[_Odd]:
    """Find filters and metrics that need more responses per doc than there are: every doc would be an error."""
    needed = max((k for metric in task.metrics for k in metric.pass_at), default=0)
    for position, spec in enumerate(task.filters):
        left: int | None = task.repeats
        for step in spec.steps:
            if left is not None and step.name == "take_first_k" and step.options["k"] > left:
                message = f"filter {spec.name} takes the first {step.options['k']} of {left} responses; raise repeats"
                yield f"filter_list[{position}]", message, "error"
                break
            left = None if left is None else responses_left(step, left)
        else:
            if left is not None and left < needed:
                message = f"pass@{needed} is not defined for the {left} samples that filter {spec.name} leaves"
                mend = "; raise repeats, and end the filter with take_first_k"
                yield "metric_list", message + mend, "error"


def _check_shots(task: Task) -> Iterator[_Odd]:
    shots = task.fewshot
    if shots.samples is not None and shots.split is not None:
        yield "fewshot_config", f"samples are not used: the examples come from split {shots.split!r}", "warning"
    if not task.num_fewshot or shots.samples is not None or shots.split is not None:
        return
    source = task.training_split or task.validation_split or task.test_split
    if source == task.evaluated_split:
        message = f"the examples come from the evaluated split {source!r}, without the doc itself; name a fewshot_split"
        yield "num_fewshot", message, "warning"


def _check_metrics(task: Task) -> Iterator[_Odd]:
    for position, metric in enumerate(task.metrics):
        key = f"metric_list[{position}]"
        if metric.higher_is_better is None:
            message = f"no 'higher_is_better' for {metric.name}: a comparison cannot tell better from worse"
            yield key, message, "warning"
        if metric.options and task.process_results is not None:
            yield key, f"not used, since process_results scores: {', '.join(metric.options)}", "warning"


def _check_ranges(task: Task) -> Iterator[_Odd]:
    metrics = {metric.name: metric for metric in task.metrics}
    plain = [name for name, metric in metrics.items() if (mean := metric.aggregation.doc_mean) and mean.plain]
    for name in task.metadata.get("ranges", ()):
        if name in plain:
            continue
        if name in metrics:
            message = f"omit it: {_why_no_range(metrics[name])}"
        else:
            known = ", ".join(plain) or "none"
            message = f"the task has no metric {name!r} that is the mean of its docs' scores (there are: {known})"
        yield f"metadata.ranges.{name}", message, "error"


def _why_no_range(metric: Metric) -> str:
    mean, name = metric.aggregation.doc_mean, metric.name
    if mean is None:
        return f"{name} is not a mean over docs, so its bounds do not use a range"
    if mean.support is not None:
        return f"the range of {name} is known, [{mean.support[0]:g}, {mean.support[1]:g}]"
    floor = 1 if mean.log else 0
    return (
        f"{name} is computed from log-probabilities without a lower bound; that it is {floor} or more is known. "
        f"A gate about this data set alone needs no range: '{name} <= ... @ 0.95 dataset'"
    )


_CHECKS: tuple[Callable[[Task], Iterator[_Odd]], ...] = (
    _check_choices,
    _check_generation,
    _check_repeats,
    _check_samples_asked_for,
    _check_shots,
    _check_metrics,
    _check_ranges,
)
