"""Measure the cost of pytest per doc: a task of N docs against a plain test parametrized N times.

    python perf/overhead.py [--docs 15000] [--pairs 5]

Both suites run in turn, each in its own process; the figures are medians. The model answers at once, so collection and
reporting remain. Opening the data, and rendering, model calls and scoring of the docs, are the task's own work: they
are measured inside the process and reported separately.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


#: The measurements of one suite, by name; a pair is that of the task and that of the plain test.
Measured = dict[str, float]
Pair = tuple[Measured, Measured]

#: Memory is compared with that of a suite smaller by this factor.
FEWER = 5

TASK = """\
task: plain_yes
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{q}}"
doc_to_choice: ["yes", "no"]
doc_to_target: label
metadata: {version: 1.0}
"""

CONFTEST = """\
import pytest

class Yes:
    def loglikelihood(self, requests):
        return [(-1.0 if continuation == " yes" else -2.0, False) for _, continuation in requests]

@pytest.fixture(scope="session")
def llmeval_model():
    return Yes()
"""

PLAIN = """\
import pytest

@pytest.mark.parametrize("doc", range({docs}))
def test_doc(doc):
    pass
"""

#: Measures inside the process: clocks at the start and end of collection and run, memory after each.
PROBE = """\
import gc, json, os, time, tracemalloc
import pytest

MARKS = {}
APART = {"open": 0.0, "score": 0.0}

def memory():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

def mark(name):
    MARKS[name] = (time.process_time(), memory())

def timed(owner, name, key):
    inner = getattr(owner, name)
    def outer(*args, **kwargs):
        start = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            APART[key] += time.process_time() - start
    setattr(owner, name, outer)

@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    if os.environ["SUITE"] == "task":
        # Imports are a fixed cost, not one per doc.
        import datasets
        import pytest_llmeval._session.hooks
        from pytest_llmeval._evaluation import Evaluation
        from pytest_llmeval._evaluation import ModelRun
        timed(Evaluation, "open", "open")
        timed(ModelRun, "score", "score")
    if os.environ["TRACE"]:
        tracemalloc.start()
    mark("start")

@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    mark("collected")

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session):
    result = yield
    mark("ran")
    return result

def pytest_unconfigure(config):
    with open(os.environ["PROBE_OUT"], "w") as out:
        json.dump({"marks": MARKS, "apart": APART}, out)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=int, default=15_000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pairs = run_pairs(root / "time", options.docs, options.pairs)
        (many,) = run_pairs(root / "many", options.docs, 1, trace=True)
        (few,) = run_pairs(root / "few", options.docs // FEWER, 1, trace=True)
    report(options.docs, pairs, many, few)


def run_pairs(root: Path, docs: int, pairs: int, *, trace: bool = False) -> list[Pair]:
    """Time pairs of runs, and trace memory in separate runs, since tracing takes time."""
    write_suites(root, docs)
    return [(run(root, "task", trace), run(root, "plain", trace)) for _ in range(pairs)]


def write_suites(root: Path, docs: int) -> None:
    for suite in ("task", "plain"):
        (root / suite).mkdir(parents=True)
        (root / suite / "probe.py").write_text(PROBE)
    with (root / "task" / "docs.jsonl").open("w") as out:
        for i in range(docs):
            out.write(json.dumps({"q": f"Is {i} a number?", "label": 0}) + "\n")
    (root / "task" / "plain_yes.yaml").write_text(TASK)
    (root / "task" / "conftest.py").write_text(CONFTEST)
    (root / "plain" / "test_plain.py").write_text(PLAIN.format(docs=docs))


def run(root: Path, suite: str, trace: bool) -> Measured:
    """Run one suite in its own process; return seconds of CPU time and bytes, without the task's own work."""
    out = root / f"{suite}.json"
    environment = {
        **os.environ,
        "SUITE": suite,
        "TRACE": "yes" * trace,
        "PROBE_OUT": str(out),
        "HF_DATASETS_CACHE": str(root / "cache"),
    }
    target = "plain_yes.yaml" if suite == "task" else "test_plain.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "probe", "-p", "no:cacheprovider", target]
    done = subprocess.run(command, cwd=root / suite, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{suite}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    measured = json.loads(out.read_text())
    marks, apart = measured["marks"], measured["apart"]
    collect = marks["collected"][0] - marks["start"][0] - apart["open"]
    return {
        "collect": collect,
        "run": marks["ran"][0] - marks["collected"][0] - apart["score"],
        "bytes collected": marks["collected"][1] - marks["start"][1],
        "bytes at the end": marks["ran"][1] - marks["start"][1],
        "open": apart["open"],
        "score": apart["score"],
    }


def report(docs: int, pairs: list[Pair], many: Pair, few: Pair) -> None:
    print(f"{docs} docs, medians of {len(pairs)} pairs, CPU time; Python {sys.version.split()[0]}")
    print(f"{'':24} {'task':>12} {'plain test':>12} {'ratio':>7}")
    for key in ("collect", "run"):
        row(f"{key} (us/item)", pairs, lambda side, key=key: side[key], 1e6 / docs)
    row("collect + run (s)", pairs, lambda side: side["collect"] + side["run"], 1.0, digits=2)
    fewer = docs // FEWER
    for key in ("bytes collected", "bytes at the end"):
        # The cost of one more doc: imports and other fixed costs cancel out.
        task, plain = ({key: a[key] - b[key]} for a, b in zip(many, few, strict=True))
        row(f"{key} (per item)", [(task, plain)], lambda side, key=key: side[key], 1 / (docs - fewer))
    for key in ("open", "score"):
        value = statistics.median(task[key] for task, _ in pairs)
        print(f"{'the task itself: ' + key:24} {value / docs * 1e6:12.1f} us/item")


def row(name: str, pairs: list, value, scale: float, digits: int = 1) -> None:
    task = statistics.median(value(side) for side, _ in pairs) * scale
    plain = statistics.median(value(side) for _, side in pairs) * scale
    ratio = statistics.median(value(a) / value(b) for a, b in pairs)
    print(f"{name:24} {task:12.{digits}f} {plain:12.{digits}f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
