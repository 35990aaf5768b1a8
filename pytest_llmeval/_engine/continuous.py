"""Generation by continuous batching on a CPU: a pass reads the next tokens of all growing texts and parts of prompts.

`scheduler` selects the tokens. Where rounding could decide the next token, the text is read again by itself, so no text
depends on the others in its pass. The attention of `chunks` exists for CPUs only: other devices write in padded
batches. Some models cannot be run in this way: `chunk_pairs` is the trial.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.causal_model import evaluating
from pytest_llmeval._engine.causal_model import log_probabilities
from pytest_llmeval._engine.chunks import SHORT
from pytest_llmeval._engine.chunks import Chunk
from pytest_llmeval._engine.chunks import ChunkRunner
from pytest_llmeval._engine.chunks import KVCache
from pytest_llmeval._engine.chunks import KVSlot
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import sequences
from pytest_llmeval._engine.devices import try_pass
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import plan_prompts
from pytest_llmeval._engine.requests import samples
from pytest_llmeval._engine.requests import settings_key
from pytest_llmeval._engine.scheduler import ScheduledChunk
from pytest_llmeval._engine.scheduler import ScheduledText
from pytest_llmeval._engine.scheduler import Scheduler
from pytest_llmeval._engine.scheduler import plan_shared_prefixes
from pytest_llmeval._engine.texts import Choice
from pytest_llmeval._engine.texts import Text
from pytest_llmeval._engine.texts import draw
from pytest_llmeval._engine.texts import likeliest
from pytest_llmeval._engine.texts import warpers_of


#: The least length of a shared prefix: a shorter one costs more in attention than to read it again.
LEAST_PREFIX = 16
#: A text that is read by itself is read in pieces of this size, whatever the size of passes, for equal rounding.
PIECE = 256


class ContinuousGenerator:
    """A `Writer` for texts of at most `reach` tokens with plain settings (`is_plain`); `padded` writes all others.

    `budget`: the limits on the tokens of all texts in the cache, and on their number; `pack`: the approximate number of
    new tokens in a pass. Both shrink when memory runs out. Raises ModelError if one text does not fit, or on failure.
    """

    def __init__(self, model: Any, padded: PaddedEngine, budget: Budget, pack: int, reach: float) -> None:
        self._model = model
        self._padded = padded
        self._budget = budget
        self._pack = pack
        self._reach = reach
        self._runner = ChunkRunner(model, padded.selective)

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        answers: dict[int, Completion] = {}

        def end(text: Text) -> None:
            answers.update(dict.fromkeys(text.prompt.places, text.completion))
            on_progress(len(answers), len(requests))

        texts = [
            Text.of(prompt)
            for prompt in plan_prompts(requests)
            if prompt.length <= self._reach and self._padded.generator.is_plain(prompt.kwargs)
        ]
        with evaluating(self._model):
            self._write([text for text in texts if text.prompt.kwargs.max_gen_toks > 0], is_stopped, end)
        for text in texts:
            if text.prompt.kwargs.max_gen_toks == 0:
                end(text)
        rest = [place for place in range(len(requests)) if place not in answers]
        if rest:
            n = len(answers)
            asked = [requests[place] for place in rest]
            written = self._padded.generate(asked, is_stopped, lambda done, _: on_progress(n + done, len(requests)))
            answers |= zip(rest, written, strict=True)
        return [answers[place] for place in range(len(requests))]

    def _write(self, texts: Sequence[Text], is_stopped: IsStopped, end: Callable[[Text], None]) -> None:
        planned = plan_shared_prefixes([text.prompt.ids for text in texts], LEAST_PREFIX)
        scheduler = Scheduler([ScheduledText(texts[place], prefix) for place, prefix in planned], self._budget)
        while scheduler.live or scheduler.waiting:
            scheduler.admit()
            steps = scheduler.plan(self._pack)
            n, rows = sum(len(step.chunk.ids) for step in steps), len(scheduler.live)
            run = partial(self._advance, scheduler, steps, is_stopped, end)
            if try_pass(run, partial(_shape, scheduler), can_shrink=n > 1 or rows > 1) is None:
                rows, tokens = len(scheduler.live), self._budget.tokens
                self._pack = max(1, n // 2)
                self._budget = replace(self._budget, rows=max(1, rows // 2), tokens=max(1, tokens // 2))
                scheduler = Scheduler([*scheduler.live, *scheduler.waiting], self._budget)
                free_memory()

    def _advance(
        self, scheduler: Scheduler, steps: Sequence[ScheduledChunk], is_stopped: IsStopped, end: Callable[[Text], None]
    ) -> bool:
        """Run a pass, add its tokens to the texts, and remove the finished ones from the scheduler. Returns True."""
        logits = self._runner.run([step.chunk for step in steps])
        texts = [step.row.text for step in steps if step.row for _ in range(step.chunk.n_logits)]
        choices = iter(self._choose(texts, logits))
        for step in steps:
            step.chunk.slot.length += step.n_known
            if step.row is None:
                continue
            self._add(step, step.row, list(islice(choices, step.chunk.n_logits)), is_stopped)
            if step.row.is_over:
                scheduler.leave(step.row)
                end(step.row.text)
        return True

    def _add(self, step: ScheduledChunk, row: ScheduledText, choices: Sequence[Choice], is_stopped: IsStopped) -> None:
        """Add the token after the known ones, and one more after each correct guess."""
        guessed = step.chunk.ids[step.n_known :]
        for i, choice in enumerate(choices):
            token = self._alone(row.text) if choice.close else choice.token
            row.note(token, self._padded.generator.eos_ids, is_stopped)
            if row.is_over or guessed[i : i + 1] != (token,):
                return
            step.chunk.slot.length += 1

    def _choose(self, texts: Sequence[Text], logits: torch.Tensor) -> list[Choice]:
        """Return the next token of each text, chosen by its row of the logits [texts, vocabulary]."""
        groups: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            kwargs = text.prompt.kwargs
            groups.setdefault(settings_key(kwargs) if samples(kwargs) else "", []).append(place)
        found: dict[int, Choice] = {}
        for places in groups.values():
            kwargs = texts[places[0]].prompt.kwargs
            own = logits if len(places) == len(texts) else logits[torch.tensor(places, device=logits.device)]
            if samples(kwargs):
                at = [texts[place].draw() for place in places]
                made = draw(own, warpers_of(kwargs, self._model.generation_config), at)
            else:
                made = likeliest(own)
            found |= zip(places, made, strict=True)
        return [found[i] for i in range(len(texts))]

    def _alone(self, text: Text) -> int:
        """Return the next token of a text, read by itself."""
        ids = text.whole
        slot = KVSlot(KVCache(1, len(ids)), 0, 0)
        size = min(self._pack, PIECE)
        for start in range(0, len(ids), size):
            piece = ids[start : start + size]
            logits = self._runner.run([Chunk(slot, (), piece, 1)])
            slot.length += len(piece)
        return self._choose([text], logits)[0].token


def _shape(scheduler: Scheduler) -> str:
    return sequences(len(scheduler.live), max((row.text.prompt.length for row in scheduler.live), default=0))


def chunk_pairs(model: Any, padded: PaddedEngine) -> list[tuple[float, float]]:
    """Return pairs of log-probabilities: from passes over chunks, and from each text by itself.

    Two texts of unequal lengths continue one prefix in the same pass; a third text is read in two pieces. Errors of a
    model that cannot be run in this way are not caught.
    """
    pick = random.Random(0)  # noqa: S311
    n_words = int(model.get_input_embeddings().weight.shape[0])
    prefix, first, second, third = (tuple(pick.randrange(n_words) for _ in range(n)) for n in (10, 13, 6, 21))
    cache = KVCache(3, 24)
    shared = KVSlot(KVCache(1, len(prefix)), 0, 0)
    a, b, c = (KVSlot(cache, index, start) for index, start in enumerate((len(prefix), len(prefix), 0)))
    passes = [
        [(a, first[:10]), (c, third[:9]), (shared, prefix)],
        [(a, first[10:11]), (b, second[:3]), (c, third[9:])],
        [(a, first[11:]), (b, second[3:])],
    ]
    texts = {a: prefix + first, b: prefix + second, c: third}
    runner = ChunkRunner(model, padded.selective)
    asked: list[TokenRequest] = []
    values: list[float] = []
    for parts in passes:
        chunks = [
            Chunk(slot, () if slot in (c, shared) else (shared,), ids, int(slot is not shared)) for slot, ids in parts
        ]
        chunks.sort(key=lambda chunk: len(chunk.ids) > SHORT)
        logits = runner.run(chunks)
        for chunk in chunks:
            chunk.slot.length += len(chunk.ids)
        ends = [texts[chunk.slot][: chunk.slot.start + chunk.slot.length] for chunk in chunks if chunk.n_logits]
        targets = [pick.randrange(n_words) for _ in ends]
        values += log_probabilities(logits, list(range(len(ends))), targets)[0]
        asked += [TokenRequest(ids, (target,)) for ids, target in zip(ends, targets, strict=True)]
    alone = padded.score(asked, lambda done, total: None)
    return [(value, answer.logprob) for value, answer in zip(values, alone, strict=True)]
