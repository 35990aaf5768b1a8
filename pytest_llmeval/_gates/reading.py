"""From an entry of a task file or a line of a setting to a gate."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TypeAlias
from typing import get_args

from pytest_llmeval._gates.gate import Bound
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._gates.gate import Operator
from pytest_llmeval._gates.gate import Place
from pytest_llmeval._gates.gate import Rule


#: A gate as it stands in a YAML file.
GateEntry: TypeAlias = str | Mapping[str, Any]

_OPERATORS: Mapping[str, Operator] = {operator: operator for operator in get_args(Operator)}

_KEYS = ("metric", "filter", "min", "max", "name")
_BOUND_KEYS: tuple[tuple[str, Operator], ...] = (("min", ">="), ("max", "<="))

#: What is written like a gate but is none yet: the key or sign, and what it asks for.
_NOT_YET_KEYS = {
    "max_drop": "a comparison with a baseline",
    "baseline": "a comparison with a baseline",
    "confidence": "a confidence",
    "scope": "a scope",
}
_NOT_YET_SIGNS = ((re.compile(r"\bbaseline\b"), "a comparison with a baseline"), (re.compile("@"), "a confidence"))

_COMPARISON = re.compile(
    r"(?P<key>[^<>=!]+?)\s*(?P<operator>[<>=!]+)\s*(?P<bound>[^<>=!\s].*?)(?:\s+as\s+(?P<name>.+))?"
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NAME = re.compile(r"[^\s\[\]](?:[^\[\]\n\r]*[^\s\[\]])?")


def parse_gate(entry: GateEntry, *, path: Path, line: int | None) -> Gate:
    """One entry of a task file's ``metadata: {gates: [...]}``. Raises TaskFileError."""
    return _parse(entry, Place(_as_written(entry), path, line))


def parse_rule(line: str, *, origin: str = "ini llmeval_gates") -> Rule:
    """One line of ini `llmeval_gates` or one ``--llmeval-fail-on``: a selector, a dot, a gate.

    The dot before the metric is the last one in front of the comparison and the filter, so names may hold dots.
    Raises SettingError.
    """
    place = Place(line.strip(), origin=origin)
    gate = _parse(place.text, place)
    selector, dot, metric = (part.strip() for part in gate.metric.rpartition("."))
    if not dot or not selector or not metric:
        raise place.error("names no task; expected TASK.METRIC >= NUMBER, e.g. 'mmlu.acc >= 0.25'")
    return Rule(selector, replace(gate, metric=metric))


def _parse(entry: object, place: Place) -> Gate:
    if isinstance(entry, str):
        return _parse_text(entry.strip(), place)
    if isinstance(entry, Mapping):
        return _parse_mapping(entry, place)
    raise place.error("expected a text such as 'acc >= 0.35' or a mapping such as {metric: acc, min: 0.35}")


def _parse_text(text: str, place: Place) -> Gate:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise place.error("is no comparison; expected METRIC >= NUMBER, e.g. 'acc >= 0.35' or 'perplexity <= 20'")
    for sign, what in _NOT_YET_SIGNS:
        if sign.search(match["bound"]):
            raise place.error(_not_yet(what))
    operator = _OPERATORS.get(match["operator"])
    if operator is None:
        raise place.error(f"{match['operator']!r} is no comparison of gates; use one of {', '.join(_OPERATORS)}")
    metric, filter_name = _split_key(match["key"], place)
    bound = Bound(operator, _number(match["bound"], place))
    return Gate(metric, (bound,), filter_name, _name(match["name"], place), place=place)


def _parse_mapping(entry: Mapping[Any, Any], place: Place) -> Gate:
    for key in entry:
        if key in _NOT_YET_KEYS:
            raise place.error(_not_yet(_NOT_YET_KEYS[key]))
        if key not in _KEYS:
            raise place.error(f"unknown key {key!r}; expected {{metric: acc, min: 0.35}}, keys: {', '.join(_KEYS)}")
    if not isinstance(entry.get("metric"), str):
        raise place.error("needs the name of a metric, e.g. {metric: acc, min: 0.35}")
    metric, filter_name = _split_key(entry["metric"], place)
    bounds = tuple(Bound(operator, _number(entry[key], place)) for key, operator in _BOUND_KEYS if key in entry)
    if not bounds:
        raise place.error("needs min or max, e.g. {metric: acc, min: 0.35}")
    if len(bounds) == 2 and bounds[0].value > bounds[1].value:
        raise place.error("min is above max: no value can pass")
    filter_name = _filter(entry.get("filter"), filter_name, place)
    return Gate(metric, bounds, filter_name, _name(entry.get("name"), place), place=place)


def _not_yet(what: str) -> str:
    return f"{what} is not part of this version; it has floors and ceilings on the observed value, e.g. 'acc >= 0.35'"


def _split_key(text: str, place: Place) -> tuple[str, str | None]:
    """``exact_match,strict-match`` is a metric and its filter, as in result files."""
    metric, comma, filter_name = (part.strip() for part in text.partition(","))
    if not metric or (comma and not filter_name):
        raise place.error("expected METRIC or METRIC,FILTER")
    return metric, filter_name or None


def _filter(value: object, in_metric: str | None, place: Place) -> str | None:
    if value is None:
        return in_metric
    if not isinstance(value, str) or not value.strip() or in_metric not in (None, value):
        raise place.error(f"filter: expected the name of one filter, got {value!r}")
    return value


def _name(value: object, place: Place) -> str | None:
    """A gate's own name; it becomes part of a node id."""
    if value is None or (isinstance(value, str) and _NAME.fullmatch(value)):
        return value
    raise place.error(f"name: expected a text without brackets, got {value!r}")


def _number(value: object, place: Place) -> float:
    """A finite number. YAML reads ``1e-3`` as a text, so texts that are numbers count as such."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value.strip()):
            raise place.error(f"expected a finite number, got {value!r}{_mend_of_number(value.strip())}")
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise place.error(f"expected a finite number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise place.error(f"expected a finite number, got {value!r}: no value can be compared with it")
    return number


def _mend_of_number(text: str) -> str:
    """What was probably meant by ``35%`` or ``0,35``."""
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1].strip()):
        return f"; did you mean {float(text[:-1]) / 100:g}?"
    if _NUMBER.fullmatch(text.replace(",", ".", 1)):
        return f"; did you mean {text.replace(',', '.', 1)}?"
    return ""


def _as_written(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    return "{" + ", ".join(f"{key}: {value}" for key, value in entry.items()) + "}"
