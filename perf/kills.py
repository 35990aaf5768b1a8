"""Kill runs at random times and run them again: do the results differ from those of a run that nobody killed?

    python perf/kills.py [--kills 18] [--seed 0] [--only loglikelihood,generation,early-stop]

Each kind of run is killed (`SIGKILL`, with its workers) that many times. Runs of one kind share a journal, which is
emptied whenever a run comes to its end; that run's results and samples must be those of the first run, which had no
journal. Dates and usage are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


ROOT = Path(__file__).parents[1]
#: A model that takes its time, and whose answers are functions of the prompts.
CONFTEST = """
import hashlib, time
import pytest

class Slow:
    fingerprint = "slow"

    def loglikelihood(self, requests):
        time.sleep(0.004 * len(requests))
        return [(-int(hashlib.md5(repr(pair).encode()).hexdigest()[:6], 16) / 1e6, False) for pair in requests]

    loglikelihood_rolling = generate_until = None

@pytest.fixture(scope="session")
def llmeval_model():
    return Slow()
"""
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: docs.jsonl}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{name} {{{{q}}}}"
doc_to_choice: ["yes", "no"]
doc_to_target: label
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
metadata: {{version: 1.0, gates: ["acc >= 0.3 @ 0.95"]}}
"""
DOCS = 300


def write_suite(folder: Path) -> None:
    rows = [json.dumps({"q": f"question {i}?", "label": i % 2}) for i in range(DOCS)]
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "docs.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name in ("one", "two"):
        (folder / "tasks" / f"{name}.yaml").write_text(TASK.format(name=name))


def commands(folder: Path) -> dict[str, tuple[Path, list[str]]]:
    """Return the folder and the arguments of each kind of run."""
    starter = ROOT / "benchmarks" / "starter"
    model = f"--llmeval-model={starter / 'models' / 'good'}"
    return {
        "loglikelihood": (folder, ["tasks"]),
        "generation": (ROOT, [str(starter / "sums.yaml"), model]),
        "early-stop": (folder, ["tasks", "-n2", "--llmeval-early-stop", "-o", "llmeval_stop_seed=1"]),
    }


def run(folder: Path, arguments: Sequence[str], output: Path, seconds: float | None) -> float | None:
    """Return the seconds that a run took; None if it was killed after `seconds`."""
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--llmeval-output={output}", *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
    return time.monotonic() - started


def results(output: Path) -> tuple[Any, dict[str, str]]:
    """Return the results of a run without dates and usage, and its samples."""
    (path,) = output.glob("*/results_*.json")
    found = json.loads(path.read_text("utf-8"))
    stamp = path.stem.removeprefix("results_")
    del found["date"], found["total_evaluation_time_seconds"], found["pytest_llmeval"]["usage"]
    samples = {p.name.replace(stamp, ""): p.read_text("utf-8") for p in sorted(output.glob("*/samples_*"))}
    return found, samples


def kill_runs(kind: str, folder: Path, arguments: Sequence[str], work: Path, kills: int, draw: random.Random) -> int:
    """Return the number of runs whose results differ; print what was done."""
    journal, output = work / f"{kind}-journal", work / f"{kind}-output"
    whole = run(folder, [*arguments, "--llmeval-no-cache"], output, None) or 0.0
    expected = results(output)
    killed, ended, recalled, different = 0, 0, 0, 0
    while True:
        # Once all kills are done, the last run may end.
        seconds = draw.uniform(0.2, 1.1) * whole if killed < kills else None
        if run(folder, [*arguments, f"--llmeval-cache={journal}"], output, seconds) is None:
            killed += 1
            continue
        ended += 1
        different += results(output) != expected
        (path,) = output.glob("*/results_*.json")
        recalled += json.loads(path.read_text("utf-8"))["pytest_llmeval"]["usage"]["from_journal"]
        shutil.rmtree(journal, ignore_errors=True)
        if killed >= kills:
            break
    print(
        f"{kind}: {killed} runs killed, {ended} came to their end with {recalled:,} answers from the journal; "
        f"{different} of them differ",
        flush=True,
    )
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill runs at random times and compare what later ones find.")
    parser.add_argument("--kills", type=int, default=18)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="loglikelihood,generation,early-stop")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_suite(work / "suite")
        draw, found = random.Random(arguments.seed), commands(work / "suite")
        kinds = arguments.only.split(",")
        return sum(kill_runs(kind, *found[kind], work, arguments.kills, draw) for kind in kinds)


if __name__ == "__main__":
    sys.exit(main() > 0)
