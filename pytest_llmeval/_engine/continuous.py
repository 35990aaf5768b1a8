"""Text by continuous batching: each pass reads the next tokens of all growing texts and a piece of waiting prompts.

What prompts begin with in common is read once. A text that is done leaves, and a waiting one takes its place; a few
guessed tokens ride along where a pass costs the same with them. A token that rounding could decide is chosen from the
text alone, so no text depends on its neighbours. Not every model can be run so: `row_pairs` tries.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.batches import plan_rows
from pytest_llmeval._engine.devices import free_memory
from pytest_llmeval._engine.devices import is_out_of_memory
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.padded import PaddedScorer
from pytest_llmeval._engine.padded import evaluating
from pytest_llmeval._engine.padded import log_probabilities
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import plan_prompts
from pytest_llmeval._engine.requests import samples
from pytest_llmeval._engine.requests import settings_key
from pytest_llmeval._engine.rows import SHORT
from pytest_llmeval._engine.rows import RowRunner
from pytest_llmeval._engine.rows import Run
from pytest_llmeval._engine.rows import Segment
from pytest_llmeval._engine.rows import Store
from pytest_llmeval._engine.shared_prefix import Echo
from pytest_llmeval._engine.shared_prefix import Stem
from pytest_llmeval._engine.shared_prefix import plan_stems
from pytest_llmeval._engine.texts import Choice
from pytest_llmeval._engine.texts import Text
from pytest_llmeval._engine.texts import draw
from pytest_llmeval._engine.texts import likeliest
from pytest_llmeval._engine.texts import warpers_of
from pytest_llmeval._errors import ModelError


#: Shorter stems cost more in attention than reading them again.
LEAST_STEM = 16
#: A pass of few tokens takes the time that it takes to read the weights: so many tokens cost little more than one.
SPARE = 16
#: Most guessed tokens of a text in one pass.
MOST_GUESSED = SHORT - 1
#: A text that is read alone is read in pieces of this size, whatever a pass may hold, for equal rounding.
PIECE = 256


@dataclass(slots=True, eq=False)
class _Row:
    """A text, and the stem that its prompt goes on from."""

    text: Text
    stem: Stem | None
    echo: Echo | None = None

    @property
    def start(self) -> int:
        return self.stem.end if self.stem else 0

    @property
    def path(self) -> tuple[Stem, ...]:
        return self.stem.path if self.stem else ()

    @property
    def is_over(self) -> bool:
        return self.text.reason is not None or len(self.text.ids) == self.text.prompt.kwargs.max_gen_toks

    def pending(self, segment: Segment) -> TokenIds:
        """The tokens that are not held yet."""
        prompt, fed = self.text.prompt.ids, segment.start + segment.length
        return (*prompt[fed:], *self.text.ids[max(0, fed - len(prompt)) :])

    def guess(self, most: int) -> TokenIds:
        """At most so many next tokens; none for a text that is drawn, where the likeliest are seldom all drawn."""
        room = self.text.prompt.kwargs.max_gen_toks - len(self.text.ids) - 1
        if samples(self.text.prompt.kwargs) or room < 1:
            return ()
        if self.echo is None:
            self.echo = Echo(self.text.whole)
        return self.echo.guess(min(most, room))

    def note(self, token: int, eos_ids: frozenset[int], is_stopped: IsStopped) -> None:
        self.text.note(token, eos_ids, is_stopped)
        if self.echo is not None:
            self.echo.add(token)


@dataclass(frozen=True, slots=True)
class _Step:
    """A run of a pass, and the row that it belongs to, if that goes on by a token or more; `sure` are no guesses."""

    run: Run
    row: _Row | None
    sure: int


class _Desk:
    """What one call works on: rows that wait, rows that have a slot of the store, and the stems of those."""

    def __init__(self, rows: Sequence[_Row], budget: Budget) -> None:
        places = max((row.text.prompt.length - row.start for row in rows), default=1)
        longest = max((row.start for row in rows), default=0)
        self.n_slots = max(1, min(len(rows), budget.rows, (budget.tokens - longest) // places))
        self.store = Store(self.n_slots, places)
        self.waiting = deque(rows)
        self.live: dict[_Row, Segment] = {}
        self.stems: dict[Stem, Segment] = {}
        self._room = budget.tokens - self.n_slots * places

    def admit(self) -> None:
        """Slots for the rows that wait, in their order, as long as there is room for their stems too."""
        taken = {segment.slot for segment in self.live.values()}
        free = [slot for slot in range(self.n_slots) if slot not in taken]
        while free and self.waiting:
            row = self.waiting[0]
            missing = [stem for stem in row.path if stem not in self.stems]
            more = sum(len(stem.ids) for stem in missing)
            if self.live and missing and sum(len(stem.ids) for stem in self.stems) + more > self._room:
                return
            self.stems |= {stem: Segment(Store(1, len(stem.ids)), 0, stem.start) for stem in missing}
            self.live[self.waiting.popleft()] = Segment(self.store, free.pop(0), row.start)

    def leave(self, row: _Row) -> None:
        """Free a slot, and the stems that neither a row with a slot nor the next one needs."""
        del self.live[row]
        needed = {stem for other in (*self.live, *islice(self.waiting, 1)) for stem in other.path}
        self.stems = {stem: segment for stem, segment in self.stems.items() if stem in needed}

    def plan(self, pack: int) -> list[_Step]:
        """Steps of the next pass: short ones by their slots, then those that read prompts, about `pack` tokens."""
        pending = {row: row.pending(segment) for row, segment in self.live.items()}
        growing = [row for row, ids in pending.items() if len(ids) == 1 and self._is_read(row.path)]
        most = min(MOST_GUESSED, max(1, SPARE // max(1, len(growing))), pack - 1)
        steps = [self._step(row, (*pending[row], *row.guess(most)), 1) for row in growing]
        room = max(pack - sum(len(step.run.ids) for step in steps), not steps)
        steps += self._read({row: ids for row, ids in pending.items() if row not in growing}, room)
        return sorted(
            steps,
            key=lambda step: (
                len(step.run.ids) > SHORT,
                step.run.segment.store is not self.store,
                step.run.segment.slot,
            ),
        )

    def _read(self, pending: Mapping[_Row, TokenIds], room: int) -> Iterator[_Step]:
        """Steps over prompts in their order, stems first, up to `room` tokens."""
        fresh: dict[Stem, int] = {}
        for row, ids in pending.items():
            for stem in row.path:
                if stem not in fresh and room > 0:
                    held = self.stems[stem].length
                    chunk = stem.ids[held : held + room]
                    fresh[stem] = held + len(chunk)
                    room -= len(chunk)
                    if chunk:
                        above = self._segments(stem.path[:-1])
                        yield _Step(Run(self.stems[stem], above, chunk, 0), None, len(chunk))
            if room < 1:
                return
            chunk = ids[:room]
            room -= len(chunk)
            yield self._step(row, chunk, len(chunk), asked=len(chunk) == len(ids))

    def _step(self, row: _Row, ids: TokenIds, sure: int, *, asked: bool = True) -> _Step:
        n_asked = len(ids) - sure + 1 if asked else 0
        return _Step(Run(self.live[row], self._segments(row.path), ids, n_asked), row, sure)

    def _segments(self, stems: Sequence[Stem]) -> tuple[Segment, ...]:
        return tuple(self.stems[stem] for stem in stems)

    def _is_read(self, stems: Sequence[Stem]) -> bool:
        return all(self.stems[stem].length == len(stem.ids) for stem in stems)


class ContinuousGenerator:
    """Writes texts on a model that `row_pairs` shows to take it, up to `reach` tokens; `padded` writes others.

    `budget` says how many tokens all texts may hold at once and how many rows there are, `pack` how many new tokens a
    pass has; both shrink when memory runs out. Raises ModelError when not even one text fits, or the model fails.
    """

    def __init__(self, model: Any, padded: PaddedEngine, budget: Budget, pack: int, reach: float) -> None:
        self._model = model
        self._padded = padded
        self._budget = budget
        self._pack = pack
        self._reach = reach
        self._runner = RowRunner(model, padded.scorer.selective)

    def generate(
        self, requests: Sequence[GenerationRequest], is_stopped: IsStopped, on_progress: OnProgress
    ) -> list[Completion]:
        answers: dict[int, Completion] = {}

        def end(text: Text) -> None:
            answers.update(dict.fromkeys(text.prompt.places, text.completion))
            on_progress(len(answers), len(requests))

        texts = [Text.of(prompt) for prompt in plan_prompts(requests) if self._serves(prompt)]
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

    def _serves(self, prompt: Prompt) -> bool:
        return prompt.length <= self._reach and self._padded.generator.is_plain(prompt.kwargs)

    def _write(self, texts: Sequence[Text], is_stopped: IsStopped, end: Callable[[Text], None]) -> None:
        planned = plan_stems([text.prompt.ids for text in texts], LEAST_STEM)
        desk = _Desk([_Row(texts[place], stem) for place, stem in planned], self._budget)
        while desk.live or desk.waiting:
            steps: list[_Step] = []
            try:
                desk.admit()
                steps = desk.plan(self._pack)
                logits = self._runner.run([step.run for step in steps])
                for row in self._advance(steps, logits, is_stopped):
                    desk.leave(row)
                    end(row.text)
            except (RuntimeError, MemoryError, IndexError, ValueError) as error:
                self._shrink(desk, steps, error)
                desk = _Desk([*desk.live, *desk.waiting], self._budget)
                free_memory()

    def _advance(self, steps: Sequence[_Step], logits: torch.Tensor, is_stopped: IsStopped) -> Iterator[_Row]:
        """Adds to texts what the logits say, and gives those that are over."""
        choices = iter(
            self._choose([step.row.text for step in steps if step.row for _ in range(step.run.asked)], logits)
        )
        for step in steps:
            step.run.segment.length += step.sure
            if step.row is None:
                continue
            asked = list(islice(choices, step.run.asked))
            self._add(step, step.row, asked, is_stopped)
            if step.row.is_over:
                yield step.row

    def _add(self, step: _Step, row: _Row, choices: Sequence[Choice], is_stopped: IsStopped) -> None:
        """The token after the sure ones, and one more after each guess that was right."""
        guessed = step.run.ids[step.sure :]
        for i, choice in enumerate(choices):
            token = self._alone(row.text) if choice.close else choice.token
            row.note(token, self._padded.generator.eos_ids, is_stopped)
            if row.is_over or guessed[i : i + 1] != (token,):
                return
            step.run.segment.length += 1

    def _choose(self, texts: Sequence[Text], logits: torch.Tensor) -> list[Choice]:
        """The next token of each text by its row of the logits [texts, vocabulary]."""
        found: dict[int, Choice] = {}
        for places in _by_settings(texts).values():
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
        """The next token as the text itself says it, read without neighbours."""
        ids = text.whole
        segment = Segment(Store(1, len(ids)), 0, 0)
        size = min(self._pack, PIECE)
        for start in range(0, len(ids), size):
            piece = ids[start : start + size]
            logits = self._runner.run([Run(segment, (), piece, 1)])
            segment.length += len(piece)
        return self._choose([text], logits)[0].token

    def _shrink(self, desk: _Desk, steps: Sequence[_Step], error: Exception) -> None:
        n, rows = sum(len(step.run.ids) for step in steps), len(desk.live)
        longest = max((row.text.prompt.length for row in desk.live), default=0)
        shape = f"{rows} sequence{'s' * (rows > 1)} of up to {longest} tokens"
        if not is_out_of_memory(error):
            raise ModelError(f"the model failed on {shape}: {type(error).__name__}: {error}") from error
        if rows <= 1 and n <= 1:
            raise ModelError(f"out of memory on {shape}; give a smaller max_length, or another device") from error
        self._pack = max(1, n // 2)
        self._budget = replace(self._budget, rows=max(1, rows // 2), tokens=max(1, self._budget.tokens // 2))


def _by_settings(texts: Sequence[Text]) -> dict[str, list[int]]:
    """Places of texts whose next tokens are chosen in one way."""
    groups: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        kwargs = text.prompt.kwargs
        groups.setdefault(settings_key(kwargs) if samples(kwargs) else "", []).append(place)
    return groups


def row_pairs(model: Any, padded: PaddedScorer) -> list[tuple[float, float]]:
    """Log-probabilities that a model gives in passes over rows, and those that it gives to each text by itself.

    Two texts go on from a stem, side by side and with unlike numbers of tokens; a third is read in two pieces.
    Whatever a model of another kind raises in there is raised.
    """
    pick = random.Random(0)  # noqa: S311
    n_words = int(model.get_input_embeddings().weight.shape[0])
    stem, first, second, third = (tuple(pick.randrange(n_words) for _ in range(n)) for n in (10, 13, 6, 21))
    store = Store(3, 24)
    shared = Segment(Store(1, len(stem)), 0, 0)
    a, b, c = (Segment(store, slot, start) for slot, start in enumerate((len(stem), len(stem), 0)))
    passes = [
        [(a, first[:10]), (c, third[:9]), (shared, stem)],
        [(a, first[10:11]), (b, second[:3]), (c, third[9:])],
        [(a, first[11:]), (b, second[3:])],
    ]
    texts = {a: stem + first, b: stem + second, c: third}
    runner = RowRunner(model, padded.selective)
    asked: list[TokenRequest] = []
    values: list[float] = []
    for parts in passes:
        runs = [
            Run(part, () if part in (c, shared) else (shared,), ids, int(part is not shared)) for part, ids in parts
        ]
        runs.sort(key=lambda run: len(run.ids) > SHORT)
        logits = runner.run(runs)
        for run in runs:
            run.segment.length += len(run.ids)
        ends = [texts[run.segment][: run.segment.start + run.segment.length] for run in runs if run.asked]
        targets = [pick.randrange(n_words) for _ in ends]
        values += log_probabilities(logits, list(range(len(ends))), targets)[0]
        asked += [TokenRequest(ids, (target,)) for ids, target in zip(ends, targets, strict=True)]
    expected = {place: answer[1] for answer in padded.run(plan_rows(asked)) for place in answer[0].requests}
    return [(value, expected[place]) for place, value in enumerate(values)]
