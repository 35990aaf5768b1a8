"""The process that starts sandboxes: it enters its own root folder, then runs one program after another.

It is a separate interpreter (`worker` starts it) with one thread, no environment and no open files, so it may fork.
The protocol is JSON, one object per line. The launcher first writes ``{}``, or ``{"error": ...}`` if a sandbox is not
possible; then it answers each ``{"program": ..., "limits": {...}}`` with ``{"passed": ..., "reason": ...}`` or an
error. It ends when its input ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from pytest_llmeval._sandbox import kernel
from pytest_llmeval._sandbox import root_folder
from pytest_llmeval._sandbox import syscalls
from pytest_llmeval._sandbox import trial
from pytest_llmeval._sandbox.limits import CodeLimits


def main(libraries: list[str]) -> None:
    """Answer requests until the input ends. `libraries`: folders, besides the standard library, to import from."""
    try:
        seccomp = syscalls.filter_program(os.uname().machine)
        root_folder.build(libraries)
    except OSError as error:
        _answer(error=str(error))
        return
    sys.argv[:] = [""]
    sys.path.extend(libraries)
    os.environ.clear()
    # Numerical libraries would start one thread per core, and the stack of each thread counts as memory.
    os.environ["OMP_NUM_THREADS"] = "1"
    _answer()
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            _serve(line, seccomp)


def _serve(line: bytes, seccomp: bytes) -> None:
    """Answer one request in a fork, since a process can enter a new process tree only once."""
    watcher = os.fork()
    if watcher == 0:
        try:
            _watch(line, seccomp)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(watcher, 0)[1]
    if status != 0:
        _answer(error=f"the watching process ended with status {os.waitstatus_to_exitcode(status)}")


def _watch(line: bytes, seccomp: bytes) -> None:
    request = json.loads(line)
    limits = CodeLimits(**request["limits"])
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "tie the watcher to the launcher")
        root_folder.enter(limits.file_bytes)
        outcome = trial.judge(request["program"], limits, lambda: _give_up_rights(seccomp))
    except OSError as error:
        _answer(error=str(error))
    else:
        _answer(**asdict(outcome))


def _give_up_rights(seccomp: bytes) -> None:
    """Become the user nobody, drop all capabilities for good, and forbid most system calls."""
    kernel.renounce_capabilities()
    if os.getuid() != root_folder.NOBODY:
        os.setgroups([])
        os.setresgid(root_folder.NOBODY, root_folder.NOBODY, root_folder.NOBODY)
        os.setresuid(root_folder.NOBODY, root_folder.NOBODY, root_folder.NOBODY)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "set no_new_privs")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "forbid core dumps and tracing")
    # A change of user resets this option, so it is set afterwards.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "tie the program to its watcher")
    kernel.install_filter(seccomp)


def _answer(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")
