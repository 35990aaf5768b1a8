"""Time scoring in pairs: the tree engine, the padded engine and lm_eval's hf backend on the same texts, in one process.

    LLMEVAL_SHARED=../shared python perf/scoring.py MODEL_FOLDER [ROW ...] [--docs N] [--choices N] [--pairs N]
                                                    [--profile]

The time is that of model calls, with tokenizing and without loading; on a machine that does other work too, use the
processor time of one thread (OMP_NUM_THREADS=1). lm_eval's best batch size differs by row: try 1, 4 and 8.
The limit is the time that the distinct tokens need at the rate of a matrix product of 1024^3 just before and just
after: 2 x the parameters of the layers x tokens / the better of both rates. `--profile` prints the operators that take
the time of the tree.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from typing import NamedTuple

import torch

from pytest_llmeval._docs import DataSource
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models.huggingface import HuggingFaceLM
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import looks_like_task


Pair = tuple[str, str]
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work: a task file or a folder of them, shots, and the default number of docs of each."""

    path: str
    shots: int
    docs: int


ROWS = {
    "mmlu": Row("mmlu", 5, 10),
    "anatomy": Row("mmlu/anatomy.yaml", 5, 135),
    "astronomy": Row("mmlu/astronomy.yaml", 5, 152),
    "jurisprudence": Row("mmlu/jurisprudence.yaml", 5, 108),
    "arc": Row("arc/arc_challenge.yaml", 0, 200),
    "csqa": Row("commonsense_qa.yaml", 0, 300),
    "csqa5": Row("commonsense_qa.yaml", 5, 100),
    "lambada": Row("lambada_openai.yaml", 0, 200),
}


def texts_of(row: Row, docs: int, choices: int | None = None) -> list[Pair]:
    """Return the requests of the first docs of each task, or of the first choices of each of these docs."""
    mirror = Path(os.environ["LLMEVAL_SHARED"], "mirror")
    settings = Settings(data_dir=mirror, limit=docs, num_fewshot=row.shots)
    registry, data = Registry(), DataSource()
    path = BENCHMARKS / row.path
    files = [path] if path.is_file() else filter(looks_like_task, sorted(path.rglob("*.yaml")))
    loaded = [registry.load(file) for file in files]
    opened = [OpenTask(task, settings, data) for task in loaded if isinstance(task, Task)]
    return [
        (str(instance.arguments[0]), str(instance.arguments[1]))
        for task in opened
        for index in task.asked
        for instance in task.instances(task.render(index), None)[:choices]
    ]


def ours(model: Any, tokenizer: Any, engine: str, pack: int | None) -> Callable[[Sequence[Pair]], list[float]]:
    lm = HuggingFaceLM(
        model.config, tokenizer, lambda _: model, ModelArgs(engine=engine, max_batch_tokens=pack), name=engine
    )
    lm.prepare()
    return lambda texts: [answer.logprob for answer in lm.loglikelihood(texts)]


def peer(model: Any, tokenizer: Any, batch: int) -> Callable[[Sequence[Pair]], list[float]]:
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch)

    def score(texts: Sequence[Pair]) -> list[float]:
        asked = [SimpleNamespace(args=pair, task_name="t") for pair in texts]
        return [answer[0] for answer in lm.loglikelihood(asked, disable_tqdm=True)]

    return score


def matmul_rates() -> list[float]:
    """Return floating-point operations per second of wall and of processor time, the best of some products."""
    a, b = torch.randn(2, 1024, 1024)
    seconds = []
    for _ in range(12):
        start, used = time.perf_counter(), time.process_time()
        a @ b
        seconds.append((time.perf_counter() - start, time.process_time() - used))
    return [2 * 1024**3 / min(column) for column in zip(*seconds, strict=True)]


def layer_parameters(model: Any) -> int:
    outer = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in outer)


def distinct_tokens(model: Any, tokenizer: Any, texts: Sequence[Pair]) -> int:
    lm = HuggingFaceLM(model.config, tokenizer, lambda _: model, ModelArgs(), name="counter")
    return Tree(lm._encoder.pairs(texts)).n_tokens


