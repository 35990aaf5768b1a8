"""Seeded draws: each part of the data has a stream of its own, so that one part's length moves no other."""

from __future__ import annotations

import random


def stream(seed: int, name: str) -> random.Random:
    """A stream of pseudo-random draws that depends on the seed and the name alone."""
    return random.Random(f"{seed}/{name}")  # noqa: S311 - drawn data, no secret
