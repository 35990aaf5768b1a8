"""The engine that computes each distinct token once: passes over a tree of token ids, through stock models.

A pass reads whole subtrees as one row. `position_ids` are depths, and a mask of four dimensions lets each token
see its ancestors alone, as it would in a sequence of its own. What sequences share beyond a pass waits in a KV cache.
Not every model takes such masks, or can do without its state: `proven_reach` tries, and what it finds decides.
"""

from __future__ import annotations

import inspect
import math
import random
import re
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import transformers

from pytest_llmeval._engine import Loglikelihood
from pytest_llmeval._engine.batches import Question
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.blocks import blocks
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import Engine
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.tree import Limits
from pytest_llmeval._engine.tree import Pass
from pytest_llmeval._engine.tree import Tree
from pytest_llmeval._engine.tree import distinct_waves
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.attention import BlockAttention
from pytest_llmeval._models.devices import free_memory
from pytest_llmeval._models.devices import is_out_of_memory
from pytest_llmeval._models.devices import pass_limits
from pytest_llmeval._models.devices import scoring_budget
from pytest_llmeval._models.devices import writing_budget
from pytest_llmeval._models.masks import NO_WINDOWS
from pytest_llmeval._models.masks import Windows
from pytest_llmeval._models.masks import narrowed
from pytest_llmeval._models.masks import windows_of
from pytest_llmeval._models.padded import PaddedEngine
from pytest_llmeval._models.padded import evaluating
from pytest_llmeval._models.scoring import PaddedScorer
from pytest_llmeval._models.scoring import log_probabilities
from pytest_llmeval._models.scoring import only_at


#: Tokens that attend together on a processor; other devices gain less from fewer keys than from larger products.
BLOCK = 64
#: So many passes are planned at once.
WAVE_PASSES = 64
#: Settings of a model that make it read long sequences in another way than short ones.
LENGTH_SETTING = re.compile(r"^(?!.*(layers|pattern)$).*(window|chunk|block_size|original_max_position)")
#: The sequences of the check: a few documents behind a shared start, with choices.
CHECK_SHARED, CHECK_DOCS, CHECK_CHOICES = 9, (5, 1, 12, 3), (1, 3, 2)
CHECK_LIMITS, CHECK_BLOCK, CHECK_WINDOW = Limits(pack=16, longest=24), 6, 5


class TreeEngine:
    """An `Engine` that scores by the tree and writes as the padded engine does.

    Requests of more than `reach` tokens, for which it is not known that the model takes the tree's masks, go to
    the padded engine. With `remembers`, for weights that nobody changes, the path that one call ends with stays in
    the cache for the next. Raises ModelError when not even one token fits into memory, or the model fails.
    """

    def __init__(
        self,
        model: Any,
        limits: Limits,
        padded: PaddedEngine,
        reach: float,
        windows: Windows = NO_WINDOWS,
        *,
        remembers: bool = False,
    ) -> None:
        self._model = model
        self._padded = padded
        self._limits = limits
        self._reach = reach
        self._remembers = remembers
        self._scorer = TreeScorer(model, padded.scorer.head, BLOCK if model.device.type == "cpu" else 0, windows)

    def score(self, requests: Sequence[TokenRequest], on_progress: OnProgress) -> list[Loglikelihood]:
        near = [i for i, request in enumerate(requests) if len(request.input_ids) <= self._reach]
        far = sorted(set(range(len(requests))).difference(near))
        answers: dict[int, Loglikelihood] = {}
        with evaluating(self._model):
            for answered in self._score([requests[i] for i in near]):
                answers |= {near[place]: answer for place, answer in answered.items()}
                on_progress(len(answers), len(requests))
        if far:
            rest = self._padded.score(
                [requests[i] for i in far], lambda done, _: on_progress(len(near) + done, len(requests))
            )
            answers |= zip(far, rest, strict=True)
        return [answers[place] for place in range(len(requests))]

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        return self._padded.generate(requests, is_stopped, on_progress)

    def _score(self, requests: Sequence[TokenRequest]) -> Iterator[dict[int, Loglikelihood]]:
        """Answers by the place of their request, pass by pass."""
        try:
            for wave in distinct_waves(requests, self._limits.pack * WAVE_PASSES):
                left = list(wave)
                while left:
                    asked, answered = left, set[int]()
                    for question, logprob, greedy in self._pass_by_pass([requests[i] for i in asked]):
                        places = [asked[i] for i in question.requests]
                        answered.update(places)
                        yield {i: Loglikelihood(logprob, greedy, requests[i].truncated) for i in places}
                    left = [i for i in left if i not in answered]
        finally:
            if not self._remembers:
                self._scorer.forget()

    def _pass_by_pass(self, requests: Sequence[TokenRequest]) -> Iterator[tuple[Question, float, bool]]:
        """Questions as they are answered. Some are left over when memory runs out: the next plan is for less."""
        tree = Tree(requests)
        values: list[list[float]] = [[] for _ in tree.questions]
        greedy = [True] * len(tree.questions)
        for step in tree.passes(self._limits, self._scorer.cached):
            try:
                answered = self._scorer.run(step)
            except (RuntimeError, MemoryError, IndexError, ValueError) as error:
                self._shrink(step, error)
                return
            for i, value, likeliest in answered:
                values[i].append(value)
                greedy[i] &= likeliest
                question = tree.questions[i]
                if len(values[i]) == len(question.targets):
                    total = math.fsum(values[i])
                    yield question, total, greedy[i] and not math.isnan(total)

    def _shrink(self, step: Pass, error: Exception) -> None:
        n, total = len(step.ids), step.held + len(step.ids)
        shape = f"{n} token{'s' * (n > 1)} behind {step.held}, in sequences of up to {max(step.depths) + 1}"
        if not is_out_of_memory(error):
            raise ModelError(f"the model failed on {shape}: {type(error).__name__}: {error}") from error
        if n == 1:
            raise ModelError(
                f"out of memory on {total} token{'s' * (total > 1)}; give a smaller max_length, or another device"
            ) from error
        self._scorer.forget()
        free_memory()
        self._limits = self._limits.after_running_out(n)


