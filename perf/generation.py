"""Time generation in pairs: continuous batching, padded batches and lm_eval's hf backend in one process.

    LLMEVAL_SHARED=../shared python perf/generation.py MODEL_FOLDER [--docs N] [--pairs N] [--batch 1 4 8]
                                                       [--profile]

GSM8K with five few-shot examples, drawn anew for every document, so that prompts share almost nothing. The time is
that of model calls, with tokenizing and without loading. The limit is the time that the distinct tokens need at the
rate of a matrix product of 1024^3, as in `scoring.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from scoring import BENCHMARKS
from scoring import in_turn
from scoring import layer_parameters
from scoring import profile

from pytest_llmeval._docs import DataSource
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import cut_at_stops
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models.huggingface import HuggingFaceLM
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


Prompt = tuple[str, GenerationKwargs]
Side = Callable[[Sequence[Prompt]], list[str]]


def prompts_of(path: str, docs: int) -> list[Prompt]:
    """Return the prompts of the first docs of a task."""
    settings = Settings(data_dir=Path(os.environ["LLMEVAL_SHARED"], "mirror"), limit=docs)
    task = Registry().load(BENCHMARKS / path)
    assert isinstance(task, Task)
    opened = OpenTask(task, settings, DataSource())
    return [
        (str(instance.arguments[0]), instance.arguments[1])
        for index in opened.asked
        for instance in opened.instances(opened.render(index), None)
    ]


def ours(model: Any, tokenizer: Any, engine: str) -> Side:
    lm = HuggingFaceLM(model.config, tokenizer, lambda _: model, ModelArgs(engine=engine), name=engine)
    lm.prepare()
    return lambda prompts: [str(text) for text in lm.generate_until(prompts)]


def peer(model: Any, tokenizer: Any, batch: int) -> Side:
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch)

    def write(prompts: Sequence[Prompt]) -> list[str]:
        asked = [
            SimpleNamespace(
                args=(text, {"until": list(kwargs.until), "do_sample": False, "max_gen_toks": kwargs.max_gen_toks}),
                task_name="t",
            )
            for text, kwargs in prompts
        ]
        return list(lm.generate_until(asked, disable_tqdm=True))

    return write


def compare(prompts: Sequence[Prompt], sides: dict[str, Side], pairs: int, operations: float) -> None:
    timings = in_turn(sides, prompts, pairs)
    walls, texts = timings.walls, timings.answers
    for name in sides:
        ratio = statistics.median(b / a for a, b in zip(walls["continuous"], walls[name], strict=True))
        equal = sum(
            cut_at_stops(a, kwargs.until) == cut_at_stops(b, kwargs.until)
            for a, b, (_, kwargs) in zip(texts["continuous"], texts[name], prompts, strict=True)
        )
        wall, share = statistics.median(walls[name]), timings.shares(name, operations)[0]
        print(
            f"  {name:10} {wall:7.2f} s | over continuous {ratio:5.2f}x | share of the limit {share:4.0%}"
            f" | {equal} of {len(prompts)} texts equal",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--task", default="gsm8k/gsm8k.yaml")
    parser.add_argument("--docs", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4, 8], help="lm_eval's batch sizes")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--profile", action="store_true", help="say which operators our time goes to")
    parser.add_argument("--without", nargs="*", default=[], choices=["padded", "peer"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    prompts = prompts_of(args.task, args.docs)
    tokens = sum(len(ids) for ids in tokenizer([text for text, _ in prompts])["input_ids"])
    print(f"{args.task}: {len(prompts)} prompts of {tokens} tokens", flush=True)
    sides = {"continuous": ours(model, tokenizer, "auto")}
    if "padded" not in args.without:
        sides["padded"] = ours(model, tokenizer, "padded")
    if "peer" not in args.without:
        sides |= {f"peer {batch}": peer(model, tokenizer, batch) for batch in args.batch}
    compare(prompts, sides, args.pairs, 2 * layer_parameters(model) * tokens)
    if args.profile:
        profile(sides["continuous"], prompts)


if __name__ == "__main__":
    main()
