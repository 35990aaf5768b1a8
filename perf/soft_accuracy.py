"""Study on real pairs of models: which of three scores sees the damage of a checkpoint with the fewest docs?

    OMP_NUM_THREADS=1 python perf/soft_accuracy.py MODEL MIRROR SCRATCH [--docs N] [--tasks ...] [--variants ...]
    python perf/soft_accuracy.py MODEL MIRROR SCRATCH --compare [--noise FACTOR]

MODEL is a folder with float32 weights, MIRROR a folder of data sets as `--llmeval-data` takes it, SCRATCH a folder for
answers of this model, which a later call extends; `--compare` only reads it. The second model of a pair is MODEL with
its weights rounded to bfloat16; with those of its layers rounded to 8 bits per row or to 4 bits per group of 64
(symmetric, to nearest); or after a few steps of SGD on docs that are not evaluated. All arithmetic is in float32,
without few-shot examples.

The scores of a doc, by the log-probabilities of its choices (LAMBADA: of its word, against all other words):

    acc         1 if the right choice is the likeliest, else 0
    soft        the chance that it is under noise: Phi(margin / sigma), where margin = right - best wrong choice, and
                sigma = FACTOR x 1.4826 x the median distance of the pair's differences of margins from their median,
                the same for both models (an approximation where there are more than two choices)
    P(right)    its share of the probability of all choices, as in the metric `norm_correct_prob`

Each line has the mean drop, its standard error over docs, and z = drop / error, paired by doc. `docs` is z^2 / z_acc^2:
how many times fewer docs show a change at the same z, with a 95 % bootstrap interval over docs. It is not one question
asked with fewer docs: each score has its own drop, and only that of `acc` is a drop of accuracy.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy.special import ndtr

from pytest_llmeval._docs import DataSource
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models.huggingface import HuggingFaceLM
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import looks_like_task


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TASKS = {"piqa": "piqa.yaml", "arc_easy": "arc/arc_easy.yaml", "mmlu": "mmlu", "lambada": "lambada_openai.yaml"}
SEED = 0
MOST_DOCS = 1000
CHUNK = 50
SGD_STEPS, SGD_RATE = 8, 0.01
RESAMPLES = 2000
#: The variant that is taken for damage before any answer is known; bfloat16 and int8 are taken for harmless.
DAMAGED = "int4"


@dataclass(frozen=True, slots=True)
class Question:
    """A doc as it is asked: its name, the (context, continuation) of each choice, and the right choice."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    gold: int


