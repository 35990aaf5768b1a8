"""Where a generated text ends."""

from __future__ import annotations

from collections.abc import Iterable


def cut_at_stops(text: str, stops: Iterable[str]) -> str:
    """The text before the first stop string that occurs in it. An empty stop string stops nothing.

    Of stop strings that overlap in the text the one named first wins, as in lm_eval.

    >>> cut_at_stops("a\\nb.c", [".", "\\n"])
    'a'
    """
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text
