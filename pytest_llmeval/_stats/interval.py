"""Intervals of two one-sided bounds, and checks of arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Two one-sided bounds, each at the same confidence: ``P(low > truth) <= 1 - confidence``, and the same for `high`.

    Together they are a two-sided interval of confidence ``2 * confidence - 1``, for .95 one of 90 %.
    """

    low: float
    high: float

    def joined(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def error_of(confidence: float) -> float:
    """Return the error of a one-sided bound. Raises ValueError unless ``.5 <= confidence < 1``.

    Below one half a lower bound would lie above the upper one.
    """
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    return 1 - confidence


def check_count(name: str, count: int, most: int | None = None) -> None:
    """Raise ValueError for a negative count, or one above `most`."""
    if count < 0 or (most is not None and count > most):
        limit = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name} must be at least 0{limit}, got {count!r}")
