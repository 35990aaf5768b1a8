"""Growing texts as token ids: the choice of the next token, choices that rounding could change, and the end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch
import transformers

from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._lm import FinishReason
from pytest_llmeval._lm import GenerationKwargs


#: Sampling settings of `generate`. `draw` samples in its place, so that rows are independent of each other.
WARPERS: Mapping[str, Callable[[float], Any]] = {
    "min_p": transformers.MinPLogitsWarper,
    "typical_p": transformers.TypicalLogitsWarper,
    "epsilon_cutoff": transformers.EpsilonLogitsWarper,
}
#: The default top_k of transformers, and so of lm_eval.
DEFAULT_TOP_K = 50
#: Other rows in a pass change the last digits of logits. A choice that leads by less than this number of float32
#: rounding units of the largest logit is repeated with the text by itself.
ROUNDING = 512


@dataclass(slots=True)
class Text:
    """One growing text. `at` is the random number for the next token, if already drawn."""

    prompt: Prompt
    stream: random.Random
    ids: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    at: float | None = None

    @classmethod
    def of(cls, prompt: Prompt) -> Text:
        """Return the text of a prompt, whose random stream depends on ids, seed and repeat, not on machine or batch."""
        name = repr((prompt.ids, prompt.kwargs.seed, prompt.kwargs.repeat)).encode()
        return cls(prompt, random.Random(hashlib.blake2b(name).digest()))  # noqa: S311 it draws tokens

    @property
    def whole(self) -> TokenIds:
        return (*self.prompt.ids, *self.ids)

    @property
    def completion(self) -> Completion:
        return Completion(tuple(self.ids), self.reason or "length")

    def draw(self) -> float:
        """Return the random number for the next token, which stays the same until that token is added."""
        if self.at is None:
            self.at = self.stream.random()
        return self.at

    def note(self, token: int, eos_ids: frozenset[int], is_stopped: IsStopped) -> None:
        """Add a token, and set `reason` if it ends the text."""
        self.ids.append(token)
        self.at = None
        if token in eos_ids:
            self.reason = "eos"
        elif is_stopped(self.ids, self.prompt):
            self.reason = "stop"


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token; `close` is True if rounding could change the choice."""

    token: int
    close: bool


def likeliest(logits: torch.Tensor) -> list[Choice]:
    """Return the likeliest token of each row of logits [rows, vocabulary]."""
    best = logits.topk(min(2, logits.shape[-1]))
    ahead = best.values[:, 0] - best.values[:, -1]
    return _choices(best.indices[:, 0], ahead < _rounding(logits))


def draw(logits: torch.Tensor, warpers: Sequence[Any], at: Sequence[float]) -> list[Choice]:
    """Return a token for each row of logits [rows, vocabulary], sampled after the warpers with the numbers `at`."""
    scores = warped(logits, warpers)
    cumulated = cumulate(scores)
    drawn = pick(cumulated, at)
    total, place = cumulated[:, -1:], drawn[:, None]
    upper = cumulated.gather(1, place)
    shares = scores.softmax(-1, dtype=cumulated.dtype)
    lower = upper - shares.gather(1, place)
    point = torch.tensor(at, dtype=cumulated.dtype, device=logits.device)[:, None] * total
    room = torch.minimum(point - lower, upper - point)[:, 0] / total[:, 0]
    return _choices(drawn, room <= _slack(logits, scores, shares, warpers))


def _slack(logits: torch.Tensor, scores: torch.Tensor, shares: torch.Tensor, warpers: Sequence[Any]) -> torch.Tensor:
    """Return, per row [rows], how far rounding may move the cumulative probabilities.

    Rounding changes logits, and possibly the set of tokens that the warpers keep (top_k, top_p). The set may change if
    moving kept and other logits apart, or together, by the rounding error changes it.
    """
    rounding = _rounding(logits)
    kept = scores > -torch.inf
    apart = torch.where(kept, rounding[:, None], -rounding[:, None])
    sure = [(warped(logits + sign * apart, warpers) > -torch.inf).eq(kept).all(-1) for sign in (1, -1)]
    edge = shares.masked_fill(~kept, torch.inf).amin(-1)
    unsure: torch.Tensor = torch.where(sure[0] & sure[1], 0.0, 2 * edge)
    return unsure + 2 * rounding / float(warpers[0].temperature)


def warped(logits: torch.Tensor, warpers: Sequence[Any]) -> torch.Tensor:
    scores: torch.Tensor = logits
    for warper in warpers:
        # The warpers used here ignore the ids.
        scores = warper(None, scores)
    return scores


def cumulate(scores: torch.Tensor) -> torch.Tensor:
    """Return cumulated probabilities [rows, vocabulary]."""
    # Metal (mps) has no float64.
    exact = torch.float32 if scores.device.type == "mps" else torch.float64
    return scores.softmax(-1, dtype=exact).cumsum(-1)


def pick(cumulated: torch.Tensor, at: Sequence[float]) -> torch.Tensor:
    """Return tokens [rows] by inverse transform sampling; `at` are numbers from 0 to 1."""
    point = torch.tensor(at, dtype=cumulated.dtype, device=cumulated.device)[:, None]
    drawn = torch.searchsorted(cumulated, point * cumulated[:, -1:], right=True)
    return drawn[:, 0].clamp(max=cumulated.shape[-1] - 1)


def warpers_of(kwargs: GenerationKwargs, own: Any) -> list[Any]:
    """Return the warpers (temperature, top_k and others) of a sampled text, in the order of transformers.

    Settings that the request does not name are those of `own`, the checkpoint's generation config.
    """
    top_k = _first(kwargs.top_k, own.top_k, DEFAULT_TOP_K)
    top_p = _first(kwargs.top_p, own.top_p, 1.0)
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(kwargs.temperature)]
    if top_k > 0:
        warpers.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(transformers.TopPLogitsWarper(top_p))
    return warpers + [make(kwargs.extra[name]) for name, make in WARPERS.items() if kwargs.extra.get(name)]


def _rounding(logits: torch.Tensor) -> torch.Tensor:
    """Return the rounding error of logits per row [rows]; 0 in half precision, where texts may depend on batches."""
    units = ROUNDING if logits.dtype in (torch.float32, torch.float64) else 0
    return units * torch.finfo(torch.float32).eps * logits.nan_to_num(0.0, 0.0, 0.0).abs().amax(-1)


def _choices(tokens: torch.Tensor, close: torch.Tensor) -> list[Choice]:
    return [Choice(token, near) for token, near in zip(tokens.tolist(), close.tolist(), strict=True)]


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
