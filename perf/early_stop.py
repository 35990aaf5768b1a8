"""Measure the time to a verdict: a gate with early stopping against a full run of lm_eval, whole commands, in rounds.

    LLMEVAL_SHARED=../shared python perf/early_stop.py MODEL_FOLDER [ROW ...] [--rounds 3] [--batches 1 4 8]

Each row is one task and three floors on its accuracy: one that it clearly passes, one that it clearly fails, and its
accuracy itself, which no part of the docs decides. The gate is timed as the command that a CI job would run. lm_eval
has no gates, so its verdict is known when its run of all docs ends: one such run per round is compared with all floors.
It runs with the batch size of --batches that is fastest on the first docs. `--peer-limit N` times it on the first N
docs only and extrapolates to all docs: for a first look, not for the table. Run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """A task file, the name of the task in lm_eval, its number of docs, and accuracies for the three floors."""

    file: str
    task: str
    docs: int
    clear_pass: float
    clear_fail: float
    border: float

    def floors(self) -> dict[str, float]:
        return {"clear pass": self.clear_pass, "clear fail": self.clear_fail, "borderline": self.border}


#: SmolLM2-135M-Instruct has about .68 on PIQA and .49 on ARC easy.
ROWS = {
    "piqa": Row("piqa.yaml", "piqa", 1838, clear_pass=0.58, clear_fail=0.78, border=0.68),
    "arc_easy": Row("arc/arc_easy.yaml", "arc_easy", 2376, clear_pass=0.39, clear_fail=0.59, border=0.49),
}


#: Number of docs for the choice of lm_eval's batch size.
PROBE = 150


@dataclass(frozen=True, slots=True)
class Ended:
    """One command: seconds from start to exit, docs that were run, and the part of the verdict on when it was known."""

    seconds: float
    docs: int
    said: str = ""


def ours(model: Path, shared: Path, row: Row, floor: float) -> Ended:
    gate = f"{row.task}.acc >= {floor} @ 0.95"
    command = [sys.executable, "-m", "pytest", str(ROOT / "benchmarks" / row.file), "-m", "llmeval_gate", "-v"]
    command += ["-p", "no:cacheprovider", "--llmeval-early-stop", "-ollmeval_stop_seed=0", "--llmeval-fail-on", gate]
    command += ["--llmeval-model", str(model), "--llmeval-data", str(shared / "mirror")]
    seconds, output, code = timed(command)
    verdict = re.search(r"gate (passed|failed|inconclusive): .*", output)
    if code > 1 or verdict is None:
        sys.exit(f"{' '.join(command)}\n{output[-3000:]}")
    run = re.search(r" on ([\d,]+) of [\d,]+ docs, required", verdict[0])
    proof = re.search(r"(proven|certain) after [^;]*", verdict[0])
    docs = int(run[1].replace(",", "")) if run else row.docs
    return Ended(seconds, docs, f"{verdict[1]}, {proof[0] if proof else 'all docs needed'}")


def peer(model: Path, shared: Path, row: Row, limit: int | None, batch: int) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(shared / "peer_run.py"), str(model), str(shared / "mirror")]
        command += [f"{folder}/out.json", row.task, f"batch={batch}", *([f"limit={limit}"] if limit else [])]
        seconds, output, code = timed(command)
    wall = re.search(r"\bMODEL ([\d.]+)", output)
    if code or wall is None:
        sys.exit(f"{' '.join(command)}\n{output[-3000:]}")
    if limit is None:
        return Ended(seconds, row.docs)
    # Only model calls grow with the docs.
    whole = seconds + float(wall[1]) * (row.docs / limit - 1)
    return Ended(whole, limit, f"whole run estimated from {limit} docs, which took {seconds:.1f} s")


def timed(command: list[str]) -> tuple[float, str, int]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return time.perf_counter() - start, done.stdout + done.stderr, done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-limit", type=int)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], help="batch sizes of lm_eval to try")
    parser.add_argument("--cases", nargs="*", default=["clear pass", "clear fail", "borderline"])
    given = parser.parse_args()
    shared = Path(os.environ["LLMEVAL_SHARED"])
    for name in given.rows:
        row = ROWS[name]
        floors = {case: floor for case, floor in row.floors().items() if case in given.cases}
        tried = {size: peer(given.model, shared, row, PROBE, size).seconds for size in given.batches}
        batch = min(tried, key=tried.__getitem__)
        print(f"{name}: lm_eval's whole run, estimated by batch size: {tried}", flush=True)
        rounds = []
        for _ in range(given.rounds):
            mine = {case: ours(given.model, shared, row, floor) for case, floor in floors.items()}
            theirs = peer(given.model, shared, row, given.peer_limit, batch)
            rounds.append((mine, theirs))
            for case, one in mine.items():
                print(f"  {name} {case}: {one.seconds:.1f} s ({one.said})")
            print(f"  {name} lm_eval: {theirs.seconds:.1f} s {theirs.said}", flush=True)
        for case, floor in floors.items():
            pairs = [(mine[case], theirs) for mine, theirs in rounds]
            ratios = [theirs.seconds / mine.seconds for mine, theirs in pairs]
            mine, _ = pairs[0]
            print(
                f"{name} {case} (acc >= {floor}): {mine.docs:,} of {row.docs:,} docs run; {mine.said}; "
                f"{statistics.median(one.seconds for one, _ in pairs):.1f} s against "
                f"{statistics.median(one.seconds for _, one in pairs):.1f} s, "
                f"{statistics.median(ratios):.1f} times sooner (each round: {', '.join(f'{r:.1f}' for r in ratios)})",
                flush=True,
            )


if __name__ == "__main__":
    main()
