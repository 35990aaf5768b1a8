"""A time limit for the regular expressions and templates of task files.

Patterns run in Python's `re`, because scores must equal those of lm_eval, which uses it. The `regex` package has a
timeout, but its ``\\w`` differs for 30,000 characters (हिन्दी is one word for `regex` and three for `re`), and it reads
``a{e}`` as a fuzzy match. `re` checks for signals while it backtracks, so a timer can stop it.
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

#: The limit on the processor time, in seconds, of one pattern or template on one doc.
LIMIT_S = 5.0


class TimeLimitError(ValueError):
    """A computation was stopped because it took longer than its limit."""


class _Expired(BaseException):
    """Raised by the timer. It derives from BaseException, so that no `except Exception` in the call catches it."""


def _expire(signum: int, frame: FrameType | None) -> NoReturn:
    raise _Expired


def limited(call: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Return the value of `call()`. Raises TimeLimitError once it has used `limit_s` seconds of processor time.

    The timer counts processor time, so a paused or busy machine makes no difference, and does not use SIGALRM, which
    timeout plugins need. Signals reach only the main thread: in other threads, and on Windows, there is no limit.
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
        raise TimeLimitError(f"stopped after {limit_s:g} s of processor time") from None
