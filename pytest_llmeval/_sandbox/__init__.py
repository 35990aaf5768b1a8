"""Run code that a model wrote in a sandbox enforced by the Linux kernel; without a sandbox, refuse to run it.

The layers overlap, so that a hole in one does not suffice: namespaces (user, mount, PID, network, IPC, UTS, cgroup)
with a root folder that holds little more than Python's own library (`root_folder`); an allow list of system calls
(`syscalls`); the user nobody, without capabilities or a way to gain any (`launcher`); limits on time, memory, files
and threads (`trial`). They stop a program that hangs, floods, forks, deletes, spies or connects to a network. They do
not protect the outcome from code written to deceive its own tests, see `trial`. All of them are enforced by the kernel:
only a separate machine protects from an unknown hole in it.

    limits       CodeLimits, CodeOutcome: the values that both processes share
    worker       in the test process: the control of one launcher, and the reasons for refusal
    launcher     the process outside: enters the root folder, forks a watcher per program
    root_folder  namespaces and the root folder
    trial        one program: limits, run, verdict
    syscalls     the seccomp filter
    kernel       system calls through libc

Importing this package runs nothing; `run_code`, `available` and `Worker` do.
"""

from __future__ import annotations

from pytest_llmeval._errors import SandboxError
from pytest_llmeval._sandbox.limits import LIMITS
from pytest_llmeval._sandbox.limits import CodeLimits
from pytest_llmeval._sandbox.limits import CodeOutcome
from pytest_llmeval._sandbox.worker import Worker
from pytest_llmeval._sandbox.worker import refusal


__all__ = ["CodeLimits", "CodeOutcome", "Worker", "available", "run_code"]

# This program reaches its end only if every layer of the sandbox works.
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
    """Return None if the sandbox works on this machine, else the reason and the remedy.

    Runs a program in a sandbox, which takes about 0.1 s, so callers should store the result.
    """
    try:
        outcome = run_code(_PROBE)
    except SandboxError as error:
        return str(error)
    return None if outcome.passed else str(refusal(f"a trial in the sandbox {outcome.reason}"))


def run_code(program: str, limits: CodeLimits = LIMITS) -> CodeOutcome:
    """Run a Python program, which passes if its last statement is reached. Raises SandboxError without a sandbox."""
    with Worker() as worker:
        return worker.run(program, limits)
