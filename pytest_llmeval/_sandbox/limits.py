"""The limits of a sandboxed program and its outcome, which the test process and the launcher share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """The limits of one program, which is always a single process.

    `cpu_seconds` (whole) limits the processor time of a busy program; `wall_seconds` limits a program that waits, and
    is larger so that the outcome does not depend on the load of the machine. `memory_bytes` limits the address space,
    including that of the interpreter (about 40 MB). `file_bytes` limits each file, and all files together. `threads`
    includes the main thread.
    """

    wall_seconds: float = 15.0
    cpu_seconds: int = 3
    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    threads: int = 64


#: Published HumanEval results use 3 seconds; the other limits are far above the needs of a correct solution.
LIMITS = CodeLimits()


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """The outcome of a program: `passed` if it ran to its end, and the `reason`.

    `reason` is "passed", or starts with "failed: ", "timed out" or "out of memory", e.g.
    ``failed: AssertionError (line 12)``.
    """

    passed: bool
    reason: str
