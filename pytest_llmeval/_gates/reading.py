"""The parser of gates: an entry of a task file, or a line of a setting, becomes a `Gate`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeAlias
from typing import get_args

from pytest_llmeval._gates.gate import Bound
from pytest_llmeval._gates.gate import Change
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._gates.gate import Operator
from pytest_llmeval._gates.gate import Place
from pytest_llmeval._gates.gate import Rule
from pytest_llmeval._gates.gate import Scope
from pytest_llmeval._gates.gate import Word


#: A gate as it stands in a YAML file.
GateEntry: TypeAlias = str | Mapping[str, Any]

_OPERATORS: Mapping[str, Operator] = {operator: operator for operator in get_args(Operator)}

_SCOPES: tuple[Scope, ...] = get_args(Scope)

_BOUND_KEYS: tuple[tuple[str, Operator], ...] = (("min", ">="), ("max", "<="))

#: Key of a tolerance -> (operator of the comparison with the baseline, sign of the tolerance).
_CHANGE_KEYS: Mapping[Word, tuple[Operator, int]] = {
    "max_drop": (">=", -1),
    "max_rise": ("<=", 1),
    "min_gain": (">=", 1),
}

_KEYS = ("metric", "filter", "min", "max", *_CHANGE_KEYS, "must_stay_right", "confidence", "scope", "fdr", "name")

_COMPARISON = re.compile(
    r"(?P<key>[^<>=!]+?)\s*(?P<operator>[<>=!]+)\s*(?P<bound>[^<>=!\s].*?)(?:\s+as\s+(?P<name>.+))?"
)
#: A bound, its confidence and words on it: ``baseline - 0.02 @ 0.95 dataset fdr``.
_LIMIT = re.compile(r"(?P<limit>[^@]*?)\s*(?:@\s*(?P<confidence>[^\s@]+)(?P<words>(?:\s+\w+)*))?")
_BASELINE = re.compile(r"baseline(?:\s*(?P<sign>[+-])\s*(?P<offset>.+))?")
_STAYS_RIGHT = re.compile(r"(?P<key>.+?)\s+stays\s+right(?:\s+on\s+(?P<docs>all|\d[\d\s,]*))?(?:\s+as\s+(?P<name>.+))?")
#: The least error of a gate: smaller p-values are not computed, and families divide it.
_LEAST_ERROR = 1e-9
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NAME = re.compile(r"[^\s\[\]](?:[^\[\]\n\r]*[^\s\[\]])?")
#: Text that must not follow a name, because it would be read as a part of it: a second name, a confidence, docs.
_BEHIND_A_NAME = re.compile(r"[<>=@]|(?:^|\s)as(?:\s|$)|\son\s+\d")


def parse_gate(entry: GateEntry, *, path: Path, line: int | None) -> Gate:
    """Return the gate of one entry of ``metadata: {gates: [...]}`` in a task file. Raises TaskFileError."""
    return _parse(entry, Place(_as_written(entry), path, line))


def parse_gate_text(text: str) -> Gate:
    """Return the gate of a text that stands in no file: ``acc >= baseline - 0.02 @ 0.95``. Raises SettingError."""
    return _parse_text(text.strip(), Place(text.strip(), origin="gate"))


def parse_rule(line: str, *, origin: str = "ini llmeval_gates") -> Rule:
    """Return the rule of a line of ini `llmeval_gates` or of ``--llmeval-fail-on``: a selector, a dot, a gate.

    The last dot before the comparison and the filter separates selector and metric, so names may contain dots.
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
    if match := _STAYS_RIGHT.fullmatch(text):
        metric, filter_name = _split_key(match["key"], place)
        docs = "all" if match["docs"] in (None, "all") else [int(doc) for doc in re.findall(r"\d+", match["docs"])]
        name = _last_name(match["name"], place)
        return Gate(metric, (), filter_name, name, place=place, must_stay_right=_must_stay_right(docs, place))
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise place.error("is not a comparison; expected METRIC >= NUMBER, e.g. 'acc >= 0.35' or 'perplexity <= 20'")
    operator = _OPERATORS.get(match["operator"])
    if operator is None:
        raise place.error(f"{match['operator']!r} is not an operator of gates; use one of {', '.join(_OPERATORS)}")
    if re.search("[<>=]", match["bound"]):
        raise place.error("has several comparisons: write one gate for each, with a name ('acc >= 0.35 as least')")
    metric, filter_name = _split_key(match["key"], place)
    gate = Gate(metric, (), filter_name, _last_name(match["name"], place), place=place)
    return _with_limit(gate, operator, match["bound"])