class TreeScorer:
    """Runs passes, one after the other as they are planned. `cached` is the path of ids that its KV cache holds.

    `head` is the output layer, if the model may be asked for the logits of some positions only. `block`: so many tokens
    attend together, to the keys that any of them can see; all of a pass if it is 0. `windows` says how far back
    layers look.
    """

    def __init__(self, model: Any, head: torch.nn.Module | None, block: int, windows: Windows) -> None:
        self.cached: TokenIds = ()
        self._model = model
        self._head = head
        self._block = block
        self._windows = windows
        self._accepted = frozenset(inspect.signature(model.forward).parameters)
        # The name was changed in transformers 5.24.
        self._cache_name = "cache" if "cache" in self._accepted else "past_key_values"
        self._cache: Any = None

    def forget(self) -> None:
        """Give the memory of the cache back."""
        self.cached, self._cache = (), None

    @torch.no_grad()
    def run(self, step: Pass) -> list[tuple[int, float, bool]]:
        """(question, log-probability of one of its targets, whether that is the likeliest token) for all asked."""
        places = {place: i for i, place in enumerate(dict.fromkeys(asked.place for asked in step.asked))}
        path = self.cached[: step.held]
        # The cache is worth nothing if the pass fails halfway.
        self.cached = ()
        logits = self._logits(step, list(places))
        self.cached = path + step.ids[: step.chain]
        if not places:
            return []
        values, greedy = log_probabilities(
            logits, [places[asked.place] for asked in step.asked], [asked.target for asked in step.asked]
        )
        return [
            (asked.question, *answer)
            for asked, answer in zip(step.asked, zip(values, greedy, strict=True), strict=True)
        ]

    def _logits(self, step: Pass, places: list[int]) -> torch.Tensor:
        """Logits [places, vocabulary] at these of the new tokens."""
        device = self._model.device
        self._crop(step.held)
        wanted = torch.tensor(places, dtype=torch.long, device=device)
        end = step.held + len(step.ids)
        mask = self._windows.masks(step, self._model.dtype, device)
        keywords = {
            "input_ids": torch.tensor([step.ids], device=device),
            "attention_mask": mask,
            "position_ids": torch.tensor([step.depths], device=device),
            self._cache_name: self._cache,
            "use_cache": True,
        }
        if "cache_position" in self._accepted:
            keywords["cache_position"] = torch.arange(step.held, end, device=device)
        selecting = nullcontext() if self._head is None else only_at(self._head, wanted)
        cut = 0 < self._block < len(step.ids)
        masks = list(mask.values()) if isinstance(mask, Mapping) else [mask]
        with selecting, BlockAttention(masks, blocks(step, self._block)) if cut else nullcontext():
            logits: torch.Tensor = self._model(**keywords).logits[0]
        return logits[wanted] if self._head is None else logits

    def _crop(self, length: int) -> None:
        if length == 0 or self._cache is None:
            # Without the config: layers that keep only a window would drop what the mask still shows.
            self._cache = transformers.DynamicCache()
        elif (excess := self._cache.get_seq_length() - length) > 0:
            self._cache.crop(-excess)


def choose_engine(model: Any, args: ModelArgs, eos_ids: Iterable[int], *, remembers: bool = False) -> Engine:
    """The engine that the arguments name; `remembers` as in `TreeEngine`.

    Raises ModelError where that is the tree and the model cannot take it.
    """
    device = model.device
    padded = PaddedEngine(model, scoring_budget(device, args), writing_budget(device, args), eos_ids)
    if args.engine == "padded":
        return padded
    with evaluating(model):
        reach, windows = proven_reach(model, padded.scorer)
    if reach:
        return TreeEngine(model, pass_limits(device, args), padded, reach, windows, remembers=remembers)
    if args.engine == "tree":
        raise ModelError(
            f"model argument engine=tree: {type(model).__name__} gives other numbers with the tree's attention masks, "
            "or takes none; engine=padded serves it"
        )
    return padded


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
        scorer = TreeScorer(model, padded.head, CHECK_BLOCK if model.device.type == "cpu" else 0, windows)
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
