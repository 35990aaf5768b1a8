"""Gates: the conditions on metrics of tasks and groups, read from task files, ini lines and options.

    acc >= 0.35                             floor
    perplexity <= 20                        ceiling
    acc >= 0.35 @ 0.95                      decided at that confidence: passed, failed or inconclusive
    acc >= 0.35 @ 0.95 dataset              the same for the value over the whole data set
    acc >= baseline - 0.02                  at most 0.02 lower than in the baseline
    acc >= baseline - 5% @ 0.95             at most 5 % of the baseline's value lower, with a confidence
    acc > baseline                          an improvement
    perplexity <= baseline + 5%             at most 5 % higher
    acc stays right                         no doc that was right in the baseline is wrong now
    acc stays right on 3, 17                these docs are right
    exact_match,strict-match >= 0.1         of one filter
    acc >= 0.35 as floor                    its item is called gate[floor]
    {metric: acc, min: 0.35, max: 0.99}     the same as a mapping, here with two bounds
    {metric: acc, max_drop: 0.01, confidence: 0.95, scope: dataset}
    {metric: acc, min: 0.3, confidence: 0.95, fdr: true}
    {metric: perplexity, max_rise: "5%"}    for a metric that should be low
    {metric: acc, min_gain: 0.01}           better by at least 0.01, in the direction of the metric
    {metric: acc, must_stay_right: all}     or [3, 17]
    mmlu.acc >= 0.25                        a rule (ini, option): the gate of a task or group
    kl <= 0.01 @ 0.95                       distance from the baseline: kl, top1_agreement, flips
    tag:stem.acc >= 0.3                     a rule for every task with that tag
    mmlu_*.acc >= baseline - 0.02 @ 0.95    a rule for every name that matches
    mmlu_*.acc >= 0.3 @ 0.95 fdr            the same, with the false discovery rate as the error of its family

Gates are judged in `_verdicts`. Every error names the place (file and line, or setting), the entry as written, and
the remedy.

reading    the parser of a gate
gate       gates and rules as values
checking   checks of a gate against its task or group
distances  checks of a gate on the distance from the baseline
ranges     checks of its limits against the range of the metric
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import replace

from pytest_llmeval._gates.checking import check_gate
from pytest_llmeval._gates.checking import directed
from pytest_llmeval._gates.checking import filter_names
from pytest_llmeval._gates.checking import gate_ids
from pytest_llmeval._gates.checking import is_meant
from pytest_llmeval._gates.checking import metric_names
from pytest_llmeval._gates.checking import name_of_owner
from pytest_llmeval._gates.distances import is_distance
from pytest_llmeval._gates.gate import Bound
from pytest_llmeval._gates.gate import Change
from pytest_llmeval._gates.gate import Gate
from pytest_llmeval._gates.gate import Operator
from pytest_llmeval._gates.gate import Place
from pytest_llmeval._gates.gate import Rule
from pytest_llmeval._gates.gate import Scope
from pytest_llmeval._gates.ranges import check_range
from pytest_llmeval._gates.reading import parse_gate
from pytest_llmeval._gates.reading import parse_gate_text
from pytest_llmeval._gates.reading import parse_rule
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


__all__ = [
    "Bound",
    "Change",
    "Gate",
    "Operator",
    "Place",
    "Rule",
    "Scope",
    "check_gate",
    "check_range",
    "gate_ids",
    "gates_for",
    "is_meant",
    "metric_names",
    "parse_gate",
    "parse_gate_text",
    "parse_rule",
]


def gates_for(owner: Task | Group, rules: Iterable[Rule] = (), leaves: Sequence[Task] = ()) -> tuple[Gate, ...]:
    """Return the gates of a task or group, from its file and from rules, checked and with their ids.

    `leaves` are the tasks of a group at any depth. Raises TaskFileError or SettingError for a gate that is not valid
    for this task or group, and if two gates would have the same id.
    """
    home = owner.gates_path or owner.path
    written = [
        replace(parse_gate(entry, path=owner.path, line=line), rule=f"{home}:{line}[{position}]")
        for position, (entry, line) in enumerate(owner.gates)
    ]
    meant = [rule.gate for rule in rules if is_meant(rule, owner, leaves)]
    gates = [*written, *(replace(gate, rule=f"{gate.place.origin}: {gate.place.text}") for gate in meant)]
    gates = [replace(gate, distance=is_distance(gate, owner)) for gate in gates]
    for gate in gates:
        check_gate(gate, owner, leaves)
    gates = [directed(gate, owner, leaves) for gate in gates]
    ids = gate_ids(gates, filter_names(owner, leaves), name_of_owner(owner))
    return tuple(
        replace(gate, id=gate_id, family=_family(gate, owner, leaves)) for gate, gate_id in zip(gates, ids, strict=True)
    )


def _family(gate: Gate, owner: Task | Group, leaves: Sequence[Task]) -> str:
    """Return the metric and condition of a gate with a confidence; the filter too if the metric has several."""
    if gate.confidence is None:
        return ""
    several = len(filter_names(owner, leaves, gate.metric)) > 1
    return f"{gate.key if several else gate.metric} {gate.condition}"