def _with_limit(gate: Gate, operator: Operator, text: str) -> Gate:
    """Return the gate with the limit and confidence that follow its operator."""
    place, match = gate.place, _LIMIT.fullmatch(text)
    if match is None:
        raise place.error(f"expected NUMBER or baseline - NUMBER, then perhaps @ CONFIDENCE, got {text!r}")
    if match["confidence"] is not None:
        words = match["words"].split()
        scopes = [word for word in words if word != "fdr"] or ["population"]
        if len(scopes) > 1 or words.count("fdr") > 1:
            raise place.error(f"expected @ CONFIDENCE, then perhaps one scope and fdr, got {' '.join(words)!r}")
        confidence, scope = _confidence(match["confidence"], place), _scope(scopes[0], place)
        gate = replace(gate, confidence=confidence, scope=scope, fdr="fdr" in words)
    elif last := next((word for word in (*_SCOPES, "fdr") if match["limit"].endswith(f" {word}")), None):
        raise place.error(f"{last} needs a confidence: add one, e.g. @ 0.95 {last}")
    elif match["limit"].endswith(" as"):
        raise place.error("as needs a name: write one after it, or omit it")
    against = _BASELINE.fullmatch(match["limit"])
    if against is None:
        return replace(gate, bounds=(Bound(operator, _number(match["limit"], place)),))
    size, relative = _tolerance(against["offset"] or "0", "the distance from the baseline", place)
    return replace(gate, change=Change(operator, -size if against["sign"] == "-" else size, relative))


def _parse_mapping(entry: Mapping[Any, Any], place: Place) -> Gate:
    for key in entry:
        if key not in _KEYS:
            raise place.error(f"unknown key {key!r}; expected {{metric: acc, min: 0.35}}, keys: {', '.join(_KEYS)}")
    if not isinstance(entry.get("metric"), str):
        raise place.error("needs the name of a metric, e.g. {metric: acc, min: 0.35}")
    metric, filter_name = _split_key(entry["metric"], place)
    filter_name = _filter(entry.get("filter"), filter_name, place)
    gate = Gate(metric, _bounds(entry, place), filter_name, _name(entry.get("name"), place), place=place)
    gate = replace(gate, change=_change(entry, place))
    if "must_stay_right" in entry:
        gate = replace(gate, must_stay_right=_must_stay_right(entry["must_stay_right"], place))
    conditions = sum([bool(gate.bounds), gate.change is not None, gate.must_stay_right is not None])
    if conditions == 0:
        others = ", ".join((*_CHANGE_KEYS, "must_stay_right"))
        raise place.error(f"needs min or max, or one of {others}, e.g. {{metric: acc, min: 0.35}}")
    if conditions > 1:
        raise place.error("has several conditions: write one gate for each, with a name")
    return _with_confidence(gate, entry)


def _with_confidence(gate: Gate, entry: Mapping[Any, Any]) -> Gate:
    place = gate.place
    if "scope" in entry and "confidence" not in entry:
        raise place.error("scope needs a confidence: add one, e.g. confidence: 0.95")
    if not isinstance(entry.get("fdr", False), bool):
        raise place.error(f"fdr: expected true or false, got {entry['fdr']!r}")
    if "fdr" in entry and "confidence" not in entry:
        raise place.error("fdr needs a confidence: add one, e.g. confidence: 0.95")
    if "confidence" not in entry:
        return gate
    if gate.must_stay_right is not None:
        raise place.error("must_stay_right judges each doc separately and takes no confidence")
    scope = _scope(entry.get("scope", "population"), place)
    confidence = _confidence(entry["confidence"], place)
    return replace(gate, confidence=confidence, scope=scope, fdr=entry.get("fdr", False))


