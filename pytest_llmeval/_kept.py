"""What was worked out for one model and serves those that come later in the session."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic
from typing import TypeVar


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values by key, until `room` is taken: its unit is that of the sizes which `put` is told.

    Every model is asked about the same docs in the same order. So what came first stays, and what finds no room is
    worked out anew each time: to throw out the oldest would lose each value just before it is wanted.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def put(self, key: Key, value: Value, size: int) -> None:
        if size <= self.room and key not in self._values:
            self.room -= size
            self._values[key] = value