class Timings(NamedTuple):
    """The times of one side: seconds of wall and of processor time per turn, rates around it, and the last answers."""

    walls: dict[str, list[float]]
    cpus: dict[str, list[float]]
    rates: dict[str, list[list[float]]]
    answers: dict[str, list[Any]]

    def shares(self, side: str, operations: float) -> list[float]:
        """Return the part of the time that these operations take at the rates, by wall and by processor time."""
        return [
            statistics.median(operations / rate[i] / time for rate, time in zip(self.rates[side], times, strict=True))
            for i, times in enumerate((self.walls[side], self.cpus[side]))
        ]


def in_turn(sides: Mapping[str, Callable[[Any], list[Any]]], asked: Any, pairs: int) -> Timings:
    walls, cpus, rates = ({side: [] for side in sides} for _ in range(3))
    timings = Timings(walls, cpus, rates, {})
    before = matmul_rates()
    for _ in range(pairs):
        for side, answer in sides.items():
            start, used = time.perf_counter(), time.process_time()
            timings.answers[side] = answer(asked)
            timings.walls[side].append(time.perf_counter() - start)
            timings.cpus[side].append(time.process_time() - used)
            behind = matmul_rates()
            timings.rates[side].append([max(pair) for pair in zip(before, behind, strict=True)])
            before = behind
    return timings


def compare(name: str, texts: Sequence[Pair], sides: dict[str, Any], pairs: int, operations: float) -> None:
    timings = in_turn(sides, texts, pairs)
    walls, cpus, _, values = timings
    print(f"{name}: {len(texts)} requests")
    for side in sides:
        ratios = [statistics.median(b / a for a, b in zip(t["tree"], t[side], strict=True)) for t in (walls, cpus)]
        apart = max(abs(a - b) for a, b in zip(values["tree"], values[side], strict=True))
        wall, cpu = statistics.median(walls[side]), statistics.median(cpus[side])
        shares = timings.shares(side, operations)
        print(
            f"  {side:8} wall {wall:7.2f} s, cpu {cpu:7.2f} s | over tree {ratios[0]:5.2f}x, cpu {ratios[1]:5.2f}x"
            f" | share of the limit {shares[0]:4.0%}, cpu {shares[1]:4.0%} | differs by {apart:.1e}",
            flush=True,
        )


def profile(answer: Callable[[Any], list[Any]], asked: Any) -> None:
    """Print the operators that take at least a hundredth of the time, by their own share of it."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    with recording(activities=[ProfilerActivity.CPU]) as recorded:
        answer(asked)
    spent = sorted(((event.self_cpu_time_total, event.key) for event in recorded.key_averages()), reverse=True)
    total = sum(time for time, _ in spent)
    print("  " + ", ".join(f"{key} {time / total:.0%}" for time, key in spent if time > total / 100), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--docs", type=int, help="docs of each row instead of its own number")
    parser.add_argument("--choices", type=int, help="choices of each doc instead of all")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="lm_eval's batch size")
    parser.add_argument("--pack", type=int, help="most tokens of a pass")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--profile", action="store_true", help="say which operators the tree's time goes to")
    parser.add_argument("--without", nargs="*", default=[], choices=["padded", "peer"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    sides = {"tree": ours(model, tokenizer, "tree", args.pack)}
    if "padded" not in args.without:
        sides["padded"] = ours(model, tokenizer, "padded", None)
    if "peer" not in args.without:
        sides["peer"] = peer(model, tokenizer, args.batch)
    for name in args.rows:
        texts = texts_of(ROWS[name], args.docs or ROWS[name].docs, args.choices)
        tokens = distinct_tokens(model, tokenizer, texts)
        operations = 2 * layer_parameters(model) * tokens
        compare(f"{name} ({tokens} distinct tokens)", texts, sides, args.pairs, operations)
        if args.profile:
            profile(sides["tree"], texts)


if __name__ == "__main__":
    main()
