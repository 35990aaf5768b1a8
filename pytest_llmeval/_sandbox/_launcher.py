"""The process that starts sandboxes: it moves into a room of its own, then runs one program after the other.

It is an interpreter of its own (`_workers` starts it), with one thread, no environment and no open files, so it
may fork. The protocol is JSON, one object a line. It first writes ``{}``, or ``{"error": ...}`` when there can be
no sandbox here; then it answers each ``{"program": ..., "limits": {...}}`` with ``{"passed": ..., "reason": ...}``
or an error. It ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from pytest_llmeval._sandbox import _kernel
from pytest_llmeval._sandbox import _room
from pytest_llmeval._sandbox import _syscalls
from pytest_llmeval._sandbox import _trial
from pytest_llmeval._sandbox._values import Limits


def main(libraries: list[str]) -> None:
    """Serve until the input ends. `libraries`: folders that programs may import from, besides the standard library."""
    try:
        seccomp = _syscalls.filter_program()
        _room.build(libraries)
    except OSError as error:
        _answer(error=str(error))
        return
    sys.argv[:] = [""]
    sys.path.extend(libraries)
    os.environ.clear()
    # Numerical libraries would start a thread per core, each with a stack that counts as memory.
    os.environ["OMP_NUM_THREADS"] = "1"
    _answer()
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            _serve(line, seccomp)


def _serve(line: bytes, seccomp: bytes) -> None:
    """Answer one request. A fork does it, as a process can enter a new process tree only once."""
    watcher = os.fork()
    if watcher == 0:
        status = 1
        try:
            _watch(line, seccomp)
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(watcher, 0)[1]
    if status != 0:
        _answer(error=f"the watching process ended with status {os.waitstatus_to_exitcode(status)}")


def _watch(line: bytes, seccomp: bytes) -> None:
    request = json.loads(line)
    limits = Limits(**request["limits"])
    try:
        _kernel.prctl(_kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "tie the watcher to the launcher")
        _room.enter(limits.file_bytes)
        outcome = _trial.judge(request["program"], limits, lambda: _give_up_rights(seccomp))
    except OSError as error:
        _answer(error=str(error))
    else:
        _answer(**asdict(outcome))


def _give_up_rights(seccomp: bytes) -> None:
    """Become nobody, without capabilities or a way to gain any, then without most system calls."""
    _kernel.renounce_capabilities()
    if os.getuid() != _room.NOBODY:
        os.setgroups([])
        os.setresgid(_room.NOBODY, _room.NOBODY, _room.NOBODY)
        os.setresuid(_room.NOBODY, _room.NOBODY, _room.NOBODY)
    _kernel.drop_capabilities()
    _kernel.prctl(_kernel.PR_SET_NO_NEW_PRIVS, 1, "set no_new_privs")
    _kernel.prctl(_kernel.PR_SET_DUMPABLE, 0, "forbid core dumps and tracing")
    # A change of user forgets it, so it comes after.
    _kernel.prctl(_kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "tie the program to its watcher")
    _kernel.install_filter(seccomp)


def _answer(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")
