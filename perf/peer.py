"""Time our pytest command and that of lm_eval on the same docs and model, in turn, in pairs.

    LLMEVAL_SHARED=../shared python perf/peer.py MODEL_FOLDER [ROW ...] [--pairs 3] [--batches 1 4 8]

Both are whole commands in fresh processes. Each reports its own time in model calls, tokenizing included; whole time is
from start to exit. lm_eval runs with the batch size of --batches that is fastest on the first docs of a row; ours
chooses its own. Both use all cores that torch takes: run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


ROOT = Path(__file__).parents[1]
#: Runs pytest with the arguments that follow, and prints the time in model calls.
OURS = """
import sys, time
import pytest

class Timing:
    spent = 0.0

    def pytest_collection_finish(self):
        from pytest_llmeval._models.huggingface import HuggingFaceLM
        for name in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
            setattr(HuggingFaceLM, name, self.timed(getattr(HuggingFaceLM, name)))

    def timed(self, ask):
        def run(lm, *args):
            lm.prepare()
            start = time.perf_counter()
            try:
                return ask(lm, *args)
            finally:
                self.spent += time.perf_counter() - start
        return run

timing = Timing()
code = pytest.main(sys.argv[1:], plugins=[timing])
print("MODEL", timing.spent)
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Work:
    """One row: our files, lm_eval's task names, shots, docs of each task (None: all), and docs to find its batch."""

    files: str
    tasks: str
    shots: int | None = None
    limit: int | None = None
    probe: int | None = None


ROWS = {
    "subjects": Work(
        "mmlu/anatomy.yaml mmlu/astronomy.yaml mmlu/jurisprudence.yaml",
        "mmlu_anatomy,mmlu_astronomy,mmlu_jurisprudence",
        shots=5,
        probe=8,
    ),
    "mmlu": Work("mmlu", "mmlu", shots=5, limit=10, probe=1),
    "arc": Work("arc/arc_challenge.yaml", "arc_challenge", limit=200, probe=40),
    "csqa": Work("commonsense_qa.yaml", "commonsense_qa", limit=300, probe=60),
    "csqa5": Work("commonsense_qa.yaml", "commonsense_qa", shots=5, limit=100, probe=20),
    "lambada": Work("lambada_openai.yaml", "lambada_openai", limit=200, probe=40),
    "gsm8k": Work("gsm8k/gsm8k.yaml", "gsm8k", shots=5, limit=16, probe=16),
    "author": Work("mmlu/anatomy.yaml", "mmlu_anatomy", shots=5, limit=5, probe=5),
}


class Times(NamedTuple):
    """Seconds in model calls, and from start to exit; peak memory of the process in MiB."""

    calls: float
    whole: float
    peak: float


def run(command: list[str]) -> Times:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    whole = time.perf_counter() - start
    found = re.search(r"\bMODEL ([\d.]+)", output)
    if found is None or status:
        sys.exit(f"{' '.join(command)}\n{output[-3000:]}")
    return Times(float(found[1]), whole, usage.ru_maxrss / 1024)


def ours(model: Path, shared: Path, work: Work, limit: int | None, extra: list[str]) -> Times:
    # The plugin of hypothesis, where it is installed, imports all of it at the end of a run: a second not to count.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    options += ["--llmeval-model", str(model), "--llmeval-data", str(shared / "mirror")]
    options += [] if work.shots is None else ["--llmeval-fewshot", str(work.shots)]
    options += [] if limit is None else ["--llmeval-limit", str(limit)]
    files = [str(ROOT / "benchmarks" / file) for file in work.files.split()]
    return run([sys.executable, "-c", OURS, *files, *options, *extra])


def peer(model: Path, shared: Path, work: Work, limit: int | None, batch: int) -> Times:
    options = [f"batch={batch}", *([] if work.shots is None else [f"fewshot={work.shots}"])]
    options += [] if limit is None else [f"limit={limit}"]
    with tempfile.TemporaryDirectory() as folder:
        script = [str(shared / "peer_run.py"), str(model), str(shared / "mirror"), f"{folder}/out.json", work.tasks]
        return run([sys.executable, *script, *options])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], help="batch sizes of lm_eval to try")
    parser.add_argument("--limit", type=int, help="docs of each task instead of the row's own number")
    parser.add_argument("--ours", default="", help="further options of our command, e.g. a dtype")
    args = parser.parse_args()
    model, shared = args.model.resolve(), Path(os.environ["LLMEVAL_SHARED"]).resolve()
    for name in args.rows:
        work = ROWS[name]
        limit = args.limit or work.limit
        tried = {b: peer(model, shared, work, work.probe, b).calls for b in args.batches} if args.batches[1:] else {}
        batch = min(tried, key=tried.__getitem__) if tried else args.batches[0]
        pairs = []
        for _ in range(args.pairs):
            pairs.append((ours(model, shared, work, limit, args.ours.split()), peer(model, shared, work, limit, batch)))
            print(json.dumps({"row": name, "ours": pairs[-1][0], "peer": pairs[-1][1]}), flush=True)
        mine, other = (Times(*map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
        ratio = Times(*(statistics.median(b[i] / a[i] for a, b in pairs) for i in range(3)))
        print(f"{name}: lm_eval at batch {batch} (probe: {', '.join(f'{b}: {s:.1f} s' for b, s in tried.items())})")
        print(f"  model calls {mine.calls:7.1f} s against {other.calls:7.1f} s: {ratio.calls:.2f}x")
        print(f"  whole       {mine.whole:7.1f} s against {other.whole:7.1f} s: {ratio.whole:.2f}x")
        print(f"  peak memory {mine.peak:7.0f} MiB against {other.peak:5.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
