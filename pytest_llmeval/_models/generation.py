"""Greedy and sampled text of token ids: batches that are padded on the left, through `generate` of transformers.

Rows are independent of each other: positions count from the first real token, padding is masked by length, every
row draws from a random stream of its own, and a row that is done leaves its batch.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import random
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch
import transformers

from pytest_llmeval._engine import FinishReason
from pytest_llmeval._engine import GenerationKwargs
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.loading import silence


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


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to write: the places of the equal requests that it answers, and their ids and settings."""

    places: tuple[int, ...]
    ids: TokenIds
    kwargs: GenerationKwargs

    @property
    def length(self) -> int:
        return len(self.ids) + self.kwargs.max_gen_toks

    @property
    def n_scored(self) -> int:
        return 1


def plan_prompts(requests: Sequence[GenerationRequest]) -> list[Prompt]:
    """Equal requests once. Greedy text depends on neither seed nor repeat, so there they make no difference."""
    asked: dict[tuple[object, ...], list[int]] = {}
    for place, request in enumerate(requests):
        kwargs = request.kwargs
        draw = (kwargs.seed, kwargs.repeat) if _samples(kwargs) else ()
        asked.setdefault((request.ids, _settings_key(kwargs), draw), []).append(place)
    return [Prompt(tuple(places), requests[places[0]].ids, requests[places[0]].kwargs) for places in asked.values()]


def _settings_key(kwargs: GenerationKwargs) -> str:
    """Equal for what may share a batch, whatever the order of `extra`."""
    extra = sorted(kwargs.extra.items())
    own = (kwargs.until, kwargs.max_gen_toks, kwargs.do_sample, kwargs.temperature, kwargs.top_p, kwargs.top_k)
    return repr((own, extra))


def _samples(kwargs: GenerationKwargs) -> bool:
    """Temperature 0 is the limit of sampling in which the likeliest token is always drawn."""
    return kwargs.do_sample and kwargs.temperature > 0


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
        self._pads = "attention_mask" in inspect.signature(model.forward).parameters
        self._rows_can_leave = True

    def groups(self, prompts: Sequence[Prompt]) -> list[list[Prompt]]:
        """Prompts that may share a batch: equal settings, longest first; of equal length where padding shows."""
        groups: dict[tuple[str, int], list[Prompt]] = {}
        shows: dict[str, bool] = {}
        for prompt in sorted(prompts, key=lambda prompt: -len(prompt.ids)):
            key = _settings_key(prompt.kwargs)
            if key not in shows:
                shows[key] = not self._pads or _padding_shows(self._config(prompt.kwargs))
            groups.setdefault((key, len(prompt.ids) if shows[key] else 0), []).append(prompt)
        return list(groups.values())

    @torch.inference_mode()
    def run(self, batch: Sequence[Prompt], is_stopped: IsStopped) -> list[Completion]:
        """One text for each prompt of a batch of one group, in order."""
        kwargs = batch[0].kwargs
        config = self._config(kwargs)
        if config.num_beams not in (None, 1):
            return [self._search(prompt, config) for prompt in batch]
        texts = [_Text(prompt, _stream(prompt)) for prompt in batch]
        self._write(texts, config, is_stopped)
        return [Completion(tuple(text.ids), text.reason or "length") for text in texts]

    def _write(self, texts: list[_Text], config: Any, is_stopped: IsStopped) -> None:
        """Rounds of `generate`: each ends when half of its rows are done, and the others go on with its cache."""
        ids, mask = left_padded([text.prompt.ids for text in texts])
        ids, mask = ids.to(self._model.device), mask.to(self._model.device)
        cache: dict[str, Any] = {}
        room = texts[0].prompt.kwargs.max_gen_toks
        while texts and room > 0:
            config.max_new_tokens = room
            rows = _Rows(texts, self._eos_ids, is_stopped, may_end=self._rows_can_leave)
            output = self._generate(ids, mask, config, texts, rows, cache)
            added = output.sequences.shape[1] - ids.shape[1]
            stay = torch.tensor([i for i, text in enumerate(texts) if text.reason is None], device=ids.device).long()
            texts = [text for text in texts if text.reason is None]
            ids = output.sequences[stay]
            mask = torch.nn.functional.pad(mask[stay], (0, added), value=1)
            cache = self._select(output, stay) if len(stay) else {}
            room -= added

    def _generate(
        self, ids: torch.Tensor, mask: torch.Tensor, config: Any, texts: list[_Text], rows: _Rows, cache: dict[str, Any]
    ) -> Any:
        kwargs = texts[0].prompt.kwargs
        draws = [_Draw(self._warpers(kwargs, config), texts)] if _samples(kwargs) else []
        masked = {"attention_mask": mask} if self._pads else {}
        with silence():
            return self._model.generate(
                input_ids=ids,
                generation_config=config,
                stopping_criteria=transformers.StoppingCriteriaList([rows]),
                logits_processor=transformers.LogitsProcessorList(draws),
                **masked,
                **cache,
            )

    def _select(self, output: Any, stay: torch.Tensor) -> dict[str, Any]:
        """The cache of the rows that go on; nothing, so that they are read again, if it cannot be cut to them."""
        name = "cache" if output.get("cache") is not None else "past_key_values"
        try:
            output[name].batch_select_indices(stay)
        except (AttributeError, KeyError, NotImplementedError):
            self._rows_can_leave = False
            return {}
        return {name: output[name]}

    def _search(self, prompt: Prompt, config: Any) -> Completion:
        """Beam search, which knows no stop strings before it is done."""
        config.max_new_tokens = prompt.kwargs.max_gen_toks
        ids = torch.tensor([prompt.ids], device=self._model.device)
        with silence():
            output = self._model.generate(input_ids=ids, generation_config=config)
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
        with silence():
            config.update(**GREEDY, **own, use_cache=True, disable_compile=True)
            unknown = config.update(**{name: value for name, value in kwargs.extra.items() if name not in WARPERS})
        if unknown:
            raise ModelError(f"generation setting {next(iter(unknown))!r} is unknown to transformers")
        return config

    def _warpers(self, kwargs: GenerationKwargs, config: Any) -> list[Any]:
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
    """Notes every new token in its row, and says which rows are done."""

    def __init__(self, texts: list[_Text], eos_ids: frozenset[int], is_stopped: IsStopped, *, may_end: bool) -> None:
        self._texts = texts
        self._eos_ids = eos_ids
        self._is_stopped = is_stopped
        self._leaving = len(texts) // 2 if may_end else 0
        self._over = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if not self._over:
            for text, token in zip(self._texts, input_ids[:, -1].tolist(), strict=True):
                self._note(text, token)
            self._over = sum(text.reason is None for text in self._texts) <= self._leaving
        done = [self._over or text.reason is not None for text in self._texts]
        return torch.tensor(done, device=input_ids.device)

    def _note(self, text: _Text, token: int) -> None:
        if text.reason is None:
            text.ids.append(token)
            if token in self._eos_ids:
                text.reason = "eos"
            elif self._is_stopped(text.ids, text.prompt.kwargs):
                text.reason = "stop"


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
