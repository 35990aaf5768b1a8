"""The division of an evaluation into shards that read about equally much text.

The docs of all tasks stand in one row, task by task in the order of their names. It is cut where the weights left and
right of the cut are in proportion, so that shards end together and most tasks, with the examples that their docs share,
stay in one shard. The weight of a doc is the number of characters of its requests that the doc before it does not
share, because models read shared text once; a text to be generated counts with its largest length. Characters, because
tokens would need the tokenizer, which a shard knows only after its model is loaded, and the merge never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._plain import json_text
from pytest_llmeval._settings import Shard


#: Characters that a generated token counts as.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The docs that are asked for in a task, with the weight of each, in their order.

    `hash`: of the task's configuration, the number of its docs, and all texts that are sent for those asked for.
    """

    name: str
    hash: str
    docs: Sequence[int]
    weights: Sequence[int]


def plan_of(opened: OpenTask) -> TaskPlan:
    """Return the plan of an open task; the docs that cannot be rendered, which end as errors, weigh 1."""
    task, digest = opened.task, hashlib.sha256()
    digest.update(json_text([task.name, task.config, len(opened.docs), list(opened.asked)]).encode())
    weights, before = [], ""
    for index in opened.asked:
        weight = 0
        try:
            instances = opened.instances(opened.render(index), None)
        except LLMEvalError as error:
            digest.update(str(error).encode())
            weights.append(1)
            continue
        for instance in instances:
            context, *others = instance.texts
            if instance.repeat == 0:
                weight += len(context) - _shared(before, context) + sum(map(len, others))
                before = context
                digest.update("\0".join(instance.texts).encode("utf-8", "surrogatepass"))
            if instance.kind == "generate_until":
                weight += CHARACTERS_PER_TOKEN * instance.arguments[1].max_gen_toks
        weights.append(max(weight, 1))
    return TaskPlan(task.name, digest.hexdigest(), list(opened.asked), weights)


def docs_of(shard: Shard, plans: Iterable[TaskPlan]) -> dict[str, frozenset[int]]:
    """Return the docs of one shard by task. Every doc is in the shard that its middle falls into.

    >>> plans = [TaskPlan("b", "", [0, 1], [10, 10]), TaskPlan("a", "", [0, 1, 2], [20, 10, 10])]
    >>> {task: sorted(docs) for task, docs in docs_of(Shard(2, 3), plans).items()}
    {'a': [1, 2], 'b': []}
    """
    ordered = sorted(plans, key=lambda plan: plan.name)
    total, passed = sum(sum(plan.weights) for plan in ordered), 0
    found: dict[str, frozenset[int]] = {}
    for plan in ordered:
        here = []
        for doc, weight in zip(plan.docs, plan.weights, strict=True):
            if (2 * passed + weight) * shard.of // (2 * total) == shard.number - 1:
                here.append(doc)
            passed += weight
        found[plan.name] = frozenset(here)
    return found


def _shared(first: str, second: str) -> int:
    """Return the number of characters with which two texts begin alike."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
