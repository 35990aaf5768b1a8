"""Greedy and sampled continuations in batches that are padded on the left, through `generate` of transformers.

Rows are independent of each other: positions start at the first real token, padding is masked, every row draws from its
own random stream, and a finished row is removed from its batch.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from typing import Literal

import torch
import transformers

from pytest_llmeval._engine.causal_model import are_same
from pytest_llmeval._engine.causal_model import silence
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import samples
from pytest_llmeval._engine.requests import settings_key
from pytest_llmeval._engine.texts import DEFAULT_TOP_K
from pytest_llmeval._engine.texts import WARPERS
from pytest_llmeval._engine.texts import Text
from pytest_llmeval._engine.texts import cumulate
from pytest_llmeval._engine.texts import pick
from pytest_llmeval._engine.texts import warped
from pytest_llmeval._engine.texts import warpers_of
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs


#: Settings with which `generate` treats padding as part of the text: such prompts are batched by equal length.
PADDING_MATTERS = {"no_repeat_ngram_size": 0, "min_length": 0}
#: Neutral values, with which `generate` takes the likeliest token and does not warn about unused settings.
GREEDY = {"do_sample": False, "temperature": 1.0, "top_k": DEFAULT_TOP_K, "top_p": 1.0, "typical_p": 1.0, "min_p": None}
#: Settings that would change the form of the answer, each with the setting to use instead.
REFUSED = {
    "max_length": "use max_gen_toks for the number of new tokens",
    "num_return_sequences": "use repeats",
    "eta_cutoff": "use epsilon_cutoff",
    "stop_strings": "use until for stop strings",
}
#: Settings of a generation config that do not change which token is the likeliest.
SILENT = frozenset(GREEDY) | {
    "_from_model_config",
    "bos_token_id",
    "cache_implementation",
    "decoder_start_token_id",
    "disable_compile",
    "eos_token_id",
    "epsilon_cutoff",
    "eta_cutoff",
    "max_length",
    "max_new_tokens",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "return_dict_in_generate",
    "transformers_version",
    "use_cache",
}
#: Values of other settings, besides None and False, that have no effect.
NEUTRAL = {
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
}


class PaddedGenerator:
    """Writes texts in batches. A text ends at one of `eos_ids` or of the checkpoint's own end tokens."""

    def __init__(self, model: Any, eos_ids: Iterable[int]) -> None:
        self._model = model
        named = model.generation_config.eos_token_id
        own = named if isinstance(named, list) else [] if named is None else [named]
        self.eos_ids = frozenset([*own, *eos_ids])
        self._takes_mask = "attention_mask" in inspect.signature(model.forward).parameters
        self._rows_can_leave = True

    @cached_property
    def _neighbours(self) -> Literal["any", "equal length", "none"]:
        """The rows that a batch may combine without changing each other's logits, found by a trial on small rows.

        Some models accept a mask but ignore it, so that padding changes a text; some mix the rows of a batch.
        """
        row = (1, 0)
        alone = self._next_logits([row])[-1]
        if self._takes_mask and are_same(self._next_logits([(0, 1, 0, 1, 0, 1, 0, 1), row])[-1], alone):
            return "any"
        return "equal length" if are_same(self._next_logits([(0, 1), row])[-1], alone) else "none"

    @torch.no_grad()
    def _next_logits(self, rows: Sequence[TokenIds]) -> torch.Tensor:
        """Return the logits of the second new token, [rows, vocabulary].

        Unlike those of the first, they depend on the cache.
        """
        config = self._config(GenerationKwargs())
        config.max_new_tokens, config.output_logits = 2, True
        ids, mask = left_padded(rows)
        logits: tuple[torch.Tensor, ...] = self._call(ids, mask, config).logits
        return logits[-1]

    def groups(self, prompts: Sequence[Prompt]) -> list[list[Prompt]]:
        """Return groups of prompts that may share batches, longest first: equal settings, and length if necessary."""
        groups: dict[tuple[str, int], list[Prompt]] = {}
        neighbours: dict[str, str] = {}
        for i, prompt in enumerate(sorted(prompts, key=lambda prompt: -len(prompt.ids))):
            key = settings_key(prompt.kwargs)
            if key not in neighbours:
                config = self._config(prompt.kwargs)
                matters = any(getattr(config, name, None) not in (None, at) for name, at in PADDING_MATTERS.items())
                neighbours[key] = "equal length" if matters and self._neighbours == "any" else self._neighbours
            apart = {"any": 0, "equal length": len(prompt.ids), "none": i}[neighbours[key]]
            groups.setdefault((key, apart), []).append(prompt)
        return list(groups.values())

    @torch.no_grad()
    def run(
        self, batch: Sequence[Prompt], is_stopped: IsStopped, on_done: Callable[[Prompt], None]
    ) -> list[Completion]:
        """Return one text for each prompt of a batch of one group, in order; `on_done` is called when a text ends."""
        kwargs = batch[0].kwargs
        config = self._config(kwargs)
        if config.num_beams not in (None, 1):
            return [self._search(prompt, config) for prompt in batch]
        texts = [Text.of(prompt) for prompt in batch]
        self._write(texts, config, is_stopped, on_done)
        return [text.completion for text in texts]

    def _write(self, texts: list[Text], config: Any, is_stopped: IsStopped, on_done: Callable[[Prompt], None]) -> None:
        """Call `generate` in rounds: each ends when half of its rows are done; the others continue with its cache."""
        ids, mask = left_padded([text.prompt.ids for text in texts])
        cache: dict[str, Any] = {}
        kwargs = texts[0].prompt.kwargs
        room = kwargs.max_gen_toks
        while texts and room > 0:
            config.max_new_tokens = room
            leaving = len(texts) // 2 if self._rows_can_leave else 0
            draws = [_Draw(warpers_of(kwargs, self._model.generation_config), texts)] if samples(kwargs) else []
            output = self._call(
                ids,
                mask,
                config,
                stopping_criteria=transformers.StoppingCriteriaList(
                    [_Rows(texts, self.eos_ids, is_stopped, on_done, leaving)]
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
        """Return the cache of the rows that continue; empty if rows cannot be selected, so that they are read again."""
        name = "cache" if output.get("cache") is not None else "past_key_values"
        try:
            output[name].batch_select_indices(stay.to(output.sequences.device))
        except (AttributeError, KeyError, NotImplementedError):
            self._rows_can_leave = False
            return {}
        return {name: output[name]}

    def _search(self, prompt: Prompt, config: Any) -> Completion:
        """Run beam search; stop strings are applied only afterwards."""
        config.max_new_tokens = prompt.kwargs.max_gen_toks
        output = self._call(*left_padded([prompt.ids]), config)
        written = output.sequences[0, len(prompt.ids) :].tolist()
        end = next((i for i, token in enumerate(written) if token in self.eos_ids), None)
        return Completion(tuple(written), "length") if end is None else Completion(tuple(written[: end + 1]), "eos")

    def is_plain(self, kwargs: GenerationKwargs) -> bool:
        """Return True if the next token depends only on the model's distribution and the sampling of `texts`.

        Raises ModelError for settings that are not supported.
        """
        config = self._config(kwargs).to_dict()
        return all(
            value is None or value is False or (name in NEUTRAL and value == NEUTRAL[name])
            for name, value in config.items()
            if name not in SILENT
        )

    def _config(self, kwargs: GenerationKwargs) -> Any:
        """Return the checkpoint's own settings, such as a repetition penalty, overridden by those of the request."""
        for name in kwargs.extra:
            if name in REFUSED:
                raise ModelError(f"generation setting {name!r} is not supported: {REFUSED[name]}")
        config = copy.deepcopy(self._model.generation_config)
        own = {"eos_token_id": sorted(self.eos_ids) or None, "pad_token_id": 0, "return_dict_in_generate": True}
        try:
            with _no_advice():
                config.update(**GREEDY, **own, use_cache=True, disable_compile=True)
                unknown = config.update(**{name: value for name, value in kwargs.extra.items() if name not in WARPERS})
        except ValueError as error:
            raise ModelError(f"generation settings {dict(kwargs.extra)}: {error}") from None
        if unknown:
            raise ModelError(f"generation setting {next(iter(unknown))!r} is unknown to transformers")
        return config


@dataclass(eq=False)
class _Rows(transformers.StoppingCriteria):
    """Adds each new token to its text, reports finished rows, and ends the round when only `leaving` are unfinished."""

    texts: list[Text]
    eos_ids: frozenset[int]
    is_stopped: IsStopped
    on_done: Callable[[Prompt], None]
    leaving: int
    over: bool = False

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if not self.over:
            for text, token in zip(self.texts, input_ids[:, -1].tolist(), strict=True):
                if text.reason is None:
                    text.note(token, self.eos_ids, self.is_stopped)
                    if text.reason is not None:
                        self.on_done(text.prompt)
            self.over = sum(text.reason is None for text in self.texts) <= self.leaving
        done = [self.over or text.reason is not None for text in self.texts]
        return torch.tensor(done, device=input_ids.device)


@dataclass(eq=False)
class _Draw(transformers.LogitsProcessor):
    """Draws each row's next token from the row's own random stream, and masks all other tokens."""

    warpers: list[Any]
    texts: list[Text]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        drawn = pick(cumulate(warped(scores, self.warpers)), [text.draw() for text in self.texts])
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn[:, None], 0.0)


@contextmanager
def _no_advice() -> Iterator[None]:
    """Suppress warnings of `generate` about unused settings: they come from the checkpoint, not from the caller."""
    with silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and attention mask, both [rows, longest]; a row is padded with its own first token.

    The mask hides the padding from attention. A repetition penalty, which uses the ids alone, gets no token that is
    not in the row.
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    ids = torch.tensor([[row[0]] * (longest - len(row)) + list(row) for row in rows])
    return ids, (torch.arange(longest) >= longest - lengths[:, None]).long()
