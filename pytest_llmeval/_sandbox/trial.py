"""The trial of one program: a process that runs it under every limit, and a process that watches.

`judge` runs in a fork of the launcher, outside the new process tree. Its child is the tree's first process: it
gives up all its rights, reports that, and runs the program. When that process ends or is killed, the kernel kills all
others in the tree.

A program cannot print its verdict or exit with it. After the program's last statement, and only then, the runner
reads a random token from one pipe and returns it through another; every other end (exit status 0 included) is a
failure. This cannot prevent one thing: the tests are part of the program and run in its interpreter, so code written
to deceive them (an ``__eq__`` that is always true, a search for the runner's pipes) can pass although it is wrong. It
gains nothing else.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from typing import NoReturn

from pytest_llmeval._sandbox import root_folder
from pytest_llmeval._sandbox.limits import CodeLimits
from pytest_llmeval._sandbox.limits import CodeOutcome


_PROGRAM = "<program>"
_TOKEN_BYTES = 16
_MESSAGE_CHARACTERS = 500
# Longer than any message and below the capacity of a pipe, so the program's process never waits for a reader.
_VERDICT_BYTES = 8192
_CONFINED, _REFUSED = b"C", b"R"
_NO_MEMORY = b"MemoryError"
_OPEN_FILES = 64


def judge(program: str, limits: CodeLimits, confine: Callable[[], None]) -> CodeOutcome:
    """Run a program to its end or its limits. `confine` is called in its process, after limits are set.

    Raises OSError if the program could not be confined; then it was not run.
    """
    token_end, give_token = os.pipe()
    verdict, verdict_end = os.pipe()
    # The signal for the end of the process is blocked, so that it stays pending until `sigtimedwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        _be_tried(program, limits, confine, token_end, verdict_end)
    os.close(verdict_end)
    # Created after the fork, so that the program's memory does not contain it.
    token = os.urandom(_TOKEN_BYTES)
    os.write(give_token, token)
    in_time = signal.sigtimedwait({signal.SIGCHLD}, limits.wall_seconds) is not None
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    # No process can write any more, so this returns at once.
    said = os.read(verdict, _VERDICT_BYTES)
    if not said.startswith(_CONFINED):
        raise OSError(said[1:].decode() or "the program's process ended before it was confined")
    if not in_time:
        return CodeOutcome(False, f"timed out after {limits.wall_seconds:g} s")
    if said[1:] == token:
        return CodeOutcome(True, "passed")
    return _failure(said[1:], os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, limits)


def _failure(said: bytes, status: int, seconds: float, limits: CodeLimits) -> CodeOutcome:
    """Return the outcome of a program that wrote `said` and ended with `status` after `seconds` of processor time."""
    if said == _NO_MEMORY:
        return CodeOutcome(False, "out of memory")
    if said:
        # One line without control characters, since the text is shown on terminals and in XML.
        text = said.decode(errors="backslashreplace")
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return CodeOutcome(False, f"failed: {shown}")
    if status >= 0:
        return CodeOutcome(False, f"failed: exited with status {status} before its end")
    if status != -signal.SIGKILL:
        return CodeOutcome(False, f"failed: killed by {signal.Signals(-status).name}")
    # The first process of a tree cannot be killed from inside: it exceeded the processor limit, or the machine is out
    # of memory. The kernel counts processor time in two ways, so the limit may apply a little early.
    if seconds > limits.cpu_seconds / 2:
        return CodeOutcome(False, f"timed out after {limits.cpu_seconds} s of processor time")
    return CodeOutcome(False, "out of memory: killed by the kernel")


def _be_tried(
    program: str, limits: CodeLimits, confine: Callable[[], None], token_end: int, verdict_end: int
) -> NoReturn:
    """Run the program in this process, and end the process whatever the program did to the interpreter."""
    leave, write = os._exit, os.write
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _close_all_but(token_end, verdict_end)
        _set(limits)
        confine()
    except OSError as error:
        write(verdict_end, _REFUSED + str(error).encode())
    else:
        write(verdict_end, _CONFINED)
        write(verdict_end, _run(program, token_end))
    finally:
        leave(0)


def _close_all_but(*kept: int) -> None:
    """Close all files but these, connect standard streams to /dev/null, and start a new session for signals."""
    os.setsid()
    nowhere = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    first = 3
    for file in sorted(kept):
        os.closerange(first, file)
        first = file + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _set(limits: CodeLimits) -> None:
    """Set soft and hard limits alike: the first process of a tree ignores SIGXCPU, but SIGKILL ends it."""
    # Under an ordinary user the watcher and the launcher are tasks of the same user.
    watchers = 2 if os.getuid() == root_folder.NOBODY else 0
    for which, amount in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.threads + watchers),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        value = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(which, (value, value))


def _run(program: str, token_end: int) -> bytes:
    """Return the token if the program reaches its end, else the error that stopped it.

    Like the published HumanEval harness, it runs the text in an empty namespace: ``__name__`` is "builtins".
    """
    read = os.read
    try:
        code = compile(program, _PROGRAM, "exec", dont_inherit=True, optimize=0)
        exec(code, {})  # noqa: S102  (the purpose of the sandbox)
        return read(token_end, _TOKEN_BYTES)
    except MemoryError:
        return _NO_MEMORY
    except BaseException as error:
        return _describe(error)


def _describe(error: BaseException) -> bytes:
    """Return the type, message and line of an error in the program, e.g. ``AssertionError: sorted? (line 12)``."""
    try:
        name, message = type(error).__name__, str(error)
        # The line is missing if the program did not run yet.
        line, trace = None, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _PROGRAM:
                line = trace.tb_lineno
            trace = trace.tb_next
        text = f"{name}: {message}" if message else name
        place = "" if line is None else f" (line {line})"
        return (text[:_MESSAGE_CHARACTERS] + place).encode(errors="backslashreplace")
    except BaseException:
        return b"an exception that cannot be shown"
