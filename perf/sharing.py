"""Measure what later checkpoints of a session save: seconds of rendering and encoding, model after model.

    python perf/sharing.py MIRROR FOLDER,FOLDER[,...] TASK.yaml [...]

MIRROR holds the data sets, each FOLDER a tokenizer. No weights are read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._models import TextEncoder
from pytest_llmeval._models import TokenCache
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


#: The context length of the model in tokens, and the docs of a wave.
MAX_LENGTH, WAVE = 8192, 100


def measure(evaluation: Evaluation, tasks: Sequence[OpenTask], encoder: TextEncoder) -> tuple[int, float, float]:
    """Return the number of docs, the seconds of rendering, and the seconds of encoding."""
    docs, rendering, encoding = 0, 0.0, 0.0
    for task in tasks:
        for start in range(0, len(task.asked), WAVE):
            begun = time.perf_counter()
            wave = [task.prepare(index, None, evaluation._rendered) for index in task.asked[start : start + WAVE]]
            rendered = time.perf_counter()
            encoder.pairs([instance.arguments for _, instances in wave for instance in instances])  # type: ignore[misc]
            docs, rendering = docs + len(wave), rendering + rendered - begun
            encoding += time.perf_counter() - rendered
    return docs, rendering, encoding


def main() -> None:
    parser = argparse.ArgumentParser(description="Rendering and encoding, model after model.")
    parser.add_argument("mirror", type=Path)
    parser.add_argument("folders")
    parser.add_argument("tasks", type=Path, nargs="+")
    arguments = parser.parse_args()
    from transformers import AutoTokenizer

    evaluation, cache = Evaluation(Settings(data_dir=arguments.mirror), Registry()), TokenCache()
    evaluation.expect_models(2)
    found = [evaluation.registry.load(path.resolve()) for path in arguments.tasks]
    tasks = [evaluation.open(task) for task in found if isinstance(task, Task)]
    for folder in arguments.folders.split(","):
        encoder = TextEncoder(AutoTokenizer.from_pretrained(folder), MAX_LENGTH, cache=cache)
        docs, rendering, encoding = measure(evaluation, tasks, encoder)
        print(
            f"{Path(folder).name}: {docs} docs, rendered in {rendering:.2f} s, encoded in {encoding:.2f} s", flush=True
        )


if __name__ == "__main__":
    main()
