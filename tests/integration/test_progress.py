"""The progress text: behind the row of dots on a terminal, taken back afterwards, and nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


pytest_plugins = ["pytester"]

SAVE, RESTORE = "\x1b7", "\x1b8"

REPORTING = """
import pytest

class Reporting:
    on_progress = None
    tokens = 1000

    def usage(self):
        return {"tokens": self.tokens, "peak_memory": 2**29}

    def loglikelihood(self, requests):
        self.tokens += 1234
        if self.on_progress:
            self.on_progress(len(requests) // 2, len(requests))
        return [(-1.0, False) for _ in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Reporting()
"""


def run_on_a_terminal(folder: Path, *args: str) -> str:
    """What a run writes to a terminal of 80 columns."""
    pty = pytest.importorskip("pty")
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    with subprocess.Popen(
        command, cwd=folder, stdout=terminal, stderr=terminal, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    ) as process:
        os.close(terminal)
        written = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # the last one on the other side has left
                break
            if not piece:
                break
            written += piece
    os.close(controller)
    assert process.returncode == 0, written.decode()
    return written.decode()


def progress_texts(written: str) -> list[str]:
    return re.findall(f"{SAVE}(.*?)\x1b\\[K{RESTORE}", written)


def test_progress_is_written_behind_the_dots_and_taken_back(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makeconftest(REPORTING)
    written = run_on_a_terminal(pytester.path, "tasks/even.yaml", "-k", "doc")
    texts = progress_texts(written)
    assert texts[0] == " even 5/10, 1,234 tokens"
    # The last thing written there is nothing: the row of dots stands alone.
    assert texts[-1] == ""
    row = re.sub(f"{SAVE}.*?{RESTORE}|\x1b\\[[0-9;]*m", "", written)
    assert re.search(r"tasks/even\.yaml \.w\.w\.w\.w\.w +\[100%\]", row)


@pytest.mark.parametrize("option", ["-q", "--color=yes"])
def test_no_terminal_no_progress(pytester: pytest.Pytester, suite: Path, option: str) -> None:
    pytester.makeconftest(REPORTING)
    if option == "-q":
        written = run_on_a_terminal(pytester.path, "tasks/even.yaml", "-k", "doc", option)
    else:
        written = pytester.runpytest("tasks/even.yaml", "-k", "doc", option).stdout.str()
    assert SAVE not in written


def test_what_it_took_is_told_on_request(pytester: pytest.Pytester, suite: Path) -> None:
    pytester.makeconftest(REPORTING)
    result = pytester.runpytest("tasks/even.yaml", "-k", "doc", "-v")
    result.stdout.fnmatch_lines(["Reporting: 2,234 tokens read, peak memory 0.50 GiB"])
    assert "tokens read" not in pytester.runpytest("tasks/even.yaml", "-k", "doc").stdout.str()
