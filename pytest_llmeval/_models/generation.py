"""Greedy and sampled text of token ids: batches that are padded on the left, through `generate` of transformers.

Rows are independent of each other: positions count from the first real token, padding is masked by length, every
row draws from a random stream of its own, and a row that is done leaves its batch.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import random
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from functools import cached_property
from typing import Any
from typing import Literal

import torch
import transformers

from pytest_llmeval._engine import FinishReason
from pytest_llmeval._engine import GenerationKwargs
from pytest_llmeval._engine.prompts import Prompt
from pytest_llmeval._engine.prompts import samples
from pytest_llmeval._engine.prompts import settings_key
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.loading import silence
from pytest_llmeval._models.scoring import same_logits


#: Steps of `generate` that see the padding as part of the text: such prompts are batched by equal length.
PADDING_MATTERS = {"no_repeat_ngram_size": 0, "min_length": 0}
#: Settings of `generate` that its own sampling would use; ours draws by itself, so that rows are independent.
WARPERS: Mapping[str, Callable[[float], Any]] = {
    "min_p": transformers.MinPLogitsWarper,
    "typical_p": transformers.TypicalLogitsWarper,
    "epsilon_cutoff": transformers.EpsilonLogitsWarper,
}
#: The default of transformers, and so of lm_eval, for sampling that names no top_k.
DEFAULT_TOP_K = 50
#: Neutral values, with which `generate` takes the likeliest token without advice on settings it does not use.
GREEDY = {"do_sample": False, "temperature": 1.0, "top_k": DEFAULT_TOP_K, "top_p": 1.0, "typical_p": 1.0, "min_p": None}
#: Settings that would change what comes back, with what to do instead.
REFUSED = {
    "max_length": "name the number of new tokens as max_gen_toks",
    "num_return_sequences": "use repeats",
    "eta_cutoff": "use epsilon_cutoff",
    "stop_strings": "name stop strings as until",
}


@dataclass(slots=True)
class _Text:
    """One row while it is written."""

    prompt: Prompt
    stream: random.Random
    ids: list[int] = field(default_factory=list)
    reason: FinishReason | None = None


class PaddedGenerator:
    """Writes texts in batches. `eos_ids` end a text besides those that the checkpoint names itself."""

    def __init__(self, model: Any, eos_ids: Iterable[int]) -> None:
        self._model = model
        named = model.generation_config.eos_token_id
        own = named if isinstance(named, list) else [] if named is None else [named]
        self._eos_ids = frozenset([*own, *eos_ids])
        self._takes_mask = "attention_mask" in inspect.signature(model.forward).parameters
        self._rows_can_leave = True

    @cached_property
    def _neighbours(self) -> Literal["any", "equal length", "none"]:
        """Beside which rows a row goes on as it does alone, as seen on small ones.

        Some models take a mask and do not use it, so that padding changes a text; some mix up the rows of a batch.
        """
        row = (1, 0)
        alone = self._next_logits([row])[-1]
        if self._takes_mask and same_logits(self._next_logits([(0, 1, 0, 1, 0, 1, 0, 1), row])[-1], alone):
            return "any"
        return "equal length" if same_logits(self._next_logits([(0, 1), row])[-1], alone) else "none"

    @torch.no_grad()
    def _next_logits(self, rows: Sequence[TokenIds]) -> torch.Tensor:
        """Logits [rows, vocabulary] of the second token that follows, which shows what the cache holds."""
        config = self._config(GenerationKwargs())
        config.max_new_tokens, config.output_logits = 2, True
        ids, mask = left_padded(rows)
        logits: tuple[torch.Tensor, ...] = self._call(ids, mask, config).logits
        return logits[-1]

    def groups(self, prompts: Sequence[Prompt]) -> list[list[Prompt]]:
        """Prompts that may share a batch: equal settings, longest first; of equal length where padding shows."""
        groups: dict[tuple[str, int], list[Prompt]] = {}
        neighbours: dict[str, str] = {}
        for i, prompt in enumerate(sorted(prompts, key=lambda prompt: -len(prompt.ids))):
            key = settings_key(prompt.kwargs)
            if key not in neighbours:
                padding_shows = self._neighbours == "any" and _padding_shows(self._config(prompt.kwargs))
                neighbours[key] = "equal length" if padding_shows else self._neighbours
            apart = {"any": 0, "equal length": len(prompt.ids), "none": i}[neighbours[key]]
            groups.setdefault((key, apart), []).append(prompt)
        return list(groups.values())

    @torch.no_grad()
    def run(
        self, batch: Sequence[Prompt], is_stopped: IsStopped, on_done: Callable[[Prompt], None]
    ) -> list[Completion]:
        """One text for each prompt of a batch of one group, in order; `on_done` is told of each that has ended."""
        kwargs = batch[0].kwargs
        config = self._config(kwargs)
        if config.num_beams not in (None, 1):
            return [self._search(prompt, config) for prompt in batch]
        texts = [_Text(prompt, _stream(prompt)) for prompt in batch]
        self._write(texts, config, is_stopped, on_done)
        return [Completion(tuple(text.ids), text.reason or "length") for text in texts]

    def _write(self, texts: list[_Text], config: Any, is_stopped: IsStopped, on_done: Callable[[Prompt], None]) -> None:
        """Rounds of `generate`: each ends when half of its rows are done, and the others go on with its cache."""
        ids, mask = left_padded([text.prompt.ids for text in texts])
        cache: dict[str, Any] = {}
        kwargs = texts[0].prompt.kwargs
        room = kwargs.max_gen_toks
        while texts and room > 0:
            config.max_new_tokens = room
            leaving = len(texts) // 2 if self._rows_can_leave else 0
            draws = [_Draw(self._warpers(kwargs), texts)] if samples(kwargs) else []
            output = self._call(
                ids,
                mask,
                config,
                stopping_criteria=transformers.StoppingCriteriaList(
                    [_Rows(texts, self._eos_ids, is_stopped, on_done, leaving)]
                ),
                logits_processor=transformers.LogitsProcessorList(draws),
                **cache,
            )
            added = output.sequences.shape[1] - ids.shape[1]
            stay = torch.tensor([i for i, text in enumerate(texts) if text.reason is None], dtype=torch.long)
            texts = [text for text in texts if text.reason is None]
            ids = output.sequences.cpu()[stay]
            mask = torch.nn.functional.pad(mask[stay], (0, added), value=1)
            cache = self._select(output, stay) if texts else {}
            room -= added

    def _call(self, ids: torch.Tensor, mask: torch.Tensor, config: Any, **keywords: Any) -> Any:
        device = self._model.device
        if self._takes_mask:
            keywords["attention_mask"] = mask.to(device)
        with _no_advice():
            return self._model.generate(input_ids=ids.to(device), generation_config=config, **keywords)

    def _select(self, output: Any, stay: torch.Tensor) -> dict[str, Any]:
        """The cache of the rows that go on; nothing, so that they are read again, if it cannot be cut to them."""
        name = "cache" if output.get("cache") is not None else "past_key_values"
        try:
            output[name].batch_select_indices(stay.to(output.sequences.device))
        except (AttributeError, KeyError, NotImplementedError):
            self._rows_can_leave = False
            return {}
        return {name: output[name]}

    def _search(self, prompt: Prompt, config: Any) -> Completion:
        """Beam search, which knows no stop strings before it is done."""
        config.max_new_tokens = prompt.kwargs.max_gen_toks
        output = self._call(*left_padded([prompt.ids]), config)
        written = output.sequences[0, len(prompt.ids) :].tolist()
        end = next((i for i, token in enumerate(written) if token in self._eos_ids), None)
        return Completion(tuple(written), "length") if end is None else Completion(tuple(written[: end + 1]), "eos")

    def _config(self, kwargs: GenerationKwargs) -> Any:
        """The checkpoint's own settings (a repetition penalty, say) with those of the request over them."""
        for name in kwargs.extra:
            if name in REFUSED:
                raise ModelError(f"generation setting {name!r} is not supported: {REFUSED[name]}")
        config = copy.deepcopy(self._model.generation_config)
        own = {"eos_token_id": sorted(self._eos_ids) or None, "pad_token_id": 0, "return_dict_in_generate": True}
        try:
            with _no_advice():
                config.update(**GREEDY, **own, use_cache=True, disable_compile=True)
                unknown = config.update(**{name: value for name, value in kwargs.extra.items() if name not in WARPERS})
        except ValueError as error:
            raise ModelError(f"generation settings {dict(kwargs.extra)}: {error}") from None
        if unknown:
            raise ModelError(f"generation setting {next(iter(unknown))!r} is unknown to transformers")
        return config

    def _warpers(self, kwargs: GenerationKwargs) -> list[Any]:
        """How a distribution is reshaped before a token is drawn, in the order of transformers.

        What the request does not say is as the checkpoint's generation config has it.
        """
        own = self._model.generation_config
        top_k = _first(kwargs.top_k, own.top_k, DEFAULT_TOP_K)
        top_p = _first(kwargs.top_p, own.top_p, 1.0)
        warpers: list[Any] = [transformers.TemperatureLogitsWarper(kwargs.temperature)]
        if top_k > 0:
            warpers.append(transformers.TopKLogitsWarper(top_k))
        if top_p < 1:
            warpers.append(transformers.TopPLogitsWarper(top_p))
        return warpers + [make(kwargs.extra[name]) for name, make in WARPERS.items() if kwargs.extra.get(name)]


