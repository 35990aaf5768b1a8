"""Signals that announce the end of a job: the run ends as after Ctrl-C, with its report, its files and exit code 2."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from types import FrameType

import pytest


#: The signals of `kill` and of schedulers before they kill a job. Each ends a process that does not handle it.
NAMES = ("SIGTERM", "SIGXCPU", "SIGUSR1", "SIGUSR2")


class EndOfJob(KeyboardInterrupt):
    """A signal announced that the process will be killed."""


class EndingSignals:
    """The part of the plugin that turns such a signal into an interrupt, unless something else handles it."""

    def __init__(self) -> None:
        self._handled: list[signal.Signals] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        # Elsewhere Python does not let signals be handled.
        if threading.current_thread() is threading.main_thread():
            known = [signal.Signals[name] for name in NAMES if hasattr(signal, name)]
            self._handled = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
        for number in self._handled:
            signal.signal(number, self._end)
        return (yield)

    def pytest_unconfigure(self) -> None:
        for number in self._handled:
            signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, frame: FrameType | None) -> None:
        # The files are written now: a second announcement must not keep them from being finished.
        for handled in self._handled:
            signal.signal(handled, signal.SIG_IGN)
        raise EndOfJob(f"{signal.Signals(number).name} received")
