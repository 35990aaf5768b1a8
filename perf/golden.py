"""Compare all recorded results of lm-evaluation-harness with ours: prompts, log-likelihoods, choices, aggregates.

Log-likelihoods are also compared with those that lm_eval gives on this machine.

    python perf/golden.py MODEL SHARED [SET ...]

MODEL is SmolLM2-135M-Instruct as a folder or GGUF file, SHARED the folder with mirror/ and golden/.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path


ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "parity"))

import goldenrows  # noqa: E402

from pytest_llmeval._models import load_model  # noqa: E402
from pytest_llmeval._models import parse_spec  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("shared", type=Path)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(goldenrows.SETS)} (default: all)")
    options = parser.parse_args()
    os.environ.update(goldenrows.RECORDED_PRODUCTS)
    lm = load_model(parse_spec(options.model, {"dtype": "float32", "device": "cpu"}))
    failed = 0
    for name in options.sets or goldenrows.SETS:
        started = time.perf_counter()
        found = goldenrows.compare_set(name, lm, options.shared.resolve(), ROOT / "benchmarks")
        print(f"{name}: {found.line()} ({time.perf_counter() - started:.0f} s)", flush=True)
        here = goldenrows.ask_lm_eval(found.scored, lm)
        if here:
            print(f"    of lm_eval here: {_largest(found.scored, here)}")
        beyond = goldenrows.beyond(found.scored, here)
        differences = [*found.prompts, *found.picks, *found.texts, *found.metrics, *found.aggregates, *beyond]
        for difference in differences[:20]:
            print(f"    {difference}")
        failed += bool(differences)
    return 1 if failed else 0


def _largest(scored: Sequence[goldenrows.Scored], here: Sequence[float]) -> str:
    """Return the largest differences on this machine: lm_eval to its own recording, and ours to lm_eval."""
    drift = max(abs(value - one.recorded) for one, value in zip(scored, here, strict=True))
    apart = max(abs(value - one.ours) for one, value in zip(scored, here, strict=True))
    return f"{drift:.2e} from its own recording, {apart:.2e} from ours"


if __name__ == "__main__":
    sys.exit(main())
