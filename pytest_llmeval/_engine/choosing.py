"""The choice of the engines that serve a model: by trials on small sequences, never by the model's name."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from pytest_llmeval._engine.attention import NO_WINDOWS
from pytest_llmeval._engine.attention import Windows
from pytest_llmeval._engine.attention import narrowed
from pytest_llmeval._engine.attention import windows_of
from pytest_llmeval._engine.causal_model import evaluating
from pytest_llmeval._engine.causal_model import reason_of
from pytest_llmeval._engine.continuous import ContinuousGenerator
from pytest_llmeval._engine.continuous import chunk_pairs
from pytest_llmeval._engine.devices import pass_limits
from pytest_llmeval._engine.devices import scoring_budget
from pytest_llmeval._engine.devices import writing_budget
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.requests import CPU_ONLY
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import EngineChoice
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import Writer
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.tree import TreeEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Loglikelihood


#: Settings of a config that name a length from which a model computes sequences in another way.
LENGTH_SETTING = re.compile(r"^(?!.*(layers|pattern)$).*(window|chunk|block_size|original_max_position)")
#: Lengths of the sequences of the trial: a shared prefix, the documents after it, and choices of each document.
CHECK_SHARED, CHECK_DOCS, CHECK_CHOICES = 9, (5, 1, 12), (1, 3)
CHECK_LIMITS, CHECK_BLOCK, CHECK_WINDOW = Limits(pack=20, longest=32), 6, 5


@dataclass(frozen=True, slots=True)
class Reach:
    """The sequences that the tree engine can score: up to `tokens` tokens, with `windows`; 0 if it is refused.

    `refused`: the reasons by name, as in `EngineChoice`.
    """

    tokens: float
    windows: Windows = NO_WINDOWS
    refused: dict[str, str] = field(default_factory=dict)


class Engine:
    """The engine that serves a model. A trial chooses the writer of texts at the first request for one."""

    def __init__(
        self, model: Any, options: EngineOptions, padded: PaddedEngine, tree: TreeEngine | None, reach: Reach
    ) -> None:
        self._model = model
        self._options = options
        self._padded = padded
        self._tree = tree
        self._reach = reach
        self._refused = padded.selective.refused | reach.refused

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]:
        return (self._tree or self._padded).score(requests, on_progress)

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        return self._writer.generate(requests, is_stopped, on_progress)

    @property
    def choice(self) -> EngineChoice:
        """The names of the engines chosen so far, and the reasons for them."""
        scoring = "padded" if self._tree is None else "tree"
        writer = self._padded if self._tree is None else self.__dict__.get("_writer")
        generation = None if writer is None else "padded" if writer is self._padded else "continuous"
        longest = {"tree": self._reach.tokens} if self._tree else {}
        if generation == "continuous":
            longest["continuous"] = _first_length_setting(self._model.config)
        finite = {name: int(tokens) for name, tokens in longest.items() if tokens < math.inf}
        return EngineChoice(scoring, generation, dict(self._refused), finite)

    @cached_property
    def _writer(self) -> Writer:
        """Continuous batching if its numbers are those of each text by itself; else the padded engine."""
        if self._tree is None:
            return self._padded
        model, options = self._model, self._options
        if model.device.type != "cpu":
            self._refused["continuous"] = CPU_ONLY
            return self._padded
        with evaluating(model):
            reason = _difference(lambda: chunk_pairs(model, self._padded), model.dtype)
        if reason:
            self._refused["continuous"] = reason
            return self._padded
        budget = writing_budget(model, options)
        # Padded batches copy keys and values, which takes twice the memory; continuous batching does not.
        budget = replace(budget, tokens=options.max_batch_tokens or 2 * budget.tokens)
        # Attention over chunks does not support sliding windows.
        reach = _first_length_setting(model.config)
        return ContinuousGenerator(model, self._padded, budget, pass_limits(model, options).pack, reach)


def choose_engine(model: Any, options: EngineOptions, eos_ids: Iterable[int], *, remembers: bool = False) -> Engine:
    """Return the engine that the options name; `remembers` as in `TreeEngine`.

    Raises ModelError if they require the tree and it does not give the model's numbers.
    """
    padded = PaddedEngine(model, scoring_budget(model, options), writing_budget(model, options), eos_ids)
    if options.engine == "padded":
        return Engine(model, options, padded, None, Reach(0))
    with evaluating(model):
        reach = proven_reach(model, padded)
    if reach.tokens:
        limits = pass_limits(model, options)
        tree = TreeEngine(model, limits, padded, reach.tokens, reach.windows, remembers=remembers)
        return Engine(model, options, padded, tree, reach)
    if options.engine == "tree":
        raise ModelError(
            f"model argument engine=tree: {type(model).__name__} gives other numbers with the tree's attention masks, "
            f"or does not accept them ({reach.refused['tree']}); use engine=padded"
        )
    return Engine(model, options, padded, None, reach)


def proven_reach(model: Any, padded: PaddedEngine) -> Reach:
    """Return the longest sequence for which the tree gives the model's own numbers, and its windows.

    A small tree is scored by both engines, in several passes and with small windows. Longer sequences are scored by the
    tree too, up to the least length that the config names as one from which the model computes in another way.
    """
    windows, refused = windows_of(model), dict[str, str]()
    if windows.size is not None:
        with narrowed(model, CHECK_WINDOW):
            reason = _tree_difference(model, padded, replace(windows, size=CHECK_WINDOW))
        if reason is None:
            return Reach(_first_length_setting(model.config, without="sliding_window"), windows)
        refused["windows"] = reason
    reason = _tree_difference(model, padded, NO_WINDOWS)
    if reason is None:
        return Reach(_first_length_setting(model.config), refused=refused)
    return Reach(0, refused=refused | {"tree": reason})


def _tree_difference(model: Any, padded: PaddedEngine, windows: Windows) -> str | None:
    """Return the reason against the tree with these windows; None if it gives the padded engine's numbers."""

    def pairs() -> list[tuple[float, float]]:
        requests = _check_requests(int(model.get_input_embeddings().weight.shape[0]))
        tree = TreeEngine(model, CHECK_LIMITS, padded, math.inf, windows, block=CHECK_BLOCK)
        answers = (engine.score(requests, lambda done, total: None) for engine in (tree, padded))
        return [(found.logprob, expected.logprob) for found, expected in zip(*answers, strict=True)]

    return _difference(pairs, model.dtype)


