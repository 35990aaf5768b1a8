"""The limits of a sandboxed program and its outcome: all that the test process and the launcher share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """CodeLimits on what one program may use. It is always a single process, which no limit changes.

    `cpu_seconds` (whole) is processor time, the limit that a busy program meets; `wall_seconds` is for one that
    waits, and is larger so that the verdict on a program does not depend on how loaded the machine is.
    `memory_bytes` is address space, the interpreter's own (about 40 MB) included. `file_bytes` holds for each
    file and for all files together. `threads` includes the main thread.
    """

    wall_seconds: float = 15.0
    cpu_seconds: int = 3
    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    threads: int = 64


#: Published HumanEval results allow 3 seconds; the other limits are ample for a correct solution.
LIMITS = CodeLimits()


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """The outcome of a program: `passed` if it ran to its end, and the `reason`.

    `reason` is "passed", or starts with "failed: ", "timed out" or "out of memory", e.g.
    ``failed: AssertionError (line 12)``.
    """

    passed: bool
    reason: str
