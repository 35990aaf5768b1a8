"""A time limit for the regular expressions and templates of task files.

Patterns run in Python's own `re`, because scores must equal those of lm_eval, which uses it: the `regex` package,
which has its own timeout, differs on ``\\w`` on 30,000 characters (हिन्दी is one word there and three
here) and reads ``a{e}`` as a fuzzy match. `re` checks for signals while it backtracks, so a timer can stop it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn
from typing import TypeVar


T = TypeVar("T")

#: Most processor time, in seconds, that one pattern or template may take on one doc.
LIMIT_S = 5.0


class TimeLimitError(ValueError):
    """A computation was stopped because it took longer than `LIMIT_S`."""


class _Expired(BaseException):
    """Raised by the timer; derived from BaseException so that no `except Exception` on the way catches it."""


def _expire(signum: int, frame: FrameType | None) -> NoReturn:
    raise _Expired


def limited(call: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Return the value of `call()`. Raises TimeLimitError once it has used `limit_s` seconds of processor time.

    The timer counts processor time (a paused or busy machine stops nothing) and leaves SIGALRM to timeout
    plugins. Signals reach the main thread only: in other threads, and on Windows, there is no limit.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return call()
    try:
        previous = signal.signal(signal.SIGVTALRM, _expire)
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
        try:
            return call()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, previous or signal.SIG_DFL)
    except _Expired:
        raise TimeLimitError(f"stopped after {limit_s:g} s of computing") from None
