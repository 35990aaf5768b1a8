"""Running code that a model wrote, in a sandbox that the Linux kernel enforces. Where there is none, not at all.

Layers that overlap, so that a hole in one is no way out: namespaces (user, mount, PID, network, IPC, UTS, cgroup)
with a root folder that holds little more than Python's own library (`_room`); an allow list of system calls
(`_syscalls`); the user nobody, no capabilities, no way to gain any (`_launcher`); limits on time, memory, files and
threads (`_trial`). They stop a program that hangs, floods, forks, deletes, spies or calls home. They do not defend
the verdict against code that sets out to deceive its own tests, see `_trial`. And all of them are the kernel's:
against an unknown hole in that, only a separate machine helps.

    _values      Limits, CodeOutcome
    _worker      the test process's side: one launcher, and the reasons for refusal
    _launcher    the process outside: enters the room, forks a watcher per program
    _room        namespaces and the root folder
    _trial       one program: limits, run, verdict
    _syscalls    the seccomp filter
    _kernel      system calls through libc

Nothing is run by importing this, nor without a call to `run_code`, `run_many`, `available` or `Worker`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from pytest_llmeval._errors import SandboxError
from pytest_llmeval._sandbox._values import LIMITS
from pytest_llmeval._sandbox._values import CodeOutcome
from pytest_llmeval._sandbox._values import Limits
from pytest_llmeval._sandbox._worker import Worker
from pytest_llmeval._sandbox._worker import refusal


__all__ = ["CodeOutcome", "Limits", "Worker", "available", "run_code", "run_many"]

# What the walls promise, as a program that reaches its end only if they stand.
_PROBE = """
import os, socket, sys
assert os.getpid() == 1 and os.getppid() == 0, "it is not in a process tree of its own"
assert {os.getuid(), os.getgid(), *os.getgroups()} == {65534}, "it is not nobody"
assert os.listdir() == [], "its folder is not empty"
assert not os.path.exists("/proc/1") and not os.path.exists("/etc/passwd"), "it sees files of the machine"
for attempt in (os.fork, socket.socket, lambda: open("/file", "w"), lambda: os.execv(sys.executable, ["python"])):
    try:
        attempt()
    except OSError:
        continue
    raise AssertionError("it can fork, connect, write or start a program")
"""


def available() -> str | None:
    """None if the sandbox works here, else the reason in words that also say what to do.

    It tries the real thing, in about 0.1 s, so callers ask once and remember.
    """
    try:
        outcome = run_code(_PROBE)
    except SandboxError as error:
        return str(error)
    return None if outcome.passed else str(refusal(f"a trial in the sandbox {outcome.reason}"))


def run_code(program: str, limits: Limits = LIMITS) -> CodeOutcome:
    """Run one Python program; it passes if its last statement is reached. Raises SandboxError, or runs nothing."""
    with Worker() as worker:
        return worker.run(program, limits)


def run_many(programs: Sequence[str], limits: Limits = LIMITS, *, workers: int | None = None) -> list[CodeOutcome]:
    """Run programs, `workers` at a time (one per processor by default): outcomes in their order."""
    if not programs:
        return []
    count = min(len(programs), workers or _processors())
    idle: SimpleQueue[Worker] = SimpleQueue()

    def run(program: str) -> CodeOutcome:
        worker = idle.get()
        try:
            return worker.run(program, limits)
        finally:
            idle.put(worker)

    with ExitStack() as stack:
        for _ in range(count):
            idle.put(stack.enter_context(Worker()))
        pool = stack.enter_context(ThreadPoolExecutor(count))
        return list(pool.map(run, programs))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
