"""Two bounds on a number, and checks of arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Two one-sided bounds, each at the confidence asked for: ``P(low > truth) <= 1 - confidence``, and so for high.

    Together they are a two-sided interval of confidence ``2 * confidence - 1``: .95 and .95 make the usual 90 %.
    """

    low: float
    high: float

    def joined(self, other: Interval) -> Interval:
        """Return the wider of either bound."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def error_of(confidence: float) -> float:
    """Return the error that a one-sided bound may make. Raises ValueError unless ``.5 <= confidence < 1``.

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
