"""Compare a model behind a server with the same model in this process, on the first docs of some benchmarks.

    LLMEVAL_SHARED=../shared python perf/served.py openai:URL#NAME MODEL_FOLDER [ROW ...] [--docs N] [--args K=V,...]
                                                   [--local-args K=V,...]

Each row prints the largest difference of a log-likelihood, the docs whose likeliest choice differs, and for written
texts the docs whose text differs; then the seconds and tokens of both sides. `perf/servers.sh` starts servers.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_llmeval._doc import Instance
from pytest_llmeval._docs import DataSource
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._lm import LM
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._settings import parse_pairs
from pytest_llmeval._task import Task


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
#: Task file and shots of each row.
ROWS = {
    "piqa": ("piqa.yaml", 0),
    "arc": ("arc/arc_challenge.yaml", 0),
    "lambada": ("lambada_openai.yaml", 0),
    "mmlu": ("mmlu/anatomy.yaml", 5),
    "gsm8k": ("gsm8k/gsm8k.yaml", 5),
}


def docs_of(row: str, docs: int) -> list[tuple[Instance, ...]]:
    """Return the instances of each of the first docs."""
    path, shots = ROWS[row]
    settings = Settings(data_dir=Path(os.environ["LLMEVAL_SHARED"], "mirror"), limit=docs, num_fewshot=shots)
    task = Registry().load(BENCHMARKS / path)
    if not isinstance(task, Task):
        raise TypeError(f"{path} is a group: name a task")
    opened = OpenTask(task, settings, DataSource())
    return [opened.instances(opened.render(index), None) for index in opened.asked]


def answers_of(lm: LM, docs: Sequence[Sequence[Instance]]) -> tuple[list[list[Any]], float, int]:
    """Return the answers of each doc, the seconds that they took, and the tokens read."""
    flat = [instance.arguments for doc in docs for instance in doc]
    counts: Any = getattr(lm, "usage", dict)
    start, before = time.perf_counter(), counts().get("tokens", 0)
    method: Any = getattr(lm, docs[0][0].kind)
    answers = iter(method(flat))
    found = [[next(answers) for _ in doc] for doc in docs]
    return found, time.perf_counter() - start, counts().get("tokens", 0) - before


def compared(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> str:
    """Return the line of differences between the answers of two models."""
    if isinstance(ours[0][0], str):
        same = sum(list(one) == list(other) for one, other in zip(ours, theirs, strict=True))
        return f"{len(ours) - same} of {len(ours)} texts differ"
    apart = max(
        abs(a[0] - b[0]) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True)
    )
    picks = [[max(range(len(doc)), key=lambda i: doc[i][0]) for doc in side] for side in (ours, theirs)]
    moved = sum(one != other for one, other in zip(*picks, strict=True))
    greedy = sum(a[1] != b[1] for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True))
    return f"largest difference {apart:.2g}, {moved} of {len(ours)} picks and {greedy} greedy flags differ"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("served")
    parser.add_argument("local")
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--docs", type=int, default=100)
    parser.add_argument("--args", default="")
    parser.add_argument("--local-args", default="")
    given = parser.parse_args()
    sides = [
        load_model(parse_spec(spec, parse_pairs(args, "--args") if args else {}))
        for spec, args in ((given.served, given.args), (given.local, given.local_args))
    ]
    served: Any = sides[0]
    served.prepare()
    print(f"{served.engine_choice.facts}\n{served.engine_choice.slower}")
    for row in given.rows:
        docs = docs_of(row, given.docs)
        (ours, seconds, tokens), (theirs, local_seconds, local_tokens) = (answers_of(lm, docs) for lm in sides)
        print(
            f"{row:8} {compared(ours, theirs)}; {seconds:.0f} s, {tokens:,} tokens; "
            f"in this process {local_seconds:.0f} s, {local_tokens:,} tokens",
            flush=True,
        )
    served.close()


if __name__ == "__main__":
    main()
