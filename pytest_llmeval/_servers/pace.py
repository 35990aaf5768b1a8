"""The number of requests under way at a server, and the pauses between attempts, adapted to its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass


#: Requests under way before the first answer.
FIRST = 4
#: An answer that takes this many times as long as the fastest ones shows that requests wait in a queue.
SLOW = 4.0
#: The share of a new answer in the average duration.
FADING = 0.25
#: Seconds before the second attempt, the factor between attempts, and the longest pause.
FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 0.5, 2.0, 30.0
#: The longest pause that a server may ask for with a Retry-After header.
LONGEST_ASKED = 120.0


class Clock:
    """The time that pauses and durations are measured with; tests replace it."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Pace:
    """The limit of requests under way, from 1 to `most`.

    It grows by one with each answer until the server shows that it has enough, and then by one in as many answers as
    the limit. A refusal for load (429, 503) or a lost connection halves it; refusals of requests that were sent before
    the last cut do not cut again. While answers take `SLOW` times as long as the fastest ones of this call, it stays.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(FIRST, most))
        self._growing_fast = True
        self._cuts = 0
        self._average: float | None = None
        self._fastest = float("inf")

    @property
    def limit(self) -> int:
        return max(1, int(self._limit))

    def begin(self) -> None:
        """Forget durations: the requests of another call may be longer."""
        self._average, self._fastest = None, float("inf")

    def sent(self) -> int:
        """Return a mark for `overloaded`, taken when a request is sent."""
        return self._cuts

    def answered(self, seconds: float) -> None:
        """Count an answer that took `seconds`."""
        before = seconds if self._average is None else self._average
        self._average = before + FADING * (seconds - before)
        self._fastest = min(self._fastest, self._average)
        if self._average > SLOW * self._fastest:
            self._growing_fast = False
            return
        self._limit = min(self._most, self._limit + (1.0 if self._growing_fast else 1.0 / self._limit))

    def overloaded(self, mark: int) -> None:
        """Count a refusal of a request that was sent at `mark`."""
        if mark == self._cuts:
            self._cuts += 1
            self._growing_fast = False
            self._limit = max(1.0, self._limit / 2)


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses between the attempts of one request; `draw` returns random numbers from 0 to 1 for the jitter."""

    draw: Callable[[], float]

    def before(self, attempt: int, asked: float | None = None) -> float:
        """Return the seconds before an attempt, counted from 1 for the second.

        At least those that the server `asked` for; at random between half and all of a duration that doubles, so that
        many clients do not come back at once.
        """
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * GROWTH ** (attempt - 1))
        pause = longest * (0.5 + 0.5 * self.draw())
        return pause if asked is None else max(pause, min(asked, LONGEST_ASKED))
