"""The next tokens of docs: kept for a baseline, or compared with those that a baseline keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

from pytest_llmeval._baselines import NO_POSITIONS
from pytest_llmeval._baselines import Kept
from pytest_llmeval._baselines import cost_of
from pytest_llmeval._baselines import positions_text
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import NextToken
from pytest_llmeval._lm import Tracked
from pytest_llmeval._results import Distance
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._stats import Known
from pytest_llmeval._stats import divergence


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keeps the `top` likeliest next tokens of each position."""

    top: int

    @classmethod
    def by(cls, lm: Any, top: int) -> Keeping:
        """Return the keeping of a model's next tokens. Raises ModelError if it cannot report them."""
        if reason := _refusal(lm):
            raise ModelError(f"--llmeval-baseline-topk: {reason}, or omit the option")
        return cls(top)

    def asked(self, key: DocKey, requests: int) -> list[Tracked]:
        """Return the ids to report for each request of a doc."""
        return [self.top] * requests

    def noted(self, result: DocResult, answers: Sequence[Any]) -> DocResult:
        """Return the result of a doc with what the answers to its requests report, or an error if one lacks it."""
        # Only a whole text may be empty.
        if any(isinstance(answer, tuple) and not _next_tokens(answer) for answer in answers):
            reason = "the model reported no next tokens: its tracked() must report one for each token that it scores"
            return DocResult(result.doc, {}, error=f"doc {result.doc}: {reason}")
        return replace(result, next_tokens=positions_text(map(_next_tokens, answers)) or NO_POSITIONS)


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares next tokens with those that a baseline keeps. `problem`: the reason why the model cannot; else empty."""

    kept: Kept
    problem: str = ""

    @classmethod
    def of(cls, kept: Kept, lm: Any) -> Comparing:
        reason = _refusal(lm)
        if not reason and lm.vocabulary != kept.vocabulary:
            reason = (
                f"model {_name(lm)!r} has another vocabulary than the model of the baseline: the probabilities of its "
                "tokens cannot be compared"
            )
        return cls(kept, reason)

    def asked(self, key: DocKey, requests: int) -> list[Tracked]:
        """Return the ids to report for each request of a doc; nothing if the baseline lacks it."""
        positions = None if self.problem else self.kept.of(key)
        if positions is None or len(positions) != requests:
            return []
        return [[token.ids for token in tokens] for tokens in positions]

    def noted(self, result: DocResult, answers: Sequence[Any]) -> DocResult:
        """Return the result of a doc with its distance from the baseline."""
        before = None if result.key is None else self.kept.of(result.key)
        if self.problem or before is None:
            return replace(result, distance=Distance(problem=self.problem or "the baseline keeps no next tokens of it"))
        return replace(result, distance=distance_of(before, list(map(_next_tokens, answers))))


def distance_of(before: Sequence[Sequence[NextToken]], now: Sequence[Sequence[NextToken]]) -> Distance:
    """Return the distance of a doc's next tokens, request by request; each distinct position of `before` counts once.

    Both sides are rounded as in a file, so that a model has no distance from itself.
    """
    if [len(tokens) for tokens in before] != [len(tokens) for tokens in now]:
        return Distance(problem="the model reads its requests as other tokens than the baseline did")
    pairs: dict[NextToken, NextToken] = {}
    for old, new in zip(before, now, strict=True):
        for token, its in zip(old, new, strict=True):
            pairs.setdefault(token, its)
    found = [divergence(_known(old), _known(new)) for old, new in pairs.items()]
    n = len(pairs)
    if not n:
        return Distance()
    if any(math.isnan(one.estimate) for one in found):
        return Distance(problem="the model gave a probability of a next token that is not a number")
    return Distance(
        math.fsum(one.estimate for one in found) / n,
        math.fsum(one.least for one in found) / n,
        math.fsum(math.exp(old.rest) for old in pairs) / n,
        sum(old.likeliest == new.likeliest for old, new in pairs.items()) / n,
    )


def _next_tokens(answer: Any) -> Sequence[NextToken]:
    found: Sequence[NextToken] = getattr(answer, "next_tokens", ())
    return found


def _known(token: NextToken) -> Known:
    *kept, drawn = map(cost_of, token.logprobs)
    return Known(kept, cost_of(token.rest), drawn)


def _refusal(lm: Any) -> str:
    """Return the reason why a model cannot report next tokens; empty if it can."""
    if callable(getattr(lm, "tracked", None)) and isinstance(getattr(lm, "vocabulary", None), str):
        return ""
    return (
        f"model {_name(lm)!r} gives no probabilities of next tokens: {type(lm).__name__} needs the method tracked() "
        "and the attribute vocabulary (see pytest_llmeval.LM)"
    )


def _name(lm: Any) -> str:
    return str(getattr(lm, "name", "") or type(lm).__name__)
