"""The scripts that measure speed still run, and what they time gives the same answers on all sides."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


#: They take a minute of processor time each.
slow = pytest.mark.skipif("LLMEVAL_SLOW" not in os.environ, reason="slow: LLMEVAL_SLOW=1 runs it")


def output_of(root: Path, shared: Path, script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(root / "perf" / script), *arguments],
        env=os.environ | {"LLMEVAL_SHARED": str(shared)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def good(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.rootpath / "benchmarks" / "starter" / "models" / "good")


def test_scoring(pytestconfig: pytest.Config, shared: Path, good: str) -> None:
    options = ("--docs", "3", "--choices", "2", "--pairs", "1", "--batch", "1", "--profile")
    output = output_of(pytestconfig.rootpath, shared, "scoring.py", good, "csqa", *options)
    assert "csqa (" in output
    assert ": 6 requests\n" in output
    apart = dict(re.findall(r"^  (\w+) .*differs by (\S+)$", output, re.MULTILINE))
    assert apart.keys() == {"tree", "padded", "peer"}
    assert max(map(float, apart.values())) <= 1e-4
    assert re.search(r"^  .*aten::\w+ \d+%", output, re.MULTILINE)


@slow
def test_scoring_of_a_folder(pytestconfig: pytest.Config, shared: Path, good: str) -> None:
    options = ("--docs", "1", "--choices", "1", "--pairs", "1", "--without", "padded", "peer")
    output = output_of(pytestconfig.rootpath, shared, "scoring.py", good, "mmlu", *options)
    assert re.search(r"^mmlu \(\d+ distinct tokens\): 57 requests$", output, re.MULTILINE)


def test_generation(pytestconfig: pytest.Config, shared: Path, good: str) -> None:
    options = ("--docs", "2", "--pairs", "1", "--batch", "1")
    output = output_of(pytestconfig.rootpath, shared, "generation.py", good, *options)
    equal = dict(re.findall(r"^  (\w+(?: \d+)?) .* (\d+ of \d+) texts equal$", output, re.MULTILINE))
    assert equal == {"continuous": "2 of 2", "padded": "2 of 2", "peer 1": "2 of 2"}


def test_sharing(pytestconfig: pytest.Config, shared: Path, good: str) -> None:
    task = str(pytestconfig.rootpath / "benchmarks" / "commonsense_qa.yaml")
    output = output_of(pytestconfig.rootpath, shared, "sharing.py", str(shared / "mirror"), f"{good},{good}", task)
    assert re.findall(r"^(\w+: \d+ docs), rendered in \d", output, re.MULTILINE) == ["good: 1221 docs"] * 2


@slow
def test_overhead(pytestconfig: pytest.Config, shared: Path) -> None:
    output = output_of(pytestconfig.rootpath, shared, "overhead.py", "--docs", "100", "--pairs", "1")
    assert output.startswith("100 docs, medians of 1 pairs")
    assert "collect + run (s)" in output
