"""A pattern or template that never ends is stopped, and nothing else is."""

from __future__ import annotations

import re
import signal
import sys
import threading

import pytest

from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


needs_timer = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no processor-time signal")


def test_a_value_comes_through() -> None:
    assert limited(lambda: "x") == "x"


@needs_timer
def test_a_catastrophic_pattern_is_stopped() -> None:
    with pytest.raises(TimeLimitError, match=r"stopped after 0\.05 s"):
        limited(lambda: re.match(r"(a+)+$", "a" * 60 + "b"), limit_s=0.05)


@needs_timer
def test_code_that_swallows_exceptions_is_stopped() -> None:
    def stubborn() -> None:
        while True:
            try:
                re.match(r"(a+)+$", "a" * 60 + "b")
            except Exception:
                continue

    with pytest.raises(TimeLimitError):
        limited(stubborn, limit_s=0.05)


@needs_timer
def test_timer_and_handler_are_put_back() -> None:
    def own(signum: int, frame: object) -> None:
        raise AssertionError("the timer was left running")

    before = signal.signal(signal.SIGVTALRM, own)
    try:
        limited(lambda: None)
        with pytest.raises(ZeroDivisionError):
            limited(lambda: 1 // 0)
        assert signal.getsignal(signal.SIGVTALRM) is own
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_other_threads_compute_without_a_limit() -> None:
    values: list[int] = []
    thread = threading.Thread(target=lambda: values.append(limited(lambda: 7)))
    thread.start()
    thread.join()
    assert values == [7]
