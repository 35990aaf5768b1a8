"""Keeping transformers silent while it loads a model or writes texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging as transformers_logging


@contextmanager
def silence() -> Iterator[list[str]]:
    """No progress bars and no log lines of transformers; its warnings are put into the list instead.

    Nor do they go on to the root logger, as transformers lets them where the variable CI is set: pytest would
    show them as captured log.
    """
    caught: list[str] = []
    root = logging.getLogger("transformers")
    bars: Any = transformers_logging
    had_bars = bars.is_progress_bar_enabled()
    handlers, propagates = root.handlers[:], root.propagate
    root.handlers[:], root.propagate = [_Collector(caught)], False
    bars.disable_progress_bar()
    try:
        yield caught
    finally:
        root.handlers[:], root.propagate = handlers, propagates
        if had_bars:
            bars.enable_progress_bar()


class _Collector(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())
