"""A short text after the cursor while a model works: ``mmlu_anatomy 96/135, 6,120 tokens ~8s left``.

It is written behind pytest's row of dots and taken back by restoring the cursor (ESC 7 ... ESC 8), so the row
stays as pytest wrote it. Where nobody watches (no terminal, -q, xdist workers) nothing is written at all.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

import pytest


#: Seconds between two updates: fast enough to look alive, slow enough to cost nothing.
INTERVAL = 0.2


class ProgressLine:
    """Writes progress to the terminal that pytest reports to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last = 0.0

    def of(self, task: str) -> Callable[[int, int, int], None] | None:
        """Return a progress function for one task; None if there is no terminal to show it."""
        if not self._visible():
            return None
        started = time.monotonic()

        def show(done: int, total: int, tokens: int) -> None:
            now = time.monotonic()
            if done >= total:
                self._write("")
            elif now - self._last >= INTERVAL:
                self._last = now
                read = f", {tokens:,} tokens" if tokens else ""
                self._write(f" {task} {done}/{total}{read}{_remaining(done, total, now - started)}")

        return show

    def _visible(self) -> bool:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return bool(reporter is not None and reporter.isatty and self._config.get_verbosity() >= 0)

    def _write(self, text: str) -> None:
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        writer = self._config.get_terminal_writer()
        room = max(0, writer.fullwidth - writer.width_of_current_line - 1)
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            sys.stdout.write(f"\x1b7{text[:room]}\x1b[K\x1b8")
            sys.stdout.flush()


def _remaining(done: int, total: int, seconds: float) -> str:
    """`` ~40s left``, once enough is done to tell."""
    if not done or seconds < 2:
        return ""
    left = seconds * (total - done) / done
    return f" ~{left:.0f}s left" if left < 90 else f" ~{left / 60:.0f}min left"