def _bounds(entry: Mapping[Any, Any], place: Place) -> tuple[Bound, ...]:
    bounds = tuple(Bound(operator, _number(entry[key], place)) for key, operator in _BOUND_KEYS if key in entry)
    if len(bounds) == 2 and bounds[0].value > bounds[1].value:
        raise place.error("min is above max: no value can pass")
    return bounds


def _change(entry: Mapping[Any, Any], place: Place) -> Change | None:
    """Return the comparison of a mapping with one of the keys of `_CHANGE_KEYS`, else None."""
    asked: list[Word] = [word for word in _CHANGE_KEYS if word in entry]
    if len(asked) > 1:
        raise place.error(f"{' and '.join(asked)} are two gates: write one for each, with a name")
    for word in asked:
        operator, sign = _CHANGE_KEYS[word]
        size, relative = _tolerance(entry[word], word, place)
        return Change(operator, sign * size, relative, word)
    return None


def _tolerance(value: object, what: str, place: Place) -> tuple[Fraction, bool]:
    """Return a distance from the baseline, exactly as written, and whether it is a share (``5%``) of its value."""
    relative = isinstance(value, str) and value.strip().endswith("%")
    number = value.strip()[:-1].strip() if relative and isinstance(value, str) else value
    if _number(number, place) < 0:
        raise place.error(f"{what}: expected a number of 0 or more, got {value!r}: the sign is already given")
    # Converted through the shortest decimal, so that 0.02 is exactly 1/50.
    exact = Fraction(str(number).strip())
    return (exact / 100 if relative else exact), relative


def _confidence(value: object, place: Place) -> float:
    number = _number(value, place)
    if not 0.5 <= number < 1:
        mend = f"; did you mean {number / 100:g}?" if 50 <= number < 100 else ""
        raise place.error(f"confidence: expected a number from 0.5 to below 1, such as 0.95, got {value!r}{mend}")
    if 1 - number < _LEAST_ERROR:
        raise place.error(f"confidence: {value!r} is too close to 1: its error must be at least {_LEAST_ERROR:g}")
    return number


def _scope(value: object, place: Place) -> Scope:
    for scope in _SCOPES:
        if value == scope:
            return scope
    raise place.error(f"scope: expected {' or '.join(_SCOPES)}, got {value!r}")


def _must_stay_right(value: object, place: Place) -> tuple[int, ...] | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, list) and value and all(type(doc) is int and doc >= 0 for doc in value):
        return tuple(dict.fromkeys(value))
    raise place.error(f"must_stay_right: expected all or a list of doc numbers, e.g. [3, 17], got {value!r}")


def _split_key(text: str, place: Place) -> tuple[str, str | None]:
    """Return a metric and its filter, which are written as in result files: ``exact_match,strict-match``."""
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


def _last_name(text: str | None, place: Place) -> str | None:
    """Return the name at the end of a text. A name may contain blanks, so text that may not be a name is refused."""
    if text is not None and _BEHIND_A_NAME.search(text):
        raise place.error(f"name: expected one name, as the last thing ('acc >= 0.35 @ 0.95 as NAME'), got {text!r}")
    return _name(text, place)


def _name(value: object, place: Place) -> str | None:
    """Return the name of a gate, which becomes a part of the node id."""
    if value is None or (isinstance(value, str) and _NAME.fullmatch(value)):
        return value
    raise place.error(f"name: expected a text without brackets, got {value!r}")


def _number(value: object, place: Place) -> float:
    """Return a finite number. YAML reads ``1e-3`` as a text, so texts that are numbers are accepted."""
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
    """Return the suggested number for ``35%`` or ``0,35``, as the end of a message."""
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1].strip()):
        return f"; did you mean {float(text[:-1]) / 100:g}?"
    if _NUMBER.fullmatch(text.replace(",", ".", 1)):
        return f"; did you mean {text.replace(',', '.', 1)}?"
    return ""


def _as_written(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return str(entry)
    return "{" + ", ".join(f"{key}: {value}" for key, value in entry.items()) + "}"
