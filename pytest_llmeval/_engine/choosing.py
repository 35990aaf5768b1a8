"""Which engine serves a model: tried at load on small sequences, never looked up by the model's name.

One model computing otherwise: the same answers, up to rounding.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from pytest_llmeval._engine.attention import NO_WINDOWS
from pytest_llmeval._engine.attention import Windows
from pytest_llmeval._engine.attention import narrowed
from pytest_llmeval._engine.attention import windows_of
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.continuous import ContinuousGenerator
from pytest_llmeval._engine.continuous import row_pairs
from pytest_llmeval._engine.devices import pass_limits
from pytest_llmeval._engine.devices import scoring_budget
from pytest_llmeval._engine.devices import writing_budget
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.padded import PaddedScorer
from pytest_llmeval._engine.padded import evaluating
from pytest_llmeval._engine.requests import Engine
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._engine.tree import TreeEngine
from pytest_llmeval._engine.tree import TreeScorer
from pytest_llmeval._engine.tree import Writer
from pytest_llmeval._errors import ModelError


#: Settings of a model that make it read long sequences in another way than short ones.
LENGTH_SETTING = re.compile(r"^(?!.*(layers|pattern)$).*(window|chunk|block_size|original_max_position)")
#: The sequences of the check: a few documents behind a shared start, with choices.
CHECK_SHARED, CHECK_DOCS, CHECK_CHOICES = 9, (5, 1, 12), (1, 3)
CHECK_LIMITS, CHECK_BLOCK, CHECK_WINDOW = Limits(pack=20, longest=32), 6, 5


def choose_engine(model: Any, options: EngineOptions, eos_ids: Iterable[int], *, remembers: bool = False) -> Engine:
    """The engine that the options name; `remembers` as in `TreeEngine`.

    Raises ModelError where that is the tree and the model cannot take it.
    """
    padded = PaddedEngine(model, scoring_budget(model, options), writing_budget(model, options), eos_ids)
    if options.engine == "padded":
        return padded
    with evaluating(model):
        reach, windows = proven_reach(model, padded.scorer)
    if reach:
        return TreeEngine(
            model,
            pass_limits(model, options),
            padded,
            reach,
            windows,
            choose_writer=lambda: choose_writer(model, options, padded),
            remembers=remembers,
        )
    if options.engine == "tree":
        raise ModelError(
            f"model argument engine=tree: {type(model).__name__} gives other numbers with the tree's attention masks, "
            "or takes none; engine=padded serves it"
        )
    return padded


def choose_writer(model: Any, options: EngineOptions, padded: PaddedEngine) -> Writer:
    """Continuous batching, if it gives the numbers that texts have alone; else the padded engine."""
    try:
        with evaluating(model):
            pairs = row_pairs(model, padded.scorer)
    # A model, or a device, of another kind may fail anywhere in there.
    except Exception:
        return padded
    if not _agree(pairs, model.dtype):
        return padded
    budget = writing_budget(model, options)
    # Keys and values are never copied here: what padded batches need for that holds as many again.
    budget = replace(budget, tokens=options.max_batch_tokens or 2 * budget.tokens)
    # Rows know no windows.
    reach = _first_length_setting(model.config)
    return ContinuousGenerator(model, padded, budget, pass_limits(model, options).pack, reach)


def proven_reach(model: Any, padded: PaddedScorer) -> tuple[float, Windows]:
    """Up to which length the tree gives a model's sequences the numbers that they have alone, and with which windows.

    A small tree is scored both ways, in several passes, with windows made as small. Longer sequences are as good, up
    to a length that the model's settings name as the place where it begins to read in another way. The length is 0
    if the numbers never agree.
    """
    windows = windows_of(model)
    if windows.size is not None:
        with narrowed(model, CHECK_WINDOW):
            taken = _takes(model, padded, replace(windows, size=CHECK_WINDOW))
        if taken:
            return _first_length_setting(model.config, without="sliding_window"), windows
    return _first_length_setting(model.config) if _takes(model, padded, NO_WINDOWS) else 0, NO_WINDOWS


def _takes(model: Any, padded: PaddedScorer, windows: Windows) -> bool:
    """Whether the tree and plain rows give the same numbers."""
    requests = _check_requests(int(model.get_input_embeddings().weight.shape[0]))
    tree = Tree(requests)
    try:
        scorer = TreeScorer(model, padded.selective, CHECK_BLOCK if model.device.type == "cpu" else 0, windows)
        steps = tree.passes(CHECK_LIMITS)
        found = {i: value for step in steps for i, value, _ in scorer.run(step)}
        expected = {answer[0].requests: answer[1] for answer in padded.run(plan_rows(requests))}
    # A model of another kind may fail anywhere in there.
    except Exception:
        return False
    return _agree([(found[i], expected[q.requests]) for i, q in enumerate(tree.questions)], model.dtype)


def _agree(pairs: Sequence[tuple[float, float]], dtype: torch.dtype) -> bool:
    """Whether values are the same up to rounding, seen against how they spread."""
    found, expected = torch.tensor(pairs, dtype=torch.float64).T
    eps = torch.finfo(dtype).eps
    bound = eps**0.5 * expected.std() + 2 * eps * expected.abs().max()
    return bool((found - expected).square().mean().sqrt() <= bound)


def _check_requests(n_words: int) -> list[TokenRequest]:
    """Requests of one target each, whose sequences fork at several depths."""
    draw = random.Random(0)  # noqa: S311

    def some(n: int) -> TokenIds:
        return tuple(draw.randrange(n_words) for _ in range(n))

    shared = some(CHECK_SHARED)
    docs = [shared + some(n) for n in CHECK_DOCS]
    return [TokenRequest(doc + some(n), some(1)) for doc in docs for n in CHECK_CHOICES]


def _first_length_setting(config: Any, without: str = "") -> float:
    """The least length that a config names as a border, but for one setting; infinite if there is none."""
    settings = config.to_dict()
    found: list[float] = [math.inf]
    while settings:
        name, value = settings.popitem()
        if isinstance(value, dict):
            settings |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif str(name).rpartition(".")[2] == without:
            continue
        elif isinstance(value, int) and value > 1 and LENGTH_SETTING.match(str(name)):
            found.append(value)
    return min(found)


#: Passes so much smaller than usual: sums over other numbers of rows and columns, hence in another order.
SMALLER = 4


def other_groupings(model: Any, options: EngineOptions) -> Iterator[tuple[str, EngineOptions]]:
    """Options under which requests go together otherwise, and what to call that: smaller passes, and one by one."""
    tokens = max(1, pass_limits(model, options).pack // SMALLER)
    yield f"passes of {tokens} tokens", replace(options, max_batch_tokens=tokens)
    yield "one sequence a pass", replace(options, engine="padded", batch_size=1)