class Questions(Sequence[Question]):
    """The docs of a task file, or of all task files of a folder, in a random order that is always the same."""

    def __init__(self, path: Path, mirror: Path) -> None:
        settings, registry, data = Settings(data_dir=mirror, num_fewshot=0), Registry(), DataSource()
        files = [path] if path.is_file() else filter(looks_like_task, sorted(path.rglob("*.yaml")))
        loaded = [registry.load(file) for file in files]
        opened = [OpenTask(task, settings, data) for task in loaded if isinstance(task, Task)]
        self._places = [(task, index) for task in opened for index in task.asked]
        random.Random(SEED).shuffle(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        task, index = self._places[place]
        doc = task.render(index)
        pairs = tuple((str(one.arguments[0]), str(one.arguments[1])) for one in task.instances(doc, None))
        return Question(f"{task.task.name}[{index}]", pairs, doc.gold[0] if doc.gold else 0)


def to_nearest(weight: torch.Tensor, bits: int, group: int | None) -> torch.Tensor:
    """Return the weights rounded to `bits` bits with one scale per group of a row, or per row."""
    highest = 2 ** (bits - 1) - 1
    groups = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
    scale = groups.abs().amax(-1, keepdim=True) / highest
    return (torch.round(groups / scale).clamp(-highest - 1, highest) * scale).reshape(weight.shape)


def round_layers(model: Any, bits: int, group: int | None) -> None:
    for layer in model.model.layers:
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.copy_(to_nearest(module.weight, bits, group))


def round_to_bfloat16(model: Any) -> None:
    for weight in model.parameters():
        weight.copy_(weight.bfloat16())


@torch.enable_grad()
def fine_tune(model: Any, tokenizer: Any, mirror: Path) -> None:
    """Take some steps of SGD on right answers to docs that are not evaluated."""
    pools = [Questions(BENCHMARKS / path, mirror) for path in TASKS.values()]
    optimizer = torch.optim.SGD(model.parameters(), lr=SGD_RATE)
    for step in range(SGD_STEPS):
        for pool in pools:
            question = pool[MOST_DOCS + step]
            ids = tokenizer("".join(question.pairs[question.gold]), return_tensors="pt").input_ids
            (model(ids, labels=ids).loss / len(pools)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Variants:
    """One model in memory that takes on the weights of each variant."""

    def __init__(self, folder: Path, mirror: Path, scratch: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._base = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        self._tuned = scratch / "tuned.pt"
        self._mirror = mirror
        self._now = "float32"

    def become(self, name: str) -> None:
        """Take on the weights of a variant."""
        if name == self._now:
            return
        self._now = name
        self.model.load_state_dict(self._base)
        with torch.no_grad():
            CHANGES[name](self)

    def tune(self) -> None:
        """Fine-tune, or read the weights of an earlier call."""
        if not self._tuned.exists():
            fine_tune(self.model, self.tokenizer, self._mirror)
            torch.save(self.model.state_dict(), self._tuned)
        self.model.load_state_dict(torch.load(self._tuned))


CHANGES: Mapping[str, Callable[[Variants], None]] = {
    "float32": lambda one: None,
    "bfloat16": lambda one: round_to_bfloat16(one.model),
    "int8": lambda one: round_layers(one.model, 8, None),
    "int4": lambda one: round_layers(one.model, 4, 64),
    "tuned": Variants.tune,
}


def answers(variants: Variants, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """Yield the log-probabilities of the choices of each question; of one without choices, that of its word."""
    lm = HuggingFaceLM(variants.model.config, variants.tokenizer, lambda _: variants.model, ModelArgs(), name="one")
    choices = [one for one in questions if len(one.pairs) > 1]
    given = iter(lm.loglikelihood([pair for one in choices for pair in one.pairs]) if choices else ())
    for one in questions:
        if len(one.pairs) > 1:
            yield {"doc": one.name, "gold": one.gold, "lls": [next(given).logprob for _ in one.pairs]}
        else:
            yield {"doc": one.name} | word(variants, *one.pairs[0])


def word(variants: Variants, context: str, continuation: str) -> dict[str, float]:
    """Return the log-probability of a continuation, and the least lead of its tokens over the best other token."""
    before, after = (variants.tokenizer(text).input_ids for text in (context, continuation))
    with torch.no_grad():
        logits = variants.model(torch.tensor([before + after[:-1]])).logits[0, -len(after) :]  # (tokens, vocabulary)
    rows, targets = torch.arange(len(after)), torch.tensor(after)
    right = logits[rows, targets]
    ll = float((right - logits.logsumexp(-1)).sum())
    logits[rows, targets] = -torch.inf
    return {"ll": ll, "margin": float((right - logits.amax(-1)).min())}


def extend(variants: Variants, given: argparse.Namespace) -> None:
    """Write the answers that the scratch folder lacks, one line for each doc."""
    for task in given.tasks:
        questions = Questions(BENCHMARKS / TASKS[task], given.mirror)
        wanted = min(given.docs, len(questions))
        for name in given.variants:
            file = given.scratch / f"{task}.{name}.jsonl"
            done = len(file.read_text().splitlines()) if file.exists() else 0
            for start in range(done, wanted, CHUNK):
                variants.become(name)
                chunk = [questions[place] for place in range(start, min(start + CHUNK, wanted))]
                lines = [json.dumps(answer) + "\n" for answer in answers(variants, chunk)]
                with file.open("a") as out:
                    out.writelines(lines)
            print(f"{task} {name}: {max(done, wanted)} docs", flush=True)


@dataclass(frozen=True, slots=True)
class Scores:
    """The margin and the probability of the right answer of some docs, each of shape (docs,)."""

    margin: np.ndarray
    right: np.ndarray


def read(file: Path) -> Scores:
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    both = [_word_scores(row) if "ll" in row else _choice_scores(row) for row in rows]
    return Scores(*np.array(both, float).reshape(-1, 2).T)


def _word_scores(row: Mapping[str, Any]) -> tuple[float, float]:
    return row["margin"], float(np.exp(row["ll"]))


def _choice_scores(row: Mapping[str, Any]) -> tuple[float, float]:
    lls = np.array(row["lls"])
    wrong = np.delete(lls, row["gold"])
    return lls[row["gold"]] - wrong.max(), float(1 / (1 + np.exp(wrong - lls[row["gold"]]).sum()))


def drops(before: Scores, now: Scores, places: np.ndarray, noise: float) -> dict[str, np.ndarray]:
    """Return by score the drop of each doc at `places`."""
    old, new = before.margin[places], now.margin[places]
    moved = new - old
    sigma = noise * max(1.4826 * float(np.median(np.abs(moved - np.median(moved)))), 1e-9)
    return {
        "acc": (old > 0).astype(float) - (new > 0),
        "soft": ndtr(old / sigma) - ndtr(new / sigma),
        "P(right)": before.right[places] - now.right[places],
    }


def z_of(drop: np.ndarray) -> float:
    error = drop.std(ddof=1) / len(drop) ** 0.5
    return float(drop.mean() / error) if error else 0.0


def fewer(found: Mapping[str, np.ndarray], score: str) -> float:
    """Return how many times fewer docs a score needs than `acc` does for the same z; infinite if `acc` shows none."""
    of_flips, own = z_of(found["acc"]) ** 2, z_of(found[score]) ** 2
    return own / of_flips if of_flips else math.inf


def compare(scratch: Path, docs: int, noise: float) -> None:
    """Print the drops of each pair, then the medians of the ratios over the pairs of int4."""
    draws = np.random.default_rng(SEED)
    #: Score -> for each damaged pair the ratio, then those of the resampled docs.
    damaged: dict[str, list[list[float]]] = {"soft": [], "P(right)": []}
    for task in TASKS:
        before = read(scratch / f"{task}.float32.jsonl")
        for name in [name for name in CHANGES if name != "float32"]:
            now = read(scratch / f"{task}.{name}.jsonl")
            n = min(docs, len(before.margin), len(now.margin))
            if n < 2:
                continue
            found = drops(before, now, np.arange(n), noise)
            resampled = [drops(before, now, draws.integers(n, size=n), noise) for _ in range(RESAMPLES)]
            lost, gained = (int((found["acc"] == sign).sum()) for sign in (1, -1))
            print(f"{task} {name}: {n} docs, acc {(before.margin[:n] > 0).mean():.3f}, {lost} lost, {gained} gained")
            for score, drop in found.items():
                error = drop.std(ddof=1) / n**0.5
                line = f"  {score:9} drop {drop.mean():+.4f}  error {error:.4f}  z {z_of(drop):+5.2f}"
                if score != "acc":
                    ratios = [fewer(found, score), *(fewer(one, score) for one in resampled)]
                    low, high = np.quantile(ratios[1:], [0.025, 0.975], method="nearest")
                    line += f"  docs {ratios[0]:.2f} [{low:.2f}, {high:.2f}]"
                    if name == DAMAGED:
                        damaged[score].append(ratios)
                print(line, flush=True)
    for score, pairs in damaged.items():
        if pairs:
            median, *medians = np.median(np.array(pairs), axis=0)
            low, high = np.quantile(medians, [0.025, 0.975], method="nearest")
            print(f"median of docs over {len(pairs)} pairs of {DAMAGED}, {score}: {median:.2f} [{low:.2f}, {high:.2f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("mirror", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--docs", type=int, default=300, help=f"docs of each task, at most {MOST_DOCS}")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--variants", nargs="*", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--noise", type=float, default=1.0, metavar="FACTOR", help="of sigma")
    parser.add_argument("--compare", action="store_true", help="only read the answers that are there")
    given = parser.parse_args()
    given.docs = min(given.docs, MOST_DOCS)
    warnings.simplefilter("ignore")
    if not given.compare:
        torch.set_num_threads(1)
        given.scratch.mkdir(parents=True, exist_ok=True)
        extend(Variants(given.model, given.mirror, given.scratch), given)
    compare(given.scratch, given.docs, given.noise)


if __name__ == "__main__":
    main()
