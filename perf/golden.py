"""All recorded results of lm-evaluation-harness against ours: prompts, log-likelihoods, picks, aggregates.

    python perf/golden.py MODEL SHARED [SET ...]

MODEL is SmolLM2-135M-Instruct as a folder or GGUF file, SHARED the folder with mirror/ and golden/.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path


ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "parity"))

import goldenrows  # noqa: E402

from pytest_llmeval._models import load_model  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shared", type=Path)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(goldenrows.SETS)} (default: all)")
    options = parser.parse_args()
    lm = load_model(options.model, {"dtype": "float32", "device": "cpu"})
    failed = 0
    for name in options.sets or goldenrows.SETS:
        started = time.perf_counter()
        found = goldenrows.compare_set(name, lm, options.shared.resolve(), ROOT / "benchmarks")
        print(f"{name}: {found.line()} ({time.perf_counter() - started:.0f} s)", flush=True)
        apart = goldenrows.apart(found.far, lm)
        differences = [*found.prompts, *found.picks, *found.texts, *found.metrics, *found.aggregates, *apart]
        for difference in differences[:20]:
            print(f"    {difference}")
        failed += bool(differences) or found.largest > 1e-4
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
