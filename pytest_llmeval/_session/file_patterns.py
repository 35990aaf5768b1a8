"""The patterns of task files (`llmeval_files`), and the message for a run whose YAML files match none of them.

Files elsewhere may belong to other tools, so they are never opened: only their names are known here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest


#: The YAML files that were passed by.
PASSED_BY = pytest.StashKey[list[Path]]()


def wants(config: pytest.Config, path: Path) -> bool:
    """Return True if a file may be a task file: it lies below a named folder, or matches `llmeval_files`."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return True
    return any(_matches(path, config.rootpath, pattern) for pattern in config.getini("llmeval_files"))


def pass_by(config: pytest.Config, path: Path) -> None:
    """Remember a file that lies elsewhere."""
    config.stash.setdefault(PASSED_BY, []).append(path)


def hint(reporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Say, where a run collected nothing at all, that there were files that it did not take for task files."""
    config = reporter.config
    paths = config.stash.get(PASSED_BY, [])
    if exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED or not paths or "deselected" in reporter.stats:
        return
    first = min(os.path.relpath(path, config.invocation_params.dir) for path in paths)
    patterns = " ".join(config.getini("llmeval_files"))
    files = f"the YAML file {first} was" if len(paths) == 1 else f"{len(paths):,} YAML files ({first}, ...) were"
    reporter.write_line(
        f"llmeval: {files} not taken for task files: without a path only those are that ini llmeval_files matches "
        f"({patterns}, below {config.rootpath}); name a file or folder on the command line, or set llmeval_files"
    )


def _matches(path: Path, root: Path, pattern: str) -> bool:
    if not path.is_relative_to(root):
        return False
    return re.fullmatch(_glob_to_regex(pattern), path.relative_to(root).as_posix()) is not None


def _glob_to_regex(pattern: str) -> str:
    """Return the regex of a glob; only ``**`` matches across folders."""
    table = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return "".join(table.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))
