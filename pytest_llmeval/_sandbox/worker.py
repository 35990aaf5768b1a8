"""The control of a launcher by the test process: start it, send programs, end it.

The test process itself never forks: its threads and device contexts would not survive that.
"""

from __future__ import annotations

import json
import os
import platform
import select
import site
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO
from typing import Any

from pytest_llmeval._errors import SandboxError
from pytest_llmeval._sandbox import syscalls
from pytest_llmeval._sandbox.limits import LIMITS
from pytest_llmeval._sandbox.limits import CodeLimits
from pytest_llmeval._sandbox.limits import CodeOutcome


_REFUSAL = (
    "generated code cannot be run safely here, so it is not run: {reason}. The sandbox needs Linux 5.12 or newer on "
    "x86_64 or aarch64 that lets this user create namespaces: run as root, or allow user namespaces (sysctl "
    "user.max_user_namespaces above 0; on Ubuntu also kernel.apparmor_restrict_unprivileged_userns=0); in a container, "
    "start it with permission to create them (docker run --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined)"
)

# Empty modules replace the two parent packages, so that the launcher loads only its own modules.
_BOOT = """
import sys, types
for name, path in (("pytest_llmeval", sys.argv[1]), ("pytest_llmeval._sandbox", sys.argv[1] + "/_sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from pytest_llmeval._sandbox.launcher import main
main(sys.argv[2:])
"""

# One seed for hashes: sets have one order, so a verdict does not depend on the worker. One malloc arena: otherwise
# every thread reserves 64 MB of the address space that is the memory limit. Programs do not see either.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"}
# The variables that are kept: an interpreter outside the standard locations needs them to start.
_KEPT = ("LD_LIBRARY_PATH",)

# The longest wait for a launcher, which only a bug or a failing machine exceeds.
_PATIENCE_SECONDS = 60.0


class Worker:
    """One launcher, which runs one program at a time. A context manager: leaving it ends the launcher.

    Raises SandboxError: on creation if a sandbox is not possible, later if a program could not be confined. After an
    exception it runs no other program.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise refusal(f"this is {platform.system()}, which has no namespaces")
        if not syscalls.supported(platform.machine()):
            raise refusal(f"there is no system call filter for {platform.machine()}")
        environment = _ENVIRONMENT | {key: os.environ[key] for key in _KEPT if key in os.environ}
        self._answers = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter, our own launcher)
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise refusal(f"its launcher cannot be started: {error}") from None
        try:
            self._answer(_PATIENCE_SECONDS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, program: str, limits: CodeLimits = LIMITS) -> CodeOutcome:
        """Run one program until it ends or meets a limit."""
        try:
            self._ask({"program": program, "limits": asdict(limits)})
            answer = self._answer(limits.wall_seconds + _PATIENCE_SECONDS)
        except BaseException:
            # A late answer would be mistaken for that of the next program.
            self._process.kill()
            raise
        return CodeOutcome(answer["passed"], answer["reason"])

    def close(self) -> None:
        """End the launcher and the program that it is running."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            _stream(stream).close()

    def _ask(self, question: Mapping[str, Any]) -> None:
        line = memoryview(json.dumps(question).encode() + b"\n")
        try:
            while line:
                line = line[os.write(_stream(self._process.stdin).fileno(), line) :]
        except BrokenPipeError:
            raise self._death() from None

    def _answer(self, seconds: float) -> dict[str, Any]:
        """Return the launcher's next answer. Raises SandboxError if there is none within `seconds`."""
        answers = _stream(self._process.stdout).fileno()
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(answers, select.POLLIN)
        while b"\n" not in self._answers:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise refusal(f"its launcher did not answer for {seconds:g} s")
            text = os.read(answers, 65536)
            if not text:
                raise self._death()
            self._answers += text
        line, _, self._answers = self._answers.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise refusal(answer["error"])
        return answer

    def _death(self) -> SandboxError:
        status = self._process.wait()
        last = _stream(self._process.stderr).read().decode(errors="replace").strip().rpartition("\n")[2]
        return refusal(f"its launcher ended with status {status}" + (f" ({last})" if last else ""))


def refusal(reason: str) -> SandboxError:
    """Return the error with the reason why there is no sandbox, and the remedy."""
    return SandboxError(_REFUSAL.format(reason=reason))


def _command() -> list[str]:
    """Return the launcher's command.

    Without site (-S), user site (-s) and current folder (-P) it imports only from trusted folders.
    """
    package = str(Path(__file__).resolve().parents[1])
    # Programs can import the packages of the tests, such as numpy, from these folders, which are read-only.
    return [sys.executable, "-s", "-P", "-S", "-c", _BOOT, package, *site.getsitepackages()]


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101  (all three are pipes)
    return stream