class _Rows(transformers.StoppingCriteria):
    """Notes every new token in its row, says which rows are done, and ends the round when `leaving` are left."""

    def __init__(
        self,
        texts: list[_Text],
        eos_ids: frozenset[int],
        is_stopped: IsStopped,
        on_done: Callable[[Prompt], None],
        leaving: int,
    ) -> None:
        self._texts = texts
        self._eos_ids = eos_ids
        self._is_stopped = is_stopped
        self._on_done = on_done
        self._leaving = leaving
        self._over = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if not self._over:
            for text, token in zip(self._texts, input_ids[:, -1].tolist(), strict=True):
                self._note(text, token)
            self._over = sum(text.reason is None for text in self._texts) <= self._leaving
        done = [self._over or text.reason is not None for text in self._texts]
        return torch.tensor(done, device=input_ids.device)

    def _note(self, text: _Text, token: int) -> None:
        if text.reason is not None:
            return
        text.ids.append(token)
        if token in self._eos_ids:
            text.reason = "eos"
        elif self._is_stopped(text.ids, text.prompt.kwargs):
            text.reason = "stop"
        if text.reason is not None:
            self._on_done(text.prompt)


class _Draw(transformers.LogitsProcessor):
    """Draws each row's next token from the row's own stream, and leaves it as the only possible one."""

    def __init__(self, warpers: list[Any], texts: list[_Text]) -> None:
        self._warpers = warpers
        self._texts = texts

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for warper in self._warpers:
            scores = warper(input_ids, scores)
        # Metal has no float64.
        exact = torch.float32 if scores.device.type == "mps" else torch.float64
        cumulated = scores.softmax(-1, dtype=exact).cumsum(-1)
        at = torch.tensor([text.stream.random() for text in self._texts], dtype=exact, device=scores.device)
        drawn = torch.searchsorted(cumulated, at[:, None] * cumulated[:, -1:], right=True)
        drawn = drawn.clamp(max=scores.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn, 0.0)


@contextmanager
def _no_advice() -> Iterator[None]:
    """`generate` warns of settings that it does not use; those of the checkpoint are none of the caller's doing."""
    with silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask [rows, longest]. A row is padded with its own first token.

    The mask keeps attention away from it, and a repetition penalty, which looks at the ids alone, sees no token
    that the row does not hold anyway.
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    ids = torch.tensor([[row[0]] * (longest - len(row)) + list(row) for row in rows])
    return ids, (torch.arange(longest) >= longest - lengths[:, None]).long()


def _padding_shows(config: Any) -> bool:
    return any(getattr(config, name, None) not in (None, neutral) for name, neutral in PADDING_MATTERS.items())


def _stream(prompt: Prompt) -> random.Random:
    """One random stream for each prompt, seed and repeat, the same on every machine and in every batch."""
    name = repr((prompt.ids, prompt.kwargs.seed, prompt.kwargs.repeat)).encode()
    return random.Random(hashlib.blake2b(name).digest())  # noqa: S311 it draws tokens


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