def _difference(pairs: Callable[[], Sequence[tuple[float, float]]], dtype: torch.dtype) -> str | None:
    """Return a message if pairs of values differ by more than rounding, or the error of `pairs()`; else None."""
    try:
        found, expected = torch.tensor(pairs(), dtype=torch.float64).T
    # A model, or a device, of another kind may fail anywhere here.
    except Exception as error:
        return reason_of(error)
    eps = torch.finfo(dtype).eps
    bound = eps**0.5 * expected.std() + 2 * eps * expected.abs().max()
    distance = (found - expected).square().mean().sqrt()
    if distance <= bound:
        return None
    return f"log-probabilities differ by {distance:.2g} (root mean square), rounding allows {bound:.2g}"


def _check_requests(n_words: int) -> list[TokenRequest]:
    """Return requests with one target token each, whose sequences branch at several depths."""
    draw = random.Random(0)  # noqa: S311

    def some(n: int) -> TokenIds:
        return tuple(draw.randrange(n_words) for _ in range(n))

    shared = some(CHECK_SHARED)
    docs = [shared + some(n) for n in CHECK_DOCS]
    return [TokenRequest(doc + some(n), some(1)) for doc in docs for n in CHECK_CHOICES]


def _first_length_setting(config: Any, without: str = "") -> float:
    """Return the least length in the settings of a config, except the setting `without`; infinite if none."""
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


#: The factor by which passes are made smaller: matrix products of other sizes add up in another order.
SMALLER = 4


def other_groupings(model: Any, options: EngineOptions) -> Iterator[tuple[str, EngineOptions]]:
    """Yield names and options of other groupings of requests: smaller passes, and one sequence per pass.

    Their answers are the same up to rounding.
    """
    tokens = max(1, pass_limits(model, options).pack // SMALLER)
    yield f"passes of {tokens} tokens", replace(options, max_batch_tokens=tokens)
    yield "one sequence per pass", replace(options, engine="padded", batch_size=1)
